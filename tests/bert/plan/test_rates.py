"""Rates of GPUs that were not measured."""

import dataclasses
import math

import pytest

from bert.plan import hardware, rates
from bert.plan.rates import Setting
from bert.plan.update_time import Work

WORK = Work(flops=2.4e11, per_device=64, accumulation=3, parameters=336e6, gradients=672e6)


def share(gpu: str, per_device: int) -> float:
    setting = Setting(hardware.gpu(gpu), "float16", width=1024, tokens=64 * 128)
    work = dataclasses.replace(WORK, per_device=per_device)
    return rates.estimate(setting, work) / setting.gpu.half


def test_small_micro_batches_leave_a_gpu_idle() -> None:
    assert share("a100-sxm-80", per_device=8) < 0.6 * share("a100-sxm-80", per_device=64)


def test_no_share_exceeds_the_published_ones() -> None:
    assert share("v100-sxm2-32", per_device=4096) <= rates.BEST_HALF


def test_a_gpu_without_rows_is_less_certain() -> None:
    a100, h100, t4 = (rates.uncertainty(hardware.gpu(name), "float16") for name in ("a100-sxm-80", "h100-sxm", "t4"))
    assert a100 < h100 < t4


@pytest.mark.parametrize("name", ["h100-sxm", "h100-pcie", "l4", "l40s", "a30", "a100-pcie-80"])
def test_data_sheets_alone_give_a_rate_within_the_stated_uncertainty(name: str) -> None:
    gpu = hardware.gpu(name)
    assert abs(math.log(rates.unmeasured(gpu) / gpu.relative)) < rates.UNKNOWN + 0.05


def test_float32_is_not_scaled_by_a_comparison_in_16_bits() -> None:
    assert rates.transfer(hardware.gpu("v100-sxm2-32"), "float32") == 1
