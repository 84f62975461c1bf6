"""The folder of all generated files, and folders of one user among the system's temporary files."""

import os
import stat
import tempfile
from pathlib import Path


def workdir() -> Path:
    """Return the work folder: `$BERT_WORKDIR`, or `./workdir`."""
    return Path(os.environ.get("BERT_WORKDIR") or "workdir")


def temporary(name: str) -> Path:
    """Return this user's folder for one kind of files, in the system's temporary folder."""
    return Path(tempfile.gettempdir()) / f"bert-{name}-{os.getuid()}"


def make_private(folder: Path) -> None:
    """Make a folder for files that can be trusted, if it does not exist.

    Raise OSError if it cannot be made, or if others could write to it: because it belongs to another user, is a link,
    or has write permission for others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise PermissionError(f"{folder}: not a folder to which only this user may write")
