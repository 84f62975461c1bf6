"""What a model can learn from masked samples, by name: `--objective.name`."""

from typing import Any

from bert.core.rows import Rows

OBJECTIVES: Rows[Any] = Rows(
    {
        "masked_words": "bert.pretraining:WORDS_AND_PAIRS",
        "replaced_tokens": "extensions.replaced_tokens.task:OBJECTIVE",
    }
)
"""a row is a `bert.pretraining.PretrainingObjective`; only its name is read without TensorFlow"""
