"""What is right passes in silence; every kind of damage is one line that names the file and the place."""

import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bert.core import manifest, outputs
from bert.text import frames
from data import verify
from data.audit import checks
from tests.finished import examples, sign, write


def test_what_the_stages_wrote_is_right(finished: Path, verify_folders: Callable) -> None:
    code, lines = verify_folders(finished)
    assert code == 0 and [line.partition(": ok (")[0] for line in lines] == [
        str(finished / name) for name in ("corpus/documents", "corpus/shards", "tfrecords/seq37")
    ]
    assert "103 records" in lines[0] and "103 records" in lines[1]
    assert verify_folders(finished / "corpus", workers=2) == (0, lines[:2])
    assert verify_folders(finished / "tfrecords" / "seq37") == (0, lines[2:])
    assert verify_folders(finished, "--level", "files")[0] == 0


def test_what_a_worker_gets_for_a_file_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    sizes = []
    for count in (2, 77):

        def make(partial: Path, count: int = count) -> outputs.StageResult:
            for number in range(count):
                (partial / f"part-{number:05d}.jsonl").write_text(f'{{"id": "{number}", "text": "a {number}"}}\n')
            return outputs.StageResult(counts={})

        folder = outputs.build(tmp_path / f"{count:05d}", stage="text", parameters={}, inputs=[], make=make).path
        tasks = verify.tasks_of(manifest.load(folder), "records", [])
        assert len(tasks) == count
        sizes.append(len(pickle.dumps(tasks[0])))
    assert sizes[0] == sizes[1]


PART = "corpus/documents/part-00001.jsonl"
RECORDS = "tfrecords/seq37/train-00001-of-00003.tfrecord"


def begins(path: Path) -> list[int]:
    return list(map(int, frames.read_index(path)))


