"""Where the files of a data set are, and what is said if they are not there."""

from pathlib import Path

import pytest

from bert.core.errors import InputError, UsageError
from tasks import datasets, glue
from tasks.config import TaskData
from tasks.examples import Skipped, TaggedSentence, TextExample
from tasks.known import KnownData


def touched(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_the_folder_may_be_that_of_the_task_or_the_one_above(tmp_path: Path) -> None:
    folder = touched(tmp_path, "RTE/train.tsv", "RTE/dev.tsv")
    for given in (folder, folder / "RTE"):
        found = datasets.sources(TaskData(task="rte", folder=given))
        assert found == {"train": folder / "RTE/train.tsv", "dev": folder / "RTE/dev.tsv"}


def test_files_given_replace_those_of_the_folder(tmp_path: Path) -> None:
    folder = touched(tmp_path, "RTE/train.tsv", "RTE/dev.tsv")
    found = datasets.sources(TaskData(task="rte", folder=folder, dev=Path("mine.tsv")))
    assert found == {"train": folder / "RTE/train.tsv", "dev": Path("mine.tsv")}


def test_both_development_sets_of_mnli_are_found_and_the_first_counts_in_training(tmp_path: Path) -> None:
    names = [f"MNLI/{name}.tsv" for name in ("train", "dev_matched", "dev_mismatched")]
    data = TaskData(task="mnli", folder=touched(tmp_path, *names))
    assert list(datasets.files(data, tmp_path, "dev")) == ["matched", "mismatched"]
    assert datasets.sources(data)["dev"] == tmp_path / "MNLI/dev_matched.tsv"


def test_the_original_file_of_mrpc_stands_for_a_missing_one(tmp_path: Path) -> None:
    data = TaskData(task="mrpc", folder=touched(tmp_path, "msr_paraphrase_train.txt", "dev.tsv"))
    assert datasets.sources(data) == {"train": tmp_path / "msr_paraphrase_train.txt", "dev": tmp_path / "dev.tsv"}


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (TaskData(task="rte", folder=Path("nowhere")), InputError, r"train\.tsv: no such file; give the folder of rte"),
        (TaskData(task="rte"), UsageError, r"give --data\.folder, the data set, or --data\.train"),
        (TaskData(task="classify"), UsageError, r"no examples: give --data\.train$"),
        (TaskData(task="classify", folder=Path("x")), UsageError, r"has no effect for classify"),
        (TaskData(task="ax", folder=Path("x")), UsageError, "ax has no training examples"),
        (TaskData(task="race", class_weights="balanced"), UsageError, "is for classes and tags"),
        (TaskData(task="stsb", class_weights="balanced"), UsageError, "is for classes and tags"),
        (TaskData(task="gluee"), UsageError, "one of cola, sst2"),
    ],
)
def test_what_is_missing_is_named(data: TaskData, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        datasets.sources(data)


def test_the_labels_of_an_example_of_each_kind() -> None:
    assert datasets.labels_of(TextExample(id="0", first="a", second=None, label="x")) == ("x",)
    assert datasets.labels_of(TextExample(id="0", first="a", second=None, label=None)) == ()
    assert datasets.labels_of(TaggedSentence(id="0", words=("a", "b"), tags=("O", "B-X"))) == ("O", "B-X")


def test_what_is_no_tag_of_an_entity_is_named_with_its_file_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("The\tO\n\ndog\tNN\n")
    data = TaskData(task="tag", train=tmp_path / "a.tsv")
    with pytest.raises(InputError, match=r"a\.tsv: sentence 1: 'NN' is no tag: .* give --data\.entities false"):
        list(datasets.of(data).read(data, tmp_path / "a.tsv", "train", Skipped()))


def test_every_row_of_the_table_is_there() -> None:
    assert {type(known) for known in datasets.KNOWN.values()} == {KnownData}
    assert list(glue.TASKS) == list(datasets.GLUE)
