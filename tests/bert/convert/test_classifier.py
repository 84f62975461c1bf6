"""Heads of tasks go out and come in with the names of their classes; refusals are in test_refusals.py."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from bert import labels
from bert.convert import __main__ as convert
from bert.core.errors import InputError, UsageError
from bert.labels import Head
from bert.training import checkpoint
from tasks import tables
from tasks.examples import Skipped
from tests.bert.convert.folders import SMALL, Choices, Sequences, Words, a_run
from tests.training import same_bits, sign, weights

CLASSES = 3
Arrays = dict[str, np.ndarray]


def edit(folder: Path, **fields: Any) -> None:
    """Changes keys of config.json; None removes one."""
    path = folder / "config.json"
    facts = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))


def came_in(folder: Path) -> Path:
    run = folder.with_name("back")
    convert.main(["import", folder.name, str(folder), str(run)])
    return run


def exported(folder: Path, module: tf.Module, **facts: Any) -> Path:
    """The export of a run with random weights, whose config.json says `facts`."""
    a_run(folder / "run", SMALL, module)
    (folder / "run/config.json").write_text(json.dumps({"config": {}} | facts))
    sign(folder / "run")
    convert.main(["export", "huggingface", str(folder / "run"), str(folder / "huggingface")])
    return folder / "huggingface"


def trained(run: Path) -> Arrays:
    """The weights of a run, without the state of the optimizer."""
    return {name: value for name, value in weights(run, 7).items() if name.split("/")[0] not in checkpoint.STATE}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A model with three classes in the folder that transformers would write, exported from run/."""
    return exported(tmp_path, Sequences(SMALL, CLASSES))


def test_classes_without_names_are_numbered_as_transformers_does(theirs: Path) -> None:
    facts = json.loads((theirs / "config.json").read_text())
    assert facts["architectures"] == ["BertForSequenceClassification"]
    assert facts["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert facts["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}
    assert load_file(theirs / "model.safetensors")["classifier.weight"].shape == (CLASSES, 20)


@pytest.mark.parametrize("fields", [{}, {"id2label": None}, {"id2label": None, "num_labels": 3}])
def test_unnamed_classes_come_in_whatever_says_their_number(fields: dict[str, Any], theirs: Path) -> None:
    edit(theirs, **fields)
    same_bits(trained(theirs.with_name("run")), weights(came_in(theirs), 0))


