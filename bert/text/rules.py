"""The rules by which the samples of a run are ordered and paired: a run records their version and keeps to it.

1  An update at the border of two epochs may have a sample twice. Pools of `batch.bucket_by_length` cross the borders of
   epochs and of the run, so samples are left out. With records of documents, a random second segment ends with its
   chunk of text, so short ones tell the label of the pair.
2  `sampler.SampleOrder`, `sampler.BatchSampler`, `instances.draw`.
"""

from pathlib import Path

from bert.core import files
from bert.core.errors import IntegrityError

RULES = 2
OLD = (
    "was begun by an older version and keeps its rules: an update may have a sample of two epochs twice and, with "
    "records of documents, the length of a pair often tells whether it is random (docs/training.md)"
)


def of(run: Path) -> int:
    """Return the version of the rules of a run directory: 1 for runs that record none, the newest for imports.

    Raise IntegrityError if `config.json` is damaged, or of a newer program.
    """
    path = run / "config.json"
    try:
        settings = files.read_json(path) if path.exists() else {}
        version = settings.get("rules", 1 if "run.seed" in settings.get("config", ()) else RULES)
    except (ValueError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path}: damaged ({error}); restore it, or import {run} again") from error
    if version not in range(1, RULES + 1):
        raise IntegrityError(f"{path}: this program does not know its rules {version!r}; use a newer one")
    return int(version)
