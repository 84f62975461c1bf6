"""NeoBERT computes the same in its published code and here, for models that come in and that go out again.

transformers has no NeoBERT. $NEOBERT_CODE is the folder src/neobert/model of a clone of
github.com/chandar-lab/NeoBERT; without it only tokens are compared. The transcription of this code in
tests/extensions/families/test_neobert.py needs no clone; a test here compares both.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert.core.config import ModelConfig
from bert.text.tokenization import WordPieceTokenizer
from tests.extensions.families import test_neobert
from tests.parity.test_transformers import Arrays, command, oracle, ours, theirs

pytestmark = pytest.mark.parity

CODE = os.environ.get("NEOBERT_CODE", "")
CLASS = {"NeoBERTForSequenceClassification": "NeoBERTHFForSequenceClassification"}  # which has the same tensors
TEXTS = ["w1 W3 w25, \u00e9w2\u4e2dw4", "", "unknown w9"]
needs_code = pytest.mark.skipif(not CODE, reason="give a clone of github.com/chandar-lab/NeoBERT as $NEOBERT_CODE")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs in theirs/KIND, as they came in in run/KIND, as these went out in back/KIND."""
    root = tmp_path_factory.mktemp("neobert")
    for kind in test_neobert.KINDS:
        test_neobert.a_folder(root / "theirs" / kind, kind)
        command("import", root / "theirs" / kind, root / "run" / kind)
        command("export", root / "run" / kind, root / "back" / kind)
    return root


@pytest.fixture(scope="module")
def computed(converted: Path) -> Path:
    """The same, with the outputs of the published code beside theirs and those that went out."""
    ids, mask = test_neobert.inputs()
    np.savez(converted / "inputs.npz", allow_pickle=False, input_ids=ids, attention_mask=mask)
    folders = [converted / form / kind for form in ("theirs", "back") for kind in test_neobert.KINDS]
    classes = {folder: CLASS.get(folder.name, folder.name) for folder in folders}
    oracle(
        *(
            ("neobert", CODE, name, folder, converted / "inputs.npz", folder / "outputs.npz")
            for folder, name in classes.items()
        )
    )
    return converted


@needs_code
@pytest.mark.parametrize("kind", test_neobert.KINDS)
def test_what_comes_in_computes_the_same_here(kind: str, computed: Path) -> None:
    run, expected = computed / "run" / kind, theirs(computed / "theirs" / kind)
    config, (ids, mask) = ModelConfig.load(run / "bert_config.json"), test_neobert.inputs()
    given: Arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}
    ours_of = {"NeoBERT": "encoder", "NeoBERTLMHead": "BertForMaskedLM"}
    found = ours(run, ours_of.get(kind, "BertForSequenceClassification"), config, given)
    found["hidden_representation"] = found["hidden"] = found["hidden_states"][-1]
    for name, value in expected.items():
        inside = mask > 0 if value.shape[:2] == mask.shape else slice(None)
        np.testing.assert_allclose(found[name][inside], value[inside], rtol=0, atol=1e-5, err_msg=name)
        assert np.std(value) > 0.01, f"{name} says nothing"


@needs_code
def test_the_transcription_computes_the_same(computed: Path) -> None:
    folder, (ids, mask) = computed / "theirs/NeoBERT", test_neobert.inputs()
    found = test_neobert.published(load_file(folder / "model.safetensors"), ids, mask)
    np.testing.assert_allclose(found[mask > 0], theirs(folder)["hidden"][mask > 0], rtol=0, atol=1e-5)


@needs_code
@pytest.mark.parametrize("kind", test_neobert.KINDS)
def test_what_goes_out_computes_the_same_there(kind: str, computed: Path) -> None:
    before, after = (theirs(computed / form / kind) for form in ("theirs", "back"))
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)


def test_tokens_are_those_of_transformers(converted: Path) -> None:
    folders = [converted / form / test_neobert.KINDS[1] for form in ("theirs", "back")]
    rows = oracle(*(("tokens", folder, text) for folder in folders for text in TEXTS))
    here = WordPieceTokenizer(converted / "run" / test_neobert.KINDS[1] / "vocab.txt")
    for text, before, after in zip(TEXTS, rows[: len(TEXTS)], rows[len(TEXTS) :], strict=True):
        assert before == after == here.row(here.encode([text])[0]).ids.tolist(), text
