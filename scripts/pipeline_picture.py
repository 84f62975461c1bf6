"""Draw the way from text to answers with the folders that go it, for README.md: a light and a dark SVG.

python scripts/pipeline_picture.py docs
"""

import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1050, 212
WIDE, TALL, GAP = 154, 84, 65  # of a box, and between two columns; pixels
FONT = "font-family='system-ui, Segoe UI, Helvetica, Arial, sans-serif'"
MIDDLE, TOP, BOTTOM = (HEIGHT - TALL) // 2, 14, HEIGHT - TALL - 14  # rows


class Box(NamedTuple):
    """A folder of the repository, whose name ends in a slash, or what one reads."""

    column: int
    y: int
    title: str
    lines: tuple[str, ...]

    @property
    def x(self) -> int:
        return 10 + self.column * (WIDE + GAP)


TEXT = Box(0, MIDDLE, "text", ("Wikipedia, books,", "PubMed, your own"))
DATA = Box(1, MIDDLE, "data/", ("download, extract, clean,", "shard, vocabulary, masks"))
BERT = Box(2, MIDDLE, "bert/", ("pretraining in two phases,", "1 to many ranks"))
SQUAD = Box(3, TOP, "squad/", ("answers to questions", "about a passage"))
TASKS = Box(3, BOTTOM, "tasks/", ("classes, labels, numbers,", "choices, tags"))
SERVE = Box(4, MIDDLE, "serve/", ("HTTP API and web page;", "exports, from Python"))
BOXES = (TEXT, DATA, BERT, SQUAD, TASKS, SERVE)
ARROWS = (
    (TEXT, DATA, ""),
    (DATA, BERT, "TFRecords"),
    (BERT, SQUAD, "weights"),
    (BERT, TASKS, ""),
    (SQUAD, SERVE, ""),
    (TASKS, SERVE, ""),
)
THEMES = {
    "light": {"ink": "#1f2328", "faint": "#57606a", "folder": "#ddf4ff", "edge": "#0969da", "made": "#f6f8fa"},
    "dark": {"ink": "#e6edf3", "faint": "#b1bac4", "folder": "#0c2d6b", "edge": "#4493f8", "made": "#151b23"},
}


def words(x: float, y: float, text: str, colour: str, size: int, weight: str = "normal") -> str:
    """Return a line of text around x."""
    return (
        f"<text x='{x}' y='{y}' text-anchor='middle' fill='{colour}' font-size='{size}' font-weight='{weight}' {FONT}>"
        f"{escape(text)}</text>"
    )


def drawn(box: Box, colours: dict[str, str]) -> list[str]:
    """Return a box with its text."""
    is_folder, middle = box.title.endswith("/"), box.x + WIDE / 2
    style = f"fill='{colours['folder']}' stroke='{colours['edge']}'"
    if not is_folder:
        style = f"fill='{colours['made']}' stroke='{colours['faint']}' stroke-dasharray='4 3'"
    return [
        f"<rect x='{box.x}' y='{box.y}' width='{WIDE}' height='{TALL}' rx='8' {style}/>",
        words(middle, box.y + 27, box.title, colours["ink"], 17, "600"),
        *(words(middle, box.y + 49 + 18 * row, line, colours["faint"], 11) for row, line in enumerate(box.lines)),
    ]


def arrow(left: Box, right: Box, label: str, colours: dict[str, str]) -> list[str]:
    """Return an arrow from one box to the next, with what is passed on."""
    x1, y1, x2, y2 = left.x + WIDE, left.y + TALL / 2, right.x - 2, right.y + TALL / 2
    line = f"<path d='M{x1} {y1} L{x2} {y2}' stroke='{colours['edge']}' stroke-width='2' marker-end='url(#tip)'/>"
    slope = abs(y2 - y1) / 4  # a label stands clear of an arrow that is not level
    return [line, words((x1 + x2) / 2 - slope, (y1 + y2) / 2 - 9 - slope / 2, label, colours["faint"], 11)]


def picture(theme: str) -> str:
    """Return the SVG of a theme."""
    colours = THEMES[theme]
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'>",
        "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='6' markerHeight='6' orient='auto'>"
        f"<path d='M0 0 L8 4 L0 8 Z' fill='{colours['edge']}'/></marker></defs>",
    ]
    parts += [part for ends in ARROWS for part in arrow(*ends, colours)]
    parts += [part for box in BOXES for part in drawn(box, colours)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(folder: Path) -> None:
    """Write both pictures."""
    for theme in THEMES:
        (folder / f"pipeline-{theme}.svg").write_text(picture(theme), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
