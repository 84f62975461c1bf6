"""Equal texts are found by arrays of hashes, which take few bytes for each."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bert.core.errors import InputError
from bert.text import contents
from extensions.search import passages


@pytest.mark.parametrize("count", [0, 1, 2, 997])
def test_first_rows_are_those_of_a_dictionary(count: int) -> None:
    numbers = np.random.default_rng(5).integers(0, 400, count)
    hashes = [contents.hashed(f"text {number}") for number in numbers]
    first = {each: row for row, each in reversed([*enumerate(hashes)])}
    found = contents.first_rows(contents.as_array(b"".join(hashes)))
    assert found.tolist() == [first[each] for each in hashes]


def test_rows_that_differ_in_one_half_only_are_different() -> None:
    rows = np.array([[1, 2], [2, 2], [1, 3], [1, 2], [2, 1]], np.uint64).view(np.uint8).reshape(-1, 16)
    assert contents.first_rows(rows).tolist() == [0, 1, 2, 0, 4]


@pytest.mark.slow
def test_ids_take_few_bytes_and_the_first_repeated_one_is_named(tmp_path: Path) -> None:
    path, count = tmp_path / "many.jsonl", 20_000
    lines = [json.dumps({"_id": f"document-{number:09}", "text": "a"}) for number in range(count)]
    path.write_text("\n".join(lines) + "\n")
    tracemalloc.start()
    assert sum(1 for _ in passages.read(path, "line")) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * count  # a dictionary of them takes more than 170
    path.write_text("\n".join([*lines, lines[7], lines[3]]) + "\n")
    with pytest.raises(InputError, match="line 20001: the id 'document-000000007' is that of line 8"):
        for _ in passages.read(path, "line"):
            pass


def test_an_id_that_is_no_unicode_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"_id": "\\ud800", "text": "a"}\n')
    with pytest.raises(InputError, match="line 1: id is not Unicode text"):
        [*passages.read(tmp_path / "a.jsonl", "line")]
