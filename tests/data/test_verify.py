"""What is right passes in silence; every kind of damage is one line that names the file and the place."""

import hashlib
import json
import random
import shutil
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert import cli
from bert.inputs import records, tf_example
from bert.inputs.vocabulary import SPECIAL
from bert.storage import manifest
from data import shards, tfrecords, verify
from data.audit import checks, tfrecord_audit

SEQUENCE, PREDICTIONS = 37, 7


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder: corpus/{documents,shards}, tfrecords/seq37, of random words."""
    root, draw = tmp_path_factory.mktemp("work"), random.Random(3)
    words = ["".join(draw.choices(string.ascii_lowercase, k=5)) for _ in range(90)]

    def documents(partial: Path) -> manifest.StageResult:
        sentences = characters = 0
        for part, size in enumerate((41, 62)):
            with open(partial / f"part-0000{part}.jsonl", "w") as stream:
                for number in range(size):
                    text = [" ".join(draw.choices(words, k=draw.randint(3, 11))) for _ in range(draw.randint(2, 9))]
                    stream.write(json.dumps({"id": f"test:{part}-{number}", "sentences": text}) + "\n")
                    sentences, characters = sentences + len(text), characters + sum(map(len, text))
        counts = {"documents": 103, "sentences": sentences, "characters": characters}
        return manifest.StageResult(counts=counts, records={"part-00000.jsonl": 41, "part-00001.jsonl": 62})

    corpus = root / "corpus"
    manifest.build(corpus / "documents", stage="documents", parameters={}, inputs=[], make=documents)
    size = ["--shards", "3", "--held_out_fraction", "0.1"]
    shards.main(["--source", str(corpus / "documents"), "--output", str(corpus / "shards"), *size])
    (root / "vocab.txt").write_text("".join(f"{token}\n" for token in (*SPECIAL, *words)))
    shape = ["--max_seq_length", str(SEQUENCE), "--max_predictions_per_seq", str(PREDICTIONS), "--workers", "1"]
    inputs = ["--source", str(corpus / "shards"), "--vocab", str(root / "vocab.txt")]
    tfrecords.main([*inputs, "--output", str(root / "tfrecords" / "seq37"), *shape])
    return root


@pytest.fixture
def copy(work: Path, tmp_path: Path) -> Path:
    """A work folder to damage."""
    return Path(shutil.copytree(work, tmp_path / "work"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Runs data.verify on folders: exit code and lines on stdout; on stderr there is one if and only if it fails."""

    def command(*arguments: object, workers: int = 1) -> tuple[int, list[str]]:
        monkeypatch.setattr("sys.argv", ["verify", *map(str, arguments), "--workers", str(workers)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.main(verify.main)
        code, shown = int(str(ending.value.code)), capsys.readouterr()
        errors = [line for line in shown.err.splitlines() if not line.startswith("verify: ")]  # progress, if slow
        assert len(errors) == (code != 0)
        return code, shown.out.splitlines()

    return command


def sign(folder: Path, **changes: object) -> None:
    """Makes the manifest say what the files are now: the content is what a wrong stage would have written."""
    content = json.loads((folder / "manifest.json").read_text()) | changes
    for name, listed in content["files"].items():
        data = (folder / name).read_bytes()
        listed |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(content))


def examples(path: Path) -> list[dict[str, np.ndarray]]:
    """The features of each record, read by TensorFlow."""
    rows = []
    for payload in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
        fields = tf.train.Example.FromString(payload).features.feature
        rows.append({k: np.array(v.int64_list.value or v.float_list.value) for k, v in fields.items()})
    return rows


def encode(row: dict[str, np.ndarray]) -> bytes:
    return tf_example.encode(row | {"masked_lm_weights": row["masked_lm_weights"].astype(np.float32)})


def write(path: Path, rows: list[dict[str, np.ndarray]]) -> None:
    with records.RecordWriter(path) as writer:
        for row in rows:
            writer.write(encode(row))


def test_what_the_stages_wrote_is_right(work: Path, run: Callable) -> None:
    code, lines = run(work)
    assert code == 0 and [line.partition(": ok (")[0] for line in lines] == [
        str(work / name) for name in ("corpus/documents", "corpus/shards", "tfrecords/seq37")
    ]
    assert "103 records" in lines[0] and "103 records" in lines[1]
    assert run(work / "corpus", workers=2) == (0, lines[:2])
    assert run(work / "tfrecords" / "seq37") == (0, lines[2:])
    assert run(work, "--level", "files")[0] == 0


def test_frames_are_those_that_tensorflow_reads(work: Path) -> None:
    path = work / "tfrecords" / "seq37" / "train-00001-of-00003.tfrecord"
    ours = list(tfrecord_audit.walk(path, np.zeros(0, np.uint64)))
    assert [frame.payload for frame in ours] == list(tf.data.TFRecordDataset([str(path)]).as_numpy_iterator())
    assert [frame.offset for frame in ours] == tfrecord_audit.read_index(path)[:-1].tolist()
    assert len(ours) > 50 and not any(frame.damage for frame in ours)


FILES = {
    "missing": (lambda path: path.unlink(), "part-00001.jsonl: missing"),
    "extra": (lambda path: path.with_name("note").touch(), "note: extra: not in manifest.json"),
    "extra copy": (
        lambda path: shutil.copy(path, path.with_name("part-00002.jsonl")),
        "part-00002.jsonl: extra: a copy of part-00001.jsonl",
    ),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-9]), "part-00001.jsonl: cut: "),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b" "), "part-00001.jsonl: "),
    "changed": (
        lambda path: path.write_bytes(path.read_bytes().replace(b"e", b"E", 1)),
        "part-00001.jsonl: changed: its hash differs",
    ),
    "duplicate": (
        lambda path: shutil.copy(path.with_name("part-00000.jsonl"), path),
        "; it is a duplicate of part-00000.jsonl",
    ),
}


