"""What the laps of benchmarks/steps.py come to: medians, ratios of turns that followed each other, a Markdown table."""

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from benchmarks import cases
from benchmarks.cases import Case
from bert.core.config import ModelConfig

WHO = {
    "ours": "ours",
    "eager": "transformers",
    "compile": "transformers, torch.compile",
    "gathered": "transformers, masked positions gathered",
    "gathered_compile": "transformers, masked positions gathered, torch.compile",
    "padded": "transformers, all padded to 384",
}
WIDTH = 120
HEADER = """\
| | type | | sequences/s, median (min - max) | ours: times (min - max) | p99 | first lap | GFLOP/s | peak | memory |
|---|---|---|---|---|---|---|---|---|---|
"""
TAIL = 100  # fewest laps that have a 99th percentile


def rows(model: ModelConfig, case: Case, answers: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each contender, made of its answers. Ratios are relative to ours, which is the first row.

    sequences_per_second: in the median turn. ratio: the median over turns of the contender's seconds divided by ours.
    tail: the 99th percentile of the laps divided by their median; None if there are fewer than `TAIL` laps.
    model_flops: FLOP/s of the matrix products, by one formula for all, with the contender's own padding and scored
    positions.
    """
    ours, measured = answers["ours"]["seconds"], []
    for name, answer in answers.items():
        seconds = answer["seconds"]
        sequences = sum(shape[0] for shape in answer["shapes"])
        ratios = [theirs / own for own, theirs in zip(ours, seconds, strict=True)]
        flops = cases.flops(model, case, answer["shapes"]) / statistics.median(seconds)
        measured.append(
            answer
            | {
                "contender": name,
                "sequences": sequences,
                "sequences_per_second": sequences / statistics.median(seconds),
                "ratio": statistics.median(ratios),
                "ratios": ratios,
                "tail": _tail(answer["laps"]),
                "model_flops": flops,
                "utilisation": flops / answer["peak_flops"],
            }
        )
    return measured


def _tail(laps: Sequence[float]) -> float | None:
    return statistics.quantiles(laps, n=100)[98] / statistics.median(laps) if len(laps) >= TAIL else None


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    rate, times = row["sequences_per_second"], row["ratio"]
    who = WHO.get(row["contender"], row["contender"])
    return f"{row['model']} {row['case']} {row['compute']}: {who} {rate:.2f} sequences/s, ours {times:.2f} times that"


def table(head: dict[str, Any], measured: Sequence[dict[str, Any]]) -> str:
    """The Markdown table, with what it was measured on above it."""
    versions = {tool: number for row in measured for tool, number in row["versions"].items()}
    threads = sorted({row["threads"] for row in measured})
    texts = {case.name: case.text for case in cases.CASES}
    apart = _apart(measured)
    paragraphs = [
        f"{head['date']}, commit {head['commit']}, {head['cpu']}, {', '.join(map(str, threads))} threads; "
        f"{', '.join(f'{tool} {number}' for tool, number in sorted(versions.items()))}.",
        *([f"Before timing, in float32 without dropout, contenders differed by at most {apart}."] if apart else []),
    ]
    above = "".join(f"{textwrap.fill(text, WIDTH)}\n\n" for text in paragraphs)
    cells = [_cells(row, f"{row['model']}, {texts[row['case']].format(row['batch'])}") for row in measured]
    return above + HEADER + "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _apart(measured: Sequence[dict[str, Any]]) -> str:
    """Return by how much the contenders differed, in words; empty if ours was alone."""
    kinds = {False: "in relation to the losses", True: "in the logits"}
    compared = [row for row in measured if row["apart"] is not None]
    worst = {infer: [row["apart"] for row in compared if row["case"].startswith("infer") == infer] for infer in kinds}
    return " and ".join(f"{max(worst[infer]):.0e} {text}" for infer, text in kinds.items() if worst[infer])


def _cells(row: dict[str, Any], what: str) -> list[str]:
    seconds, count = row["seconds"], row["sequences"]
    rate = f"{count / statistics.median(seconds):.2f} ({count / max(seconds):.2f} - {count / min(seconds):.2f})"
    times = f"{row['ratio']:.2f} ({min(row['ratios']):.2f} - {max(row['ratios']):.2f})"
    return [
        what,
        row["compute"],
        WHO.get(row["contender"], row["contender"]),
        rate,
        "" if row["contender"] == "ours" else times,
        f"{row['tail']:.2f}" if row["tail"] else "",
        f"{row['first_lap']:.1f} s",
        f"{row['model_flops'] / 1e9:.0f}",
        f"{row['utilisation']:.0%}",
        f"{row['peak_mb']:,.0f} MB",
    ]
