"""Draw the figures of `data.stats`: panels with bars or a curve, side by side in one PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bert.storage import files

INK, FILL = "#333333", "#1f6f8b"


class Panel(NamedTuple):
    """One plot: heights over positions, as bars or as a curve."""

    title: str
    x_label: str
    places: Sequence[Any]  # numbers, or names of bars
    heights: Sequence[float]
    width: float | Sequence[float] = 0.8  # of the bars
    scale: Literal["linear", "log x", "log y", "log"] = "linear"  # "log": both axes logarithmic, drawn as a curve
    percent: bool = False  # the heights are fractions, shown as percentages


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels as one PNG file, atomically."""
    import matplotlib

    matplotlib.use("Agg")  # no display is needed
    from matplotlib import pyplot

    with pyplot.rc_context({"text.color": INK, "axes.edgecolor": INK, "axes.titlelocation": "left"}):
        figure, row = pyplot.subplots(1, len(panels), figsize=(4.5 * len(panels), 3.6), layout="constrained")
        for panel, axes in zip(panels, row if len(panels) > 1 else [row], strict=True):
            if panel.scale == "log":
                axes.loglog(panel.places, panel.heights, color=FILL)
            else:
                align: Any = "edge" if panel.scale == "log x" else "center"
                axes.bar(panel.places, panel.heights, width=panel.width, color=FILL, align=align)
                if panel.scale.startswith("log "):
                    axes.set(**{f"{panel.scale[-1]}scale": "log"})
            if panel.percent:
                axes.yaxis.set_major_formatter("{x:.2%}" if panel.scale == "log y" else "{x:.0%}")
            axes.set(title=panel.title, xlabel=panel.x_label)
            axes.spines[["top", "right"]].set_visible(False)
        with files.atomic_write(path, "wb") as stream:
            figure.savefig(stream, format="png", dpi=120, metadata={"Software": None})
        pyplot.close(figure)
