"""A new kind of head is a row of the table of heads and its classes: here texts with several labels at once."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("starlette", reason="the service needs it")

from bert import heads
from bert.core.config import ModelConfig
from bert.export import __main__ as export
from bert.export import onnx_files, texts
from bert.model import losses
from bert.model.heads import Output
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from bert.text.vocabulary import SPECIAL
from serve import heads as served
from serve import models
from tasks import datasets, metrics, predict, scoring, train
from tasks.classification import Classification
from tasks.examples import Skipped, TextExample
from tasks.loading import load
from tasks.model import Reader
from tests.serve.test_app import client

WORDS = ["ant", "bee", "fig", "kiwi", "the", "and"]
LABELS = {"animal": {"ant", "bee"}, "fruit": {"fig", "kiwi"}}


class Several(Output):
    """A logit for each label of a text."""

    def __init__(self, config: ModelConfig, seed: int, outputs: int) -> None:
        super().__init__(config, seed, "several", outputs)


class SeveralTexts(texts.Classifying):
    """The probability of each label, from texts."""

    def _answer(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"probabilities": tf.sigmoid(logits)}


SEVERAL = dataclasses.replace(
    heads.CLASSIFIER,
    name="several",
    module=f"{__name__}:Several",
    number=False,
    export=f"{__name__}:SeveralTexts",
    layouts={"several": f"{__name__}:KNOWN"},
    served=f"{__name__}:Answering",
    google="",
    transformers="",
)


class Labelling(Classification):
    """What a run on texts with several labels consists of; a label of a file is "a b", or "" for none."""

    head = SEVERAL

    def features(self) -> dict[str, dict[str, Any]]:
        label = {"shape": [self.labels.outputs], "dtype": "int64"}
        return super().features() | {"label": label}

    def encode(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        arrays = super().encode([dataclasses.replace(example, label=None) for example in examples], tokenizer)
        if examples[0].label is not None:
            arrays["label"] = self._expected(examples)
        return arrays

    def _expected(self, examples: Sequence[TextExample]) -> np.ndarray:
        found = [str(example.label).split() for example in examples]
        return np.array([[name in labels for name in self.labels.names] for labels in found], np.int64)

    def measure(self, logits: tf.Tensor, batch: Batch) -> losses.Measure:
        labels = tf.cast(batch["label"], tf.float32)
        loss = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        right = tf.reduce_all((logits > 0) == (labels > 0), axis=1)
        return losses.Measure(tf.reduce_sum(loss), tf.reduce_sum(tf.cast(right, tf.float32)))

    def scores(self, logits: np.ndarray, gold: dict[str, np.ndarray]) -> metrics.Scores:
        right = ((logits > 0) == (gold["label"] > 0)).all(axis=1)
        return metrics.Scores.of_fractions({"accuracy": float(right.mean())}, {})

    def predictions(
        self, examples: Sequence[TextExample], arrays: dict[str, np.ndarray], logits: np.ndarray
    ) -> list[dict[str, Any]]:
        chosen = [[name for name, x in zip(self.labels.names, row, strict=True) if x > 0] for row in logits]
        return [{"id": example.id, "labels": found} for example, found in zip(examples, chosen, strict=True)]


KNOWN = dataclasses.replace(datasets.KNOWN["classify"], kind=Labelling, metrics=("accuracy",), labels=(*LABELS,))


class Answering(served.Classifying):
    """Several labels of a text."""

    route, title, answer = "several", "Label a text", "`labels`"


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row, also in the table that is made of it."""
    monkeypatch.setitem(heads.KINDS, "several", SEVERAL)
    monkeypatch.setitem(datasets.KNOWN.paths, "several", SEVERAL.layouts["several"])


def write(path: Path, count: int, seed: int) -> Path:
    random = np.random.default_rng(seed)
    lines = ["label\ttext"]
    for _ in range(count):
        words = random.choice(WORDS, random.integers(1, 6)).tolist()
        lines.append(f"{' '.join(name for name, of in LABELS.items() if of & {*words}) or 'none'}\t{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n")
    return path


MODEL = """--model.hidden_size 24 --model.num_attention_heads 3 --model.num_hidden_layers 1 --model.intermediate_size 40
    --model.max_position_embeddings 33 --model.hidden_dropout_prob 0 --model.attention_probs_dropout_prob 0
    --data.length 17 --batch.total 24 --batch.per_device 24 --optimizer.learning_rate 0.01 --length.epochs 20"""


@pytest.mark.slow
def test_a_head_of_a_test_file_is_trained_scored_predicted_exported_and_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    files = f"--data.train {write(tmp_path / 'train.tsv', 240, 1)} --data.dev {write(tmp_path / 'dev.tsv', 53, 2)}"
    run, start = tmp_path / "run", f"--init.checkpoint none --data.vocab {tmp_path}/vocab.txt"
    train.main(f"classify --data.task several {files} {start} --run.directory {run} {MODEL}".split())
    assert json.loads((run / "config.json").read_text())["head"] == "several"
    model = load(run)
    assert scoring.evaluate(model, Reader(model, 7), tmp_path / "dev.tsv", Skipped())["accuracy"] > 80  # by chance: 25
    capsys.readouterr()
    predict.main(["--model", str(run), "the fig and ant"])
    labels = json.loads(capsys.readouterr().out)["labels"]
    export.main(["savedmodel", str(run), str(tmp_path / "served")])
    signature = tf.saved_model.load(str(tmp_path / "served/1")).signatures["serving_default"]
    found = signature(text=tf.constant(["the fig and ant"]))["probabilities"].numpy()
    assert [name for name, p in zip(LABELS, found[0], strict=True) if p > 0.5] == labels
    with client(models.Models({"run": run}, "float32", 8)) as asked:
        assert asked.post("/v1/several", json={"text": "the fig and ant"}).json()["labels"] == labels
    exported = onnx_files.load(run, "float32", 20)
    (tmp_path / "onnx").mkdir()
    described = onnx_files.write(exported, tmp_path / "onnx", int8=False)  # compares it with ours
    assert described["head"] == "several" and described["labels"] == [*LABELS]
