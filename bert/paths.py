"""Where generated things live: one folder, `$BERT_WORKDIR`, that a container mounts and `rm -r` removes."""

import os
from pathlib import Path


def workdir() -> Path:
    """The work folder: `$BERT_WORKDIR`, or `./workdir`."""
    return Path(os.environ.get("BERT_WORKDIR") or "workdir")
