"""Measure data preparation at scale: one and two processes, memory for more text, and the speed of reading samples.

    python -m benchmarks.data_scale --text workdir/corpus/wikipedia --vocab vocab.txt --output workdir/benchmarks \\
        --records workdir/tfrecords/seq128

Every process is pinned to a core, as in benchmarks/data_prep.py. Runs with one and two processes alternate.
"""

import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Annotated

from benchmarks import data_prep
from bert import cli, ranges
from bert.ranges import Range
from bert.storage import files, outputs

KINDS = ("documents", "instances_1", "instances_5")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.data_scale`."""

    text: Path
    """output folder of data.wikipedia, data.books or data.text; repeated if it has too little text"""
    vocab: Path
    """vocab.txt, uncased"""
    output: Path
    """output folder"""
    records: tuple[Path, ...] = ()
    """output folders of data.tfrecords from which samples are read"""
    small: Annotated[float, Range(0, 1e6, above=True)] = 10.0
    """megabytes of text for the comparison of speed"""
    large: Annotated[float, Range(0, 1e6, above=True)] = 400.0
    """megabytes of text for the comparison of memory"""
    repeats: Annotated[int, Range(1, 10**9)] = 3
    """number of rounds"""

    def __post_init__(self) -> None:
        ranges.check(self)


def _inputs(options: Options, megabytes: float) -> data_prep.Options:
    folder = options.output / f"{megabytes:g}MB"
    given = data_prep.Options(text=options.text, vocab=options.vocab, output=folder, megabytes=megabytes)
    data_prep.write_inputs(given, peers=False)
    return given


def _ours(name: str, given: data_prep.Options, cores: tuple[int, ...]) -> list[dict[str, float]]:
    line = data_prep.command(name, given)
    assert line
    return data_prep.measure(line, cores)


def stages(options: Options) -> dict[str, dict[str, float]]:
    """Return for each kind of records: MB/s of one and of two processes, and peak memory for both sizes of text."""
    small, large = _inputs(options, options.small), _inputs(options, options.large)
    rates_by_name: dict[str, dict[str, float]] = {}
    for name in KINDS:
        alone: list[float] = []
        together: list[float] = []
        peak = 0.0
        for _ in range(options.repeats):
            for cores, rates in (((0,), alone), ((0, 1), together)):
                runs = _ours(name, small, cores)
                # Both are done when the slower one is.
                rates.append(sum(run["bytes"] for run in runs) / 1e6 / max(run["seconds"] for run in runs))
                peak = max(peak, *(run["peak_mb"] for run in runs))
        whole = _ours(name, large, (0,))[0]
        one, two = statistics.median(alone), statistics.median(together)
        rates_by_name[name] = {
            "one_process": one,
            "two_processes": two,
            "peak_mb_small": peak,
            "peak_mb_large": whole["peak_mb"],
        }
        print(
            f"| {data_prep.CONTENDERS[name]} | {one:.2f} | {two:.2f} | {two / one:.2f} | {peak:,.0f} | "
            f"{whole['peak_mb']:,.0f} |",
            flush=True,
        )
    return rates_by_name


def readers(options: Options) -> dict[str, dict[str, float]]:
    """Return for each folder of records: sequences/s of one reader, and of two on two cores."""
    rates_by_name: dict[str, dict[str, float]] = {}
    for folder in options.records:
        line = [sys.executable, "-m", "benchmarks.reader", str(folder), "5"]
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(options.repeats):
            for count, values in rates.items():
                runs = data_prep.measure(line, range(count))
                values.append(sum(run["sequences"] / run["seconds"] for run in runs))
        one, two = (statistics.median(values) for values in rates.values())
        rates_by_name[str(folder)] = {"one_core": one, "two_cores": two}
        print(f"| {folder} | {one:,.0f} | {two:,.0f} | {1e6 / one:.0f} |", flush=True)
    return rates_by_name


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.data_scale", description=__doc__)
    print(
        f"| | MB/s, 1 process | MB/s, 2 processes | ratio | peak MB at {options.small:g} MB of text | at "
        f"{options.large:g} MB |\n|---|---|---|---|---|---|"
    )
    measured = {"stages": stages(options)}
    print("\n| samples of | sequences/s, 1 core | 2 cores | microseconds each |\n|---|---|---|---|")
    measured["readers"] = readers(options)
    files.write_json(options.output / "data_scale.json", {**measured, "versions": outputs.versions()})


if __name__ == "__main__":
    cli.main(main)
