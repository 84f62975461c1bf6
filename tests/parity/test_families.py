"""DistilBERT and ELECTRA compute the same in transformers and here, for models that come in and that go out again.

As test_transformers.py, which has the oracle.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.config import ModelConfig
from tests.parity.test_transformers import (
    CHOICES,
    SEQUENCES,
    WORDS,
    Arrays,
    assert_equal,
    command,
    inputs,
    oracle,
    ours,
    theirs,
    to_run,
    vocabulary,
)

pytestmark = pytest.mark.parity

TITLES = {"distilbert": "DistilBert", "electra": "Electra"}
KINDS = ("BertModel", "BertForMaskedLM", "BertForQuestionAnswering", SEQUENCES, CHOICES, WORDS)
V, T = 97, 19
SEGMENTED = ModelConfig(vocab_size=V, type_vocab_size=2)
SIZES: dict[str, list[dict[str, Any]]] = {
    "distilbert": [
        {"dim": 20, "n_layers": 2, "n_heads": 5, "hidden_dim": 28, "activation": "gelu"},
        {"dim": 36, "n_layers": 7, "n_heads": 3, "hidden_dim": 130, "activation": "relu"},
    ],
    "electra": [  # narrow embeddings, and as wide as the rest
        {"embedding_size": 12, "hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 28},
        {"embedding_size": 36, "hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 130},
    ],
}
PLACES = [Path(family) / kind / str(size) for family in TITLES for kind in KINDS for size in (0, 1)]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs in theirs/FAMILY/KIND/SIZE, as they came in in run/..., as these went out in back/..."""
    root, made = tmp_path_factory.mktemp("families"), []
    for number, place in enumerate(PLACES):
        family, kind, size = place.parts
        folder = root / "theirs" / place
        folder.mkdir(parents=True)
        (folder / "vocab.txt").write_text(vocabulary(ModelConfig(vocab_size=V)))
        sizes = SIZES[family][int(size)] | {"vocab_size": V, "max_position_embeddings": 23}
        sizes |= {"num_hidden_layers": 3, "layer_norm_eps": 1e-6} if family == "electra" else {}
        sizes |= {"id2label": dict(enumerate(("no", "yes", "perhaps")))} if kind in (SEQUENCES, WORDS) else {}
        made.append(("make", kind.replace("Bert", TITLES[family]), folder, number, sizes))
    oracle(*made)
    for place in PLACES:
        command("import", root / "theirs" / place, root / "run" / place)
        command("export", root / "run" / place, root / "back" / place)
    oracle(
        *(to_run(root / form / place, given(place)) for form, place in itertools.product(("theirs", "back"), PLACES))
    )
    return root


def given(place: Path) -> Arrays:
    """Ids, mask and, for ELECTRA, segments."""
    found = inputs(SEGMENTED, T)
    return {name: value for name, value in found.items() if name != "token_type_ids" or "electra" in place.parts}


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_comes_in_computes_the_same_here(place: Path, converted: Path) -> None:
    run, kind = converted / "run" / place, place.parts[1]
    config = ModelConfig.load(run / "bert_config.json")
    expected = theirs(converted / "theirs" / place)
    found = ours(run, "encoder" if kind == "BertModel" else kind, config, inputs(SEGMENTED, T))  # no pooler there
    assert_equal(expected, found)
    for name, value in expected.items():
        np.testing.assert_allclose(value, found[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_goes_out_computes_the_same_there(place: Path, converted: Path) -> None:
    before, after = (theirs(converted / form / place) for form in ("theirs", "back"))
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)
    config = json.loads((converted / "back" / place / "config.json").read_text())
    assert config["architectures"] == [place.parts[1].replace("Bert", TITLES[place.parts[0]])]


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
        {"hidden_act": "relu", "layer_norm_eps": 1e-3, "vocab_size": 104},  # of 97 entries
        {"hidden_act": "gelu_pytorch_tanh"},
        {"hidden_act": "silu"},
    ],
    ids=str,
)
def test_other_activations_epsilons_and_rows_compute_the_same_both_ways(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/vocab.txt").write_text(vocabulary(SEGMENTED))
    sizes = {"vocab_size": V, "hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 5}
    sizes |= {"intermediate_size": 28, "max_position_embeddings": 23}
    oracle(("make", "BertForMaskedLM", tmp_path / "theirs", 3, sizes | changes))
    command("import", tmp_path / "theirs", tmp_path / "run")
    command("export", tmp_path / "run", tmp_path / "back")
    config = ModelConfig.load(tmp_path / "run/bert_config.json")
    found = ours(tmp_path / "run", "BertForMaskedLM", config, inputs(SEGMENTED, T))
    oracle(*(to_run(tmp_path / form, inputs(SEGMENTED, T)) for form in ("theirs", "back")))
    before, after = theirs(tmp_path / "theirs"), theirs(tmp_path / "back")
    assert before["logits"].shape[-1] == config.vocab_size
    for name, value in before.items():
        np.testing.assert_allclose(value, after[name], rtol=0, atol=1e-5, err_msg=name)  # tanh has one name
        np.testing.assert_allclose(value, found[name], rtol=0, atol=2e-5, err_msg=name)
