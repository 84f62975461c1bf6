"""The rate of a GPU that was not measured: the share of its peak that published codes reach with such a micro-batch.

    log(share) = base[GPU, precision] + sum of coefficient x feature

Features: the time of a micro-batch at peak (small ones leave a GPU idle), its tokens, the model's width, fine-tuning,
how the code was compiled. The coefficients come from the published rows (`benchmarks.planner.fit` of commit
b9e855c1). GPUs without rows of their own take an A100's share, scaled by what MLPerf's submissions measured on both.
"""

import math
from dataclasses import dataclass

from bert.plan.hardware import Gpu, gpus
from bert.plan.update_time import Work

REFERENCE = "a100-sxm-80"
FAMILIES = {"v100": {"float32": "float32", "half": "half"}, "a100": {"tf32": "tf32", "half": "half"}}
FEATURES = ("base", "v100 half", "v100 float32", "a100 half", "a100 tf32", "time", "tokens", "width", "task", "plain",
            "fused")  # fmt: skip
COEFFICIENTS = {
    "base": -2.557,
    "v100 half": -0.058,
    "v100 float32": 0.132,
    "a100 half": -0.005,
    "a100 tf32": -0.069,
    "time": 0.337,
    "tokens": -0.108,
    "width": 0.325,
    "task": -0.228,
    "plain": -0.660,
    "fused": 0.211,
}
LONGEST, SHORTEST = 550.0, 1.0  # milliseconds of a micro-batch at peak; published ones are from 19 to 546
MOST_TOKENS, WIDEST = 40_960, 1536  # beyond the published ones nothing more is gained
BEST = {"float32": 0.9, "tf32": 0.55}  # share of the peak that no published row exceeds by much
BEST_HALF = 0.6
MOST = 0.9  # largest share of any peak, also of GPUs whose memory is fast for their arithmetic, such as GeForce
WIDTH = 0.21  # of the logarithm: 90 % of errors on sources that were left out
TRANSFERRED = 0.35  # for a GPU without published rows: with the spread of MLPerf's submissions; an estimate
UNKNOWN = 0.6  # for a GPU that MLPerf has no row of either: from its data sheet; an estimate
MEASURED = 0.09  # from one measured row of the same code


@dataclass(frozen=True)
class Setting:
    """What the share of the peak depends on."""

    gpu: Gpu
    precision: str
    width: int  # of the model
    tokens: int  # of a micro-batch
    code: str = "xla"  # "xla", "plain" or "fused"
    task: bool = False  # fine-tuning


def family(gpu: Gpu, precision: str) -> str:
    """Return the name of the published base for the GPU and precision; "" if there is none."""
    kind = precision if precision in ("float32", "tf32") else "half"
    name = f"{gpu.name[:4]} {kind}"
    return name if name in FEATURES and "pcie" not in gpu.name else ""


def features(setting: Setting, work: Work) -> dict[str, float]:
    """Return the features by name."""
    gpu = setting.gpu
    family_of_gpu = family(gpu, setting.precision)
    half = setting.precision not in ("float32", "tf32")
    base = family_of_gpu or ("a100 half" if half else "a100 tf32" if setting.precision == "tf32" else "v100 float32")
    milliseconds = 1e3 * work.flops * work.per_device / gpu.peak(setting.precision)
    values = dict.fromkeys(FEATURES, 0.0)
    return values | {
        "base": 1.0,
        base: 1.0,
        "time": math.log(min(LONGEST, max(SHORTEST, milliseconds))),
        "tokens": math.log(min(setting.tokens, MOST_TOKENS) / 8192),
        "width": math.log(min(setting.width, WIDEST) / 1024),
        "task": float(setting.task),
        "plain": float(setting.code == "plain" and half),
        "fused": float(setting.code == "fused"),
    }


def estimate(setting: Setting, work: Work, coefficients: dict[str, float] | None = None) -> float:
    """Return the FLOP/s within a micro-batch. The share of the peak is at most the best published one."""
    chosen = COEFFICIENTS if coefficients is None else coefficients
    logarithm = sum(chosen[name] * value for name, value in features(setting, work).items())
    share = min(math.exp(logarithm), BEST.get(setting.precision, BEST_HALF))
    share = min(share * transfer(setting.gpu, setting.precision), MOST)
    return share * setting.gpu.peak(setting.precision)


def uncertainty(gpu: Gpu, precision: str) -> float:
    """Return the half width of the 90 % interval of the rate's logarithm without a measured row."""
    if family(gpu, precision):
        return WIDTH
    return TRANSFERRED if gpu.relative else UNKNOWN


def transfer(gpu: Gpu, precision: str) -> float:
    """Return this GPU's share of its peak relative to the reference's; 1 with a base, and in float32."""
    if family(gpu, precision) or precision == "float32":
        return 1.0
    reference = gpus()[REFERENCE]
    relative = gpu.relative or unmeasured(gpu)
    return relative / (gpu.half / reference.half)


def unmeasured(gpu: Gpu) -> float:
    """Return a rate relative to the reference for a GPU that MLPerf has no row of.

    It is the geometric mean of the ratios of peak, memory bandwidth and power, which limit different parts of a step.
    """
    reference = gpus()[REFERENCE]
    ratios = gpu.half / reference.half, gpu.bandwidth / reference.bandwidth, gpu.watts / reference.watts
    return math.prod(ratios) ** (1 / 3)
