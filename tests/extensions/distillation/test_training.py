"""Each loss is its published formula; the teacher is in no checkpoint and in no evaluation; students take layers."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert import pretrain
from bert.convert import __main__ as convert
from bert.core.config import BatchConfig, DistillConfig, ModelConfig, PrecisionConfig
from bert.core.errors import UsageError, UserError
from bert.model import losses
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.pretraining import Pretraining
from bert.text.records import Dataset
from bert.text.sampler import Batch, BatchSampler, pack
from extensions.distillation.pretraining import WordTeacher
from extensions.distillation.training import Distilled, LayersTeacher
from squad.config import Windowing
from squad.model import AnswerSpans
from tests.bert.text.test_packing import saved
from tests.bert.training.test_step import step_of
from tests.training import EVALUATED, SIZES, TINY, measured, same_bits, weights, write_dataset

T, SHARE = 2.5, 0.3


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return p * np.log(p / q)


def gradient_of(function: Callable[[tf.Tensor], tf.Tensor], x: np.ndarray) -> tuple[float, np.ndarray]:
    variable = tf.Variable(x, dtype=tf.float32)
    with tf.GradientTape() as tape:
        value = function(variable)
    return float(value), tape.gradient(value, variable).numpy()


def test_soft_labels_and_their_gradient_are_the_published_formula() -> None:
    random = np.random.default_rng(2)
    z, taught, weights = random.normal(size=(3, 5, 7)) * 3, random.normal(size=(3, 5, 7)) * 3, random.random((3, 5))
    teacher, of_rows = (tf.constant(x, tf.float32) for x in (taught, weights))
    value, gradient = gradient_of(lambda x: losses.soft_labels(x, teacher, of_rows, T), z)
    p, q = softmax(taught / T), softmax(z / T)
    assert value == pytest.approx(T**2 * (divergence(p, q).sum(axis=-1) * weights).sum(), rel=1e-5)
    np.testing.assert_allclose(gradient, T * (q - p) * weights[..., None], atol=1e-5)

    of_each = random.random((3, 5, 7))
    of_logits = tf.constant(of_each, tf.float32)
    value, gradient = gradient_of(lambda x: losses.soft_binary(x, teacher, of_logits, T), z)
    p, q = sigmoid(taught / T), sigmoid(z / T)
    expected = T**2 * ((divergence(p, q) + divergence(1 - p, 1 - q)) * of_each).sum()
    assert value == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(gradient, T * (q - p) * of_each, atol=1e-5)

    batch = {"start_positions": tf.zeros([5, 1], tf.int32)}
    own, of_teacher = ((tf.constant(x[0], tf.float32), tf.constant(x[1], tf.float32)) for x in (z, taught))
    found = AnswerSpans(Windowing(), False).soft(own, of_teacher, batch, T)
    parts = [divergence(softmax(taught[n] / T), softmax(z[n] / T)).sum() for n in (0, 1)]
    assert float(found) == pytest.approx(T**2 * sum(parts) / 2, rel=1e-5)


def batches_of(dataset: Path) -> list[Batch]:
    return BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=3), seed=1).read(0)


@pytest.mark.slow
@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_step_learns_both_losses_of_masked_words_and_keeps_the_teacher(
    xla: bool, model_config: ModelConfig, dataset: Path
) -> None:
    config = dataclasses.replace(
        model_config, vocab_multiple=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    teacher = WordTeacher(dataclasses.replace(model_config, hidden_size=30, num_hidden_layers=1))
    plain, batches = Pretraining(config, seed=3), batches_of(dataset)
    for name, variable in variables(teacher).items():
        variable.assign(tf.random.stateless_normal(variable.shape, (1, len(name)), stddev=0.5))
    before = {name: variable.numpy() for name, variable in variables(teacher).items()}
    step = step_of(
        Distilled(plain, teacher, DistillConfig(temperature=T, weight=SHARE)), precision=PrecisionConfig(xla=xla)
    )
    assert {"adam_m/embeddings/word", "embeddings/word"} <= step.state.keys()
    assert sum("embeddings/word" in name for name in step.state) == 3
    mode, hard, soft, count = Mode(tf.float32, DropoutRng(None)), 0.0, 0.0, 0.0
    for batch in batches:
        scores, _ = plain.module(batch, mode)
        scores = scores.numpy()[..., :99] + plain.module.masked_lm.bias.numpy()
        p, q = softmax(teacher(batch, mode).numpy() / T), softmax(scores / T)
        weights_of = batch["masked_lm_weights"].numpy()
        soft += T**2 * (divergence(p, q).sum(axis=-1) * weights_of).sum()
        chosen = np.take_along_axis(softmax(scores), batch["masked_lm_ids"].numpy()[..., None], axis=-1)[..., 0]
        hard -= (np.log(chosen) * weights_of).sum()
        count += weights_of.sum()
    evaluated = step.evaluate({"": batches})
    assert evaluated["mlm_loss"] == pytest.approx(hard / count, rel=1e-4)  # without the teacher
    found = step.update(1, batches, rate=1e-2)
    assert found["mlm_loss"] == pytest.approx(((1 - SHARE) * hard + SHARE * soft) / count, rel=1e-4)
    assert found["nsp_loss"] == pytest.approx(evaluated["nsp_loss"], rel=1e-4)
    assert all(variable.numpy().tobytes() == before[name].tobytes() for name, variable in variables(teacher).items())


States = list[np.ndarray]  # of a sequence, without padding [T, D]


def computed(encoder: Encoder, batch: Batch) -> tuple[list[States], list[list[States]]]:
    """Hidden states, and queries, keys and values of each layer by q = x W + b, of each sequence, in float64."""
    tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    states = [x.numpy().astype(np.float64) for x in encoder.states(tokens, Mode(tf.float32, DropoutRng(None)))]
    of_states: list[States] = []
    of_layers: list[list[States]] = []
    for number, length in enumerate(batch["input_mask"].numpy().sum(axis=1)):
        own = [x[number, :length] for x in states]
        of_states.append(own)
        of_layers.append(
            [
                [
                    x @ part.weight.numpy().astype(np.float64) + part.bias.numpy()
                    for part in (layer.attention.query, layer.attention.key, layer.attention.value)
                ]
                for x, layer in zip(own, encoder.layers, strict=False)
            ]
        )
    return of_states, of_layers


def heads_of(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(len(x), count, -1).transpose(1, 0, 2)  # [A, T, D / A]


def scores_of(q: np.ndarray, k: np.ndarray, count: int) -> np.ndarray:
    q, k = heads_of(q, count), heads_of(k, count)
    return np.asarray(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]))


def spread(module: tf.Module, seed: int) -> None:
    """Give all weights random values, so that no two layers are alike."""
    for number, variable in enumerate(variables(module).values()):
        variable.assign(tf.random.stateless_normal(variable.shape, (seed, number), stddev=0.5))


LAYERS = DistillConfig(outputs=0.0, hidden=3.0, attention=0.25, relations=2.0, relation_layer=1, relation_heads=10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("equal", "xla"), [(True, False), (False, False), pytest.param(False, True, marks=pytest.mark.thorough)]
)
def test_losses_of_layers_are_the_published_formulas_without_padding(
    equal: bool, xla: bool, model_config: ModelConfig, tmp_path: Path
) -> None:
    config = dataclasses.replace(model_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    wide = dataclasses.replace(model_config, hidden_size=20 if equal else 30, num_hidden_layers=4)
    distill = dataclasses.replace(LAYERS, cosine=0.5 if equal else 0.0)
    plain, teacher = Pretraining(config, seed=3), LayersTeacher(wide)
    task = Distilled(plain, teacher, distill, seed=7)
    spread(teacher, 1)
    spread(plain.module, 2)
    projection = task.projection
    assert (projection is None) == equal
    frozen = [variable.numpy() for variable in variables(teacher).values()]
    expected, tokens, pairs = dict.fromkeys(distill.distances, 0.0), 0, 0
    batches = batches_of(write_dataset(tmp_path / "short", shortest=4))
    packed = [pack(batch) for batch in batches]
    assert sum(len(batch["input_ids"]) for batch in packed) < 6  # some rows have two instances
    for batch in batches:
        (states, own), (taught, theirs) = (computed(x, batch) for x in (plain.module.encoder, teacher.encoder))
        for x, y, ours, layers in zip(states, taught, own, theirs, strict=True):
            tokens, pairs = tokens + len(x[0]), pairs + len(x[0]) ** 2
            if equal:
                norms = np.linalg.norm(x[-1], axis=1) * np.linalg.norm(y[-1], axis=1)
                expected["cosine"] += (1 - (x[-1] * y[-1]).sum(axis=1) / norms).sum()
            if projection:
                kernel, bias = (part.numpy() for part in (projection.weight, projection.bias))
                x = [each @ kernel + bias for each in x]
            for number, mapped in ((0, 0), (1, 2), (2, 4)):  # of four layers the second and the last
                expected["hidden"] += ((x[number] - y[mapped]) ** 2).mean(axis=1).sum()
            for number, mapped in ((0, 1), (1, 3)):
                of_student, of_teacher = (scores_of(q, k, 5) for q, k, _ in (ours[number], layers[mapped]))
                expected["attention"] += ((of_student - of_teacher) ** 2).mean(axis=0).sum()
            for a, b in zip(ours[1], layers[1], strict=True):
                p, q = (softmax(scores_of(each, each, 10)) for each in (b, a))
                expected["relations"] += divergence(p, q).sum(axis=-1).mean(axis=0).sum()
    means = {name: value / (pairs if name == "attention" else tokens) for name, value in expected.items()}
    step = step_of(task, precision=PrecisionConfig(xla=xla))
    total = sum(distill.distances[name] * value for name, value in means.items())
    for found in (*(step.evaluate({"": each}) for each in (batches, packed)), step.update(1, batches, rate=1e-3)):
        assert {name: found[f"{name}_loss"] for name in means} == pytest.approx(means, rel=1e-4)
        assert found["loss"] == pytest.approx(total, rel=1e-4)
        assert not [name for name in found if "accuracy" in name or "mlm" in name]
    assert all(np.array_equal(x, y) for x, y in zip(frozen, variables(teacher).values(), strict=True))
    assert step.update(2, batches, rate=1e-3)["loss"] < total
    names = [name for name in step.state if "distillation/" in name]
    assert len(names) == (0 if equal else 6)  # the projection's kernel and bias, with their moments


@pytest.mark.thorough
def test_the_loss_of_outputs_and_those_of_layers_are_added_with_their_factors(
    model_config: ModelConfig, dataset: Path
) -> None:
    """DistilBERT's 5, 2 and 1. Of heads and last layers only the read tokens are computed without the cosine."""
    config = dataclasses.replace(model_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    teacher, batches = WordTeacher(config), batches_of(dataset)
    spread(teacher, 1)

    def first_update(distill: DistillConfig) -> dict[str, float]:
        plain = Pretraining(config, seed=3)
        spread(plain.module, 2)
        return step_of(Distilled(plain, teacher, distill)).update(1, batches, rate=1e-3)

    plain, soft = (first_update(DistillConfig(weight=weight))["mlm_loss"] for weight in (0, 1))
    alone = first_update(DistillConfig(outputs=0.0, cosine=1.0, relations=1.0))
    both = first_update(DistillConfig(weight=5 / 7, outputs=7.0, cosine=1.0))
    assert both["loss"] == pytest.approx(5 * soft + 2 * plain + alone["cosine_loss"] + 7 * both["nsp_loss"], rel=1e-5)
    some = first_update(DistillConfig(weight=0.0, relations=2.0))
    assert some["loss"] == pytest.approx(plain + both["nsp_loss"] + 2 * alone["relations_loss"], rel=1e-5)


@pytest.mark.thorough
def test_accumulated_losses_of_layers_are_those_of_one_batch(model_config: ModelConfig, dataset: Path) -> None:
    config = dataclasses.replace(model_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    teacher = LayersTeacher(dataclasses.replace(model_config, hidden_size=30))
    spread(teacher, 1)
    found = []
    for size in (6, 2):  # the second one with recomputed activations
        config = dataclasses.replace(config, recompute_activations=size == 2)
        task = Distilled(Pretraining(config, seed=3), teacher, dataclasses.replace(LAYERS, outputs=1.0, weight=0.0), 7)
        batches = BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=size), seed=1).read(0)
        measures = step_of(task).update(1, batches, rate=1e-3)
        found.append((measures, {name: weight.numpy() for name, weight in variables(task.module).items()}))
    (one, weights_of_one), (two, weights_of_two) = found
    assert two == pytest.approx(one, rel=1e-5, abs=1e-5)
    for name, weight in weights_of_one.items():
        np.testing.assert_allclose(weights_of_two[name], weight, rtol=1e-4, atol=2e-6, err_msg=name)