def flip(byte: int, record: int = 7) -> Callable[[Path], object]:
    """Flips a bit of a record, at `byte` of its frame."""

    def harm(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[begins(path)[record] + byte] ^= 16
        path.write_bytes(content)

    return harm


def cut(inside: int) -> Callable[[Path], object]:
    """Leaves seven records, and `inside` bytes of the next."""
    return lambda path: path.write_bytes(path.read_bytes()[: begins(path)[7] + inside])


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [  # file, what is done to it, what is said
    (PART, lambda path: path.unlink(), "part-00001.jsonl: missing"),
    (PART, lambda path: path.with_name("note").touch(), "note: extra: not in manifest.json"),
    (
        PART,
        lambda path: shutil.copy(path, path.with_name("part-00002.jsonl")),
        "part-00002.jsonl: extra: a copy of part-00001.jsonl",
    ),
    (PART, lambda path: path.write_bytes(path.read_bytes()[:-9]), r"part-00001.jsonl: cut: \d+ bytes, not \d+"),
    (PART, lambda path: path.write_bytes(path.read_bytes() + b" "), r"part-00001.jsonl: \d+ bytes, not \d+"),
    (
        PART,
        lambda path: path.write_bytes(path.read_bytes().replace(b"e", b"E", 1)),
        "part-00001.jsonl: changed: its hash differs",
    ),
    (
        PART,
        lambda path: shutil.copy(path.with_name("part-00000.jsonl"), path),
        r"part-00001.jsonl: cut: .*; it is a duplicate of part-00000.jsonl",
    ),
    (RECORDS, flip(50), "tfrecord: record 7 at byte BEGIN: wrong checksum of the content"),
    (RECORDS, flip(1), "tfrecord: record 7 at byte BEGIN: wrong checksum of the length"),
    (RECORDS, cut(33), r"tfrecord: record 7 at byte BEGIN: cut: 33 of its \d+ bytes are left"),
    (RECORDS, cut(0), "tfrecord: 7 records, not COUNT"),
    (RECORDS, lambda path: path.write_bytes(b""), "tfrecord: 0 records, not COUNT"),
    (RECORDS, lambda path: frames.index_path(path).unlink(), "tfrecord.index: missing"),
]


@pytest.mark.parametrize(("name", "harm", "expected"), DAMAGES)
def test_a_damaged_file_is_named_and_no_other(
    name: str, harm: Callable[[Path], object], expected: str, damaged_copy: Path, verify_folders: Callable
) -> None:
    path = damaged_copy / name
    offsets = begins(path)
    harm(path)
    expected = expected.replace("BEGIN", str(offsets[7:8])[1:-1]).replace("COUNT", str(len(offsets) - 1))
    code, lines = verify_folders(damaged_copy)
    named = [line for line in lines if ": ok (" not in line]
    assert code == 4 and len(lines) == len(named) + 2  # the other folders are
    assert [line for line in named if re.search(f"{expected}$", line)]
    assert len({line.partition(": ")[0] for line in named}) == 1


def test_damaged_and_wrong_records_of_a_file_are_named_in_order(damaged_copy: Path, verify_folders: Callable) -> None:
    folder = (damaged_copy / RECORDS).parent
    path = damaged_copy / RECORDS
    rows = examples(path)
    rows[6]["next_sentence_labels"][0] = 2
    write(path, rows)
    for record, byte in ((3, 0), (4, 40), (9, 9), (11, 12)):
        flip(byte, record)(path)
    sign(folder)
    code, lines = verify_folders(folder)
    length, content = "wrong checksum of the length", "wrong checksum of the content"
    expected = {3: length, 4: content, 6: "next_sentence_labels: not 0 or 1", 9: length, 11: content}
    assert code == 4
    assert lines == [f"{path}: record {n} at byte {begins(path)[n]}: {what}" for n, what in expected.items()]


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
def test_a_wrong_line_is_named_even_where_the_hash_is_right(
    damage: str, damaged_copy: Path, verify_folders: Callable
) -> None:
    folder = damaged_copy / "corpus" / "documents"
    path, (harm, expected) = folder / "part-00001.jsonl", LINES[damage]
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = harm(lines[2])
    path.write_bytes(b"".join(lines))
    sign(folder)
    code, shown = verify_folders(folder)
    assert code == 4 and expected.format(len(lines[0] + lines[1])) in shown[0]
    assert len(shown) == (2 if damage == "shorter" else 1)  # a sentence too many is some characters too many


def test_a_held_out_document_in_training_is_named(damaged_copy: Path, verify_folders: Callable) -> None:
    folder = damaged_copy / "corpus" / "shards"
    text = json.loads((folder / "heldout-00000-of-00001.jsonl").read_text().splitlines()[1])["sentences"]
    path = folder / "train-00002-of-00003.jsonl"
    lines = path.read_text().splitlines()
    lines[6] = json.dumps({"id": "another", "sentences": text})
    path.write_text("\n".join(lines) + "\n")
    sign(folder)
    expected = f"{path}: line 7: is trained on, and held out in line 2 of heldout-00000-of-00001.jsonl"
    assert verify_folders(folder) == (4, [expected])


def test_an_index_that_disagrees_is_named_entry_by_entry(damaged_copy: Path, verify_folders: Callable) -> None:
    folder = damaged_copy / "tfrecords" / "seq37"
    index = folder / "train-00002-of-00003.tfrecord.index"
    offsets = np.fromfile(index, "<u8")
    right = int(offsets[5])
    offsets[5] += 1
    offsets.tofile(index)
    sign(folder)
    expected = f"{index}: entry 5: says byte {right + 1}, but record 5 begins at byte {right}"
    assert verify_folders(folder) == (4, [expected])
    offsets[:-1].tofile(index)
    code, lines = verify_folders(folder, "--level", "records")
    assert code == 4 and any(f"{len(offsets) - 1} entries, not {len(offsets)}" in line for line in lines)


def test_another_vocabulary_is_named(damaged_copy: Path, verify_folders: Callable) -> None:
    folder = damaged_copy / "tfrecords" / "seq37"
    tokens = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(tokens + "longer\n")
    sign(folder)
    code, lines = verify_folders(folder)
    assert code == 4 and "96 tokens, but the records were made with 95" in lines[0] and "vocab_sha256" in lines[1]
    (folder / "vocab.txt").write_text(tokens.replace("[MASK]\n", ""))
    sign(folder)
    code, lines = verify_folders(folder)
    assert code == 4 and "[MASK] missing" in lines[0]


def test_an_input_that_is_not_the_one_used_is_named(damaged_copy: Path, verify_folders: Callable) -> None:
    sign(damaged_copy / "corpus" / "shards", counts={})
    code, lines = verify_folders(damaged_copy)
    assert code == 4 and lines[-1] == (
        f"{damaged_copy / 'tfrecords' / 'seq37'}: made from another shards than the present "
        f"{damaged_copy / 'corpus' / 'shards'}; "
        "run data.tfrecords again"
    )
    (damaged_copy / "corpus" / "documents" / "manifest.json").write_text("{}")
    code, lines = verify_folders(damaged_copy / "corpus")  # beside, though of no manifest of ours any more
    assert code == 4 and "documents/manifest.json: not a manifest of ours" in lines[0]
    assert "shards: made from another documents than" in lines[1]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "poems"}, "unknown kind of records 'poems'"),
        ({"instances": {"max_seq_length": 38, "max_predictions_per_seq": 7}}, "features are not those of instances"),
        ({"vocab_size": 94}, "95 tokens, but the records were made with 94"),
    ],
)
def test_a_manifest_that_does_not_fit_is_named(
    change: dict, expected: str, damaged_copy: Path, verify_folders: Callable
) -> None:
    folder = damaged_copy / "tfrecords" / "seq37"
    extra = json.loads((folder / "manifest.json").read_text())["extra"]
    sign(folder, extra=extra | change)
    code, lines = verify_folders(folder)
    assert code == 4 and expected in lines[0]


