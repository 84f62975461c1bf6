"""Charts in one style: plots side by side in a PNG file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert.core import files

COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#7b5ea7", "#b08900", "#4a4e69")
INK = "#333333"
STYLE: dict[Any, Any] = {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
HEIGHT = 3.6  # inches


@contextlib.contextmanager
def plots(path: Path, count: int, width: float, height: float = HEIGHT) -> Iterator[list[Any]]:
    """Yield `count` Matplotlib axes. Write what is drawn on them to a PNG file, unless the block raises.

    width, height: of the whole picture, in inches. Raise ImportError if Matplotlib is not installed.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # it draws without a display, as pyplot does not

    with rc_context(STYLE):
        figure = Figure((width, height), layout="constrained")
        yield list(figure.subplots(1, count, squeeze=False)[0])
        with files.atomic_write(path, "wb") as stream:
            figure.savefig(stream, format="png", dpi=130, metadata={"Software": None})


def plain(text: str) -> str:
    """Return a text that Matplotlib shows unchanged: a "$" would begin a formula."""
    return text.replace("$", r"\$")
