"""Every stage counts what it reads, writes and drops, by reason; the numbers add up and are those of the files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core import manifest
from bert.text import records
from data.pipeline import drop_counts

SENTENCES = [f"The river {word} the mill at number {n}." for n in range(9) for word in ("passes", "floods", "turns")]


def reported(folder: Path) -> drop_counts.Report:
    found: drop_counts.Report = manifest.load(folder).extra["losses"]
    for unit in drop_counts.UNITS:
        numbers = dict(found[unit])
        assert numbers.pop("in") == numbers.pop("out") + sum(numbers.values())
    return found


def sizes(documents: list[dict[str, Any]]) -> tuple[int, int]:
    """How many documents, pieces of one counted once, and characters there are."""
    texts = ["".join(document.get("sentences", [document.get("text", "")])) for document in documents]
    return sum("#" not in document["id"] for document in documents), sum(map(len, texts))


def wrapped(count: int) -> str:
    return "\n".join("\n".join(SENTENCES[n % 27].rsplit(" ", 3)) for n in range(count))


@pytest.fixture
def texts(tmp_path: Path, stage: Any) -> Path:
    source = tmp_path / "in"
    source.mkdir()
    rows = [" ".join(SENTENCES[n % 17 : n % 17 + 4]) for n in range(40)]  # of which 23 repeat another
    lines = [json.dumps({"id": n, "text": text}) for n, text in enumerate([*rows, " ", "", "Short."])]
    (source / "a.jsonl").write_text("\n".join([*lines, '{"text": 3}', json.dumps({"id": 1, "text": rows[3] + "!"})]))
    (source / "b.txt").write_text("\ufeff" + wrapped(20) + "\n\n\x01\x02\n" + wrapped(3).replace(" ", "  "))
    (source / "c.txt").write_bytes(bytes(range(32)) * 9)
    (source / "d.txt").write_text(" \n")
    assert stage("text", "--source", source, "--output", tmp_path / "text", "--skip_bad", 1)[0] == 0
    return tmp_path / "text"


def test_text_counts_all_that_it_decodes(texts, read):
    found = reported(texts)
    assert found["documents"] == {"in": 48, "out": 43, "bad rows": 1, "empty": 3, "refused": 1}
    lines = [json.loads(line)["text"] for line in (texts.parent / "in/a.jsonl").read_text().splitlines()]
    decoded = [line for line in lines if isinstance(line, str)]
    decoded += [(texts.parent / f"in/{name}.txt").read_text("utf-8-sig") for name in "bd"]
    assert found["characters"]["in"] == sum(map(len, decoded)) and found["characters"]["control characters"] == 2
    assert (found["documents"]["out"], found["characters"]["out"]) == sizes(read(texts))


def test_books_count_the_legal_text(tmp_path, stage, read):
    source = tmp_path / "books"
    source.mkdir()
    legal = (
        "Title: A\n*** START OF THE PROJECT GUTENBERG EBOOK A ***\n",
        "\n*** END OF THE PROJECT GUTENBERG EBOOK A ***\nx",
    )
    (source / "a.txt").write_text(wrapped(9).join(legal))
    (source / "b.txt").write_text("".join(legal))
    (source / "c.txt").write_text(wrapped(7) + "\x01")
    (source / "d.txt").write_bytes(b"\0\1\2")
    code, lines = stage("books", "--source", source, "--output", tmp_path / "out")
    found = reported(tmp_path / "out")
    assert code == 0 and found["documents"] == {"in": 4, "out": 2, "only legal text": 1, "refused": 1}
    whole = sum(len((source / f"{name}.txt").read_text()) for name in "ac")
    assert found["characters"]["in"] == whole and found["characters"]["legal text"] == len("".join(legal)) - 2
    assert (2, found["characters"]["out"]) == sizes(read(tmp_path / "out"))
    assert any(
        "warning: 25% of the documents were dropped: refused; the manifest names the files" in one for one in lines
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["instances", "documents"])
def test_what_a_stage_writes_the_next_one_reads(texts, tmp_path, stage, read, kind):
    code, lines = stage("documents", "--source", texts, "--output", tmp_path / "documents", "--workers", 2)
    split = reported(tmp_path / "documents")
    assert code == 0 and {unit: split[unit]["in"] for unit in drop_counts.UNITS} == {
        unit: reported(texts)[unit]["out"] for unit in drop_counts.UNITS
    }
    # Forty rows of seventeen texts; the last row has the id of another one.
    assert split["documents"] == {"in": 43, "out": 18, "duplicates": 23, "repeated ids": 1, "too short": 1}
    assert (18, split["characters"]["out"]) == sizes(read(tmp_path / "documents"))
    assert any(
        "warning: 53% of the documents were dropped: duplicates; a source is perhaps given twice" in one
        for one in lines
    )
    assert stage("shards", "--source", tmp_path / "documents", "--output", tmp_path / "shards")[0] == 0
    shards = reported(tmp_path / "shards")
    assert shards == {unit: {"in": split[unit]["out"], "out": split[unit]["out"]} for unit in drop_counts.UNITS}
    vocab = ("--output", tmp_path / "vocab", "--size", 100)
    code, lines = stage("vocab", "--source", tmp_path / "shards", *vocab)
    trained = sizes(read(tmp_path / "shards", "train-*"))
    of_one_pass = f"vocab: {trained[0]} documents with "
    assert code == 0 and any(line.startswith(of_one_pass) for line in lines)
    assert reported(tmp_path / "vocab") == {
        unit: {"in": number, "out": number} for unit, number in zip(drop_counts.UNITS, trained, strict=True)
    }
    words = ("--vocab", tmp_path / "vocab/vocab.txt", "--output", tmp_path / "records", "--kind", kind)
    code, lines = stage("tfrecords", "--source", tmp_path / "shards", *words, "--max_seq_length", 37, "--workers", 1)
    assert code == 0 and reported(tmp_path / "records")["documents"]["in"] == 18 and "% in none of the" in lines[-2]
    assert reported(tmp_path / "records")["characters"]["in"] == split["characters"]["out"]


def test_a_sample_for_the_vocabulary_counts_the_rest(tmp_path, stage, folder, read, monkeypatch):
    texts = [{"id": f"a:{n}", "sentences": [*SENTENCES[n % 9 :], f"Text {n}."]} for n in range(99)]
    source = folder("documents", "documents", {"part-00000.jsonl": texts})
    assert stage("shards", "--source", source, "--output", tmp_path / "shards", "--shards", 1)[0] == 0
    monkeypatch.setattr("data.vocab.MEGABYTE", 20_000)
    options = ("--source", tmp_path / "shards", "--output", tmp_path / "vocab", "--size", 200, "--max_megabytes", 1)
    assert stage("vocab", *options)[0] == 0
    found, trained = reported(tmp_path / "vocab"), read(tmp_path / "shards", "train-*")
    assert (found["documents"]["in"], found["characters"]["in"]) == sizes(trained)
    assert 1 < found["documents"]["out"] < 50 and found["documents"]["not in the sample (--max_megabytes)"] > 9


def test_documents_without_a_token_or_a_partner_are_counted(tmp_path, stage, folder):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "aa", "ab"]))
    files = {
        "train-00000-of-00001.jsonl": [
            {"id": "a", "sentences": ["aa ab", "ab aa aa"]},
            {"id": "b", "sentences": ["\u200b", "\ufeff"]},
            {"id": "c", "sentences": ["aa", "ab"]},
        ],
        "heldout-00000-of-00001.jsonl": [{"id": "d", "sentences": ["aa ab ab"]}],
    }
    source = folder("shards", "shards", files)
    options = ("--vocab", tmp_path / "vocab.txt", "--output", tmp_path / "out", "--max_seq_length", 9, "--workers", 1)
    assert stage("tfrecords", "--source", source, *options)[0] == 0
    assert reported(tmp_path / "out") == {
        "documents": {"in": 4, "out": 2, "too short for a pair": 1, "without a token": 1},
        "characters": {"in": 27, "out": 17, "too short for a pair": 8, "without a token": 2},
    }


def test_tokens_in_no_instance_are_those_that_no_record_has(tmp_path, stage, folder):
    words = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    # Each word occurs once in a split, so the tokens of the records tell which ones are lost.
    lists = [words[first : first + 10] for first in range(0, 100, 10)]
    documents = [{"id": f"a{n}", "sentences": [" ".join(one[:7]), " ".join(one[7:])]} for n, one in enumerate(lists)]
    files = {"train-00000-of-00001.jsonl": documents, "heldout-00000-of-00001.jsonl": documents[:3]}
    options = ("--vocab", tmp_path / "vocab.txt", "--output", tmp_path / "out", "--max_seq_length", 9, "--workers", 1)
    shape = ("--max_predictions_per_seq", 1, "--dupe_factor", 1, "--masked_lm_prob", 1e-6)
    assert stage("tfrecords", "--source", folder("shards", "shards", files), *options, *shape)[0] == 0
    for split, count in (("train", 100), ("heldout", 30)):
        data = records.Dataset(tmp_path / "out", split)
        rows = {name: value.numpy() for name, value in data.read(np.arange(len(data))).items()}
        ids = rows["input_ids"].copy()
        for row, (places, originals) in enumerate(zip(rows["masked_lm_positions"], rows["masked_lm_ids"], strict=True)):
            ids[row, places[originals > 0]] = originals[originals > 0]
        counts = data.manifest.counts[split]
        assert isinstance(counts, dict) and counts["tokens"] == count
        assert counts["unused_tokens"] == count - len({*ids[ids > 4].tolist()}) > 0
