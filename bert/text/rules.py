"""The version of the rules by which the samples of a run are ordered and paired; each run records it in `config.json`.

They are those of `sampler.SampleOrder`, `sampler.BatchSampler` and `instances.draw`. Runs that record none are of 1.
"""

from pathlib import Path

from bert.core import files
from bert.core.errors import IntegrityError, UsageError

RULES = 2


def check(run: Path) -> None:
    """Raise UsageError if a run directory has other rules, IntegrityError if its `config.json` is damaged."""
    path = run / "config.json"
    try:
        settings = files.read_json(path) if path.exists() else {}
        version = settings.get("rules", 1 if "run.seed" in settings.get("config", ()) else RULES)  # imports have none
    except (ValueError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path}: damaged ({error}); restore it, or import {run} again") from error
    if version != RULES:
        raise UsageError(
            f"{run}: its samples are ordered by rules {version!r}, and this program has {RULES} only; use the version "
            "of the program that began it (1.0.0 for 1), or begin anew in another --run.directory"
        )
