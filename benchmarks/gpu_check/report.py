"""The results of a check as text: a Markdown table, and the largest items of each program's time."""

from typing import Any

from benchmarks.gpu_check import roofline
from benchmarks.gpu_check.check import Row

HEADER = """\
| program | GPU | sequences | temporaries | peak | kernels | products | bytes | roofline | sequences/s | of peak |
|---|---|---|---|---|---|---|---|---|---|---|
"""
ASSUMED = f"""\
Roofline: products at {roofline.OF_PEAK:.0%} of the peak of their type, traffic at {roofline.OF_BANDWIDTH:.0%} of the
bandwidth, {roofline.LAUNCH * 1e6:.0f} us a kernel, nothing overlaps. Computed from the compiled program; no GPU ran it.
jaxlib's XLA compiled it; TensorFlow 2.21's own cannot compile for a B200.
"""
GIB = 2**30


def line(row: Row) -> str:
    """Return a row of the table."""
    memory, sequences = row["memory"], row["sequences"]
    cells = [
        row["program"],
        row["device"].upper(),
        str(sequences) if sequences else "",
        f"{memory['temporaries'] / GIB:.1f} GiB",
        f"{memory['peak'] / GIB:.1f} GiB",
        f"{row['kernels']:,}",
        f"{sum(row['products'].values()):,}",
        f"{row['bytes'] / 1e9:.1f} GB",
        f"{row['milliseconds']:.1f} ms",
        f"{row['sequences_per_second']:,.0f}" if sequences else "",
        f"{row['share_of_peak']:.0%}" if sequences else "",
    ]
    return f"| {' | '.join(cells)} |"


def details(row: Row) -> str:
    """Return the largest items of a row's roofline, its products and its custom calls."""
    lines = [f"{row['program']} on {row['device']}: {row['milliseconds']:.2f} ms"]
    if row["milliseconds_once"]:
        lines[0] += f" a micro-batch, {row['milliseconds_once']:.2f} ms once an update beside"
    lines += [f"    products: {_listed(row['products'])}", f"    custom calls: {_listed(row['custom_calls'])}"]
    lines += [_item(item, row["milliseconds"]) for item in row["kinds"]]
    lines += ["  the largest:", *(_item(item, row["milliseconds"]) for item in row["largest"])]
    return "\n".join(lines)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{times} {what}" for what, times in counts.items()) or "none"


def _item(item: dict[str, Any], whole: float) -> str:
    return (
        f"    {item['milliseconds']:8.3f} ms {item['milliseconds'] / whole:4.0%} {item['launches']:5d} x "
        f"{item['gigabytes']:8.3f} GB {item['teraflops']:7.3f} TFLOP  {item['what'][:100]}"
    )