def test_names_of_classes_are_kept_both_ways(theirs: Path, tmp_path: Path) -> None:
    edit(theirs, id2label={"2": "no", "0": "yes", "1": "perhaps"})
    convert.main(["export", "huggingface", str(came_in(theirs)), str(tmp_path / "again")])
    facts = json.loads((tmp_path / "again/config.json").read_text())
    assert facts["id2label"] == {"0": "yes", "1": "perhaps", "2": "no"}
    card = (tmp_path / "again/README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "| classes | yes, perhaps, no |" in card


@pytest.mark.parametrize(
    ("given", "names"), [([2, 0, 1], ["2", "0", "1"]), ([True, False, "x"], ["true", "false", "x"])]
)
def test_names_that_are_numbers_or_booleans_are_those_that_files_with_labels_have(
    given: list[Any], names: list[str], theirs: Path
) -> None:
    edit(theirs, id2label={str(number): one for number, one in enumerate(given)})
    head = labels.read(came_in(theirs))
    assert head.labels == tuple(names)
    path = theirs.with_name("rows.jsonl")
    path.write_text("".join(json.dumps({"text": "a", "label": one}) + "\n" for one in given))
    read = tables.read(path, ("text",), "label", regression=False, skipped=Skipped(strict=True))
    assert tuple(example.label for example in read) == head.labels


def test_the_classifier_of_a_google_checkpoint_comes_in(theirs: Path, tmp_path: Path) -> None:
    run = theirs.with_name("run")
    convert.main(["export", "google", str(run), str(tmp_path / "google")])
    reader = tf.train.load_checkpoint(str(tmp_path / "google/bert_model.ckpt"))  # as run_classifier.py names it
    np.testing.assert_array_equal(reader.get_tensor("output_weights").T, trained(run)["classifier/kernel"])
    np.testing.assert_array_equal(reader.get_tensor("output_bias"), trained(run)["classifier/bias"])
    same_bits(trained(run), weights(came_in(tmp_path / "google"), 0))


@pytest.mark.parametrize("kind", ["BertForSomethingElse", ["BertForTokenClassification"]])
def test_a_classifier_of_something_else_is_named_and_left_aside(kind: Any, theirs: Path) -> None:
    edit(theirs, architectures=[kind])
    run = came_in(theirs)
    assert not [name for name in weights(run, 0) if "classifier" in name]
    about = json.loads((run / "config.json").read_text())["imported"]
    assert about["ignored"] == ["classifier.bias", "classifier.weight"] and "classifier" in about["missing_heads"]


def test_another_function_of_the_same_weights_is_left_aside(theirs: Path) -> None:
    edit(theirs, problem_type="regression")  # of three numbers
    about = json.loads((came_in(theirs) / "config.json").read_text())
    assert about["imported"]["ignored"] == ["classifier.bias", "classifier.weight"] and "head" not in about


TAGS = ("O", "B-PER", "I-PER")


@pytest.mark.parametrize(
    ("module", "head", "architecture", "names", "problem"),
    [
        (Words(SMALL, classes=3), Head(kind="tags", labels=TAGS), "TokenClassification", [*TAGS], None),
        (Choices(SMALL), Head(kind="choice", labels=("0", "1", "2", "3")), "MultipleChoice", [], None),
        # Without a name transformers expects two classes.
        (
            Sequences(SMALL, classes=1),
            Head(kind="classifier", regression=True),
            "SequenceClassification",
            ["LABEL_0"],
            "regression",
        ),
    ],
    ids=["tags", "choices", "number"],
)
def test_a_head_goes_out_and_comes_in(
    module: tf.Module, head: Head, architecture: str, names: list[str], problem: str | None, tmp_path: Path
) -> None:
    theirs = exported(tmp_path, module, **head.entries())
    facts = json.loads((theirs / "config.json").read_text())
    assert (facts["architectures"], facts.get("problem_type")) == ([f"BertFor{architecture}"], problem)
    assert facts.get("id2label", {}) == {str(number): name for number, name in enumerate(names)}
    assert facts.get("label2id", {}) == {name: number for number, name in enumerate(names)}
    identity = {"activation_fn": "torch.nn.modules.linear.Identity"}  # by default CrossEncoder takes the sigmoid
    assert facts.get("sentence_transformers") == (identity if head.regression else None)
    stored = load_file(theirs / "model.safetensors")
    assert stored["classifier.weight"].shape == (max(1, len(names)), 20)
    assert any("pooler" in name for name in stored) == (head.kind != "tags")
    if head.kind == "choice":  # as transformers may write it: of no head
        edit(theirs, id2label={"0": "LABEL_0", "1": "LABEL_1"})
        head = Head(kind="choice")
    assert labels.read(came_in(theirs)) == head
    same_bits(trained(tmp_path / "run"), weights(tmp_path / "back", 0))


@pytest.mark.parametrize("names", [("toxic", "insult", "threat"), ("toxic",)])
def test_several_labels_come_in_and_go_out_by_their_problem_type(names: tuple[str, ...], tmp_path: Path) -> None:
    theirs = exported(tmp_path, Sequences(SMALL, classes=len(names)), **Head(kind="classifier", labels=names).entries())
    edit(theirs, problem_type="multi_label_classification", id2label={str(n): name for n, name in enumerate(names)})
    run, head = came_in(theirs), Head(kind="multilabel", labels=names)
    assert labels.read(run) == head
    kernel = weights(run, 0)["multilabel/kernel"]
    np.testing.assert_array_equal(kernel, trained(tmp_path / "run")["classifier/kernel"])
    convert.main(["export", "huggingface", str(run), str(tmp_path / "again")])
    facts = json.loads((tmp_path / "again/config.json").read_text())
    assert facts["architectures"] == ["BertForSequenceClassification"]
    assert facts["problem_type"] == "multi_label_classification" and [*facts["id2label"].values()] == [*names]
    same_bits(load_file(theirs / "model.safetensors"), load_file(tmp_path / "again/model.safetensors"))
    with pytest.raises(InputError, match="the head multilabel has no form in Google's format"):
        convert.main(["export", "google", str(run), str(tmp_path / "google")])


def test_one_class_is_a_number_whatever_the_file_says_of_it(tmp_path: Path) -> None:
    theirs = exported(tmp_path, Sequences(SMALL, classes=1))
    edit(theirs, problem_type=None, id2label={"0": "similarity"})
    assert labels.read(came_in(theirs)) == Head(kind="classifier", labels=("similarity",), regression=True)


def test_an_import_is_given_the_names_that_its_source_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(tmp_path, Sequences(SMALL, classes=3), **Head(kind="classifier", labels=("no", "yes", "?")).entries())
    convert.main(["export", "google", str(tmp_path / "run"), str(tmp_path / "google")])
    assert "the format has no names of classes; give them to an import: no, yes, ?" in capsys.readouterr().err
    command = ["import", "google", str(tmp_path / "google"), str(tmp_path / "back")]
    convert.main(command)
    assert labels.read(tmp_path / "back").labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    convert.main([*command, "--labels", "no", "yes", "?"])
    assert labels.read(tmp_path / "back").labels == ("no", "yes", "?")
    for wrong in (["no", "yes"], ["no", "yes", "no"]):
        with pytest.raises(InputError, match="--labels"):
            convert.main([*command, "--labels", *wrong])
    with pytest.raises(UsageError, match="--labels has no effect on an export"):
        convert.main(["export", "google", "a", "b", "--labels", "no"])


@pytest.mark.parametrize(
    ("module", "head", "said"),
    [
        (Sequences(SMALL, 3), Head(kind="classifier", labels=("a", "b", "c")), "| output | class of a text, or"),
        (Sequences(SMALL, 1), Head(kind="classifier", regression=True), "| output | a number for a text, or"),
        (Choices(SMALL), Head(kind="choice", labels=("0", "1")), "| output | score of a choice"),
        (Words(SMALL, 3), Head(kind="tags", labels=("a", "b", "c")), "| output | class of each word"),
    ],
)
def test_the_card_says_what_the_output_is_and_how_it_was_trained(
    module: tf.Module, head: Head, said: str, tmp_path: Path
) -> None:
    settings = {"data.task": "mine", "init.checkpoint": "base", "model.hidden_size": 20, "data.text": ["a b", "c"]}
    theirs = exported(tmp_path, module, config=settings, recipe="classify", **head.entries())
    card = (theirs / "README.md").read_text()
    assert said in card and "python -m tasks.train classify" in card and "--model." not in card
    assert "    --data.text 'a b' c" in card
    assert ("| classes | a, b, c |" in card) == (head.labels == ("a", "b", "c"))
    assert "pipeline_tag: feature-extraction" not in card and "- `data.task`: `mine`" in card
