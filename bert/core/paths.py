"""The folder of all generated files."""

import os
from pathlib import Path


def workdir() -> Path:
    """Return the work folder: `$BERT_WORKDIR`, or `./workdir`."""
    return Path(os.environ.get("BERT_WORKDIR") or "workdir")