@pytest.mark.parametrize("damage", FILES)
def test_a_file_that_is_not_what_it_was_is_named(damage: str, copy: Path, run: Callable) -> None:
    harm, expected = FILES[damage]
    harm(copy / "corpus" / "documents" / "part-00001.jsonl")
    code, lines = run(copy / "corpus", "--level", "files")
    assert code == 4 and expected in lines[0] and len(lines) == 2 and ": ok (shards" in lines[1]


LINES = {
    "broken": (lambda line: line[:-9] + b"\n", "line 3 at byte {}: not JSON"),
    "not UTF-8": (lambda line: line.replace(b'": "', b'": "\xff', 1), "line 3 at byte {}: not JSON"),
    "no id": (lambda line: line.replace(b'"id"', b'"di"'), "line 3 at byte {}: not a document: no id"),
    "no object": (lambda line: b"[]\n", "line 3 at byte {}: not a document"),
    "no text": (lambda line: b'{"id": "x", "sentences": []}\n', "line 3 at byte {}: document 'x' has no text"),
    "deep": (lambda line: b"[" * 100_000 + b"\n", "line 3 at byte {}: not JSON"),
    "same id": (
        lambda line: line.replace(b"test:1-2", b"test:0-7"),
        "line 3: has the same id as line 8 of part-00000.jsonl",
    ),
    "gone": (lambda line: b"", "part-00001.jsonl: 61 records, not 62"),
    "shorter": (lambda line: line.replace(b'["', b'["a", "', 1), "manifest.json: counts "),
}


@pytest.mark.parametrize("damage", LINES)
def test_a_wrong_line_is_named_even_where_the_hash_is_right(damage: str, copy: Path, run: Callable) -> None:
    folder = copy / "corpus" / "documents"
    path, (harm, expected) = folder / "part-00001.jsonl", LINES[damage]
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = harm(lines[2])
    path.write_bytes(b"".join(lines))
    sign(folder)
    code, shown = run(folder)
    assert code == 4 and expected.format(len(lines[0] + lines[1])) in shown[0]
    assert len(shown) == (2 if damage == "shorter" else 1)  # a sentence too many is some characters too many


def test_a_held_out_document_in_training_is_named(copy: Path, run: Callable) -> None:
    folder = copy / "corpus" / "shards"
    text = json.loads((folder / "heldout-00000-of-00001.jsonl").read_text().splitlines()[4])["sentences"]
    path = folder / "train-00002-of-00003.jsonl"
    lines = path.read_text().splitlines()
    lines[6] = json.dumps({"id": "another", "sentences": text})
    path.write_text("\n".join(lines) + "\n")
    sign(folder)
    expected = f"{path}: line 7: is trained on, and held out in line 5 of heldout-00000-of-00001.jsonl"
    assert run(folder) == (4, [expected])


def first_prediction(row: dict[str, np.ndarray]) -> int:
    return int(row["masked_lm_positions"][0])


