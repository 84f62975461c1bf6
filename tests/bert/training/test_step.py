"""An update is the gradient of the whole batch, however it is divided into micro-batches and compiled."""

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import BatchConfig, InitConfig, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.pretraining import Pretraining
from bert.text.records import Dataset
from bert.text.sampler import Batch, BatchSampler
from bert.training.accumulation import shapes
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer, learning
from bert.training.step import Step
from bert.training.task import Task
from tests.training import ROOT

PLAIN = PrecisionConfig()
Update = tuple[dict[str, np.ndarray], dict[str, float]]


def step_of(task: Task, comm: Communicator | None = None, precision: PrecisionConfig = PLAIN) -> Step:
    optimizer = Optimizer(variables(task.module), OptimizerConfig(learning_rate=1.0))
    return Step(task, optimizer, comm or Communicator(), precision, RunConfig(seed=4))


def batches_of(dataset: Path) -> list[Batch]:
    """Two micro-batches of three samples."""
    return BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=3), seed=1).read(0)


def updated(config: ModelConfig, batches: list[Batch], *, precision: PrecisionConfig = PLAIN) -> Update:
    """Weights and measures after two updates over the same micro-batches."""
    step = step_of(Pretraining(config, seed=3), precision=precision)
    before: list[np.ndarray] = []

    def check_unchanged() -> None:
        assert all(np.array_equal(x, variable) for x, variable in zip(before, step.state.values(), strict=True))
        before.clear()

    for number in (1, 2):
        before += [variable.numpy().copy() for variable in step.state.values()]
        measures = step.update(number, batches, rate=1e-2, stop=False, before_change=check_unchanged)
        assert not before, "it was called"
    if precision.xla:  # each shape is compiled once
        different = [shape for shape, _ in itertools.groupby(batches, key=shapes)]
        assert step.accumulator.loop.experimental_get_tracing_count() == len(different)
    return {name: weight.numpy() for name, weight in step.optimizer.weights.items()}, measures


def without_dropout(config: ModelConfig) -> ModelConfig:
    return dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def close(one: Update, two: Update, *, rtol: float, atol: float) -> None:
    for name, weight in one[0].items():
        np.testing.assert_allclose(weight, two[0][name], rtol=rtol, atol=atol, err_msg=name)
    assert one[1] == pytest.approx(two[1], rel=max(rtol, 1e-5), abs=1e-5)


@pytest.mark.slow
def test_accumulating_micro_batches_equals_one_big_batch(model_config: ModelConfig, dataset: Path) -> None:
    # The samples have 1 to 3 predictions each: dividing by each micro-batch's own count would not give this.
    data, config = Dataset(dataset, "train"), without_dropout(model_config)
    big = BatchSampler(data, BatchConfig(total=12, per_device=12), seed=1).read(0)
    small = BatchSampler(data, BatchConfig(total=12, per_device=3), seed=1).read(0)
    assert (len(big), len(small)) == (1, 4)
    close(updated(config, big), updated(config, small), rtol=1e-4, atol=2e-6)


@pytest.mark.slow
def test_frozen_weights_keep_their_bits_and_change_no_gradient_of_others(
    model_config: ModelConfig, dataset: Path
) -> None:
    batches = batches_of(dataset)
    gradients = []
    for frozen_layers in (0, 1):
        task = Pretraining(model_config, seed=3)
        every = variables(task.module)
        before = {name: weight.numpy() for name, weight in every.items()}
        learns = learning(every, InitConfig(frozen_layers=frozen_layers))
        frozen = {name: weight for name, weight in every.items() if name not in learns}
        optimizer = Optimizer(learns, OptimizerConfig(learning_rate=1.0, layer_decay=0.5))
        step = Step(task, optimizer, Communicator(), PLAIN, RunConfig(seed=4), frozen=frozen)
        step.update(1, batches, rate=1e-2)
        assert every.keys() <= step.state.keys()
        gradients.append({name: x.numpy() for name, x in zip(learns, step.accumulator.gradients, strict=True)})
        assert {name for name in frozen if name.startswith("layer_")} == (
            {name for name in every if name.startswith("layer_0/")} if frozen_layers else set()
        )
        for name, weight in every.items():
            unchanged = weight.numpy().tobytes() == before[name].tobytes()
            assert unchanged == (name in frozen), name
    for name, gradient in gradients[1].items():
        np.testing.assert_allclose(gradient, gradients[0][name], rtol=1e-5, atol=1e-8, err_msg=name)


