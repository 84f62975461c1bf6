"""Damaged records are named and never trained on; a hundred thousand good ones have the statistics of BERT."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tensorflow as tf

from bert import cli
from bert.errors import IntegrityError
from bert.inputs.records import Dataset
from bert.storage import outputs
from data import shards, tfrecords, verify, vocab
from data.synthetic import __main__ as synthetic
from data.synthetic import grammar

pytestmark = pytest.mark.faults

DOCUMENTS, PARAGRAPHS = 260, 35
TRAIN = "train-0000{}-of-00003.tfrecord"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented text in three training shards, with a vocabulary."""
    root = tmp_path_factory.mktemp("corpus")

    def make(partial: Path) -> outputs.StageResult:
        with open(partial / "part-00000.jsonl", "w") as stream:
            for number in range(DOCUMENTS):
                draw = Random(f"document {number}")
                sentences: list[str] = []
                for _ in range(PARAGRAPHS):
                    facts = grammar.scene(draw, "train", *draw.choice(synthetic.SCENES), synthetic.TWIN)
                    sentences += grammar.paragraph(draw, facts, asking=0.4)
                stream.write(json.dumps({"id": f"invented:{number}", "sentences": sentences}) + "\n")
        return outputs.StageResult(counts={"documents": DOCUMENTS}, records={"part-00000.jsonl": DOCUMENTS})

    outputs.build(root / "documents", stage="documents", parameters={}, inputs=[], make=make)
    shards.main(["--source", str(root / "documents"), "--output", str(root / "shards"), "--shards", "3"])
    vocab.main(["--source", str(root / "shards"), "--output", str(root / "vocab"), "--size", "2003"])
    return root


