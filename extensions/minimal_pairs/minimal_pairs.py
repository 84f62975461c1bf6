"""Measure how often a model prefers the grammatical sentence of minimal pairs, such as those of BLiMP and Zorro.

    python -m bert.minimal_pairs RUN --data blimp/data [--output scores.json] [--picture scores.png]
    python -m bert.minimal_pairs RUN --data Zorro/sentences/babyberta --score unmasked

RUN is a run directory of bert.pretrain or an import, with a head for masked words, or causal. --data is a file or a
folder of one form: .jsonl as in BLiMP's repository (sentence_good and sentence_bad in each line; UID, linguistics_term
and field if there), or .txt as in Zorro's (a bad sentence and then its good one).

A pair is right if the good sentence has the higher score; equal scores count half. Prints the accuracy of each
paradigm, phenomenon and field, and of all pairs, in percent with the 95 % interval of Wilson.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.core import charts, cli, ending, files, ranges
from bert.core.charts import COLOURS
from bert.core.config import CountOrNone
from bert.core.ranges import BatchSize
from bert.hardware.choices import Compute, DeviceName, EngineName
from extensions.minimal_pairs import accuracy, reading
from extensions.minimal_pairs.accuracy import Accuracy
from extensions.minimal_pairs.reading import Method

if TYPE_CHECKING:
    from extensions.minimal_pairs import scoring

GROUPS = {"paradigm": "paradigms", "phenomenon": "phenomena", "field": "fields"}  # of a pair, and all of them
LINE = 0.22  # inches of a row in the picture


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.minimal_pairs`."""

    run: cli.Run
    """run directory"""
    data: Path
    """.jsonl or .txt file with pairs, or a folder of them"""
    score: Method = "auto"
    """masked: each token is masked in turn; word_l2r: also the pieces of its word behind it; unmasked: nothing is, as
    Zorro's published figures were computed; causal: log-likelihood; auto: masked, or causal for a causal model"""
    pairs: CountOrNone = 0
    """pairs of each paradigm to score, drawn at random and always the same ones; 0: all"""
    output: Path | None = None
    """JSON file to write"""
    picture: Path | None = None
    """PNG file with the accuracy of each phenomenon"""
    batch: BatchSize = 256
    """masked copies of sentences, or sentences of a causal model, that are computed at once"""
    compute: Compute = "float32"
    """data type of matrix products"""
    engine: EngineName = "tensorflow"
    """what computes the encoder: tensorflow; openvino or openvino_int8, on CPUs; auto: openvino if it can"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


def groups(pairs: list[reading.Pair], scores: scoring.Scores) -> dict[str, dict[str, Accuracy]]:
    """Return the accuracy of each paradigm, phenomenon and field."""
    return {
        plural: accuracy.by_name([getattr(pair, name) for pair in pairs], scores.good, scores.bad)
        for name, plural in GROUPS.items()
    }


def table(by_group: dict[str, dict[str, Accuracy]], total: Accuracy) -> str:
    """Return all figures as text, one row for each group."""
    sections = {**{plural: by_group[plural] for plural in GROUPS.values() if by_group[plural]}, "all": {"pairs": total}}
    width = 2 + max(len(name) for section in sections.values() for name in section)
    lines = []
    for title, section in sections.items():
        lines.append(f"{title:<{width + 2}}{'accuracy':>8}{'95 % interval':>17}{'pairs':>9}{'ties':>7}")
        for name, figures in section.items():
            low, high = figures.interval()
            interval = f"{low:.1f} to {high:.1f}"
            shown = f"{figures.percent:8.1f}{interval:>17}{figures.pairs:>9,}{figures.ties:>7,}"
            lines.append(f"  {name:<{width}}{shown}")
    return "\n".join(lines)


def draw(by_group: dict[str, dict[str, Accuracy]], total: Accuracy, path: Path) -> None:
    """Draw the accuracy of each phenomenon, or of each paradigm without one, and of all, with its interval."""
    shown = (by_group["phenomena"] or by_group["paradigms"]) | {"all pairs": total}
    with charts.plots(path, 1, width=7, height=1.2 + LINE * len(shown)) as (axes,):
        for place, (name, figures) in enumerate(reversed(shown.items())):
            low, high = figures.interval()
            colour = COLOURS[0] if name != "all pairs" else COLOURS[1]
            axes.plot([low, high], [place, place], color=colour)
            axes.plot([figures.percent], [place], "o", color=colour, markersize=5)
        axes.axvline(50, color=charts.INK, linewidth=0.8, linestyle=":")
        labels = [charts.plain(name) for name in reversed(shown)]
        axes.set(title="Accuracy on minimal pairs, in percent", xlim=(0, 100), yticks=range(len(shown)))
        axes.set_yticklabels(labels)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.minimal_pairs", description=__doc__)
    from bert.hardware import devices
    from extensions.minimal_pairs import scoring

    devices.choose(options.device)
    pairs = reading.read(options.data)
    if options.pairs:
        pairs = reading.chosen(pairs, options.pairs)
    how = options.batch, options.compute, options.engine
    scores = scoring.score(options.run, pairs, options.score, *how)
    by_group, total = groups(pairs, scores), Accuracy.of(scores.good, scores.bad)
    print(table(by_group, total), flush=True)  # before anything that may fail: it may have taken long
    if options.output is not None:
        files.write_json(options.output, _fields(options, scores, by_group, total))
    if options.picture is not None:
        draw(by_group, total, options.picture)
    ending.print_next_command(options.output or f"scored {options.run} on {options.data}", f"{len(pairs):,} pairs")


def _fields(
    options: Options, scores: scoring.Scores, by_group: dict[str, dict[str, Accuracy]], total: Accuracy
) -> dict[str, Any]:
    of_paradigms = [figures.percent for figures in by_group["paradigms"].values()]
    return {
        "checkpoint": str(scores.checkpoint),
        "data": str(options.data),
        "score": scores.method,
        "compute": options.compute,
        "pairs_with_unknown_tokens": scores.unknown,
        "mean_of_paradigms": sum(of_paradigms) / len(of_paradigms),
        "all": total.fields(),
        **{
            plural: {name: figures.fields() for name, figures in section.items()}
            for plural, section in by_group.items()
        },
    }
