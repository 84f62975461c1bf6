"""What a run says about its head is read as it was written, or refused with the name of the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert import labels
from bert.core.errors import InputError
from bert.heads import KINDS
from bert.labels import Head

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
WRITTEN = Path("run/config.json")


@given(st.builds(Head, kind=st.sampled_from([*KINDS]), labels=st.lists(TEXT, unique=True, max_size=13).map(tuple)))
def test_a_head_is_read_as_it_was_written(head: Head) -> None:
    assert labels.of(json.loads(json.dumps(head.entries())), WRITTEN) == head


def test_the_tenth_name_stands_after_the_ninth(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(23)]
    facts = {"head": "tags", "id2label": dict(sorted(labels.by_number(names).items()))}  # "10" stands before "2"
    (tmp_path / "config.json").write_text(json.dumps(facts))
    assert labels.read(tmp_path) == Head(kind="tags", labels=tuple(names))


def test_an_import_of_an_earlier_version_has_a_classifier() -> None:
    assert labels.of({"id2label": {"0": "no", "1": "yes"}}, WRITTEN) == Head(kind="classifier", labels=("no", "yes"))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"head": "pooler"}, "head is 'pooler'"),
        ({"head": ["tags"]}, r"head is \['tags'\]"),
        ({"head": "classifier", "regression": 1}, "regression is 1"),
        ({"head": "tags", "id2label": {"0": "a", "2": "b"}}, "id2label does not name each class"),
        ({"head": "tags", "id2label": ["a", "b"]}, "id2label does not name each class"),
        ({"head": "tags", "id2label": {"0": 5}}, "id2label does not name each class"),
        ({"head": "tags", "id2label": {"0": "a", "1": "b", "2": "a"}}, "id2label names two classes 'a'"),
        ({"head": "tags", "id2label": {"0": "\ud800"}}, "half a surrogate pair"),
        ({"config": {}}, "names no head"),
        ([], "not an object"),
    ],
)
def test_what_is_no_head_is_refused(facts: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=rf"config\.json: .*{said}"):
        labels.read(tmp_path)


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_run_without_its_configuration_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"config\.json: "):
        labels.read(tmp_path)