def test_losses_that_two_models_cannot_have_are_refused(model_config: ModelConfig) -> None:
    teacher = dataclasses.replace(model_config, hidden_size=24, num_hidden_layers=5, num_attention_heads=3)
    for fields, reason in (
        ({"cosine": 1.0}, "needs equal widths, but the model has 20 and the teacher 24"),
        ({"attention": 1.0, "layers": (0, 4)}, "needs equal heads, but the model has 5 and the teacher 3"),
        ({"hidden": 1.0}, "its 5 layers are no multiple of the model's 2; give --distill.layers"),
        ({"hidden": 1.0, "layers": (1,)}, "distill.layers has 1 layers, the model 2"),
        ({"hidden": 1.0, "layers": (1, 5)}, "distill.layers 5: it has the layers 0 to 4"),
        ({"relations": 1.0}, "3 relation heads do not divide the width 20"),
        ({"relations": 1.0, "relation_heads": 4, "relation_layer": 5}, "relation_layer 5: it has the layers 0 to 4"),
    ):
        with pytest.raises(UsageError, match=reason):
            DistillConfig(**fields).check_fit(model_config, teacher)
    DistillConfig(hidden=1.0, layers=(1, 1), relations=1.0, relation_heads=4).check_fit(model_config, teacher)
    for fields, reason in (
        ({"outputs": 0.0}, "leaves nothing to learn"),
        ({"layers": (0, 1), "relations": 1.0}, "distill.layers has no effect without"),
        ({"relation_heads": 4, "hidden": 1.0}, "relation_heads has no effect without distill.relations"),
    ):
        with pytest.raises(UsageError, match=reason):
            DistillConfig(**fields)


