"""The data stages on invented text, run in this process: what tests damage, fill up or run elsewhere."""

import contextlib
import importlib
import io
import resource
import sys
from pathlib import Path
from unittest.mock import patch

from bert.commands import EXTENSIONS
from bert.core import cli

SHAPE = "--source shards --vocab vocab/vocab.txt --max_seq_length 32"
STAGES = {  # output: the module below data/ and its arguments, but for --output; a size that its files exceed
    "source": ("synthetic --articles 40 --books 4 --train_questions 30 --dev_questions 9", 4000),
    "wikipedia": ("wikipedia --source source/wiki.xml.bz2", 10000),
    "books": ("books --source source/books", 2000),
    "text": ("text --source source/books --workers 2", 2000),
    "documents": ("documents --source wikipedia books --workers 1", 4000),
    "shards": ("shards --source documents --shards 2 --workers 1", 4000),
    "vocab": ("vocab --source shards --size 300", 900),
    "instances": (f"tfrecords {SHAPE} --dupe_factor 1 --workers 2", 4000),
    "chunks": (f"tfrecords {SHAPE} --kind documents --workers 1", 4000),
    "bpe": ("bpe --source wikipedia books --size 300", 900),
    "tokens": ("tokens --source wikipedia books --tokenizer bpe --workers 1", 4000),
}


def module(name: str) -> str:
    """Return the module that is run for a stage."""
    return "data.synthetic.__main__" if name == "synthetic" else EXTENSIONS.get(f"data.{name}", f"data.{name}")


def run(at: Path, command: str, output: object, limit: int | None = None) -> tuple[int, list[str]]:
    """Run a command of `STAGES` in the folder `at`; return its exit code and the lines on standard error.

    limit: no file may have more bytes.
    """
    name, *words = command.split()
    main, said = importlib.import_module(module(name)).main, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (
        contextlib.chdir(at),
        contextlib.redirect_stderr(said),
        patch.object(sys, "argv", [name, *words, "--output", str(output)]),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit or before[0], before[1]))
        try:
            cli.main(main)
        except SystemExit as ending:
            code = int(str(ending.code))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said.seek(0)
    return code, said.read().splitlines()
