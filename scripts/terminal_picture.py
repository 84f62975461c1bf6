"""Draw a terminal with commands and what they printed, for README.md: a light and a dark SVG.

python -m scripts.terminal_picture docs

The text is docs/terminal.txt: each command stands behind `$ `, with its output below, as a terminal showed them. To
renew it, run the commands and put in what they print.
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

from scripts.pipeline_picture import THEMES

TEXT = Path(__file__).parents[1] / "docs" / "terminal.txt"
SIZE, WIDE, TALL, EDGE = 13, 7.83, 20, 16  # of letters; of a character and a line, and the free edge; pixels
FONT = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"
PROMPT = "$ "


def picture(text: str, theme: str) -> str:
    """Return the SVG of a theme."""
    colours, lines = THEMES[theme], text.splitlines()
    width = round(2 * EDGE + WIDE * max(map(len, lines)))
    height = 2 * EDGE + TALL * len(lines)
    drawn, is_command = [], False
    for row, line in enumerate(lines):
        is_command = line.startswith(PROMPT) or (is_command and lines[row - 1].endswith("\\"))
        colour, weight = (colours["edge"], "600") if is_command else (colours["ink"], "normal")
        if line:
            drawn.append(
                f"<text x='{EDGE}' y='{EDGE + TALL * row + 14}' textLength='{WIDE * len(line):.0f}' fill='{colour}' "
                f"font-weight='{weight}' xml:space='preserve'>{escape(line)}</text>"
            )
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
            f"height='{height}'>",
            f"<rect x='0.5' y='0.5' width='{width - 1}' height='{height - 1}' rx='8' fill='{colours['made']}' "
            f"stroke='{colours['faint']}'/>",
            f"<g font-size='{SIZE}' {FONT} style='white-space: pre'>",
            *drawn,
            "</g>",
            "</svg>\n",
        ]
    )


def main(folder: Path) -> None:
    """Write both pictures."""
    for theme in THEMES:
        drawn = picture(TEXT.read_text(encoding="utf-8"), theme)
        (folder / f"terminal-{theme}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
