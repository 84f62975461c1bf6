"""Cross-encoders of sentence-transformers come in with their activation, as CrossEncoder.predict of 6.2.0 applies it.

The activation that counts is the one of `CrossEncoder(folder).activation_fn` there.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert
from bert import labels
from bert.convert import __main__ as convert
from bert.core.errors import InputError
from bert.labels import Head
from bert.training import resume
from tests.bert.convert.folders import SMALL, Sequences
from tests.bert.convert.test_classifier import edit, exported

ACTIVATION, OLD = "activation_fn", "sbert_ce_default_activation_function"
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
SOFTMAX, TANH = "torch.nn.modules.activation.Softmax", "torch.nn.modules.activation.Tanh"
TYPE = "sentence_transformers.base.modules.transformer.Transformer"
SETTINGS = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


def a_folder(folder: Path, classes: int, said: dict[str, Any] | None, own: dict[str, Any], longest: int = 17) -> Path:
    """A folder as CrossEncoder.save writes it since 5.4; said: its configuration, None: as before, without modules.

    own: more of config.json, where None removes an entry.
    """
    theirs = exported(folder, Sequences(SMALL, classes))
    edit(theirs, **({"sentence_transformers": None, "problem_type": None} | own))
    tokenizer = json.loads((theirs / "tokenizer_config.json").read_text()) | {"model_max_length": longest}
    (theirs / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    if said is not None:
        (theirs / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": TYPE}]))
        (theirs / "sentence_bert_config.json").write_text(json.dumps(SETTINGS))
        about: dict[str, Any] = {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None}
        (theirs / "config_sentence_transformers.json").write_text(json.dumps(about | said))
    return theirs


def come_in(theirs: Path, *more: str) -> Path:
    run = theirs.with_name("run_of_theirs")
    convert.main(["import", "huggingface", str(theirs), str(run), *more])
    return run


@pytest.mark.parametrize(
    ("classes", "said", "own", "kind", "activation"),
    [
        (1, {ACTIVATION: SIGMOID}, {}, "classifier", "sigmoid"),
        (1, {ACTIVATION: IDENTITY}, {}, "classifier", ""),
        (1, {}, {}, "classifier", "sigmoid"),
        (1, {ACTIVATION: None}, {}, "classifier", "sigmoid"),
        (1, {ACTIVATION: IDENTITY}, {"sentence_transformers": {ACTIVATION: SIGMOID}}, "classifier", ""),
        (1, {}, {"sentence_transformers": {ACTIVATION: IDENTITY, "version": "4.1.0"}}, "classifier", ""),
        (1, None, {"sentence_transformers": {ACTIVATION: SIGMOID}}, "classifier", "sigmoid"),
        (1, None, {OLD: SIGMOID}, "classifier", "sigmoid"),
        (1, None, {OLD: IDENTITY}, "classifier", ""),
        (1, None, {}, "classifier", ""),  # nothing says it: a number, and a note
        (3, {ACTIVATION: IDENTITY}, {}, "classifier", ""),
        (3, {ACTIVATION: SOFTMAX}, {}, "classifier", ""),
        (3, {ACTIVATION: SIGMOID}, {}, "multilabel", ""),
        (3, None, {"sentence_transformers": {ACTIVATION: SIGMOID}}, "multilabel", ""),
    ],
)
def test_the_activation_is_the_one_that_counts_there(
    classes: int,
    said: dict[str, Any] | None,
    own: dict[str, Any],
    kind: str,
    activation: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = come_in(a_folder(tmp_path, classes, said, own, longest=11))
    head = labels.read(run)
    assert (head.kind, head.activation, head.regression) == (kind, activation, classes == 1)
    settings = json.loads((run / "config.json").read_text())
    assert settings.get("inputs") == (None if said is None and not own else {"length": 11, "odd_to_longer": True})
    printed = capsys.readouterr().err
    assert ("CrossEncoder takes the sigmoid" in printed) == (said is None and not own)
    assert ("here they are probabilities" in printed) == (said == {ACTIVATION: IDENTITY} and classes == 3)
    assert ("CrossEncoder gives the logits of an export" in printed) == (said == {ACTIVATION: SOFTMAX})


@pytest.mark.slow
@pytest.mark.parametrize("activation", [SIGMOID, IDENTITY])
def test_a_number_is_that_of_the_activation_and_goes_out_with_it(activation: str, tmp_path: Path) -> None:
    theirs = a_folder(tmp_path, 1, {ACTIVATION: activation}, {}, longest=10)
    firsts, seconds = ["river", "a b a b a b", "the"], ["flow", "river river the", "b ! ! a b a b a b a b"]
    model = bert.load(come_in(theirs))
    found = model.regress(firsts, seconds)

    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (theirs / name).unlink()
    edit(theirs, problem_type="regression")
    convert.main(["import", "huggingface", str(theirs), str(tmp_path / "logits")])
    fits = ["river", "a b a b", "the"], ["flow", "river river the", "b ! ! a b a"]  # of 7 tokens, as the model cuts
    logits = np.array(bert.load(tmp_path / "logits").regress(*fits))
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)) if activation == SIGMOID else logits, atol=1e-6)

    convert.main(["export", "huggingface", str(model.run.path), str(tmp_path / "back")])
    facts = json.loads((tmp_path / "back/config.json").read_text())
    assert facts["sentence_transformers"] == {ACTIVATION: activation}
    assert json.loads((tmp_path / "back/tokenizer_config.json").read_text())["model_max_length"] == 10
    convert.main(["import", "huggingface", str(tmp_path / "back"), str(tmp_path / "again")])
    assert bert.load(tmp_path / "again").regress(firsts, seconds) == found


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            {ACTIVATION: TANH},
            r"the activation of its scores is 'torch.nn.modules.activation.Tanh'; supported: Identity",
        ),
        ({ACTIVATION: "mine.Sigmoid"}, "the activation of its scores is 'mine.Sigmoid'; .*--head none imports"),
        ({ACTIVATION: SOFTMAX}, "the activation of its scores is"),  # of one number it is always 1
        ({"prompts": {"q": "q: "}, "default_prompt_name": "q"}, "default_prompt_name puts words before each pair"),
    ],
)
def test_what_would_change_the_scores_is_refused_by_name(said: dict[str, Any], message: str, tmp_path: Path) -> None:
    theirs = a_folder(tmp_path, 1, said, {})
    with pytest.raises(InputError, match=message):
        come_in(theirs)
    assert "head" not in json.loads((come_in(theirs, "--head", "none") / "config.json").read_text())


def test_training_a_number_does_not_start_from_the_sigmoid_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, number = come_in(a_folder(tmp_path, 1, {}, {})), Head(kind="classifier", regression=True)
    assert resume._head_of_other_classes(run, number.entries()) == "classifier"
    assert "classifier has the sigmoid of a number, not a number; initialised randomly" in capsys.readouterr().err
    assert resume._head_of_other_classes(run, labels.read(run).entries()) is None


def test_the_head_of_setfit_is_refused_or_named_as_left_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.bert.convert.test_sentence import a_folder as of_sentences

    theirs = tmp_path / "theirs"
    of_sentences(theirs, "cls", ["Pooling", "Normalize"])
    (theirs / "model_head.pkl").write_bytes(b"cos\nsystem\n(S'touch loaded'\ntR.")  # opened, it would run a command
    with pytest.raises(InputError, match=r"model_head\.pkl: the head of SetFit is a pickle.*never loaded; --head none"):
        come_in(theirs)
    (theirs / "config_setfit.json").write_text('{"labels": ["bad", "good"], "normalize_embeddings": false}')
    settings = json.loads((come_in(theirs, "--head", "none") / "config.json").read_text())
    assert settings["embedding"] == {"pool": "cls", "normalize": True, "length": 9} and "head" not in settings
    assert "left aside: the head of SetFit and the labels bad, good" in capsys.readouterr().err
