"""The results page: the machine, tables, pictures, and what failed or was not reached."""

import importlib.util
import statistics
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_day.measurements import Measurement
from benchmarks.gpu_day.runner import State
from bert import charts
from bert.charts import COLOURS
from bert.storage import files

GIB = 2**30
# TFLOP/s of dense bfloat16 products, as NVIDIA states them, by a part of the GPU's name.
PEAKS = {"A100": 312.0, "H100": 989.0, "H200": 989.0, "B200": 2250.0}
MINIATURE = "**A try of the command with tiny models. Nothing here is a figure of this project.**"

Results = dict[str, dict[str, Any]]


def write(chosen: Sequence[Measurement], state: State, page: Path, command: str) -> None:
    """Write the page and, if there are results for them, PAGE-speed.png and PAGE-losses.png."""
    results = {name: result["found"] for name, result in state.results.items() if result["status"] == "done"}
    page.parent.mkdir(parents=True, exist_ok=True)
    pictures = _pictures(chosen, results, page)
    parts = [
        _head(results, state, command),
        _steps(chosen, results),
        *pictures,
        _losses(results),
        _bits(results),
        _answers(chosen, results),
        _door(results),
        _missing(chosen, state),
    ]
    with files.atomic_write(page) as stream:
        stream.write("\n\n".join(part for part in parts if part) + "\n")


