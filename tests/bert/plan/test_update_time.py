"""The parts of an update."""

import dataclasses

import pytest

from bert.plan import update_time
from bert.plan.hardware import Cluster, cluster
from bert.plan.update_time import CONSTANTS, Work

WORK = Work(flops=3e11, per_device=7, accumulation=5, parameters=11e7, gradients=44e7, collectives=0.013)
THREE = cluster("a100-sxm-40", 3, 5, gigabits=100)


def test_the_measured_rate_gives_back_the_measured_time() -> None:
    seconds = update_time.times(WORK, THREE, 7e13).total
    assert update_time.rate(WORK, THREE, seconds) == pytest.approx(7e13)
    assert update_time.rate(WORK, THREE, 0.01) == 0


def test_one_gpu_reduces_nothing_and_waits_for_nobody() -> None:
    found = update_time.times(WORK, cluster("a100-sxm-40", 1, 1), 7e13)
    assert found.reduction == 0 and update_time.straggle(1, 1) == 1
    assert found.compute == pytest.approx(5 * (7 * 3e11 / 7e13 + CONSTANTS.launch))


def test_rings_send_twice_the_gradients_but_for_one_share() -> None:
    plain = dataclasses.replace(CONSTANTS, link_share=1.0, network_share=1.0)
    inner = 2 * 4 / 5 * 44e7 / 300e9
    assert update_time.reduction(44e7, THREE, plain) == pytest.approx(inner + 2 * 2 / 3 * 44e7 / 12.5e9)


def test_the_last_gradients_are_not_hidden() -> None:
    fast = Cluster(THREE.gpu, 3, 5, THREE.network * 100)
    hiding = dataclasses.replace(WORK, overlap=True, exposed=0.25)
    found = update_time.times(hiding, fast, 7e13)
    assert found.hidden == pytest.approx(0.75 * found.reduction)


def test_overlap_hides_at_most_the_reduction_and_at_most_the_backward_pass() -> None:
    fast = Cluster(THREE.gpu, 3, 5, THREE.network * 100)
    slow = Cluster(THREE.gpu, 3, 5, THREE.network / 100)
    hiding = dataclasses.replace(WORK, overlap=True)
    assert update_time.times(hiding, fast, 7e13).hidden == pytest.approx(update_time.times(WORK, fast, 7e13).reduction)
    found = update_time.times(hiding, slow, 7e13)
    assert found.hidden == pytest.approx(
        update_time.BACKWARD * update_time.HIDEABLE * (found.compute + found.tensor) / 5
    )
    assert update_time.times(WORK, slow, 7e13).hidden == 0
