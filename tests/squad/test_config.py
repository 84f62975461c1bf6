"""A fine-tuning run must be told where its weights come from; `.` is the current folder."""

import dataclasses
from pathlib import Path

import pytest

from bert.config import Weights
from bert.errors import InputError, UsageError
from squad import train
from squad.config import SquadConfig, SquadData, StartConfig
from squad.recipes import RECIPES


def started(checkpoint: Path | Weights | None) -> SquadConfig:
    data = SquadData(vocab=Path("vocab.txt"))
    return dataclasses.replace(RECIPES["squad_tiny"](), data=data, init=StartConfig(checkpoint=checkpoint))


def test_not_given_random_and_the_current_folder_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = RECIPES["squad_tiny"]()
    with pytest.raises(UsageError, match=r"no weights: give --init\.checkpoint"):
        train.sources(started(None), recipe)
    assert train.sources(started(Weights.RANDOM), recipe) == (Path("vocab.txt"), recipe.model)
    with pytest.raises(InputError, match=r"^bert_config\.json: no such file"):
        train.sources(started(Path(".")), recipe)
    recipe.model.save(tmp_path / "bert_config.json")
    assert train.sources(started(Path(".")), recipe)[0] == Path("vocab.txt")


def test_the_current_folder_is_no_missing_training_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no questions: give --data\.train_file"):
        train.main(["squad_tiny"])
    with pytest.raises(UsageError, match="no weights"):
        train.main(["squad_tiny", "--data.train_file", "."])
