"""The time of collectives."""

import pytest

from bert.plan import hardware, network


def test_a_ring_sends_each_share_twice_to_all_others() -> None:
    assert network.ring(800.0, 1, 100.0) == 0
    assert network.ring(800.0, 4, 100.0, latency=0.5) == pytest.approx(2 * 3 * (2.0 + 0.5))


def test_recomputation_repeats_the_collectives_of_the_forward_pass() -> None:
    node = hardware.cluster("a100-sxm-80", 1)
    plain, again = (network.tensor_parallel(2, 7, 1e7, node, recompute) for recompute in (False, True))
    assert again / plain == pytest.approx((7 * 6 + 3) / (7 * 4 + 3))
    assert network.tensor_parallel(1, 7, 1e7, node, recompute=False) == 0


def test_parts_on_several_nodes_are_as_slow_as_the_network() -> None:
    node = hardware.cluster("a100-sxm-80", 2, 4, gigabits=10)
    within, beyond = (network.tensor_parallel(parts, 7, 1e7, node, recompute=False) for parts in (4, 8))
    assert beyond > 50 * within
