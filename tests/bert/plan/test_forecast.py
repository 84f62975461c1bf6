"""The forecast of a run on a cluster."""

import dataclasses
from typing import Any

import pytest

from bert.core.config import BatchConfig, ObjectiveConfig, PretrainConfig
from bert.core.errors import ResourceError, UsageError
from bert.plan import forecast as forecasts
from bert.plan import hardware, rates, update_time
from bert.plan.forecast import Forecast, Interval, Job, Measured, forecast
from bert.recipes import RECIPES

JOB = Job(sequence=128, predictions=20, price=2.0)


def recipe(name: str = "bert_large_phase1", **changes: Any) -> PretrainConfig:
    config = RECIPES[name].phases[0].config
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_522), **changes)


def of(config: PretrainConfig, gpu: str = "a100-sxm-80", nodes: int = 3, per_node: int = 0, **job: Any) -> Forecast:
    return forecast("it", config, hardware.cluster(gpu, nodes, per_node), dataclasses.replace(JOB, **job))


def test_any_number_of_ranks_is_planned() -> None:
    config = recipe("bert_large_superpod_phase1")
    for nodes, per_node in ((1, 1), (3, 1), (5, 1), (6, 1), (46, 8), (92, 16)):
        found, case = of(config, "v100-sxm3-32h", nodes, per_node), f"{nodes} nodes of {per_node}"
        batch = found.config.batch
        assert found.accumulation * batch.per_device * nodes * per_node == batch.total, case
        assert batch.total == pytest.approx(65_536, rel=0.02), case
        assert found.memory.fits and batch.per_device <= found.largest, case
        assert found.rate == pytest.approx(batch.total / found.seconds.value), case


def test_micro_batches_that_do_not_fit_become_smaller() -> None:
    found = of(recipe(batch=BatchConfig(total=65_536, per_device=256)), "v100-sxm2-16", 4)
    assert found.config.batch.per_device <= found.largest < 256 and found.config.batch.total == 65_536
    assert any("instead of 256" in remark for remark in found.remarks)


def test_a_small_micro_batch_is_told_the_one_that_would_be_chosen() -> None:
    free, given = (of(recipe(batch=BatchConfig(total=65_536, per_device=size)), nodes=4) for size in (0, 2))
    assert given.config.batch.per_device == 2 and not any("--batch.per_device" in remark for remark in free.remarks)
    assert any(f"with --batch.per_device {free.config.batch.per_device} it is" in remark for remark in given.remarks)


def test_a_checkpoint_has_the_weight_two_moments_and_the_average_of_each_parameter() -> None:
    plain = recipe()
    averaged = dataclasses.replace(plain, optimizer=dataclasses.replace(plain.optimizer, ema=0.999))
    count = 336_226_108  # of BERT-Large with both heads and 30,522 words
    assert [of(config).checkpoint for config in (plain, averaged)] == [12 * count, 16 * count]


def test_a_model_that_does_not_fit_names_the_remedies() -> None:
    with pytest.raises(ResourceError, match=r"--parallel\.tensor N"):
        of(recipe("bert_3b9"), "v100-sxm2-32", sequence=512, predictions=77)
    parallel = dataclasses.replace(recipe().parallel, tensor=4)
    assert of(recipe("bert_3b9", parallel=parallel), "v100-sxm2-32", sequence=512, predictions=77).memory.fits


def test_time_falls_with_nodes_and_money_rises() -> None:
    one, eight = of(recipe(), nodes=1), of(recipe(), nodes=8)
    assert one.hours.value / 8 < eight.hours.value < one.hours.value / 6
    assert one.money.value < eight.money.value == pytest.approx(eight.hours.value * 64 * 2.0)
    assert eight.hours.low < eight.hours.value < eight.hours.high


def test_a_measured_rate_replaces_the_estimate_and_narrows_it() -> None:
    guess = of(recipe(), nodes=1)
    work = forecasts.work_of(guess.config, guess.cluster, guess.job)
    setting = forecasts.setting_of(guess.config, guess.cluster, guess.job)
    slower = Measured(rates.estimate(setting, work) / 2, setting, work)
    found = of(recipe(), nodes=1, measured=slower)
    assert found.update.compute == pytest.approx(2 * guess.update.compute, rel=0.05)
    assert found.hours.high / found.hours.low < guess.hours.high / guess.hours.low


def test_sharding_costs_memory_less_and_overlap_hides_all_but_the_last_gradients() -> None:
    plain = of(recipe())
    sharded = of(recipe(parallel=dataclasses.replace(plain.config.parallel, shard_optimizer=True, overlap=True)))
    saved = plain.memory.state - sharded.memory.state
    assert saved == pytest.approx(8 * 336e6 * 23 / 24, rel=0.01)
    embeddings = (30_522 + 512 + 2) * 1024 / 336_226_108  # their gradients leave when the backward pass has ended
    bucket = 25e6 / 4 / 336_226_108  # as much is computed before anything leaves
    assert sharded.update.hidden == pytest.approx((1 - embeddings - bucket) * sharded.update.reduction)
    assert plain.update.hidden == 0
    assert sharded.update.optimizer == pytest.approx(plain.update.optimizer / 24)


def test_groups_of_one_part_share_the_network() -> None:
    cluster = hardware.cluster("a100-sxm-80", 3)
    group = forecasts.reduction_group(cluster, 2)
    assert (group.nodes, group.per_node, group.network) == (3, 4, cluster.network / 2)
    # Half of the gradients over half of the network take as long as all over all of it.
    wires = dataclasses.replace(update_time.CONSTANTS, link_share=1e9)  # no time within a node
    whole, half = update_time.reduction(8e8, cluster, wires), update_time.reduction(4e8, group, wires)
    assert half == pytest.approx(whole)
    alone = forecasts.reduction_group(cluster, 24)
    assert (alone.nodes, alone.per_node) == (1, 1) and update_time.reduction(4e8, alone) == 0


@pytest.mark.parametrize(
    ("parts", "per_node", "words"), [(5, 8, "24 GPUs"), (3, 8, "attention heads"), (4, 6, "the 6 GPUs of a node")]
)
def test_parts_must_divide_ranks_nodes_and_heads(parts: int, per_node: int, words: str) -> None:
    config = recipe(parallel=dataclasses.replace(recipe().parallel, tensor=parts))
    with pytest.raises(UsageError, match=words):
        of(config, nodes=2 if per_node == 6 else 3, per_node=per_node)


def test_parts_of_a_model_and_its_generator_are_counted_and_must_divide_both() -> None:
    base = recipe()
    model = dataclasses.replace(base.model, hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    objective = ObjectiveConfig(name="replaced_tokens", generator_width=1 / 3)  # 4 heads
    config = dataclasses.replace(base, model=model, objective=objective)
    two = dataclasses.replace(config, parallel=dataclasses.replace(config.parallel, tensor=2))
    whole, halves = (of(each, nodes=1, per_node=8) for each in (config, two))
    assert 0.5 * whole.memory.state < halves.memory.state < 0.6 * whole.memory.state
    alone = dataclasses.replace(two, objective=ObjectiveConfig())
    assert halves.update.tensor > 0 == whole.update.tensor
    assert of(alone, nodes=1, per_node=8).memory.state < halves.memory.state
    six = dataclasses.replace(config, parallel=dataclasses.replace(config.parallel, tensor=6))
    with pytest.raises(UsageError, match="does not divide 4 attention heads of the generator"):
        of(six, nodes=3, per_node=6)


def test_intervals_add_up() -> None:
    assert Interval(1, 2, 3).plus(Interval(4, 5, 6).times(2)) == Interval(9, 12, 15)
