"""GPUs by name."""

import pytest

from bert.plan import hardware


def test_a_cluster_has_the_usual_node_unless_told() -> None:
    usual = hardware.cluster("h100-sxm", 3)
    assert (usual.ranks, usual.network) == (24, 400e9)
    other = hardware.cluster("h100-sxm", 3, 5, gigabits=10)
    assert (other.ranks, other.network) == (15, 1.25e9)


def test_peaks_follow_the_precision() -> None:
    gpu = hardware.gpu("a100-sxm-80")
    peaks = [gpu.peak(kind) for kind in ("float32", "tf32", "float16", "bfloat16")]
    assert peaks == [19.5e12, 156e12, 312e12, 312e12]
    kinds = ("v100-sxm2-32", "t4", "a100-sxm-40", "h100-sxm")
    assert [hardware.gpu(name).has_bfloat16 for name in kinds] == [False, False, True, True]
    assert hardware.gpu("v100-sxm2-32").tf32 == hardware.gpu("v100-sxm2-32").float32


@pytest.mark.parametrize(
    ("name", "multiprocessors", "megahertz", "per_clock", "bus", "gigabits"),
    [  # FLOP per clock of a multiprocessor: 512 where float32 accumulation has half the rate (GeForce), else 1024
        ("rtx-3090", 82, 1695, 512, 384, 19.5),
        ("rtx-4090", 128, 2520, 512, 384, 21.0),
        ("rtx-5090", 170, 2407, 512, 512, 28.0),
        ("rtx-a6000", 84, 1800, 1024, 384, 16.0),
        ("a10", 72, 1695, 1024, 384, 12.5),
        ("l4", 58, 2040, 1024, 192, 12.5),
        ("a100-sxm-80", 108, 1410, 2048, 5120, 3.186),
    ],
)
def test_rates_are_those_of_dense_products_with_float32_accumulation(
    name: str, multiprocessors: int, megahertz: int, per_clock: int, bus: int, gigabits: float
) -> None:
    gpu = hardware.gpu(name)
    assert gpu.half == pytest.approx(multiprocessors * megahertz * 1e6 * per_clock, rel=0.005)
    assert gpu.tf32 == pytest.approx(gpu.half / 2, rel=0.01)
    assert gpu.bandwidth == pytest.approx(bus / 8 * gigabits * 1e9, rel=0.005)
