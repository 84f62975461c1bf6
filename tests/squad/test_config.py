"""A fine-tuning run must be told where its weights come from; `.` is the current folder."""

import dataclasses
from pathlib import Path

import pytest

from bert.config import StartConfig, Weights
from bert.errors import InputError, UsageError
from bert.training import fine_tuning
from squad import train
from squad.config import SquadConfig
from squad.recipes import RECIPES

VOCAB = Path("vocab.txt")


def started(checkpoint: Path | Weights | None) -> SquadConfig:
    return dataclasses.replace(RECIPES["squad_tiny"](), init=StartConfig(checkpoint=checkpoint))


def test_not_given_random_and_the_current_folder_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = RECIPES["squad_tiny"]()
    with pytest.raises(UsageError, match=r"no weights: give --init\.checkpoint"):
        fine_tuning.sources(started(None), recipe, VOCAB)
    assert fine_tuning.sources(started(Weights.RANDOM), recipe, VOCAB) == (VOCAB, recipe.model)
    with pytest.raises(InputError, match=r"^bert_config\.json: no such file"):
        fine_tuning.sources(started(Path(".")), recipe, VOCAB)
    recipe.model.save(tmp_path / "bert_config.json")
    assert fine_tuning.sources(started(Path(".")), recipe, VOCAB)[0] == VOCAB


def test_the_current_folder_is_no_missing_training_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no questions: give --data\.train_file"):
        train.main(["squad_tiny"])
    with pytest.raises(UsageError, match="no weights"):
        train.main(["squad_tiny", "--data.train_file", "."])