class Predicting(Pretraining):
    """Pretraining whose outputs are the sums of its losses."""

    def predict(self, batch: Batch, mode: Mode) -> dict[str, tf.Tensor]:
        return {"loss": self.measure(batch, mode)["mlm"].loss}


@pytest.mark.slow
def test_each_update_and_micro_batch_has_other_dropout_masks_and_an_evaluation_changes_none(
    model_config: ModelConfig, dataset: Path
) -> None:
    config = dataclasses.replace(model_config, num_hidden_layers=1)
    batches = batches_of(dataset)
    task = Predicting(config, seed=3)
    step = step_of(task)
    weights = [task.weights(batch)["mlm"] for batch in batches]

    def losses(*numbers: int, order: int = 1) -> list[float]:
        """Return the losses of these updates, at a rate of 0: only their masks differ."""
        return [step.update(number, batches[::order], rate=0.0)["mlm_loss"] for number in numbers]

    first, second, third = losses(1, 2, 3)
    assert len({first, second, third}) == 3
    assert losses(1, 2) == [first, second]  # they follow from the number
    assert losses(1, order=-1)[0] != pytest.approx(first, rel=1e-6)  # the sum would be the same with equal masks
    evaluated = step.evaluate({"": batches})["mlm_loss"]
    assert evaluated == step.evaluate({"": batches})["mlm_loss"] not in (first, second, third)
    predicted = sum(float(step.predict(batch)["loss"]) / float(tf.add_n(weights)) for batch in batches)
    assert predicted == pytest.approx(evaluated, rel=1e-6)
    assert losses(3) == [third]


def in_a_process(code: str, *arguments: object) -> None:
    """Runs Python in a process of its own, where no function has been traced for shapes that are left open."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.thorough
def test_micro_batches_of_several_shapes_add_up_with_xla_as_without(dataset: Path) -> None:
    code = """
import sys
from pathlib import Path
from bert.text.sampler import BatchSampler
from bert.core.config import BatchConfig, ModelConfig, PrecisionConfig
from bert.text.records import Dataset
from bert.training.communicator import Communicator
from tests.bert.training.test_step import close, updated
data = Dataset(Path(sys.argv[1]), "train")
batches = BatchSampler(data, BatchConfig(total=12, per_device=3), seed=1).read(0)
batches[2] = {name: values[:2] for name, values in batches[2].items()}
config = ModelConfig(vocab_size=99, hidden_size=20, num_hidden_layers=2, num_attention_heads=5, intermediate_size=28)
compiled, plain = (updated(config, batches, precision=PrecisionConfig(xla=xla)) for xla in (True, False))
close(plain, compiled, rtol=1e-3, atol=2e-5)
"""
    in_a_process(code, dataset)


@pytest.mark.slow
def test_dropout_masks_are_not_constants_of_the_compiled_program(dataset: Path) -> None:
    """Even a single micro-batch runs in the loop: outside it TensorFlow folds the counters of all masks."""
    code = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from bert.core.config import ModelConfig, PrecisionConfig
from bert.pretraining import Pretraining
from bert.text.records import Dataset
from bert.training.accumulation import stack
from tests.bert.training.test_step import step_of
rows, sizes = Dataset(Path(sys.argv[1]), "train").read(np.arange(17)), []
task = Pretraining(ModelConfig(vocab_size=99, hidden_size=20, num_hidden_layers=1, num_attention_heads=5), seed=3)
step = step_of(task, precision=PrecisionConfig(xla=True))
weights = {name: tf.constant(7.0) for name in task.names}
for count in (2, 17):
    batch = stack([{name: values[:count] for name, values in rows.items()}])
    places = tf.zeros([1], tf.int64)
    program = step.accumulator.loop.experimental_get_compiler_ir(batch, weights, tf.constant(5, tf.int64), places)
    sizes.append(len(program(stage="hlo_serialized")))
assert sizes[1] < 1.02 * sizes[0], sizes
"""
    in_a_process(code, dataset)


@pytest.mark.slow
def test_recomputed_activations_change_nothing(shallow_config: ModelConfig, dataset: Path) -> None:
    batches = batches_of(dataset)
    again = dataclasses.replace(shallow_config, recompute_activations=True)
    kept, recomputed = (updated(config, batches) for config in (shallow_config, again))
    close(kept, recomputed, rtol=1e-4, atol=2e-6)  # dropout is on: its masks must be the same the second time


