"""Shards: the split depends on the content alone, and never parts identical texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.errors import InputError
from data import shards


def documents(count: int, tag: str = "") -> list[dict[str, object]]:
    return [{"id": f"a:{tag}{n}", "sentences": [f"Text {n} has a sentence.", f"And {n} more."]} for n in range(count)]


def run(stage, source, output, **options):
    flags = [item for name, value in options.items() for item in (f"--{name}", value)]
    return stage("shards", "--source", source, "--output", output, *flags)


@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=9, max_size=60),
    count=st.integers(1, 5),
    fraction=st.floats(0.01, 0.4),
    data=st.data(),
)
def test_equal_keys_share_a_file_and_no_file_is_empty(keys, count, fraction, data):
    keys = keys + data.draw(st.lists(st.sampled_from(keys), max_size=9))
    try:
        files, held_out_files = shards.assign(np.array(keys, np.uint64), count, fraction)
    except InputError:
        assert len(set(keys)) < 2 * (count + 1)
        return
    assert len({(key, file) for key, file in zip(keys, files, strict=True)}) == len(set(keys))
    assert set(files) == set(range(held_out_files + count))
    sizes = np.bincount(shards.assign(np.unique(np.array(keys, np.uint64)), count, fraction)[0])[held_out_files:]
    assert sizes.max() - sizes.min() <= 1


def test_the_split_does_not_depend_on_order_or_names(tmp_path, stage, folder, read):
    texts = documents(99)
    again = [{"id": f"b:{n}", "sentences": text["sentences"]} for n, text in enumerate(reversed(texts))]
    one = folder("one", "documents", {"part-00000.jsonl": texts})
    two = folder("two", "documents", {"part-00000.jsonl": again[:30], "part-00001.jsonl": again[30:]})
    for source in (one, two):
        assert run(stage, source, tmp_path / f"{source.name}-out", shards=3, held_out_fraction=0.1)[0] == 0
    for name in ("heldout-00000-of-00001.jsonl", "train-00002-of-00003.jsonl"):
        sides = [{tuple(d["sentences"]) for d in read(tmp_path / f"{side}-out", name)} for side in ("one", "two")]
        assert sides[0] == sides[1]
    assert len(read(tmp_path / "one-out", "heldout-*")) == 10


def test_copies_of_a_text_never_stand_on_both_sides(tmp_path, stage, folder, read):
    source = folder("in", "documents", {"part-00000.jsonl": documents(40) + documents(40, "copy")})
    assert run(stage, source, tmp_path / "out", shards=3, held_out_fraction=0.3)[0] == 0
    held_out, train = (
        {tuple(d["sentences"]) for d in read(tmp_path / "out", f"{s}-*.jsonl")} for s in ("heldout", "train")
    )
    assert len(held_out) == 12 and len(train) == 28 and not held_out & train
    assert len(read(tmp_path / "out")) == 80


def test_another_seed_is_another_split():
    keys = [[shards.content_key([f"text {n}"], seed) for n in range(50)] for seed in (1, 2)]
    held_out = [np.flatnonzero(shards.assign(np.array(k, np.uint64), 2, 0.2)[0] == 0).tolist() for k in keys]
    assert held_out[0] != held_out[1]


def test_small_buffers_write_the_same(tmp_path, stage, folder, contents, monkeypatch):
    source = folder("in", "documents", {"part-00000.jsonl": documents(50)})
    assert run(stage, source, tmp_path / "a", shards=7)[0] == 0
    monkeypatch.setattr(shards, "BUFFER_BYTES", 99)
    assert run(stage, source, tmp_path / "b", shards=7)[0] == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_too_few_documents_are_refused_with_the_remedy(tmp_path, stage, folder):
    source = folder("in", "documents", {"part-00000.jsonl": documents(5)})
    code, lines = run(stage, source, tmp_path / "out", shards=5)
    assert (code, len(lines)) == (3, 1) and "fewer --shards" in lines[0] and not (tmp_path / "out").exists()
    assert run(stage, source, tmp_path / "out", shards=4)[0] == 0


@pytest.mark.parametrize("options", [{"shards": 0}, {"held_out_fraction": 0}, {"held_out_fraction": 1.0}])
def test_impossible_options_are_usage_errors(tmp_path, stage, options):
    assert run(stage, tmp_path, tmp_path / "out", **options)[0] == 2


def test_a_damaged_part_is_named(tmp_path, stage, folder):
    source = folder("in", "documents", {"part-00000.jsonl": documents(9)})
    part = source / "part-00000.jsonl"
    part.write_bytes(part.read_bytes()[:-7])
    assert run(stage, source, tmp_path / "out", shards=2)[0] == 4
    part.write_bytes(b"{" + part.read_bytes()[:-1] + b"1234567")
    code, lines = run(stage, source, tmp_path / "out", shards=2)
    assert code == 4 and "line 1 is not JSON" in lines[0]
