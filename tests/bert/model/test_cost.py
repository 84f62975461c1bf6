"""The plan says what the run then is."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig, ObjectiveConfig, ParallelConfig, PretrainConfig
from bert.model import cost
from bert.model.encoder import variables
from bert.model.model_shard import Parts
from bert.plan import demand
from bert.pretraining import PretrainingModel
from bert.recipes import RECIPES, SIZES
from extensions.gpt.task import CausalLM
from extensions.replaced_tokens.model import ReplacedTokensModel
from tests.bert.model.test_encoder import MODERN, NEO


@pytest.mark.parametrize(
    "changes", [{}, {"norm_placement": "pre"}, {"embedding_size": 12, "type_vocab_size": 0}, MODERN, NEO]
)
def test_parameters_are_those_of_the_model(changes: dict[str, Any], model_config: ModelConfig) -> None:
    model = dataclasses.replace(model_config, **changes)
    counted = sum(int(np.prod(weight.shape)) for weight in variables(PretrainingModel(model, seed=1)).values())
    assert cost.parameters(model) == counted


@pytest.mark.parametrize("width", [0.4, 0.6])  # 12 is the width of the embeddings: no projection
def test_parameters_of_a_model_with_a_generator_are_those_of_both(width: float, model_config: ModelConfig) -> None:
    model = dataclasses.replace(model_config, embedding_size=12)
    generator = ObjectiveConfig(name="replaced_tokens", generator_width=width, generator_layers=0.5).further(model)
    assert generator is not None and generator.num_hidden_layers == 1
    counted = variables(ReplacedTokensModel(model, generator, seed=1)).values()
    assert cost.parameters(model, generator) == sum(int(np.prod(weight.shape)) for weight in counted)
    # Three times two operations for each product: of the encoder, the detection, and the generator with its scores.
    plain, small = cost.flops(model, 13, 0), cost.flops(generator, 13, 3, 4)
    assert cost.flops(model, 13, 3, 4, further=generator) == plain + 6 * 13 * 20 * 21 + small
    assert cost.flops(model, 13, 3) - plain == 6 * 3 * (20 * 12 + 12 * 99)  # the head for masked words


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"embedding_size": 12}, MODERN])
def test_a_part_of_a_model_has_the_parameters_that_are_counted(changes: dict[str, Any]) -> None:
    model = ModelConfig(vocab_size=98, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=28)
    model = dataclasses.replace(model, **changes)
    part = Parts(1, 2, lambda x, name: x)

    def count(module: tf.Module) -> int:
        return sum(int(np.prod(weight.shape)) for weight in variables(module).values())

    assert cost.local_parameters(model, 2) == count(PretrainingModel(model, seed=1, parts=part))
    if model.norm_placement == "post":
        generator = ObjectiveConfig(name="replaced_tokens", generator_width=0.5).further(model)
        assert generator is not None
        both = ReplacedTokensModel(model, generator, 1, part)
        assert cost.local_parameters(model, 2, generator) == count(both) < cost.parameters(model, generator)
        objective = ObjectiveConfig(name="replaced_tokens", generator_width=0.5)
        config: PretrainConfig = RECIPES["bert_tiny_phase1"].phases[0].config
        config = dataclasses.replace(config, model=model, objective=objective, parallel=ParallelConfig(tensor=2))
        whole = ReplacedTokensModel(model, generator, 1)
        assert demand.checkpoint_bytes(config, None) == count(whole) * (4 + config.optimizer.bytes_kept)


def test_scores_by_a_table_of_their_own_are_counted_once_more(model_config: ModelConfig) -> None:
    tied, own = (dataclasses.replace(model_config, masked_lm_head=head) for head in ("tied", "linear"))
    width, words = model_config.hidden_size, model_config.vocab_size
    transform = width * width + 3 * width  # with its bias and norm
    assert cost.parameters(own) - cost.parameters(tied) == words * width - transform
    assert cost.flops(tied, 13, 3) - cost.flops(own, 13, 3) == 6 * 3 * width * width
    divided = [cost.parameters(one) - cost.local_parameters(one, 3) for one in (tied, own)]
    assert divided[1] - divided[0] == pytest.approx(words * width * 2 / 3, abs=1)


PUBLISHED = {  # by size, with 30,522 words
    "tiny": pytest.approx(4.43e6, rel=0.02),  # these four without the heads of pretraining
    "mini": pytest.approx(11.2e6, rel=0.02),
    "small": pytest.approx(28.8e6, rel=0.02),
    "medium": pytest.approx(41.4e6, rel=0.02),
    "base": 110_106_428,
    "large": 336_226_108,
    "1b3": pytest.approx(1280e6, rel=2e-3),
    "3b9": pytest.approx(3869e6, rel=2e-3),
}
CAUSAL = {  # by recipe, with 50,257 words; the first two as transformers counts gpt2 and gpt2-medium
    "gpt2_117m": 124_439_808,
    "gpt2_345m": 354_823_168,
    "gpt2_2b5": pytest.approx(2.5e9, rel=0.01),
    "gpt2_8b3": pytest.approx(8.3e9, rel=0.01),
}


def test_models_have_the_published_sizes() -> None:
    found = {size: cost.parameters(dataclasses.replace(SIZES[size], vocab_size=30_522)) for size in PUBLISHED}
    assert found == PUBLISHED
    models = {name: dataclasses.replace(RECIPES[name].phases[0].config.model, vocab_size=50_257) for name in CAUSAL}
    assert {name: cost.parameters(model) for name, model in models.items()} == CAUSAL


def test_parameters_and_arithmetic_of_a_causal_model_are_those_of_its_matrices() -> None:
    model = dataclasses.replace(RECIPES["gpt2_smoke"].phases[0].config.model, vocab_size=257)
    weights = variables(CausalLM(model, seed=1).module)
    assert cost.parameters(model) == sum(int(np.prod(weight.shape)) for weight in weights.values())
    kernels = sum(int(np.prod(weight.shape)) for name, weight in weights.items() if name.endswith("kernel"))
    products = kernels + 257 * 128  # of each token, and of its scores
    attention = 2 * 2 * 13 * 128  # of each token: the scores of 13 others, and the sum of their values, in two layers
    assert cost.flops(model, 13, predictions=13) == 3 * 2 * 13 * (products + attention)


@pytest.mark.parametrize(("sequence", "predictions", "teraflops"), [(128, 20, 0.242), (512, 80, 1.02)])
def test_the_arithmetic_of_bert_large_is_what_others_count(sequence: int, predictions: int, teraflops: float) -> None:
    model = dataclasses.replace(SIZES["large"], vocab_size=30522)
    assert cost.flops(model, sequence, predictions) == pytest.approx(teraflops * 1e12, rel=0.01)
    read = predictions + 1
    spared = 3 * 2 * (sequence - read) * (1024 * 1024 + 2 * 1024 * 4096)  # past the attention of one layer
    whole = cost.flops(model, sequence, predictions)
    assert whole - cost.flops(model, sequence, predictions, states=read) == pytest.approx(spared)
