"""GPUs by name."""

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
