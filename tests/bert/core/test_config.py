"""The batch of any number of ranks, and configurations as files have them."""

import dataclasses
import itertools
import json
import re
from typing import Any

import pytest

from bert import recipes
from bert.core.config import BatchConfig, OptimizerConfig, PrecisionConfig, RunConfig, TrainConfig, as_flags, flatten
from bert.core.errors import UsageError
from squad.recipes import RECIPES as OF_SQUAD
from tasks.recipes import RECIPES as OF_TASKS

NODES = 46 * 8


def test_any_number_of_ranks_divides_the_batch() -> None:
    every = itertools.product([1, 2, 3, 5, 6, 7, 16, NODES, 1472, 4093], [0, 11, 60, 64], ["nearest", "below", "above"])
    for ranks, per_device, fit in every:
        case = f"{ranks} ranks, micro-batches of {per_device}, fit {fit}"
        wanted = BatchConfig(total=65_536, per_device=per_device, max_per_device=32, fit=fit)  # type: ignore[arg-type]
        batch = wanted.divided(ranks)
        accumulation = batch.accumulation(ranks)
        assert accumulation * batch.per_device * ranks == batch.total, case
        assert 1 <= batch.per_device <= (per_device or 32), case
        one_more = (accumulation + 1) * ranks  # sequences if every micro-batch has one more
        assert {"nearest": 2 * abs(batch.total - 65_536) <= one_more, "below": 0 <= 65_536 - batch.total < one_more,
                "above": 0 <= batch.total - 65_536 < one_more}[fit], case  # fmt: skip
        assert bool(batch.change(wanted)) == (batch.total != 65_536), case


def test_a_batch_that_divides_stays_as_it_is() -> None:
    wanted = BatchConfig(total=65_536, per_device=64, fit="nearest")
    assert wanted.divided(256) == wanted and not wanted.divided(256).change(wanted)


def test_the_batch_of_1472_ranks() -> None:
    wanted = BatchConfig(total=65_536, per_device=60, fit="nearest")
    batch = wanted.divided(1472)
    assert (batch.total, batch.per_device, batch.accumulation(1472)) == (66_240, 45, 1)
    assert batch.change(wanted).startswith("batch: 66,240 sequences per update instead of 65,536 (+1.1%)")


def test_one_micro_batch_less_is_taken_if_it_almost_holds_the_batch() -> None:
    batch = BatchConfig(total=32_768, per_device=11, fit="nearest").divided(1472)
    assert (batch.total, batch.per_device, batch.accumulation(1472)) == (32_384, 11, 2)  # not 3 x 7, which is 30,912


def test_less_than_a_sequence_for_each_rank_is_an_error_below() -> None:
    with pytest.raises(UsageError, match=r"give --batch\.fit above"):
        BatchConfig(total=5, per_device=0, fit="below").divided(7)
    assert BatchConfig(total=5, per_device=0, fit="nearest").divided(7).total == 7


def test_without_the_option_the_batch_must_divide() -> None:
    with pytest.raises(
        UsageError, match=r"36 is not a multiple of 5 ranks; the nearest are 35 and 40; --batch.fit nearest"
    ):
        BatchConfig(total=36, per_device=0).divided(5)


def test_a_configuration_is_what_its_file_will_say() -> None:
    ours = [phase.config for recipe in recipes.RECIPES.values() for phase in recipe.phases]
    for config in [*ours, *(recipe() for recipe in {**OF_SQUAD, **OF_TASKS}.values())]:
        flat = flatten(config)
        assert json.loads(json.dumps(flat)) == flat, config


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"warmup_start": 4, "first_step": 3}, "optimizer.warmup_start 4 is after optimizer.first_step 3"),
        (
            {"warmup_start": -3, "warmup_steps": 8, "decay_steps": 5},
            "optimizer.decay_steps 5 is within optimizer.warmup_steps 8 from optimizer.warmup_start -3 on",
        ),
        (
            {"first_step": 90, "decay_steps": 100},
            "run.steps 11 after optimizer.first_step 90 are more than optimizer.decay_steps 100, after which the "
            "learning rate is 0; give --optimizer.decay_steps 0 to end the decay with the run",
        ),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(optimizer: dict[str, Any], message: str) -> None:
    config = recipes.RECIPES["demo_phase1"].phases[0].config
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(
            config,
            optimizer=dataclasses.replace(config.optimizer, **{"warmup_steps": 0} | optimizer),
            run=dataclasses.replace(config.run, steps=11),
        )


def test_a_schedule_may_end_before_a_run_that_goes_on_at_a_minimum_rate() -> None:
    config = recipes.RECIPES["gpt2_345m"].phases[0].config
    assert config.optimizer.decay_steps < config.run.steps and config.optimizer.minimum_rate > 0
    exact = OptimizerConfig(learning_rate=1.0, first_step=90, decay_steps=100)
    TrainConfig(model=config.model, batch=config.batch, optimizer=exact, run=dataclasses.replace(config.run, steps=10))


@pytest.mark.parametrize("target", [0.72, 1.0])
def test_a_target_on_the_scale_of_earlier_versions_is_refused(target: float) -> None:
    with pytest.raises(
        UsageError, match=rf"{target:g}: accuracies are in percent, from 0 to 100; give {100 * target:g}$"
    ):
        RunConfig(steps=7, target_accuracy=target)
    assert RunConfig(steps=7, target_accuracy=72).target_accuracy == 72


@pytest.mark.parametrize("compute", ["float32", "tf32", "float16"])
def test_a_stream_in_bfloat16_beside_other_products_is_refused(compute: Any) -> None:
    said = f"precision.residual bfloat16 needs precision.compute bfloat16, and here it is {compute}; leave it out"
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        PrecisionConfig(residual="bfloat16", compute=compute)
    if compute != "tf32":  # what `auto` is on a CPU, and on a GPU without bfloat16
        with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
            PrecisionConfig(residual="bfloat16", compute="auto").resolved(compute == "float16", bfloat16=False)
    assert PrecisionConfig(residual="bfloat16", compute="auto").resolved(gpu=True).residual == "bfloat16"


def test_settings_are_written_as_the_command_line_takes_them() -> None:
    values = {"a.b": [0.9, 0.1], "c": [], "d": None, "e": True, "f": "x y", "g": 1e-4}
    assert as_flags(values) == ["--a.b 0.9 0.1", "--d none", "--e true", "--f 'x y'", "--g 0.0001"]
