"""What a run on windows of long texts learns: each text counts once, however many windows it has."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.text.sampler import Batch, BatchSampler
from bert.text.vocabulary import SPECIAL
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer
from bert.training.step import Step
from tasks import datasets, predict, train
from tasks.config import TaskData
from tasks.labels import Labels
from tasks.preparing import mean_weight
from tasks.training import FineTuning
from tests.tasks.test_train_predict import MODEL

TOTAL, CLASSES = 4, 3
COUNTS = np.array([1, 7, 1, 3, 1])  # windows of each text: 13 in all, so updates of 4 end within an epoch
TINY = ModelConfig(
    vocab_size=11,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=1,
    intermediate_size=6,
    max_position_embeddings=6,
    hidden_dropout_prob=0,
    attention_probs_dropout_prob=0,
)


class Windows:
    """Windows in memory, as a Source has them."""

    def __init__(self, label: np.ndarray) -> None:
        """label: of each text."""
        random, size = np.random.default_rng(5), COUNTS.sum()
        ids = random.integers(1, 11, (size, 5))
        self.arrays = {
            "input_ids": ids.astype(np.int32),
            "input_mask": np.ones_like(ids, np.int32),
            "segment_ids": np.zeros_like(ids, np.int32),
            "label": np.repeat(label, COUNTS, axis=0),
            "windows": np.repeat(COUNTS, COUNTS)[:, None].astype(np.int32),
        }

    def __len__(self) -> int:
        return int(COUNTS.sum())

    def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> Batch:
        return {name: tf.constant(values[indices]) for name, values in self.arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize("ranks, per_device", [(1, 4), (1, 2), (2, 1)])
@pytest.mark.parametrize(
    "task, weights", [("classify", None), ("classify", (0.5, 2.0, 3.25)), ("regress", None), ("multilabel", None)]
)
def test_over_an_epoch_each_text_has_the_weight_of_one(
    task: str, weights: tuple[float, ...] | None, ranks: int, per_device: int
) -> None:
    """Summed over updates in which every window is as often, the gradients are those of the mean over the texts."""
    names = () if task == "regress" else ("a", "b", "c")
    kind = datasets.kind(
        TaskData(task=task, windows="mean"), Labels(names=names, regression=not names, weights=weights)
    )
    label = {
        "classify": np.array([[0], [2], [1], [1], [0]], np.int32),
        "regress": np.array([[0.5], [-2], [1], [3], [0]], np.float32),
        "multilabel": np.array([[0, 1, 0], [1, 1, -1], [0, 0, 0], [-1, 1, 1], [1, 0, 0]], np.float32),
    }[task]
    source, objective = Windows(label), FineTuning(kind, TINY, seed=1)
    objective.divisors = {kind.objective: TOTAL * mean_weight(kind, source)}  # type: ignore[arg-type]
    learns, every = variables(objective.module), source.read(np.arange(len(source)))
    with tf.GradientTape() as tape:
        summed = kind.measure(objective.module(every, Mode(tf.float32, DropoutRng(None))), every).loss
        of_texts = np.array(weights)[label] if weights else label >= 0 if task == "multilabel" else np.ones(len(COUNTS))
        loss = summed / of_texts.sum()
    expected = tape.gradient(loss, list(learns.values()))
    found = [0.0] * len(learns)
    updates = len(source)  # of 4 windows: 4 epochs of 13
    batch = BatchConfig(total=TOTAL, per_device=per_device, bucket_by_length=0)
    for rank in range(ranks):
        sampler = BatchSampler(source, batch, 7, rank, ranks)
        optimizer = Optimizer(learns, OptimizerConfig(learning_rate=1.0))
        step = Step(objective, optimizer, Communicator(), PrecisionConfig(), RunConfig(seed=4))
        for update in range(updates):
            measured = step.update(update, sampler.read(update), rate=0.0)
            if "classify" in task:
                assert measured[f"{kind.objective}_accuracy"] <= 100.001  # of the update's own samples
            found = [
                total + gradient.numpy() for total, gradient in zip(found, step.accumulator.gradients, strict=True)
            ]
    for name, total, gradient in zip(learns, found, expected, strict=True):
        value = np.zeros(learns[name].shape) if gradient is None else tf.convert_to_tensor(gradient).numpy()
        np.testing.assert_allclose(total / updates, value, rtol=2e-4, atol=2e-6, err_msg=name)


@pytest.mark.slow
def test_few_long_texts_do_not_outvote_many_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words say nothing of the class here, so the probability of a class is its share of the texts: 3 of 63."""
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    random, words = np.random.default_rng(1), ["ant", "bee", "fig", "kiwi", "the", "and"]
    texts = [(6, "short")] * 60 + [(2_800, "long")] * 3  # of 1 and of 400 windows
    lines = [f"{' '.join(random.choice(words, count))}\t{name}" for count, name in texts]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
    train.main(
        f"classify --data.train {tmp_path / 'train.tsv'} --data.windows mean --data.stride 7 --data.length 9 "
        f"--init.checkpoint none --data.vocab {tmp_path}/vocab.txt --run.directory {tmp_path / 'run'} {MODEL} "
        "--batch.total 24 --batch.per_device 24 --optimizer.learning_rate 0.003 --length.epochs 5 "
        "--length.evaluations 0".split()
    )
    asked = [" ".join(random.choice(words, 7)) for _ in range(20)]
    (tmp_path / "asked.tsv").write_text("\n".join(["text", *asked]) + "\n")
    output = tmp_path / "out.jsonl"
    predict.main(["--model", f"{tmp_path}/run", "--input", f"{tmp_path}/asked.tsv", "--output", str(output)])
    found = [json.loads(line)["probabilities"]["long"] for line in output.read_text().splitlines()]
    assert 0.01 < np.mean(found) < 0.1  # if each update is divided by its own weights: 0.99