@pytest.mark.slow
def test_scores_beyond_the_vocabulary_change_nothing(shallow_config: ModelConfig, dataset: Path) -> None:
    batches = batches_of(dataset)
    rounded = dataclasses.replace(shallow_config, vocab_multiple=8)  # 104 instead of 99
    close(updated(shallow_config, batches), updated(rounded, batches), rtol=1e-4, atol=2e-6)
    task = Pretraining(rounded, seed=3)
    assert task.module(batches[0], Mode(tf.float32, DropoutRng(None)))[0].shape == [3, 3, 104]
    assert task.module.encoder.embeddings.word.shape == [99, 20]


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "measured"), [("sop", {"mlm", "sop"}), ("none", {"mlm"})])
def test_the_pair_objective_follows_the_data(
    pairs: str, measured: set[str], shallow_config: ModelConfig, dataset: Path
) -> None:
    task = Pretraining(shallow_config, seed=3, pairs=pairs)
    weights = variables(task.module)
    assert any(name.startswith(("pooler", "next_sentence")) for name in weights) == (pairs != "none")
    found = step_of(task).update(1, batches_of(dataset), rate=1e-2, stop=False)
    assert {name.removesuffix("_accuracy") for name in found if name.endswith("_accuracy")} == measured
    assert found["loss"] == pytest.approx(sum(found[f"{name}_loss"] for name in measured))


@pytest.mark.slow
def test_evaluation_is_the_mean_over_unequal_batches(model_config: ModelConfig, dataset: Path) -> None:
    step, data = step_of(Pretraining(model_config, seed=3)), Dataset(dataset, "heldout")
    whole = step.evaluate({"": [data.read(np.arange(11))]})
    parts = step.evaluate({"": [data.read(np.arange(0, 8)), data.read(np.arange(8, 11))]})
    assert whole == pytest.approx(parts, rel=1e-5)
    assert tf.math.is_finite(whole["loss"])


class Ranks(Communicator):
    """Ranks that evaluate one after the other: a sum is that of the ranks so far."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[float] = []
        self.calls = 0

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        self.calls += 1
        values = [float(tensor) for tensor in tensors]
        self.sums = [a + b for a, b in zip(self.sums or [0.0] * len(values), values, strict=True)]
        return [tf.constant(value) for value in self.sums]


@pytest.mark.slow
def test_the_figures_of_a_source_are_those_of_its_samples_alone(model_config: ModelConfig, dataset: Path) -> None:
    data, comm = Dataset(dataset, "heldout"), Ranks()
    step = step_of(Pretraining(model_config, seed=3), comm)

    def alone(*parts: np.ndarray) -> dict[str, float]:
        comm.sums = []
        return step.evaluate({"": [data.read(part) for part in parts]})

    wikipedia, books = [np.arange(0, 4), np.arange(4, 7)], [np.arange(7, 11)]
    expected = alone(*wikipedia, *books)
    expected |= {f"{name}/wikipedia": value for name, value in alone(*wikipedia).items() if name != "loss"}
    expected |= {f"{name}/books": value for name, value in alone(*books).items() if name != "loss"}
    assert {"loss", "mlm_accuracy/books", "nsp_loss/wikipedia"} < expected.keys()
    comm.sums, comm.calls = [], 0
    step.evaluate({"wikipedia": [data.read(wikipedia[0])], "books": []})  # this rank has no batch of books
    found = step.evaluate({"wikipedia": [data.read(wikipedia[1])], "books": [data.read(books[0])]})
    assert found == pytest.approx(expected, rel=1e-5) and found.keys() == expected.keys()
    assert comm.calls == 2  # one sum in each evaluation


@pytest.mark.slow
@pytest.mark.parametrize("label", [0, 1])
def test_pairs_of_one_label_have_no_figures(model_config: ModelConfig, dataset: Path, label: int) -> None:
    step, data = step_of(Pretraining(model_config, seed=3)), Dataset(dataset, "heldout")
    batch = data.read(np.arange(11))
    same = batch | {"next_sentence_labels": tf.fill([11, 1], label)}
    found = step.evaluate({"": [same]})
    assert found.keys() == {"loss", "mlm_loss", "mlm_accuracy"} and found["loss"] == found["mlm_loss"]
    found = step.evaluate({"one": [same], "both": [batch], "none": []})
    names = {f"nsp_{what}{source}" for what in ("loss", "accuracy") for source in ("", "/both")}
    assert {name for name in found if name.startswith("nsp")} == names
    assert "mlm_loss/one" in found and "mlm_loss/none" not in found