def records_of(corpus: Path, output: Path, *options: str) -> Path:
    inputs = ["--source", str(corpus / "shards"), "--vocab", str(corpus / "vocab" / "vocab.txt")]
    tfrecords.main([*inputs, "--output", str(output), "--workers", "1", *options])
    return output


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few and short records in three training shards of different sizes."""
    output = tmp_path_factory.mktemp("records") / "seq41"
    return records_of(corpus, output, "--max_seq_length", "41", "--dupe_factor", "1")


def flip(byte: int) -> Callable[[Path, np.ndarray], None]:
    """Flips a bit of record 7, at `byte` of its frame."""

    def harm(path: Path, begins: np.ndarray) -> None:
        content = bytearray(path.read_bytes())
        content[int(begins[7]) + byte] ^= 16
        path.write_bytes(content)

    return harm


def cut(inside: int) -> Callable[[Path, np.ndarray], object]:
    """Leaves seven records, and `inside` bytes of the next."""
    return lambda path, begins: path.write_bytes(path.read_bytes()[: int(begins[7]) + inside])


# What is done to the second training shard; what verify says of it; and where the trainer's reader stops: at the start,
# when it reads the record, or never, since it does not look at a file that the manifest does not list.
FAULTS: dict[str, tuple[Callable[[Path, np.ndarray], object], str, str]] = {
    "payload flip": (flip(50), r"record 7 at byte BEGIN: wrong checksum of the content$", "read"),
    "length flip": (flip(1), r"record 7 at byte BEGIN: wrong checksum of the length$", "read"),
    "cut inside a record": (cut(33), r"record 7 at byte BEGIN: cut: 33 of its \d+ bytes are left$", "start"),
    "cut inside a length": (cut(5), r"record 7 at byte BEGIN: cut: only 5 of its bytes are left$", "start"),
    "cut at a boundary": (cut(0), r"7 records, not COUNT$", "start"),
    "empty file": (lambda path, _: path.write_bytes(b""), r"0 records, not COUNT$", "start"),
    "missing shard": (lambda path, _: path.unlink(), r"missing$", "start"),
    "extra shard": (
        lambda path, _: path.with_name("train-00003-of-00003.tfrecord").write_bytes(path.read_bytes()[:-1]),
        r"train-00003-of-00003.tfrecord: extra: not in manifest.json$",
        "never",
    ),
    "duplicate shard": (
        lambda path, _: shutil.copy(path.with_name(TRAIN.format(0)), path),
        r"bytes, not \d+; it is a duplicate of train-00000-of-00003.tfrecord$",
        "start",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_shard_is_named_and_not_trained_on(
    fault: str,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "records"))
    path = folder / TRAIN.format(1)
    begins = np.fromfile(path.with_name(path.name + ".index"), "<u8")
    before = len(Dataset(folder, "train"))
    harm, expected, stop = FAULTS[fault]
    harm(path, begins)

    monkeypatch.setattr("sys.argv", ["verify", str(folder), "--workers", "1"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        cli.main(verify.main)
    shown = capsys.readouterr()
    expected = expected.replace("BEGIN", str(begins[7])).replace("COUNT", str(len(begins) - 1))
    named = "" if stop == "never" else f"{re.escape(str(path))}: .*"
    assert ending.value.code == 4 and shown.err.count("error: ") == 1
    assert [line for line in shown.out.splitlines() if re.search(named + expected, line)]
    others = [line for line in shown.out.splitlines() if str(path) not in line]
    assert not others or stop == "never"  # no other file is blamed

    if stop == "start":
        with pytest.raises(IntegrityError, match=re.escape(str(path))):
            Dataset(folder, "train")
        return
    dataset = Dataset(folder, "train")
    assert len(dataset) == before
    first = json.loads((folder / "manifest.json").read_text())["files"][TRAIN.format(0)]["records"]
    dataset.read(first + np.array([6, 8]))
    if stop == "read":
        with pytest.raises(IntegrityError, match=f"record 7 at byte {begins[7]} is damaged"):
            dataset.read(first + np.array([6, 7]))
    else:
        dataset.read(np.arange(before))


def test_every_damaged_record_of_a_shard_is_named(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "records"))
    path = folder / TRAIN.format(2)
    begins = np.fromfile(path.with_name(path.name + ".index"), "<u8").astype(int)
    content, draw = bytearray(path.read_bytes()), np.random.default_rng(2)
    struck = sorted(draw.choice(len(begins) - 1, 29, replace=False).tolist())
    for record in struck:  # anywhere in the frame: its length, its content, either checksum
        content[int(draw.integers(begins[record], begins[record + 1]))] ^= 1 << int(draw.integers(8))
    path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["verify", str(folder), "--workers", "1"])
    with pytest.raises(SystemExit):
        cli.main(verify.main)
    lines = capsys.readouterr().out.splitlines()
    assert [int(line.split(": record ")[1].split()[0]) for line in lines if ": record " in line] == struck
    assert [line for line in lines if ": record " not in line] == [f"{path}: changed: its hash differs"]


def test_a_hundred_thousand_instances_have_the_statistics_of_bert(corpus: Path, tmp_path: Path) -> None:
    folder = records_of(corpus, tmp_path / "seq128", "--max_seq_length", "128", "--dupe_factor", "18")
    wanted = {"input_ids": 128, "input_mask": 128, "segment_ids": 128, "masked_lm_positions": 20, "masked_lm_ids": 20}
    spec = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in wanted.items()}
    spec["masked_lm_weights"] = tf.io.FixedLenFeature([20], tf.float32)
    spec["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    tokens = (folder / "vocab.txt").read_text().splitlines()
    cls, sep, mask = (tokens.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    count = real = predicted = hidden = kept = random_next = 0
    paths = sorted(map(str, folder.glob("train-*.tfrecord")))
    for batch in tf.data.TFRecordDataset(paths).batch(4096):
        row = {name: value.numpy() for name, value in tf.io.parse_example(batch, spec).items()}
        used, ids = row["masked_lm_weights"] > 0, row["input_ids"]
        shown = np.take_along_axis(ids, row["masked_lm_positions"], axis=1)
        inside = np.take_along_axis(row["input_mask"], row["masked_lm_positions"], axis=1)
        assert inside[used].all() and not np.isin(row["masked_lm_ids"][used], [0, cls, sep, mask]).any()
        assert not np.isin(shown[used], [0, cls, sep]).any() and (used.sum(1) >= 1).all()
        count += len(ids)
        real += int(row["input_mask"].sum())
        predicted += int(used.sum())
        hidden += int((shown == mask)[used].sum())
        kept += int((shown == row["masked_lm_ids"])[used].sum())
        random_next += int(row["next_sentence_labels"].sum())
    assert count >= 100_000
    assert abs(predicted / real - 0.15) < 0.003
    assert abs(hidden / predicted - 0.8) < 0.01 and abs(kept / predicted - 0.1) < 0.01
    assert abs(1 - (hidden + kept) / predicted - 0.1) < 0.01
    assert abs(random_next / count - 0.5) < 0.01