def put(name: str, at: int | slice, value: object) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda row: row[name].__setitem__(at, value)


def ends(row: dict[str, np.ndarray]) -> int:
    return int(row["input_mask"].sum()) - 1


RECORDS: dict[str, Callable[[dict[str, np.ndarray]], None]] = {
    "input_ids: an id outside the vocabulary": lambda row: put("input_ids", first_prediction(row), 95)(row),
    "input_mask: not ones, then zeros": put("input_mask", 1, 0),
    "input_ids: [PAD] inside input_mask": lambda row: put("input_ids", first_prediction(row), 0)(row),
    "input_ids: not [CLS] a [SEP] b [SEP]": put("input_ids", 0, 7),
    "segment_ids: do not agree with [SEP]": put("segment_ids", 1, 1),
    "input_ids: a [MASK] that is not predicted": lambda row: put(
        "input_ids",
        next(i for i in range(1, SEQUENCE) if row["input_ids"][i] > 5 and i not in row["masked_lm_positions"]),
        4,
    )(row),
    "masked_lm_weights: not ones, then zeros": put("masked_lm_weights", 0, 0.5),
    "masked_lm_weights: no prediction": put("masked_lm_weights", slice(None), 0.0),
    "masked_lm_positions: one outside the text": lambda row: put("masked_lm_positions", 0, ends(row))(row),
    "masked_lm_positions: not ascending": lambda row: put("masked_lm_positions", 1, first_prediction(row))(row),
    "masked_lm_ids: a special token is predicted": put("masked_lm_ids", 0, 2),
    "masked_lm_ids: an id outside the vocabulary": put("masked_lm_ids", 0, -3),
    "masked_lm_ids: an unused position is not zero": put("masked_lm_ids", -1, 9),
    "next_sentence_labels: not 0 or 1": put("next_sentence_labels", 0, 2),
    "does not parse: ": lambda row: row.update(segment_ids=row["segment_ids"][:-1]),
}


@pytest.mark.parametrize("rule", RECORDS)
def test_a_record_that_breaks_a_rule_is_named(rule: str, copy: Path, run: Callable) -> None:
    folder = copy / "tfrecords" / "seq37"
    path = folder / "train-00001-of-00003.tfrecord"
    rows = examples(path)
    short = next(n for n, row in enumerate(rows) if 2 <= row["masked_lm_weights"].sum() < PREDICTIONS and n > 2)
    RECORDS[rule](rows[short])
    write(path, rows)
    sign(folder)
    code, lines = run(folder)
    begin = int(np.fromfile(records.index_path(path), "<u8")[short])
    assert code == 4 and any(line.startswith(f"{path}: record {short} at byte {begin}: {rule}") for line in lines)
    assert all(f": record {short} at byte " in line for line in lines)


STRETCHES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "ids: an id outside the vocabulary": put("ids", 1, 95),
    "ids: a special token in the text": put("ids", 1, 4),
    "sentences: one is empty": put("sentences", 0, 0),
    "sentences: their lengths do not add up": put("sentences", 0, 2**62),
    "ids: empty": lambda row: row.update(ids=row["ids"][:0]),
    "document: lower than that of the previous record": put("document", 0, 0),
    "does not parse: ": lambda row: row.pop("document"),
}


