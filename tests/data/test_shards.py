"""Shards: the split depends on the content and its source alone, and never parts identical texts."""

import itertools
import json
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core import manifest
from bert.core.errors import InputError, ResourceError
from data import shards


def documents(count: int, tag: str = "") -> list[dict[str, object]]:
    return [{"id": f"a:{tag}{n}", "sentences": [f"Text {n} has a sentence.", f"And {n} more."]} for n in range(count)]


def run(stage, source, output, **options):
    flags = [item for name, value in ({"workers": 1} | options).items() for item in (f"--{name}", value)]
    return stage("shards", "--source", source, "--output", output, *flags)


KEYS = st.lists(st.integers(0, 2**64 - 1), min_size=9, max_size=60)


@given(keys=KEYS, count=st.integers(1, 5), fraction=st.floats(0.01, 0.4), exactly=st.booleans(), data=st.data())
def test_equal_keys_share_a_file_and_no_file_is_empty(keys, count, fraction, exactly, data):
    keys = keys + data.draw(st.lists(st.sampled_from(keys), max_size=9))
    sources = data.draw(st.lists(st.integers(0, 2), min_size=len(keys), max_size=len(keys)))
    trained = {key for key in keys if Fraction(key, 2**64) >= Fraction(fraction)}
    try:
        made = shards.assign(np.array(keys, np.uint64), np.array(sources), count, fraction, exactly=exactly)
    except InputError:
        assert len(trained) < (count if exactly else 1)
        return
    assert made.shards == (count if exactly else min(count, max(1, len(trained) // 8)))
    held_out_files = len(made.source_of_file)
    assert len({(key, file) for key, file in zip(keys, made.files, strict=True)}) == len(set(keys))
    assert set(made.files) == set(range(held_out_files + made.shards))
    assert made.source_of_file == sorted(made.source_of_file)
    first_of = {key: source for key, source in zip(reversed(keys), reversed(sources), strict=True)}
    for key, file in zip(keys, made.files, strict=True):
        assert (key in trained) == (file >= held_out_files)
        assert file >= held_out_files or made.source_of_file[file] == first_of[key]
    distinct = np.array(list(first_of), np.uint64)
    alone = shards.assign(distinct, np.array([*first_of.values()]), count, fraction, exactly=exactly)
    sizes = np.bincount(alone.files)[held_out_files:]
    assert sizes.max() - sizes.min() <= 1


@given(keys=KEYS, others=KEYS, fraction=st.floats(0.01, 0.6), count=st.integers(1, 9))
def test_more_documents_move_none_from_one_split_to_the_other(keys, others, fraction, count):
    def held_out(some):
        try:
            made = shards.assign(np.array(some, np.uint64), np.zeros(len(some), int), count, fraction, exactly=False)
        except InputError:  # nothing is left to train on
            return set(some)
        return {key for key, file in zip(some, made.files, strict=True) if file < len(made.source_of_file)}

    assert held_out(keys) == held_out(keys + others) & set(keys)


@pytest.mark.parametrize("seed", range(3))
def test_one_source_is_cut_in_the_order_of_its_keys(seed):
    keys = np.random.default_rng(seed).integers(0, 2**64, 1003, np.uint64)
    made = shards.assign(keys, np.zeros(1003, np.uint16), 117, 0.03)
    assert made.source_of_file == [0] * 4  # 3 % of the shards
    below = sum(key < 0.03 * 2**64 for key in keys.tolist())
    for place, document in enumerate(sorted(range(1003), key=keys.__getitem__)):
        expected = place * 4 // below if place < below else 4 + (place - below) * 117 // (1003 - below)
        assert made.files[document] == expected


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("--max_shards", 5)])
def test_a_small_folder_makes_the_shards_that_it_fills_and_says_so(tmp_path, stage, folder, read, given):
    source = folder("in", "documents", {"part-00000.jsonl": documents(33)})
    code, lines = stage("shards", "--source", source, "--output", tmp_path / "out", *given)
    trained = len(read(tmp_path / "out", "train-*"))
    assert code == 0 and len([*(tmp_path / "out").glob("train-*")]) == trained // 8 in (3, 4)
    assert any(f"{trained // 8} training shards instead of {5 if given else 8}" in line for line in lines)
    code, lines = run(stage, source, tmp_path / "out", shards=5 if given else 8)  # the same parameters, but exactly
    assert (code, len(lines)) == (3, 3) and "fewer --shards (SHARDS of make)" in lines[-1]


@pytest.mark.parametrize("count", [1, 2, 8, 97])
def test_nothing_held_out_is_told_with_the_fraction_that_holds_out_something(tmp_path, stage, folder, read, count):
    source = folder("in", "documents", {"part-00000.jsonl": documents(count)})
    code, lines = run(stage, source, tmp_path / "out", held_out_fraction=1e-9)
    warning = next(line for line in lines if "warning" in line)
    assert code == 0 and f"nothing is held out of {count} different documents" in warning
    assert len(read(tmp_path / "out", "train-*")) == count and not [*(tmp_path / "out").glob("heldout-*")]
    if count == 1:
        assert "a document is not cut" in warning
        return
    fraction = re.search(r"--held_out_fraction (\S+) .* holds out (\d+)", warning)
    assert fraction
    assert run(stage, source, tmp_path / "out", held_out_fraction=fraction[1])[0] == 0
    assert len(read(tmp_path / "out", "heldout-*")) == int(fraction[2]) >= min(2, count - 1)


def test_little_held_out_text_is_told_with_the_uncertainty_of_a_figure(tmp_path, stage, folder, read):
    source = folder("in", "documents", {"part-00000.jsonl": documents(400)})
    code, lines = run(stage, source, tmp_path / "out", held_out_fraction=0.1)
    held_out = read(tmp_path / "out", "heldout-*")
    characters = sum(len(sentence) for document in held_out for sentence in document["sentences"])
    points = 200 * 0.5 / (characters / 4.5 * 0.15) ** 0.5
    warning = lines[-2]
    assert code == 0 and f"{len(held_out)} documents with {characters:,} characters are held out" in warning
    assert abs(float(re.search(r"uncertain by (\S+) points", warning)[1]) - points) < 0.1 * points  # type: ignore[index]
    long = [document | {"sentences": ["x" * 9000, str(n)]} for n, document in enumerate(documents(400))]
    source = folder("long", "documents", {"part-00000.jsonl": long})
    code, lines = run(stage, source, tmp_path / "long-out", held_out_fraction=0.1)
    assert code == 0 and not any("warning" in line for line in lines)


def test_the_counts_add_up(tmp_path, stage, folder, read):
    source = folder("in", "documents", {"part-00000.jsonl": documents(311) + documents(9, "copy")})
    code, lines = run(stage, source, tmp_path / "out", held_out_fraction=0.1)
    counts = manifest.load(tmp_path / "out").counts
    trained = f"shards: {counts['train_documents']:,} with {counts['train_characters']:,} characters in "
    assert code == 0 and any(line.startswith(trained) for line in lines)
    for split, name in (("train", "train"), ("heldout", "held_out")):
        found = read(tmp_path / "out", f"{split}-*")
        assert counts[f"{name}_documents"] == len(found) > 0
        assert counts[f"{name}_characters"] == sum(len(one) for document in found for one in document["sentences"])
    for unit in ("documents", "characters"):
        assert counts[unit] == manifest.load(tmp_path / "out").count(f"train_{unit}") + int(
            str(counts[f"held_out_{unit}"])
        )


def test_a_held_out_shard_has_documents_of_one_source(tmp_path, stage, folder, read):
    texts = {"wikipedia": documents(300, "wikipedia"), "books": documents(340, "books")[300:]}
    texts["books"] += [text | {"id": f"copy:{n}"} for n, text in enumerate(texts["wikipedia"])]
    made = [folder(name, name, {"part-00000.jsonl": _as_texts(texts[name])}) for name in texts]
    out = tmp_path / "documents"
    assert stage("documents", "--source", *made, "--output", out, "--minimum_characters", 9, "--workers", 1)[0] == 0
    code, lines = run(stage, out, tmp_path / "out", shards=60, held_out_fraction=0.05)
    found = {name: listed.source for name, listed in manifest.load(tmp_path / "out").files.items()}
    held_out = {name: source for name, source in found.items() if name.startswith("heldout")}
    assert list(held_out.values()) == ["wikipedia"] * 3 + ["books"]
    each = {one: sum(len(read(tmp_path / "out", name)) for name in held_out if held_out[name] == one) for one in texts}
    assert code == 0 and f"({each['wikipedia']} of wikipedia, {each['books']} of books)" in lines[-3]
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
    assert read(tmp_path / "one-out", "heldout-*")


def test_copies_of_a_text_never_stand_on_both_sides(tmp_path, stage, folder, read):
    source = folder("in", "documents", {"part-00000.jsonl": documents(40) + documents(40, "copy")})
    assert run(stage, source, tmp_path / "out", shards=3, held_out_fraction=0.3)[0] == 0
    held_out, train = (
        {tuple(d["sentences"]) for d in read(tmp_path / "out", f"{s}-*.jsonl")} for s in ("heldout", "train")
    )
    assert len(held_out) + len(train) == 40 and held_out and not held_out & train
    assert len(read(tmp_path / "out")) == 80


def test_another_seed_is_another_split():
    keys = [[shards.content_key(f"text {n}", seed) for n in range(50)] for seed in (1, 2)]
    one_source = np.zeros(50, np.uint16)
    files = [shards.assign(np.array(k, np.uint64), one_source, 2, 0.2).files for k in keys]
    held_out = [np.flatnonzero(of_seed == 0).tolist() for of_seed in files]
    assert held_out[0] != held_out[1]


def test_small_buffers_write_the_same(tmp_path, stage, folder, contents, monkeypatch):
    source = folder("in", "documents", {"part-00000.jsonl": documents(50)})
    assert run(stage, source, tmp_path / "a", shards=7)[0] == 0
    monkeypatch.setattr(shards, "BUFFER_BYTES", 99)
    assert run(stage, source, tmp_path / "b", shards=7)[0] == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def _several_parts(folder):
    ends = [0, 31, 32, 90, 150]
    texts = documents(150)
    pieces = {f"part-{n:05d}.jsonl": texts[begin:end] for n, (begin, end) in enumerate(itertools.pairwise(ends))}
    return folder("in", "documents", pieces | {"part-00004.jsonl": []})


@pytest.mark.slow
def test_a_shard_has_its_lines_in_the_order_of_the_parts(tmp_path, stage, folder):
    """The oracle is a plain loop over all lines."""
    source, fraction = _several_parts(folder), 0.1
    lines = [line for path in sorted(source.glob("part-*")) for line in path.read_bytes().splitlines(keepends=True)]
    texts = ["\n".join(json.loads(line)["sentences"]) for line in lines]
    keys = np.array([shards.content_key(text, 12345) for text in texts], np.uint64)
    files = shards.assign(keys, np.zeros(len(keys), int), 5, fraction).files
    for workers in (1, 3):
        assert (
            run(stage, source, tmp_path / f"{workers}", shards=5, held_out_fraction=fraction, workers=workers)[0] == 0
        )
        names = sorted(path.name for path in (tmp_path / f"{workers}").glob("*.jsonl"))  # held out, then for training
        assert len(names) == max(files) + 1 > 5
        for number, name in enumerate(names):
            expected = b"".join(line for line, file in zip(lines, files, strict=True) if file == number)
            assert (tmp_path / f"{workers}" / name).read_bytes() == expected


def test_a_stage_that_stopped_while_it_copied_goes_on_there(tmp_path, stage, folder, contents, monkeypatch):
    source, copy = _several_parts(folder), shards.copy
    copied: list[str] = []
    assert run(stage, source, tmp_path / "whole", shards=3)[0] == 0

    def noted(task):
        copied.append(task.source.path.name)
        return copy(task)

    def stopped(task):
        if len(copied) == 2:
            raise ResourceError("no more")
        return noted(task)

    monkeypatch.setattr(shards, "SAVED_BYTES", 1)
    monkeypatch.setattr(shards, "copy", stopped)
    assert run(stage, source, tmp_path / "out", shards=3)[0] == 5 and not (tmp_path / "out").exists()
    monkeypatch.setattr(shards, "copy", noted)
    monkeypatch.setattr(shards, "write_keys", None)  # they are all there
    code, lines = run(stage, source, tmp_path / "out", shards=3)
    assert code == 0 and "shards: 2 of 5 parts are copied already" in lines
    assert copied == [f"part-{n:05d}.jsonl" for n in range(5)]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_part_that_changes_between_the_passes_is_named(tmp_path, stage, folder, monkeypatch):
    source, divide = _several_parts(folder), shards.ShardsStage._divide
    part = source / "part-00002.jsonl"
    whole = part.read_bytes()
    for changed in (whole.replace(b"Text 40 has", b"Text 40 had"), whole + whole, whole[: len(whole) // 2], b""):

        def change(self, work, changed=changed):
            part.write_bytes(changed)
            return divide(self, work)

        monkeypatch.setattr(shards.ShardsStage, "_divide", change)
        code, lines = run(stage, source, tmp_path / "out", shards=3)
        assert (code, len(lines)) == (4, 1) and "part-00002.jsonl" in lines[0] and not (tmp_path / "out").exists()
        part.write_bytes(whole)


def test_too_few_documents_are_refused_with_the_remedy(tmp_path, stage, folder):
    source = folder("in", "documents", {"part-00000.jsonl": documents(5)})
    code, lines = run(stage, source, tmp_path / "out", shards=6)
    assert (code, len(lines)) == (3, 1) and "fewer --shards" in lines[0] and not (tmp_path / "out").exists()
    assert run(stage, source, tmp_path / "out", shards=5)[0] == 0
    code, lines = run(stage, source, tmp_path / "all", held_out_fraction=0.999999)
    assert (code, len(lines)) == (3, 1) and "all 5 documents are held out" in lines[0]


@pytest.mark.parametrize("options", [{"shards": 0}, {"held_out_fraction": 0}, {"held_out_fraction": 1.0}])
def test_impossible_options_are_usage_errors(tmp_path, stage, options):
    assert run(stage, tmp_path, tmp_path / "out", **options)[0] == 2