def test_a_folder_on_another_disk_is_checked_too_and_once(damaged_copy: Path, verify_folders: Callable) -> None:
    disk = damaged_copy.parent / "disk"
    (damaged_copy / "tfrecords").rename(disk)
    for name in ("tfrecords", "latest"):
        (damaged_copy / name).symlink_to(disk)
    code, lines = verify_folders(damaged_copy)
    assert code == 0 and len(lines) == 3
    (disk / "seq37" / "vocab.txt").write_text("changed")
    code, lines = verify_folders(damaged_copy)
    assert code == 4 and any("seq37/vocab.txt" in line for line in lines)


def test_a_folder_that_no_stage_finished_is_refused(tmp_path: Path, verify_folders: Callable) -> None:
    assert (
        verify_folders(tmp_path) == (3, [])
        and verify_folders(tmp_path / "none") == (3, [])
        and verify_folders() == (2, [])
    )
    (tmp_path / ".shards.old").mkdir()
    (tmp_path / ".shards.old" / "manifest.json").write_text("{}")
    assert verify_folders(tmp_path) == (3, [])


def test_a_hopeless_file_ends_the_list(
    damaged_copy: Path, verify_folders: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LIMIT", 11)
    folder = damaged_copy / "corpus" / "documents"
    (folder / "part-00001.jsonl").write_bytes(b"?\n" * 62)
    sign(folder)
    code, lines = verify_folders(folder)
    assert code == 4 and len(lines) == 12 and "11 problems or more: the rest was not read" in lines[-1]


@pytest.mark.parametrize("name", ["books", "text"])
def test_a_folder_of_sources_may_have_the_name_of_a_stage(
    name: str, tmp_path: Path, stage: Callable, verify_folders: Callable
) -> None:
    source, corpus = tmp_path / "mine" / name, tmp_path / "corpus"
    source.mkdir(parents=True)
    (source / "a.txt").write_text("A river rises in the hills and runs to the sea.")
    for made in ("books", "text"):
        assert stage(made, "--source", source, "--output", corpus / made)[0] == 0
    code, lines = verify_folders(corpus)
    assert (code, len(lines)) == (0, 2), lines
    beside = shutil.copytree(source, corpus / "copy" / name)
    assert stage("books", "--source", beside, "--output", corpus / "copy" / "made")[0] == 0
    (beside / "a.txt").write_text("It floods in spring.")
    code, lines = verify_folders(corpus)
    assert code == 4 and any(f"made from another {name} than the present {beside}" in line for line in lines)
