"""An objective of one file and one row is trained, resumed, evaluated and reported."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from bert import pretrain, report
from bert.core.config import ModelConfig
from bert.core.errors import Stopped, UsageError
from bert.core.objectives import OBJECTIVES
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.heads import Output
from bert.model.losses import Detection, Measure, detection
from bert.pretraining import PretrainingObjective
from bert.text.sampler import Batch
from bert.training import checkpoint, objective
from bert.training.objective import Objective
from bert.training.task import Task
from tests.training import VOCAB, same_bits, train_here, weights, write_dataset

HEAD = f"{checkpoint.OF_OBJECTIVE}/halves"
HALF = Objective("half", Detection, objective.DETECTION, factor=0.5, learns_labels=False)


class Model(tf.Module):
    """An encoder, and a head with one score for each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder, self.output = Encoder(config, seed=3), Output(config, 3, HEAD, outputs=1)


class Halves(Task):
    """Find the tokens that are of the second half of the vocabulary."""

    objectives = (HALF,)

    def __init__(self, config: ModelConfig) -> None:
        self.module = Model(config)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the number of tokens."""
        return {"half": tf.reduce_sum(tf.cast(batch["input_mask"] > 0, tf.float32))}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, Measure | Detection]:
        """Return the sums of the detection."""
        ids, mask = batch["input_ids"], batch["input_mask"]
        states = self.module.encoder(TokenBatch(ids, mask, batch["segment_ids"]), mode)
        logits = self.module.output(tf.reshape(states, [-1, states.shape[2]]), mode)[:, 0]
        labels, weights = (tf.cast(tf.reshape(x, [-1]), tf.float32) for x in (ids >= VOCAB // 2, mask > 0))
        return {"half": detection(logits, labels, weights)}


OBJECTIVE = PretrainingObjective(
    task=lambda config, data, parts: Halves(config.model), new_heads=(checkpoint.OF_OBJECTIVE,)
)


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES.paths, "halves", f"{__name__}:OBJECTIVE")


def train(data: Path, run: Path, steps: int, stop_at: int = 0) -> None:
    settings = ["--run.steps", str(steps), "--run.stop_at", str(stop_at), "--run.evaluate_every", "4"]
    train_here(data, run, *settings, "--objective.name", "halves")


@pytest.mark.slow
def test_an_objective_of_one_file_is_trained_resumed_evaluated_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_dataset(tmp_path / "data", pairs="none")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(data, whole, 40)
    with pytest.raises(Stopped):
        train(data, stopped, 40, stop_at=20)
    train(data, stopped, 40)
    same_bits(weights(whole, 40), weights(stopped, 40))
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line.get("split") == "heldout"][-1]
    assert last["half_accuracy"] > 80 and {"half_precision", "half_recall"} <= last.keys()  # by chance about 50
    assert last["loss"] == pytest.approx(0.5 * last["half_loss"], rel=1e-6)
    capsys.readouterr()
    report.main([str(whole), "--output", str(tmp_path / "report")])
    assert (tmp_path / "report").exists()


def test_the_name_of_an_objective_is_that_of_a_row() -> None:
    with pytest.raises(UsageError, match=r"'masked_words', .*, 'halves'"):
        pretrain.main(["bert_base_phase1", "--objective.name", "thirds"])


def test_an_objective_without_pairs_takes_no_samples_with_pairs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"objective\.name halves has no objective on pairs"):
        train(write_dataset(tmp_path / "data", pairs="nsp"), tmp_path / "run", 4)
