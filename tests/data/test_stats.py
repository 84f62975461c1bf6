"""The figures are those counted by hand, and what they are written to is no damage to the folder."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core import cli, manifest, outputs
from bert.text import frames, tf_example, token_file, vocabulary
from bert.text.normalization import UNCASED
from bert.text.vocabulary import SPECIAL, TOKENIZER
from data import stats, verify
from extensions.tokenizers import byte_bpe

DOCUMENTS: dict[str, list[dict[str, Any]]] = {
    "heldout-00000-of-00001.jsonl": [{"id": "a", "sentences": ["abc"]}],
    "train-00000-of-00002.jsonl": [
        {"id": "b", "sentences": ["ab", "abcd", "a"]},
        {"id": "c", "sentences": ["\u00e4b"]},
    ],
    "train-00001-of-00002.jsonl": [{"id": "d", "sentences": ["abcdefgh", "abcdefg"]}],
}
WORDS = ("one", "two", "three", "[unused1]", "never", "nor")
PAD, UNK, CLS, SEP, MASK, ONE, TWO, THREE = range(8)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return text_folder(tmp_path / "shards", DOCUMENTS)


def text_folder(path: Path, files: dict[str, list[dict[str, Any]]]) -> Path:
    """A finished folder of documents."""

    def make(partial: Path) -> outputs.StageResult:
        for name, documents in files.items():
            lines = [json.dumps(document, ensure_ascii=False) + "\n" for document in documents]
            (partial / name).write_text("".join(lines), encoding="utf-8")
        return outputs.StageResult(counts={}, records={name: len(documents) for name, documents in files.items()})

    return outputs.build(path, stage="shards", parameters={}, inputs=[], make=make).path


def instance(a: list[int], b: list[int], masked: dict[int, int], label: int) -> dict[str, np.ndarray]:
    """An instance of 9 tokens; `masked` says which places are predicted, and what stands there."""
    ids = [CLS, *a, SEP, *b, SEP]
    places = sorted(masked)
    empty = [0] * (3 - len(places))
    row = {
        "input_ids": [masked.get(place, token) for place, token in enumerate(ids)] + [PAD] * (9 - len(ids)),
        "input_mask": [1] * len(ids) + [0] * (9 - len(ids)),
        "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (9 - len(ids)),
        "masked_lm_positions": places + empty,
        "masked_lm_ids": [ids[place] for place in places] + empty,
        "next_sentence_labels": [label],
    }
    weights = np.array([1.0] * len(places) + [0.0] * len(empty), np.float32)
    return {name: np.array(value, np.int64) for name, value in row.items()} | {"masked_lm_weights": weights}


@pytest.fixture
def instances(tmp_path: Path) -> Path:
    """Three training instances in two files, and a held-out one."""
    files = {
        "train-00000-of-00002": [
            instance([ONE, TWO, ONE], [THREE, ONE, ONE], {1: MASK, 3: TWO}, 0),  # 9 tokens: hidden, replaced
            instance([ONE], [UNK], {3: UNK}, 1),  # 5 tokens: kept
        ],
        "train-00001-of-00002": [instance([TWO, TWO], [ONE, TWO], {1: MASK, 2: MASK, 4: MASK}, 1)],  # 7 tokens
        "heldout-00000-of-00001": [instance([ONE], [TWO], {1: MASK}, 0)],
    }
    return record_folder(tmp_path / "seq9", files)


def record_folder(path: Path, files: dict[str, list[dict[str, np.ndarray]]]) -> Path:
    """A finished folder of masked instances."""

    def make(partial: Path) -> outputs.StageResult:
        for name, rows in files.items():
            with frames.RecordWriter(partial / f"{name}.tfrecord") as writer:
                for row in rows:
                    writer.write(tf_example.encode(row))
        vocabulary.write([*SPECIAL, *WORDS], UNCASED, partial)
        spec = {
            name: {"shape": list(value.shape), "dtype": str(value.dtype)}
            for name, value in next(iter(files.values()))[0].items()
        }
        counts = {f"{name}.tfrecord": len(rows) for name, rows in files.items()}
        return outputs.StageResult(counts={}, records=counts, extra={"features": spec, "vocab_size": 5 + len(WORDS)})

    return outputs.build(path, stage="tfrecords", parameters={}, inputs=[], make=make).path


def run(*arguments: object, workers: int = 1) -> dict[str, Any]:
    """Runs data.stats on one folder with --output; returns the figures of stats.json by split."""
    stats.main([*map(str, arguments), "--workers", str(workers)])
    output = Path(str(arguments[arguments.index("--output") + 1]))
    return json.loads((output / "stats.json").read_text())["splits"]


def test_documents_are_counted(shards: Path, tmp_path: Path) -> None:
    splits = run(shards, "--output", tmp_path / "out")
    train = splits["train"]
    assert {name: train[name] for name in ("documents", "sentences", "characters")} == {
        "documents": 3,
        "sentences": 6,
        "characters": 2 + 4 + 1 + 2 + 8 + 7,
    }
    assert train["sentences of a document, mean"] == 2 and train["characters of a sentence, mean"] == 4
    histograms = {name: counts[:5] for name, counts in train["histograms"].items()}
    assert histograms == {  # lengths 0, 1, 2-3, 4-7, 8-15
        "sentences of a document": [0, 1, 2, 0, 0],
        "characters of a document": [0, 0, 1, 1, 1],
        "characters of a sentence": [0, 1, 2, 2, 1],
    }
    assert splits["heldout"]["characters"] == 3


def test_texts_are_counted_in_paragraphs(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "books", {"part-00000.jsonl": [{"id": "a", "text": "abc\nabcde"}]})
    figures = run(folder, "--output", tmp_path / "out")["part"]
    assert (figures["documents"], figures["paragraphs"], figures["characters"]) == (1, 2, 8)


def test_instances_are_counted(instances: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = run(instances, "--output", tmp_path / "out")
    train = splits["train"]
    assert train == {
        "sequences": 3,
        "tokens": 21,
        "tokens of a sequence, mean": 7,
        "padding": pytest.approx(6 / 27),
        "full sequences": pytest.approx(1 / 3),
        "predicted tokens": 6,
        "predicted, of all tokens": pytest.approx(6 / 21),
        "predicted: [MASK]": pytest.approx(4 / 6),
        "predicted: random": pytest.approx(1 / 6),
        "predicted: kept": pytest.approx(1 / 6),
        "pairs of label 1": pytest.approx(2 / 3),
        "unknown tokens": pytest.approx(1 / 12),
        "vocabulary": 5,
        "vocabulary never seen": 2,
        "vocabulary never seen, share": pytest.approx(2 / 5),
        "histograms": {"length": [0, 0, 0, 0, 0, 1, 0, 1, 0, 1], "predictions": [0, 1, 1, 1]},
    }
    assert splits["heldout"]["vocabulary never seen"] == 3 and splits["heldout"]["pairs of label 1"] == 0
    shown = capsys.readouterr().out
    assert "heldout" in shown and "66.67%" in shown and "22.22%" in shown


def test_chunks_are_counted(tmp_path: Path) -> None:
    rows = [([ONE, TWO, ONE], [2, 1], 0), ([UNK], [1], 0), ([THREE, ONE, ONE, ONE], [1, 1, 2], 1)]

    def make(partial: Path) -> outputs.StageResult:
        with frames.RecordWriter(partial / "train-00000-of-00001.tfrecord") as writer:
            for ids, sentences, document in rows:
                row = {"ids": np.array(ids), "sentences": np.array(sentences), "document": np.array([document])}
                writer.write(tf_example.encode(row))
        vocabulary.write([*SPECIAL, *WORDS], UNCASED, partial)
        spec = {name: {"shape": shape, "dtype": "int64"} for name, shape in (("ids", [None]), ("document", [1]))}
        counts = {"train-00000-of-00001.tfrecord": 3}
        return outputs.StageResult(
            counts={}, records=counts, extra={"features": spec, "kind": "documents", "vocab_size": 5 + len(WORDS)}
        )

    folder = outputs.build(tmp_path / "stored", stage="tfrecords", parameters={}, inputs=[], make=make).path
    figures = run(folder, "--output", tmp_path / "out")["train"]
    histograms = {name: counts[:4] for name, counts in figures.pop("histograms").items()}
    assert histograms == {"tokens of a chunk": [0, 1, 1, 1], "sentences of a chunk": [0, 1, 2, 0]}
    assert figures == {
        "chunks": 3,
        "sentences": 6,
        "tokens": 8,
        "tokens of a chunk, mean": pytest.approx(8 / 3),
        "unknown tokens": pytest.approx(1 / 8),
        "vocabulary": 5,
        "vocabulary never seen": 2,
        "vocabulary never seen, share": pytest.approx(2 / 5),
    }


@pytest.mark.slow
def test_tokens_are_counted_whatever_the_size_of_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train-00000": ["ab\u00e9", "", "x" * 9], "train-00001": ["a" * 200], "heldout-00000": ["a"]}

    def make(partial: Path) -> outputs.StageResult:
        vocabulary = {token: number for number, token in enumerate([*byte_bpe.BYTES, "aa", byte_bpe.END])}
        (partial / TOKENIZER).write_text(byte_bpe.text_of(vocabulary, [("a", "a")], partial))
        tokenizer, counts = byte_bpe.ByteBPE(partial / TOKENIZER), {}
        for name, texts in files.items():
            with token_file.TokenWriter(partial / f"{name}.tokens", tokenizer.size) as writer:
                for text in texts:
                    writer.write([*tokenizer.encode(text), tokenizer.end])
            counts[f"{name}.tokens"] = writer.count
        stream = token_file.Stream(
            kind="tokens", dtype="uint16", vocab_size=258, end_id=257, tokenizer_sha256="any of any length"
        )
        return outputs.StageResult(counts={}, records=counts, extra=dataclasses.asdict(stream))

    folder = outputs.build(tmp_path / "tokens", stage="tokens", parameters={}, inputs=[], make=make).path
    splits = run(folder, "--output", tmp_path / "out")
    histograms = splits["train"].pop("histograms")
    assert histograms["tokens of a document"][:8] == [1, 0, 0, 1, 1, 0, 0, 1]
    assert splits["train"] == {
        "documents": 4,
        "tokens": 4 + 9 + 100,  # the accented letter has two bytes
        "bytes": 4 + 9 + 200,
        "tokens of a document, mean": pytest.approx(113 / 4),
        "bytes of a token, mean": pytest.approx(213 / 113),
        "vocabulary": 257,
        "vocabulary never seen": 257 - 6,
        "vocabulary never seen, share": pytest.approx(251 / 257),
    }
    assert (splits["heldout"]["tokens"], splits["heldout"]["bytes"]) == (1, 1)
    monkeypatch.setattr(stats, "TOKENS", 7)
    assert run(folder, "--output", tmp_path / "again")["train"] == splits["train"] | {"histograms": histograms}


def test_a_part_without_documents_changes_nothing(tmp_path: Path) -> None:
    texts = {"part-00000.jsonl": [], "part-00001.jsonl": [{"id": "a", "sentences": ["abc"]}]}
    figures = run(text_folder(tmp_path / "some", texts), "--output", tmp_path / "out")["part"]
    alone = text_folder(tmp_path / "alone", {"part-00000.jsonl": texts["part-00001.jsonl"]})
    assert figures == run(alone, "--output", tmp_path / "out2")["part"]
    empty = text_folder(tmp_path / "empty", {"part-00000.jsonl": []})
    assert run(empty, "--output", tmp_path / "none")["part"] == {"documents": 0, "characters": 0, "histograms": {}}


def test_a_sample_is_spread_over_each_file(tmp_path: Path) -> None:
    texts = {
        f"part-0000{part}.jsonl": [{"id": f"{part} {n}", "text": "x" * n} for n in range(1, 13)] for part in (0, 1)
    }
    folder = text_folder(tmp_path / "books", texts)
    figures = run(folder, "--sample", 3, "--output", tmp_path / "out")["part"]
    assert figures["documents"] == 6 and figures["characters"] == 2 * (1 + 5 + 9)


@pytest.mark.slow
def test_workers_change_nothing(shards: Path, tmp_path: Path) -> None:
    assert run(shards, "--output", tmp_path / "1") == run(shards, "--output", tmp_path / "2", workers=2)
    assert (tmp_path / "1" / "stats.json").read_bytes() == (tmp_path / "2" / "stats.json").read_bytes()


@pytest.mark.slow
def test_the_output_stands_beside_and_harms_nothing(shards: Path, instances: Path, tmp_path: Path) -> None:
    stats.main([str(tmp_path), "--workers", "1"])  # all folders in it
    assert (tmp_path / "shards-stats" / "stats.json").exists() and (tmp_path / "seq9-stats" / "stats.json").exists()
    verify.main([str(shards), "--workers", "1"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("shards", "--output", "shards/stats"), 2, "inside the folder itself"),
        (("shards", "seq9", "--output", "out"), 2, "needs a single folder, but 2 are given"),
        (("shards", "--sample", "0"), 2, "--sample 0"),
        (("shards-stats",), 3, "no such folder"),
        (("vocab",), 3, "neither documents nor records"),
        (("broken",), 4, "line 1: not a document: no id"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    arguments: tuple[str, ...],
    code: int,
    message: str,
    tmp_path: Path,
    shards: Path,
    instances: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def vocabulary(partial: Path) -> outputs.StageResult:
        (partial / "vocab.txt").write_text("a\n")
        return outputs.StageResult(counts={})

    outputs.build(tmp_path / "vocab", stage="vocab", parameters={}, inputs=[], make=vocabulary)
    text_folder(tmp_path / "broken", {"part-00000.jsonl": [{"text": "abc"}]})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["stats", *arguments, "--workers", "1"])
    with pytest.raises(SystemExit) as ending:
        cli.main(stats.main)
    shown = capsys.readouterr()
    assert ending.value.code == code and shown.err.count("error: ") == 1 and message in shown.err
    assert not list(tmp_path.glob("*-stats")) and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_manifest_is_read_as_often_for_many_files_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = manifest.read, list[Path]()

    def counted(folder: Path) -> manifest.Manifest:
        reads.append(folder)
        return read(folder)

    monkeypatch.setattr(manifest, "read", counted)
    found = []
    for count in (2, 9):
        rows = [instance([ONE, TWO], [ONE], {1: MASK}, 0)]
        folder = record_folder(tmp_path / f"of{count}", {f"train-{n:05d}-of-{count:05d}": rows for n in range(count)})
        reads.clear()
        assert run(folder, "--output", tmp_path / f"out{count}")["train"]["sequences"] == count
        found.append(len(reads))
    assert found[0] == found[1]


def test_lengths_are_counted_by_powers_of_two() -> None:
    counts = stats.octaves(np.array([0, 1, 2, 3, 4, 7, 8, 2**39, 2**50]))
    assert len(counts) == stats.OCTAVES and counts[[0, 1, 2, 3, 4, 5, -1]].tolist() == [1, 1, 2, 2, 1, 0, 2]
