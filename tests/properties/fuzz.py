"""How much the tests of this folder try: a fixed number of examples, or as many as BERT_FUZZ_EXAMPLES says.

    BERT_FUZZ_EXAMPLES=20000 pytest tests/properties        # new examples in every run

The fixed examples are the same in every run, so that CI fails for a change and not by chance.
"""

import os

from hypothesis import HealthCheck, settings

REQUESTED = os.environ.get("BERT_FUZZ_EXAMPLES")

fuzz = settings(
    max_examples=int(REQUESTED or 50),
    derandomize=REQUESTED is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
