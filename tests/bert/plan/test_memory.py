"""Memory of one GPU."""

import dataclasses

from bert.plan import hardware, memory
from bert.recipes import RECIPES

CONFIG = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
CONFIG = dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, vocab_size=30_522))


def test_the_largest_micro_batch_fits_and_one_more_does_not() -> None:
    gpu = hardware.gpu("a100-sxm-40")
    largest = memory.largest_micro_batch(CONFIG, gpu, 5, 512, 77)
    batches = [dataclasses.replace(CONFIG.batch, per_device=size) for size in (largest, largest + 1)]
    fitting = [memory.estimate(dataclasses.replace(CONFIG, batch=one), gpu, 5, 512, 77).fits for one in batches]
    assert fitting == [True, False]


def test_the_published_micro_batches_fit_their_gpus() -> None:
    for recipe, gpu, sequence in (("bert_large_dgx1_phase1", "v100-sxm2-32", 128),
                                  ("bert_large_dgx1_phase2", "v100-sxm2-32", 512),
                                  ("bert_large_superpod_phase2", "v100-sxm3-32h", 512),
                                  ("bert_large_dgxa100_phase1", "a100-sxm-80", 128)):  # fmt: skip
        config = RECIPES[recipe].phases[0].config
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_522))
        largest = memory.largest_micro_batch(config, hardware.gpu(gpu), 8, sequence, sequence * 15 // 100 + 1)
        assert largest >= config.batch.per_device, recipe


def test_two_parts_halve_what_is_divided_and_the_inner_activations() -> None:
    parts = dataclasses.replace(CONFIG, parallel=dataclasses.replace(CONFIG.parallel, tensor=2))
    gpu = hardware.gpu("h100-sxm")
    one, two = (memory.estimate(config, gpu, 8, 512, 77) for config in (CONFIG, parts))
    assert 0.5 < two.state / one.state < 0.53
    assert two.activations["feed-forward"] == one.activations["feed-forward"] // 2
    assert two.activations["residual stream"] == one.activations["residual stream"]
