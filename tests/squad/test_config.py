"""A fine-tuning run must be told where its weights come from; `.` is the current folder."""

import dataclasses
from pathlib import Path

import pytest

from bert.core.config import StartConfig, Weights
from bert.core.errors import InputError, UsageError
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
        fine_tuning.sources(started(None), (), VOCAB)
    assert fine_tuning.sources(started(Weights.RANDOM), (), VOCAB) == (VOCAB, recipe.model)
    with pytest.raises(InputError, match=r"^bert_config\.json: no such file"):
        fine_tuning.sources(started(Path(".")), (), VOCAB)
    recipe.model.save(tmp_path / "bert_config.json")
    assert fine_tuning.sources(started(Path(".")), (), VOCAB)[0] == VOCAB


def test_the_weights_give_the_architecture_and_the_command_may_give_the_rest(tmp_path: Path) -> None:
    theirs = dataclasses.replace(RECIPES["squad_base"]().model, num_hidden_layers=7, recompute_activations=True)
    dataclasses.replace(theirs, attention_probs_dropout_prob=0.0, fused_attention=True).save(
        tmp_path / "bert_config.json"
    )
    config = started(tmp_path)
    (_, model) = fine_tuning.sources(config, (), VOCAB)
    assert model == dataclasses.replace(theirs, attention_probs_dropout_prob=0.0)  # cuDNN was a choice of that run
    more = dataclasses.replace(config.model, hidden_dropout_prob=0.3, fused_attention=True)
    (_, model) = fine_tuning.sources(
        dataclasses.replace(config, model=more), {"hidden_dropout_prob", "fused_attention"}, VOCAB
    )
    assert model == dataclasses.replace(
        theirs, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.3, fused_attention=True
    )
    with pytest.raises(UsageError, match=r"--model\.num_hidden_layers 2 contradicts the weights of .* is 7"):
        fine_tuning.sources(config, {"num_hidden_layers"}, VOCAB)


def test_the_current_folder_is_no_missing_training_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no questions: give --data\.train_file"):
        train.main(["squad_tiny"])
    with pytest.raises(UsageError, match="no weights"):
        train.main(["squad_tiny", "--data.train_file", "."])