def _head(results: Results, state: State, command: str) -> str:
    about = results.get("devices", {})
    title = f"# One GPU: {about.get('device', 'no device was seen')}"
    lines = [title, MINIATURE if state.scale == "smoke" else "", f"```\n{command}\n```"]
    if about:
        build = about["build"]
        versions = ", ".join(f"{name} {number}" for name, number in sorted(about["versions"].items()))
        said = (
            f"Commit {about['commit']}; {versions}; TensorFlow built with CUDA {build.get('cuda_version', 'none')} and "
            f"cuDNN {build.get('cudnn_version', 'none')}; nvidia-smi: {about['nvidia_smi'] or 'none'}; "
            f"{about['cores']} CPU cores. A product of square matrices reached {about['product_teraflops']:.3g} "
            f"TFLOP/s. {state.spent / 60:.1f} minutes of measuring."
        )
        lines.append(textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(line for line in lines if line)


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def _peak(results: Results) -> float | None:
    """Return the specified TFLOP/s of this GPU."""
    name = results.get("devices", {}).get("gpu", "")
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def _steps(chosen: Sequence[Measurement], results: Results) -> str:
    """Return the table of speed and memory of every step, ours and peers'."""
    peak, rows = _peak(results), []
    for one in chosen:
        facts = results.get(one.name, {})
        if one.kind not in ("step", "peer") or not facts:
            continue
        share = f"{facts['teraflops'] / peak:.0%}" if peak else ""
        spent = sorted(facts["seconds"])
        spread = f"{1000 * spent[0]:.0f} - {1000 * spent[-1]:.0f}"
        rows.append(
            [
                one.what,
                facts["compute"],
                f"{facts['tokens']} / {facts['batch']}",
                f"{facts['sequences_per_second']:,.1f}",
                f"{1000 * statistics.median(spent):.0f} ({spread})",
                f"{facts['teraflops']:.3g}",
                share,
                f"{facts['first_seconds']:.0f}",
                _gib(facts.get("peak_bytes")),
                _gib(facts.get("planned_bytes")),
            ]
        )
    if not rows:
        return ""
    told = (
        "An update is several micro-batches and the optimizer (four, of fine-tuning one). Sequences/s are those of the "
        "median update; TFLOP/s counts matrix products by one formula (`model_cost.flops`). Memory is the most "
        "in use at once after the first update, beside what `bert.plan.model_cost` expects. The first update has "
        "compiling in it."
    )
    header = [
        "step",
        "type",
        "tokens / batch",
        "sequences/s",
        "ms an update (min - max)",
        "TFLOP/s",
        "of peak",
        "first, s",
        "GiB",
        "planned",
    ]
    return f"## Steps\n\n{textwrap.fill(told, 120)}\n\n{_rows(header, rows)}"


def _gib(size: float | None) -> str:
    return f"{size / GIB:.1f}" if size else ""


def _losses(results: Results) -> str:
    """Return the differences between losses on GPU and CPU."""
    rows = [
        [facts["compute"], f"{facts['apart']:.2g}", f"{facts['tolerance']:g}", "yes" if facts["equal"] else "**no**"]
        for name, facts in results.items()
        if name.startswith("losses_") and "apart" in facts
    ]
    if not rows:
        return ""
    told = "Largest relative difference, over 20 updates with dropout, from the losses of the CPU in float32."
    return f"## Losses\n\n{told}\n\n{_rows(['type', 'difference', 'tolerance', 'equal'], rows)}"


def _bits(results: Results) -> str:
    """Return whether two runs of the same command end with the same weights."""
    rows = []
    for kind, said in (("fixed", "yes"), ("free", "no")):
        both = [results.get(f"bits_{kind}_{turn}", {}).get("sha256") for turn in (1, 2)]
        if all(both):
            rows.append([said, "the same bits" if both[0] == both[1] else "other bits"])
    if not rows:
        return ""
    table = _rows(["deterministic kernels", "two runs"], rows)
    return f"## Determinism\n\nAll weights after six updates, in two processes.\n\n{table}"


def _answers(chosen: Sequence[Measurement], results: Results) -> str:
    rows = [
        [
            str(facts["batch"]),
            str(facts["tokens"]),
            f"{facts['milliseconds']:.2f}",
            f"{facts['sequences_per_second']:,.1f}",
            f"{facts['first_seconds']:.1f}",
            _gib(facts["peak_bytes"]),
        ]
        for one in chosen
        if one.kind == "answers" and (facts := results.get(one.name))
    ]
    header = ["at once", "tokens", "ms", "sequences/s", "first, s", "GiB"]
    return f"## Answers\n\nFrom token ids to scores, the median call.\n\n{_rows(header, rows)}" if rows else ""


def _door(results: Results) -> str:
    facts = results.get("pretrain")
    if not facts:
        return ""
    said = "\n".join(facts["said"])
    return f"## The command itself\n\n`python -m bert.pretrain bert_large_phase1 --smoke`:\n\n```\n{said}\n```"


def _missing(chosen: Sequence[Measurement], state: State) -> str:
    rows = []
    for one in chosen:
        result = state.results.get(one.name)
        if result is None:
            rows.append([f"`{one.name}`", one.what, "not reached"])
        elif result["status"] != "done":
            rows.append([f"`{one.name}`", one.what, result["why"].replace("|", "\\|")])
    return f"## Not measured\n\n{_rows(['name', 'what', 'why'], rows)}" if rows else ""


def _pictures(chosen: Sequence[Measurement], results: Results, page: Path) -> list[str]:
    """Draws what there is; returns the lines that show it. A bare environment has no matplotlib, and gets none."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    drawings: list[tuple[str, str, list[Any], Callable[[Any, list[Any]], None]]] = [
        ("speed", "Sequences a second of each step", _speeds(chosen, results), _draw_speeds),
        ("losses", "Loss over the updates, CPU and GPU", _curves(results), _draw_curves),
    ]
    lines = []
    for name, title, found, draw in drawings:
        if found:
            path = page.with_name(f"{page.stem}-{name}.png")
            with charts.plots(path, 1, width=10, height=4.5) as (axes,):
                draw(axes, found)
                axes.set_title(title)
            lines.append(f"![{title}]({path.name})")
    return lines


def _speeds(chosen: Sequence[Measurement], results: Results) -> list[tuple[str, float, str]]:
    """Returns the title, the speed and the colour of each step, from the lowest bar to the highest."""
    return [
        (one.what, results[one.name]["sequences_per_second"], COLOURS[one.kind == "peer"])
        for one in reversed(chosen)
        if one.kind in ("step", "peer") and one.name in results
    ]


def _draw_speeds(axes: Any, rows: Sequence[tuple[str, float, str]]) -> None:
    names, rates, colours = zip(*rows, strict=True)
    axes.barh(names, rates, color=colours)
    axes.bar_label(axes.containers[0], fmt="{:,.4g}", padding=3)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.set_xlabel("sequences/s")


def _curves(results: Results) -> list[tuple[str, list[float]]]:
    """Returns the name and the losses of each run."""
    prefix = "losses_"
    return [(name.removeprefix(prefix), results[name]["losses"]) for name in results if name.startswith(prefix)]


def _draw_curves(axes: Any, curves: Sequence[tuple[str, list[float]]]) -> None:
    for number, (label, losses) in enumerate(curves):
        style = (0, (4, 2 * number)) if number else "solid"
        axes.plot(range(1, len(losses) + 1), losses, color=COLOURS[number], label=label, linestyle=style)
    axes.set(xlabel="update", ylabel="loss")
    axes.legend(frameon=False)