def whole_and_resumed(student: list[str], folder: Path) -> None:
    """Train two updates in `whole`, and from its first checkpoint again the second one in `parts`."""
    pretrain.main([*student, "--run.directory", f"{folder}/whole"])
    shutil.copytree(folder / "whole", folder / "parts")
    shutil.rmtree(folder / "parts" / "checkpoints" / "step-00000002")
    pretrain.main([*student, "--run.directory", f"{folder}/parts"])


@pytest.mark.slow
def test_a_projection_is_trained_and_resumed_and_nothing_else_has_it(
    model_config: ModelConfig, dataset: Path, tmp_path: Path
) -> None:
    base = ["demo_phase1", "--data.train", str(dataset), *TINY, "--batch.per_device", "3", "--run.save_every", "1"]
    base += EVALUATED
    saved(tmp_path / "t", dataset, dataclasses.replace(model_config, hidden_size=30), 0.5)
    layers = ["--distill.outputs", "0", "--distill.hidden", "1", "--distill.relations", "1"]
    student = [*base, "--run.steps", "2", "--run.keep", "9", "--distill.teacher", f"{tmp_path}/t", *layers]
    whole_and_resumed(student, tmp_path)
    first, last = (weights(tmp_path / "parts", step) for step in (1, 2))
    same_bits(weights(tmp_path / "whole", 2), last)
    kernel = "distillation/projection/kernel"
    assert first[kernel].shape == (20, 30) and (first[kernel] != last[kernel]).any()
    assert not (first["masked_lm/bias"].any() or last["adam_m/masked_lm/bias"].any())  # no head learns
    heldout = [at["loss"] for key, at in measured(tmp_path / "whole").items() if key[1] == "heldout"]
    assert heldout and all("mlm_loss" not in at for at in measured(tmp_path / "whole").values())
    convert.main(["export", "huggingface", f"{tmp_path}/whole", f"{tmp_path}/exported"])
    convert.main(["import", "huggingface", f"{tmp_path}/exported", f"{tmp_path}/back"])
    np.testing.assert_array_equal(
        weights(tmp_path / "back", 0)["layer_0/mlp/inner/kernel"], last["layer_0/mlp/inner/kernel"]
    )
    base += ["--run.steps", "1", "--run.evaluate_every", "0", "--init.checkpoint", f"{tmp_path}/whole"]
    for more in ([], ["--distill.teacher", f"{tmp_path}/t", *layers]):  # without the projection, or with a new one
        again = f"{tmp_path}/again{len(more)}"
        pretrain.main([*base, *more, "--run.directory", again])
        assert (kernel in weights(Path(again), 1)) == bool(more)
    for flags, reason in (
        (["--parallel.overlap", "true"], "needs the hidden states of all layers at once; leave out --parallel.overlap"),
        (["--distill.cosine", "1"], "t: distill.cosine needs equal widths"),
        (["--distill.relation_layer", "2"], "t: distill.relation_layer 2: it has the layers 0 to 1"),
        (["--distill.teacher", "none"], "--distill.outputs has no effect without distill.teacher"),
    ):
        with pytest.raises(UserError, match=reason):
            pretrain.main([*student, *flags, "--run.directory", f"{tmp_path}/bad"])
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
def test_a_student_takes_layers_learns_from_a_teacher_and_resumes_to_the_same_bits(
    dataset: Path, tmp_path: Path
) -> None:
    base = ["demo_phase1", "--data.train", str(dataset), *SIZES, "--batch.per_device", "6", "--run.save_every", "1"]
    base += ["--run.keep", "9"]
    pretrain.main([*base, "--model.num_hidden_layers", "3", "--run.steps", "1", "--run.directory", f"{tmp_path}/t"])
    student = [*base, "--run.steps", "2", "--init.checkpoint", f"{tmp_path}/t", "--init.layers", "2", "0"]
    student += ["--distill.teacher", f"{tmp_path}/t", "--distill.temperature", "3"]
    whole_and_resumed(student, tmp_path)
    teacher, start = weights(tmp_path / "t", 1), weights(tmp_path / "whole", 1)  # the first update has a rate of 0
    for here, there in (("layer_0/", "layer_2/"), ("layer_1/", "layer_0/"), ("embeddings/", "embeddings/")):
        names = [name for name in start if name.startswith(here)]
        assert names
        for name in names:
            np.testing.assert_array_equal(start[name], teacher[there + name.removeprefix(here)], err_msg=name)
    assert not any("layer_2/" in name for name in start)
    same_bits(weights(tmp_path / "whole", 2), weights(tmp_path / "parts", 2))
    for flags, reason in (
        (["--init.layers", "3"], r"--init\.layers 3: .* has the layers 0 to 2"),
        (["--model.num_hidden_layers", "3"], "contradicts the weights"),
        (["--distill.teacher", str(tmp_path / "none")], "none: no such folder; give the run directory of a trained"),
    ):
        with pytest.raises(UserError, match=reason):
            pretrain.main([*student, *flags, "--run.directory", f"{tmp_path}/bad"])
