"""A head for classes of sequences goes out and comes in with the names of its classes, or is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert.config import ModelConfig
from bert.convert import __main__ as convert
from bert.errors import InputError
from bert.inputs.vocabulary import SPECIAL
from bert.model.encoder import Encoder, variables
from bert.model.heads import Classifier, Pooler
from bert.training import checkpoint
from tests.training import VOCAB, same_bits, weights

CLASSES = 3
OTHER_CLASSES = "config.json: the classifier has 3 classes, "
Arrays = dict[str, np.ndarray]
Tensors = Callable[[Arrays], None]


@pytest.fixture
def theirs(model_config: ModelConfig, tmp_path: Path) -> Path:
    """A model with three classes in the folder that transformers would write, exported from run/."""
    modules: list[tf.Module] = [Encoder(model_config, 1), Pooler(model_config, 1), Classifier(model_config, 1, CLASSES)]
    values = {name: v.numpy() + 0.01 for module in modules for name, v in variables(module).items()}
    run = tmp_path / "run"
    run.mkdir()
    model_config.save(run / "bert_config.json")
    (run / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{i}" for i in range(VOCAB - len(SPECIAL)))]) + "\n")
    checkpoint.save(run, 0, values, keep=1)
    convert.main(["export", "huggingface", str(run), str(tmp_path / "huggingface")])
    return tmp_path / "huggingface"


def edit(folder: Path, **fields: Any) -> None:
    """Changes keys of config.json; None removes one."""
    path = folder / "config.json"
    facts = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))


def came_in(folder: Path) -> Path:
    run = folder.with_name("back")
    convert.main(["import", folder.name, str(folder), str(run)])
    return run


def test_classes_without_names_are_numbered_as_transformers_does(theirs: Path) -> None:
    facts = json.loads((theirs / "config.json").read_text())
    assert facts["architectures"] == ["BertForSequenceClassification"]
    assert facts["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert facts["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}
    assert load_file(theirs / "model.safetensors")["classifier.weight"].shape == (CLASSES, 20)


@pytest.mark.parametrize("fields", [{}, {"id2label": None}, {"id2label": None, "num_labels": 3}])
def test_unnamed_classes_come_in_whatever_says_their_number(fields: dict[str, Any], theirs: Path) -> None:
    edit(theirs, **fields)
    same_bits(weights(theirs.with_name("run"), 0), weights(came_in(theirs), 0))


def test_names_of_classes_are_kept_both_ways(theirs: Path, tmp_path: Path) -> None:
    edit(theirs, id2label={"2": "no", "0": "yes", "1": "perhaps"})
    convert.main(["export", "huggingface", str(came_in(theirs)), str(tmp_path / "again")])
    facts = json.loads((tmp_path / "again/config.json").read_text())
    assert facts["id2label"] == {"0": "yes", "1": "perhaps", "2": "no"}
    card = (tmp_path / "again/README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "| classes | yes, perhaps, no |" in card


def test_the_classifier_of_a_google_checkpoint_comes_in(theirs: Path, tmp_path: Path) -> None:
    run = theirs.with_name("run")
    convert.main(["export", "google", str(run), str(tmp_path / "google")])
    reader = tf.train.load_checkpoint(str(tmp_path / "google/bert_model.ckpt"))  # as run_classifier.py names it
    np.testing.assert_array_equal(reader.get_tensor("output_weights").T, weights(run, 0)["classifier/kernel"])
    np.testing.assert_array_equal(reader.get_tensor("output_bias"), weights(run, 0)["classifier/bias"])
    same_bits(weights(run, 0), weights(came_in(tmp_path / "google"), 0))


@pytest.mark.parametrize("kind", ["BertForTokenClassification", "BertForMultipleChoice", None])
def test_a_classifier_of_something_else_is_named_and_left_aside(kind: str | None, theirs: Path) -> None:
    edit(theirs, architectures=kind and [kind])
    run = came_in(theirs)
    assert not [name for name in weights(run, 0) if "classifier" in name]
    about = json.loads((run / "config.json").read_text())["imported"]
    assert about["ignored"] == ["classifier.bias", "classifier.weight"] and "classifier" in about["missing_heads"]


@pytest.mark.parametrize(
    ("change", "fields", "said"),
    [
        (lambda t: t.pop("classifier.bias"), {}, "missing tensor classifier.bias"),
        (lambda t: t.pop("classifier.weight"), {}, "missing tensor classifier.weight"),
        (lambda t: t.update({"classifier.weight": np.ones((4, 20), "f")}), {}, r"weight has shape \[4, 20\]"),
        (lambda t: t.update({"classifier.weight": np.ones((3, 19), "f")}), {}, r"weight has shape \[3, 19\]"),
        (lambda t: t.update({"classifier.bias": np.ones((), "f")}), {}, r"classifier\.\w+ has shape"),
        (
            lambda t: t.update({"classifier.dense.weight": np.ones(3, "f")}),
            {},
            "unknown tensors: classifier.dense",
        ),
        (
            lambda t: None,
            {"id2label": {"0": "a", "1": "b"}},
            f"{OTHER_CLASSES}id2label does not",
        ),
        (
            lambda t: None,
            {"id2label": {"0": "a", "1": "b", "3": "c"}},
            f"{OTHER_CLASSES}id2label does not",
        ),
        (
            lambda t: None,
            {"id2label": {"0": "a", "1": "b", "2": 5}},
            f"{OTHER_CLASSES}id2label does not",
        ),
        (lambda t: None, {"id2label": ["a", "b", "c"]}, f"{OTHER_CLASSES}id2label does not"),
        (
            lambda t: None,
            {"id2label": None, "num_labels": 10**16},
            f"{OTHER_CLASSES}num_labels does not",
        ),
    ],
)
def test_a_classifier_that_is_not_whole_or_of_other_classes_is_refused(
    change: Tensors, fields: dict[str, Any], said: str, theirs: Path
) -> None:
    tensors = load_file(theirs / "model.safetensors")
    change(tensors)
    save_file(tensors, theirs / "model.safetensors")
    edit(theirs, **fields)
    with pytest.raises(InputError, match=said):
        came_in(theirs)
    assert not theirs.with_name("back").exists()
