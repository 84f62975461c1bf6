"""Comparisons of fine-tuning: what the peer is given, and how scores over seeds become a table."""

import dataclasses
import json
import math
import statistics
from pathlib import Path

import pytest

from benchmarks import fine_tuning, task_scores
from bert.core.config import OptimizerConfig
from bert.core.errors import UsageError
from tasks.recipes import RECIPES

ROWS = [("no", "the ant is here"), ("yes", "a\u00e7\u00e3o, lime and plum"), ("no", "bee")]


def test_the_peer_gets_the_texts_and_labels_of_the_file_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("\n".join(["label\ttext", *map("\t".join, ROWS)]) + "\n", encoding="utf-8")
    data = dataclasses.replace(RECIPES["classify"]().data, train=path)
    given = list(task_scores.raw_examples(data))
    assert [(example["label"], example["first"], example["second"]) for example in given] == [
        (label, text, None) for label, text in ROWS
    ]
    limited = task_scores.raw_examples(dataclasses.replace(data, limit=2))
    assert list(limited) == given[:2]


def test_both_sides_get_the_same_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(fine_tuning, "run_checked", lambda words: commands.append(list(words)))
    given = fine_tuning.Comparison(checkpoint=tmp_path, output=tmp_path, peer_python=Path("p"), batch=16)
    trained = fine_tuning.train_ours(("tasks.train", "mrpc"), tmp_path, given, 30, 7, {"data.length": 64})
    rates = fine_tuning.learning(OptimizerConfig(name="adamw", learning_rate=0.5), 30, given.learning_rate)
    peer = fine_tuning.run_peer(tmp_path, given, [{"first": "Who?"}], rates | {"seed": 7})
    assert (trained, peer) == (tmp_path / "ours", tmp_path / "peer")
    module, recipe, *words = commands[0][2:]
    flags = dict(zip(words[::2], words[1::2], strict=True))
    assert (module, recipe) == ("tasks.train", "mrpc") and flags["--init.checkpoint"] == str(tmp_path / "start")
    wanted = json.loads((tmp_path / "settings.json").read_text())
    assert (flags["--batch.total"], flags["--batch.per_device"], wanted["batch"]) == ("16", "16", 16)
    assert flags["--precision.compute"] == wanted["compute"] == "bfloat16" and wanted["order"] == "shuffled"
    assert (flags["--run.steps"], len(wanted["rates"])) == ("30", 30)
    assert flags["--optimizer.warmup_steps"] == "3" and max(wanted["rates"]) < given.learning_rate
    assert (flags["--run.seed"], wanted["seed"]) == ("7", 7)
    assert commands[2][0] == str(Path("p").absolute()) and commands[2][2] == fine_tuning.PEER


def test_the_peer_learns_at_our_rates() -> None:
    optimizer = OptimizerConfig(name="adamw", learning_rate=0.5, beta_2=0.97, weight_decay=0.03)
    given = fine_tuning.learning(optimizer, steps=30, peak=0.6)
    expected = [0, 0.2, 0.4, *(0.6 * (1 - done / 30) for done in range(3, 30))]  # a tenth is warm-up
    assert given["rates"] == pytest.approx(expected)
    assert (given["betas"], given["weight_decay"]) == ([optimizer.beta_1, 0.97], 0.03)


def test_the_table_has_means_deviations_and_the_standard_error_of_the_difference() -> None:
    ours, theirs = [57.0, 59.0, 64.0], [50.0, 53.0]
    lines = [
        {"task": "rte", "side": side, "accuracy": score, "sequences_per_second": speed}
        for side, scores, speed in (("ours", ours, 30.0), ("transformers", theirs, 20.0))
        for score in scores
    ]
    error = math.sqrt(statistics.variance(ours) / 3 + statistics.variance(theirs) / 2)
    cells = [cell.strip() for cell in task_scores.table(lines).splitlines()[-1].split("|")[1:-1]]
    assert cells[:3] == ["rte", "accuracy", "60.00 +- 3.61"]
    assert cells[3:] == ["51.50 +- 2.12", "+8.50", f"{error:.2f}", "30.0", "20.0", "1.50"]


@pytest.mark.parametrize(
    ("data", "train"), [(None, None), (Path("glue"), Path("train.tsv")), (None, Path("train.tsv"))]
)
def test_examples_come_from_a_data_set_or_from_two_files(data: Path | None, train: Path | None) -> None:
    with pytest.raises(UsageError, match="give either --data, or --train and --dev"):
        task_scores.Options(checkpoint=Path("c"), output=Path("o"), peer_python=Path("p"), data=data, train=train)
