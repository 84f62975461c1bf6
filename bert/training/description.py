"""The files beside the checkpoints that say what the weights are. Each checkpoint records their hashes.

Without its configuration and its vocabulary a checkpoint is a set of numbers; with changed ones it is another model.
"""

from pathlib import Path

from bert.core import files
from bert.core.errors import InputError, IntegrityError

FILES = ("bert_config.json", "config.json", "vocab.txt", "tokenizer_config.json", "tokenizer.json")

Hashes = dict[str, str]


def hashes(run: Path) -> Hashes:
    """Return the SHA-256 of each file in the run directory that describes the run, by name."""
    return {name: files.sha256(run / name) for name in FILES if (run / name).exists()}


def check(run: Path, recorded: Hashes, where: Path) -> None:
    """Raise IntegrityError, naming the file, unless the files have the hashes that a manifest recorded.

    where: the manifest. Raise InputError if one of the files is gone.
    """
    now = hashes(run)
    for name in FILES:
        if now.get(name) == recorded.get(name):
            continue
        if name not in now:
            raise InputError(f"{run / name}: no such file, but {where} records it; put it back")
        raise IntegrityError(
            f"{run / name}: not the file that {where} records; put that file back (to change a model on purpose, "
            "export it with python -m bert.convert, change the export, and import that)"
        )
