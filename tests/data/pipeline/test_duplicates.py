"""Repeated texts and ids are found, and what is held out depends on the text alone."""

import hashlib
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.workspace import Work
from data.pipeline import document_files, duplicates, tasks


@given(st.lists(st.integers(0, 9), max_size=40))
def test_first_of_each_key(numbers):
    keys = bytearray().join(hashlib.md5(bytes([number])).digest() for number in numbers)
    expected = [number not in numbers[:place] for place, number in enumerate(numbers)]
    assert duplicates.first_of_each(keys).tolist() == expected


@pytest.mark.parametrize(
    "text",
    ["e\u0301t\u00e9 \u1100\u1161 a\n\u212b", "plain", "", " \n ", "e\u0301" * 999 + " \u0958"]
    + ["x" * n + mark * 900 for n in range(3) for mark in ("\u304b\u3099", "\u1112\u1161\u11ab", "a\u0323\u0302")]
    + ["x" * n + "\u1112\u1161\u11ab\u3099" * 900 for n in range(4)],
)
def test_texts_are_composed(text):
    assert duplicates.normalise(text) == unicodedata.normalize("NFC", text)


@pytest.fixture
def sources(folder):
    texts = ["The mill.", "A caf\u00e9", "The  mill.", "A cafe\u0301\n", "River", "Weir"]
    records = [{"id": number if number < 5 else 0, "text": text} for number, text in enumerate(texts)]
    return document_files.find(
        folder("text", "text", {"part-0.jsonl": records[:2], "part-1.jsonl": records[2:]}), "part"
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_survey_finds_repeated_texts_and_ids_with_any_number_of_workers(sources, workers):
    found = duplicates.survey(sources, tasks.Options(workers=workers))
    assert [duplicates.VERDICTS[verdict] for verdict in found.verdicts] == [
        "",
        "",
        *["duplicates"] * 2,
        "",
        "repeated ids",
    ]
    assert [part.tolist() for part in found.split(np.arange(6))] == [[0, 1], [2, 3, 4, 5]]
    assert found.keys[0] == found.keys[2] and found.keys[1] == found.keys[3] and len(set(found.keys)) == 4


@pytest.mark.parametrize("share", [0.001, 0.1, 0.37, 0.999])
def test_the_share_is_held_out_and_a_larger_share_holds_out_the_same_and_more(share):
    texts = [f"text {number}" for number in range(5000)]
    held_out = np.array([duplicates.is_text_held_out(text, share) for text in texts])
    assert abs(held_out.mean() - share) < 4 * np.sqrt(share * (1 - share) / 5000)
    assert not (held_out & ~np.array([duplicates.is_text_held_out(text, share * 1.0005) for text in texts])).any()


def test_both_ways_to_ask_what_is_held_out_agree(sources):
    found = duplicates.survey(sources, tasks.Options(workers=1))
    texts = [record["text"] for part in sources for record in document_files.read_records(part, "text")]
    asked = [duplicates.is_text_held_out(text, 0.5) for text in texts]
    assert duplicates.is_held_out(found.keys, 0.5).tolist() == asked and 0 < sum(asked) < 6


def test_verdicts_are_found_once_and_kept(tmp_path):
    work, calls = Work(tmp_path / "out", tmp_path), []

    def find():
        calls.append(1)
        return [np.array([1, 0, 2], np.uint8), np.array([], np.uint8)]

    for _ in range(2):
        assert duplicates.saved_verdicts(work, find) == [b"\1\0\2", b""]
    assert len(calls) == 1
