"""Unsupported architectures are rejected."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert.convert import __main__ as convert
from bert.errors import InputError
from tests.bert.convert.folders import (
    their_folder,
)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "relu"),
        ("hidden_act", "gelu_new"),
        ("position_embedding_type", "relative_key"),
        ("layer_norm_eps", 1e-5),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("model_type", "xlm-roberta"),
        ("num_hidden_layers", 0),
        ("num_attention_heads", 0),
        ("num_attention_heads", 7),
        ("hidden_size", "20"),
        ("vocab_size", 30),
        ("hidden_dropout_prob", 1.5),
        ("hidden_dropout_prob", "much"),
    ],
)
def test_an_architecture_that_is_not_ours_is_refused_by_its_key(key: str, value: Any, tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    path = tmp_path / "theirs/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=f"config.json.*{key}|vocab.txt.*{key}"):
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