@pytest.fixture(scope="module")
def tokenised(work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("stored") / "documents"
    inputs = ["--source", str(work / "corpus" / "shards"), "--vocab", str(work / "vocab.txt"), "--workers", "1"]
    tfrecords.main([*inputs, "--output", str(output), "--max_seq_length", "37", "--kind", "documents"])
    return output


@pytest.mark.parametrize("rule", ["", *STRETCHES])
def test_tokenised_documents_are_judged_too(rule: str, tokenised: Path, tmp_path: Path, run: Callable) -> None:
    folder = Path(shutil.copytree(tokenised, tmp_path / "records"))
    path = folder / "train-00001-of-00003.tfrecord"
    rows = examples(path)
    assert rows[9]["document"] > 0
    if rule:
        STRETCHES[rule](rows[9])
    with records.RecordWriter(path) as writer:
        for row in rows:
            writer.write(tf_example.encode(row))
    sign(folder)
    code, lines = run(folder)
    begin = int(np.fromfile(records.index_path(path), "<u8")[9])
    if rule:
        assert code == 4 and any(line.startswith(f"{path}: record 9 at byte {begin}: {rule}") for line in lines)
        assert all(f": record 9 at byte {begin}: " in line for line in lines)
    else:
        assert code == 0 and len(lines) == 1


def test_no_content_of_a_record_is_too_strange_to_judge(work: Path) -> None:
    path = work / "tfrecords" / "seq37" / "heldout-00000-of-00001.tfrecord"
    rows, draw = examples(path), np.random.default_rng(5)
    found = checks.record_format(verify.read_manifest(path.parent), [])
    assert found is not None
    for _ in range(70):
        row = dict(rows[draw.integers(len(rows))])
        name = draw.choice(sorted(row))
        values = row[name].astype(np.float32) if name == "masked_lm_weights" else row[name].astype(np.int64)
        strange = [np.nan, np.inf, -1.0, 1e30] if name == "masked_lm_weights" else [-1, 2**62, -(2**63), 95, 1000]
        values[draw.integers(len(values))] = draw.choice(strange)
        payloads = [encode(rows[0]), encode(row | {name: values})]
        assert {number for number, _ in checks.KINDS["instances"].check(payloads, found[1]).wrong} == {1}


def test_an_index_that_disagrees_is_named_entry_by_entry(copy: Path, run: Callable) -> None:
    folder = copy / "tfrecords" / "seq37"
    index = folder / "train-00002-of-00003.tfrecord.index"
    offsets = np.fromfile(index, "<u8")
    right = int(offsets[5])
    offsets[5] += 1
    offsets.tofile(index)
    sign(folder)
    expected = f"{index}: entry 5: says byte {right + 1}, but record 5 begins at byte {right}"
    assert run(folder) == (4, [expected])
    offsets[:-1].tofile(index)
    code, lines = run(folder, "--level", "records")
    assert code == 4 and any(f"{len(offsets) - 1} entries, not {len(offsets)}" in line for line in lines)


def test_another_vocabulary_is_named(copy: Path, run: Callable) -> None:
    folder = copy / "tfrecords" / "seq37"
    tokens = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(tokens + "longer\n")
    sign(folder)
    code, lines = run(folder)
    assert code == 4 and "96 tokens, but the records were made with 95" in lines[0] and "vocab_sha256" in lines[1]
    (folder / "vocab.txt").write_text(tokens.replace("[MASK]\n", ""))
    sign(folder)
    code, lines = run(folder)
    assert code == 4 and "[MASK] missing" in lines[0]


def test_an_input_that_is_not_the_one_used_is_named(copy: Path, run: Callable) -> None:
    sign(copy / "corpus" / "shards", counts={})
    code, lines = run(copy)
    assert code == 4 and lines[-1] == (
        f"{copy / 'tfrecords' / 'seq37'}: made from another shards than the present {copy / 'corpus' / 'shards'}; "
        "run data.tfrecords again"
    )
    (copy / "corpus" / "documents" / "manifest.json").write_text("{}")
    code, lines = run(copy / "corpus")  # beside, though of no manifest of ours any more
    assert code == 4 and "documents/manifest.json: not a manifest of this program" in lines[0]
    assert "shards: made from another documents than" in lines[1]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "poems"}, "unknown kind of records 'poems'"),
        ({"instances": {"max_seq_length": 38, "max_predictions_per_seq": 7}}, "features are not those of instances"),
        ({"vocab_size": 94}, "95 tokens, but the records were made with 94"),
    ],
)
def test_a_manifest_that_does_not_fit_is_named(change: dict, expected: str, copy: Path, run: Callable) -> None:
    folder = copy / "tfrecords" / "seq37"
    extra = json.loads((folder / "manifest.json").read_text())["extra"]
    sign(folder, extra=extra | change)
    code, lines = run(folder)
    assert code == 4 and expected in lines[0]


def test_a_folder_that_no_stage_finished_is_refused(tmp_path: Path, run: Callable) -> None:
    assert run(tmp_path) == (3, []) and run(tmp_path / "none") == (3, []) and run() == (2, [])
    (tmp_path / ".shards.old").mkdir()
    (tmp_path / ".shards.old" / "manifest.json").write_text("{}")
    assert run(tmp_path) == (3, [])


def test_a_hopeless_file_ends_the_list(copy: Path, run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LIMIT", 11)
    folder = copy / "corpus" / "documents"
    (folder / "part-00001.jsonl").write_bytes(b"?\n" * 62)
    sign(folder)
    code, lines = run(folder)
    assert code == 4 and len(lines) == 12 and "11 problems or more: the rest was not read" in lines[-1]
