"""The last line of a command: what was made, its size, how long that took, and the next command.

    workdir/corpus/vocab: 30,522 tokens, 0.2 MB, 34 s; next: python -m data.tfrecords --source ...

It is on standard error, also where standard output has results. The next command is left out where something else runs
it: `make` and scripts/demo.sh set $BERT_NEXT to `none`. Where a wheel is installed, it has the names of modules there,
such as `bert.tasks.train` (docs/decisions/0030).
"""

import os
import shlex
import sys
import time
from pathlib import Path

from bert.core import object_urls

_BEGUN = time.monotonic()  # when the command was loaded
PACKAGE = Path(__file__).parents[1]


def line(made: Path | str, what: str = "", *then: object) -> str:
    """Return the last line of a command, about a file or folder, or about something else: a str, which has no size.

    what: its content in a few words. then: the words of the next command; words for the user to fill in are in
    capitals.
    """
    seconds = time.monotonic() - _BEGUN
    took = f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s" if seconds < 6000 else f"{seconds / 3600:.1f} h"
    size = [_size(made)] if isinstance(made, Path) else []
    parts = [part for part in (what, *size, took) if part]
    is_last = not then or os.environ.get("BERT_NEXT") == "none"
    return f"{_shown(made)}: {', '.join(parts)}" + ("" if is_last else f"; next: {shlex.join(_named_here(then))}")


def print_next_command(made: Path | str, what: str = "", *then: object) -> None:
    """Print `line` of the same arguments on stderr."""
    print(line(made, what, *then), file=sys.stderr, flush=True)


def _named_here(command: tuple[object, ...]) -> list[str]:
    """Return the words of a command; `python -m` gets the module's name in this installation."""
    words = [str(_shown(word)) for word in command]
    if words[:2] == ["python", "-m"] and (PACKAGE / words[2].split(".")[0]).is_dir():  # in a wheel
        words[2] = f"bert.{words[2]}"
    return words


def _shown(word: object) -> object:
    """Return the URL of a path that is a local copy of it; return anything else unchanged."""
    return (object_urls.url_of(word) or word) if isinstance(word, Path) else word


def _size(path: Path) -> str:
    """Return the size of a file, or of all files in a folder, as text."""
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"
