"""Shards: the split depends on the content and its source alone, and never parts identical texts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.errors import InputError
from bert.storage import manifest
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
    sources = data.draw(st.lists(st.integers(0, 2), min_size=len(keys), max_size=len(keys)))
    try:
        files, source_of_file = shards.assign(np.array(keys, np.uint64), np.array(sources), count, fraction)
    except InputError:
        assert len(set(keys)) < 2 * (count + 1)
        return
    held_out_files = len(source_of_file)
    assert len({(key, file) for key, file in zip(keys, files, strict=True)}) == len(set(keys))
    assert set(files) == set(range(held_out_files + count)) and source_of_file == sorted(source_of_file)
    first_of = {key: source for key, source in zip(reversed(keys), reversed(sources), strict=True)}
    for key, file in zip(keys, files, strict=True):
        assert file >= held_out_files or source_of_file[file] == first_of[key]
    distinct = np.array(list(first_of), np.uint64)
    files, _ = shards.assign(distinct, np.array([first_of[key] for key in first_of]), count, fraction)
    sizes = np.bincount(files)[held_out_files:]
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_one_source_is_cut_in_the_order_of_its_keys(seed):
    keys = np.random.default_rng(seed).integers(0, 2**63, 1003).astype(np.uint64)
    files, source_of_file = shards.assign(keys, np.zeros(1003, np.uint16), 117, 0.03)
    assert source_of_file == [0] * 4  # 3 % of the shards
    for place, document in enumerate(sorted(range(1003), key=keys.__getitem__)):
        expected = place * 4 // 30 if place < 30 else 4 + (place - 30) * 117 // 973
        assert files[document] == expected


@pytest.mark.parametrize(
    ("sizes", "fraction", "held_out"),
    [
        ([5000, 100], 0.02, [100, 2]),
        ([5000, 74, 19, 9], 0.02, [100, 2, 1, 0]),  # at least two, but at most a tenth
        ([5000, 9], 0.2, [1000, 2]),
        ([9, 8], 0.02, [1, 0]),  # at least one of all
    ],
)
def test_each_source_holds_out_its_share(sizes, fraction, held_out):
    assert shards.held_out_counts(np.array(sizes), fraction).tolist() == held_out


def test_a_held_out_shard_has_documents_of_one_source(tmp_path, stage, folder, read):
    texts = {"wikipedia": documents(300, "wikipedia"), "books": documents(340, "books")[300:]}
    texts["books"] += [text | {"id": f"copy:{n}"} for n, text in enumerate(texts["wikipedia"])]
    made = [folder(name, name, {"part-00000.jsonl": _as_texts(texts[name])}) for name in texts]
    out = tmp_path / "documents"
    assert stage("documents", "--source", *made, "--output", out, "--minimum_characters", 9, "--workers", 1)[0] == 0
    code, lines = run(stage, out, tmp_path / "out", shards=60, held_out_fraction=0.05)
    assert code == 0 and lines[-1].endswith("323 in 60 training shards, 17 held out (15 of wikipedia, 2 of books)")
    found = {name: listed.source for name, listed in manifest.load(tmp_path / "out").files.items()}
    held_out = {name: source for name, source in found.items() if name.startswith("heldout")}
    assert list(held_out.values()) == ["wikipedia"] * 3 + ["books"]
    for name, source in found.items():
        origins = {document["id"].split(":")[1].rstrip("0123456789") for document in read(tmp_path / "out", name)}
        assert origins == {source} or (source is None and name.startswith("train"))


def _as_texts(sentences: list[dict[str, Any]]) -> list[dict[str, object]]:
    return [{"id": document["id"], "text": " ".join(document["sentences"])} for document in sentences]


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
    one_source = np.zeros(50, np.uint16)
    files = [shards.assign(np.array(k, np.uint64), one_source, 2, 0.2)[0] for k in keys]
    held_out = [np.flatnonzero(of_seed == 0).tolist() for of_seed in files]
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
