"""The results page: the machine, tables, checks, and what failed or was not reached."""

import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_day.items import Item
from benchmarks.gpu_day.runner import State
from bert.core import files

GIB = 2**30
UNTIMED = 2  # first updates of a run, in which programs are compiled
# TFLOP/s of dense bfloat16 products, as NVIDIA states them, by a part of the GPU's name.
PEAKS = {"A100": 312.0, "H100": 989.0, "H200": 989.0, "B200": 2250.0}
REHEARSAL = "**A rehearsal of the command with tiny models. Nothing here is a figure of this project.**"
STEPS = (
    "An update is several micro-batches and the optimizer. Sequences/s are those of the median update; TFLOP/s counts "
    "matrix products by one formula (`cost.flops`). GiB is the most memory in use at once, compiling included, "
    "beside what `bert.plan` expects. The first update has compiling in it."
)

Figures = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Check:
    """Two runs that should be the same."""

    item: Item
    difference: str
    equal: bool


def checks(items: Sequence[Item], state: State) -> Iterator[Check]:
    """Yield a check for each item that is to be like another, if both are done."""
    figures = _figures(state)
    for item in items:
        if item.name not in figures or item.like not in figures:
            continue
        ours, theirs = figures[item.name], figures[item.like]
        if item.tolerance is None:
            equal = ours["weights"] == theirs["weights"]
            yield Check(item, "the same bits" if equal else "other bits", equal)
        else:
            pairs = zip(ours["losses"], theirs["losses"], strict=True)
            apart = [abs(loss - other) / abs(other) for loss, other in pairs]
            yield Check(item, f"{max(apart):.2g}", all(one <= item.tolerance for one in apart))


def write(items: Sequence[Item], state: State, page: Path, command: str) -> None:
    """Write the page."""
    parts = [
        _head(state, command),
        _steps(items, state),
        _checks(items, state),
        *_texts(items, state),
        _missing(items, state),
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_write(page) as stream:
        stream.write("\n\n".join(part for part in parts if part) + "\n")


def _figures(state: State) -> Figures:
    return {name: result["facts"] for name, result in state.results.items() if "facts" in result}


def _head(state: State, command: str) -> str:
    commits = sorted({result["commit"] for result in state.results.values()})
    versions: dict[str, str] = next((figures["versions"] for figures in _figures(state).values()), {})
    minutes = sum(result["seconds"] for result in state.results.values()) / 60
    about = (
        f"nvidia-smi: {state.gpu or 'none'}. Commit {', '.join(commits) or 'unknown'}; "
        f"{', '.join(f'{name} {number}' for name, number in sorted(versions.items()))}. "
        f"{minutes:.1f} minutes of measuring."
    )
    title = f"# One GPU: {state.gpu.split(',')[0] or 'none was seen'}"
    paragraph = textwrap.fill(about, 120, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(
        part for part in (title, REHEARSAL if state.rehearse else "", f"```\n{command}\n```", paragraph) if part
    )


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def _steps(items: Sequence[Item], state: State) -> str:
    """Return the table of speed and memory of every run."""
    figures, rows = _figures(state), []
    peak = next((peak for part, peak in PEAKS.items() if part in state.gpu), None)
    for item in items:
        if item.name not in figures:
            continue
        one = figures[item.name]
        rates, flops = one["sequences_per_second"], statistics.median(one["teraflops"][UNTIMED:])
        spent = sorted(1000 * one["total"] / rate for rate in rates[UNTIMED:])
        memory = one["peak_bytes"]
        rows.append(
            [
                item.what,
                one["compute"],
                f"{one['tokens']} / {one['sequences']}",
                f"{statistics.median(rates[UNTIMED:]):,.1f}",
                f"{statistics.median(spent):.0f} ({spent[0]:.0f} - {spent[-1]:.0f})",
                f"{flops:.3g}",
                f"{flops / peak:.0%}" if peak else "",
                f"{one['total'] / rates[0]:.0f}",
                f"{memory / GIB:.1f}" if memory else "",
                state.planned.get(item.name, ""),
            ]
        )
    header = "run,type,tokens / batch,sequences/s,ms an update (min - max),TFLOP/s,of peak,first s,GiB,planned"
    return f"## Pretraining\n\n{textwrap.fill(STEPS, 120)}\n\n{_rows(header.split(','), rows)}" if rows else ""


def _checks(items: Sequence[Item], state: State) -> str:
    rows = [
        [
            f"`{one.item.name}`",
            f"`{one.item.like}`",
            one.difference,
            f"{one.item.tolerance:g}" if one.item.tolerance is not None else "the same bits" * one.item.required,
            "yes" if one.equal else "**no**" if one.item.required else "no",
        ]
        for one in checks(items, state)
    ]
    header = ["run", "beside", "largest relative difference of a loss, or weights", "allowed", "equal"]
    return f"## Equal results\n\n{_rows(header, rows)}" if rows else ""


def _texts(items: Sequence[Item], state: State) -> Iterator[str]:
    """Yield what the other commands printed."""
    for item in items:
        result = state.results.get(item.name, {})
        shown = result.get("text") or (f"```\n{result['output']}\n```" if "output" in result else "")
        if shown:
            yield f"## {item.what[0].upper()}{item.what[1:]}\n\n{shown.strip()}"


def _missing(items: Sequence[Item], state: State) -> str:
    results = [(item, state.results.get(item.name, {"status": "", "why": "not reached"})) for item in items]
    rows = [
        [f"`{item.name}`", item.what, result["why"].replace("|", "\\|")]
        for item, result in results
        if result["status"] != "done"
    ]
    return f"## Not measured\n\n{_rows(['name', 'what', 'why'], rows)}" if rows else ""
