"""TFRecords: readable by TensorFlow itself, the same for any number of workers, and what the text says."""

import hashlib
import json
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert import pretraining
from bert.core import files, manifest, outputs
from bert.recipes import RECIPES
from bert.text import records
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from data import tfrecords
from data.pipeline import document_files
from data.pipeline.document_files import Part
from data.tfrecords import Options
from tests.finished import sign

LETTERS = "abcdefghij"
WORDS = [f"{x}{y}" for x in LETTERS for y in LETTERS]


def document(number: int) -> dict[str, Any]:
    sentences = [" ".join(WORDS[number * k % 100] for k in range(1, 9 + j)) for j in range(9)]
    return {"id": f"a:{number}", "sentences": sentences}


@pytest.fixture
def source(folder):
    files = {f"train-0000{s}-of-00003.jsonl": [document(17 * s + n) for n in range(11 + s)] for s in range(3)}
    return folder("shards", "shards", files | {"heldout-00000-of-00001.jsonl": [document(n) for n in range(90, 97)]})


@pytest.fixture
def vocab(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(token + "\n" for token in (*SPECIAL, *WORDS, *LETTERS, "##a")))
    return tmp_path / "vocab.txt"


def run(stage, source, vocab, output, *options):
    sizes = ("--max_seq_length", 37, "--max_predictions_per_seq", 5, "--dupe_factor", 3)
    return stage("tfrecords", "--source", source, "--vocab", vocab, "--output", output, *sizes, *options)


@pytest.mark.slow
def test_tensorflow_reads_what_was_written(tmp_path, stage, source, vocab):
    assert run(stage, source, vocab, tmp_path / "out", "--workers", 1)[0] == 0
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == vocab.read_bytes()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    spec = {
        name: tf.io.FixedLenFeature(feature["shape"], feature["dtype"])
        for name, feature in manifest["extra"]["features"].items()
    }
    tokenizer = WordPieceTokenizer(vocab)
    texts = {tuple(tokenizer.encode([s])[0]) for n in range(99) for s in document(n)["sentences"]}
    for split, rounds in (("train", 3), ("heldout", 1)):
        paths = sorted(map(str, (tmp_path / "out").glob(f"{split}-*.tfrecord")))
        rows = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(paths)]
        ours = records.Dataset(tmp_path / "out", split)
        assert len(rows) == len(ours) == manifest["counts"][split]["instances"] > 0
        batch = ours.read(np.arange(len(ours)))
        for name in spec:
            assert np.array_equal(np.stack([row[name] for row in rows]), batch[name])
        assert (batch["masked_lm_weights"].numpy().sum(1) >= 1).all()
        for row in rows[:20]:
            ids, weights = row["input_ids"].numpy().copy(), row["masked_lm_weights"].numpy() > 0
            ids[row["masked_lm_positions"].numpy()[weights]] = row["masked_lm_ids"].numpy()[weights]
            middle = ids.tolist().index(tokenizer.sep_id)
            assert any(_within(ids[1:middle], text) or _within(np.array(text), ids[1:middle]) for text in texts)
        assert manifest["counts"][split]["tokens"] * rounds * 0.5 < batch["input_mask"].numpy().sum()


def _within(small: np.ndarray, large: np.ndarray | tuple[int, ...]) -> bool:
    return " ".join(map(str, small)) in " ".join(map(str, large))


def test_records_of_version_1_are_made_again(tmp_path, stage, source, vocab, contents):
    """A folder of version 1.0 has a vocabulary without a file of its rules. Training refuses it."""
    output = tmp_path / "out"
    assert run(stage, source, vocab, output)[0] == 0
    made = contents(output)
    (output / "tokenizer_config.json").unlink()
    listed = json.loads((output / "manifest.json").read_text())["files"]
    sign(output, files={name: entry for name, entry in listed.items() if name != "tokenizer_config.json"})
    code, said = run(stage, source, vocab, output)
    assert code == 0 and f"tfrecords: {output} is of an earlier version, so it is made again" in said
    assert contents(output) == made
    assert f"tfrecords: {output} is up to date" in run(stage, source, vocab, output)[1]


@pytest.mark.slow
def test_workers_do_not_change_a_byte_and_the_seed_does(tmp_path, stage, source, vocab, contents):
    for name, options in {"1": ("--workers", 1), "2": ("--workers", 2), "s": ("--workers", 1, "--seed", 2)}.items():
        assert run(stage, source, vocab, tmp_path / f"out{name}", *options)[0] == 0
    one, two, other = (contents(tmp_path / f"out{name}") for name in "12s")
    assert one == two and one.keys() == other.keys()
    shards = [name for name in one if name.endswith(".tfrecord")]
    assert len(shards) == 4 and all(one[name] != other[name] for name in shards)


@pytest.mark.parametrize("stage_name", ["tfrecords", "vocab", "words"])
def test_other_rules_beside_a_vocabulary_make_the_output_anew(stage_name, tmp_path, stage, folder, vocab):
    """The words of a text depend on them, although the vocabulary is the same."""
    texts = [document(number) | {"sentences": [*document(number)["sentences"], "zz"]} for number in range(5)]
    source = folder("s", "shards", {"train-00000-of-00001.jsonl": texts})
    more = ("--minimum", 1) if stage_name == "words" else ()
    more = more if stage_name == "vocab" else (*more, "--source", source)
    command = (stage_name, "--vocab", vocab, "--output", tmp_path / "out", *more)
    path, made = vocab.parent / "tokenizer_config.json", []
    for rules in (None, {"strip_accents": True}, {"strip_accents": False}, {"strip_accents": False}):
        if rules:
            path.write_text(json.dumps({"do_lower_case": True, "max_input_chars_per_word": 200} | rules))
        code, lines = stage(*command)
        assert code == 0
        made.append(not any("up to date" in line for line in lines))
    assert made == [True, False, True, False]  # those of the second try are the usual ones
    if stage_name != "words":
        written = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
        assert written["strip_accents"] is False


@pytest.mark.parametrize("kind", ["instances", "documents"])
def test_whole_words_that_are_never_masked_are_told_and_no_damage(kind, tmp_path, stage, folder, vocab):
    """In scripts without spaces a word is a phrase, which often has more tokens than an instance may predict."""
    (tmp_path / "vocab.txt").write_text(
        "".join(f"{token}\n" for token in (*SPECIAL, *LETTERS, *map("##{}".format, LETTERS)))
    )
    phrases = [[LETTERS[(number * k + j) % 10] * (9 + k) for j in range(3)] for number in range(20) for k in range(9)]
    words = [["a", "b", "c", "d"] * 5 for _ in phrases]
    for name, texts, told in (("phrases", phrases, True), ("words", words, False)):
        rows = [{"id": f"{n}", "sentences": [" ".join(some) for some in texts[9 * n : 9 * n + 9]]} for n in range(20)]
        source = folder(
            name,
            "shards",
            {"train-00000-of-00001.jsonl": rows[:15], "heldout-00000-of-00001.jsonl": rows[15:]},
        )
        for flags in (("--whole_word_mask", "true"), ("--max_ngram", 7)):
            output = tmp_path / f"{name}{flags[:1]}"
            code, lines = run(stage, source, vocab, output, "--workers", 1, "--kind", kind, *flags)
            assert code == 0
            warnings = [line for line in lines if "predictions" in line and "--whole_word_mask" in line]
            assert len(warnings) == (told and "--whole_word_mask" in flags)
            assert stage("verify", output, "--workers", 1)[0] == 0
            for line in warnings:  # a phrase that is cut at the end of a segment may be short enough
                possible, without = map(int, re.findall(r"(\d+)%", line))
                datasets = [records.samples(output, split, seed=3) for split in ("train", "heldout")]
                masked = [data.read(np.arange(len(data)), np.arange(len(data))) for data in datasets]
                weights, lengths = (
                    np.concatenate([batch[name].numpy().sum(1) for batch in masked])
                    for name in ("masked_lm_weights", "input_mask")
                )
                assert without == pytest.approx(100 * (weights == 0).mean(), abs=1 if kind == "instances" else 15)
                wanted = np.clip(np.round(0.15 * lengths), 1, 5).sum()
                assert possible == pytest.approx(100 * weights.sum() / wanted, abs=1 if kind == "instances" else 15)
                assert possible < 80 and without > 5


def test_copies_of_a_text_have_other_masks(tmp_path, stage, folder, vocab, monkeypatch):
    monkeypatch.setattr(tfrecords, "ROW_BATCH", 1)  # a batch of rows has random numbers of its own, too
    words = [WORDS[17 * n :][:15] for n in range(5)]
    texts = [{"id": row[0], "sentences": [" ".join(row[:9]), " ".join(row[9:])]} for row in words]
    source = folder("s", "shards", {"train-00000-of-00001.jsonl": texts[:4], "heldout-00000-of-00001.jsonl": texts[4:]})
    same_pairs = ("--pairs", "none", "--short_seq_prob", 0, "--dupe_factor", 9, "--workers", 1)
    assert run(stage, source, vocab, tmp_path / "out", *same_pairs)[0] == 0
    data = records.Dataset(tmp_path / "out", "train")
    batch = {name: value.numpy() for name, value in data.read(np.arange(len(data))).items()}
    masks: dict[bytes, list[tuple[int, ...]]] = {}
    for row, positions in enumerate(batch["masked_lm_positions"]):
        used, ids = positions[batch["masked_lm_weights"][row] > 0], batch["input_ids"][row].copy()
        ids[used] = batch["masked_lm_ids"][row][: len(used)]
        masks.setdefault(ids.tobytes(), []).append(tuple(used))
    assert [len(copies) for copies in masks.values()] == [9] * 4
    for copies in masks.values():
        assert len(set(copies)) > 5  # of 455 ways to choose 3 of 15 tokens


def test_special_strings_in_text_stay_text(tmp_path, stage, folder, vocab):
    texts = [{"id": str(n), "sentences": ["aa [SEP] ab [MASK] ac [CLS] ba", "ad ae af"] * 5} for n in range(4)]
    source = folder("s", "shards", {"train-00000-of-00001.jsonl": texts[:2], "heldout-00000-of-00001.jsonl": texts[2:]})
    assert run(stage, source, vocab, tmp_path / "out", "--workers", 1)[0] == 0
    ids = records.Dataset(tmp_path / "out", "train").read(np.arange(3))["input_ids"].numpy()
    assert ((ids == SPECIAL.index("[SEP]")).sum(1) == 2).all() and ((ids == SPECIAL.index("[CLS]")).sum(1) == 1).all()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--max_seq_length", 4), 2),
        (("--max_predictions_per_seq", 36), 2),
        (("--workers", 0), 2),
        (("--lower_case", "false"), 3),  # the vocabulary has no capital letter
        (("--vocab", "none.txt"), 3),
    ],
)
def test_what_cannot_work_is_refused_first(tmp_path, stage, source, vocab, options, code):
    found, lines = run(stage, source, vocab, tmp_path / "out", *options)
    assert (found, len(lines)) == (code, 1) and not (tmp_path / "out").exists()


def test_a_shard_too_small_for_an_instance_is_named(tmp_path, stage, folder, vocab):
    tiny = [{"id": "a", "sentences": ["aa"]}]
    source = folder("s", "shards", {"train-00000-of-00001.jsonl": tiny, "heldout-00000-of-00001.jsonl": tiny})
    code, lines = run(stage, source, vocab, tmp_path / "out", "--workers", 1)
    assert code == 3 and "train-00000-of-00001.jsonl: too little text" in lines[0] and not (tmp_path / "out").exists()


def test_a_small_source_may_be_held_out_with_too_little_for_an_instance(tmp_path, stage, folder, vocab):
    one = {"id": "a", "sentences": ["aa ab"]}  # a single sentence, and no other document for a second segment
    shards = {
        "train-00000-of-00001.jsonl": [document(n) for n in range(9)],
        "heldout-00000-of-00002.jsonl": [one],
        "heldout-00001-of-00002.jsonl": [document(n) for n in range(10, 13)],
    }
    assert run(stage, folder("s", "shards", shards), vocab, tmp_path / "out", "--workers", 1)[0] == 0
    heldout = records.Dataset(tmp_path / "out", "heldout")
    counts = [heldout.manifest.files[path.name].records for path in heldout.paths]
    assert counts == [0, len(heldout)] and len(heldout.read(np.arange(len(heldout)))["input_ids"]) > 3


def test_a_shard_larger_than_a_block_is_done_block_by_block(tmp_path, stage, source, vocab, monkeypatch):
    assert run(stage, source, vocab, tmp_path / "whole", "--workers", 1)[0] == 0
    monkeypatch.setattr(tfrecords, "BLOCK", 2500)
    shard = source / "train-00001-of-00003.jsonl"
    sentences = [json.loads(line)["sentences"] for line in shard.read_text().splitlines()]
    found = list(tfrecords.blocks(Part(shard, files.sha256(shard))))
    assert [document for block in found for document in block] == sentences
    assert len(found) == -(-shard.stat().st_size // 2500) > 1 and min(map(len, found)) > 1
    assert run(stage, source, vocab, tmp_path / "blocks", "--workers", 1)[0] == 0
    whole, cut = (dict(manifest.load(tmp_path / name).counts)["train"] for name in ("whole", "blocks"))
    assert isinstance(whole, dict) and isinstance(cut, dict)
    assert whole["tokens"] == cut["tokens"] and 0.9 < cut["instances"] / whole["instances"] < 1.1
    rows = records.Dataset(tmp_path / "blocks", "train").read(np.arange(cut["instances"]))
    assert len(np.unique(rows["input_ids"].numpy(), axis=0)) > 0.95 * cut["instances"]


@pytest.mark.parametrize("kind", ["instances", "documents"])
@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_one_training_document_makes_no_pairs_for_nsp(tmp_path, stage, folder, vocab, kind, pairs):
    files = {"train-00000-of-00001.jsonl": [document(3)], "heldout-00000-of-00001.jsonl": [document(4), document(5)]}
    source, options = folder("s", "shards", files), ("--kind", kind, "--pairs", pairs, "--workers", 1)
    code, lines = run(stage, source, vocab, tmp_path / "out", *options)
    if pairs == "nsp":
        assert code == 3 and "all training pairs have label 0" in lines[-1] and "--pairs sop or none" in lines[-1]
    assert (tmp_path / "out").exists() == (pairs != "nsp") == (code == 0)


def test_documents_of_one_sentence_make_no_true_pairs(tmp_path, stage, folder, vocab):
    one_sentence = [{"id": f"a:{n}", "sentences": document(n)["sentences"][:1]} for n in range(9)]
    files = {
        "train-00000-of-00001.jsonl": one_sentence,
        "heldout-00000-of-00001.jsonl": [document(n) for n in (97, 98)],
    }
    code, lines = run(stage, folder("s", "shards", files), vocab, tmp_path / "out", "--workers", 1)
    assert code == 3 and "all training pairs have label 1" in lines[-1]


@pytest.mark.parametrize("kind", ["instances", "documents"])
def test_one_held_out_document_is_told_once(tmp_path, stage, folder, vocab, kind):
    files = {"train-00000-of-00001.jsonl": [document(n) for n in range(9)]}
    for count in (1, 2):
        held_out = {"heldout-00000-of-00001.jsonl": [document(90 + n) for n in range(count)]}
        source = folder(f"s{count}", "shards", files | held_out)
        code, lines = run(stage, source, vocab, tmp_path / f"out{count}", "--kind", kind, "--workers", 1)
        told = [line for line in lines if "all held-out pairs have label 0" in line]
        assert code == 0 and len(told) == (count == 1) and all("--held_out_fraction" in line for line in told)


@pytest.mark.parametrize(
    ("kind", "held_out"),
    [("instances", []), ("documents", []), ("instances", [{"id": "a", "sentences": ["a single sentence"]}])],
)
def test_nothing_held_out_is_told_and_a_training_has_no_held_out_samples(
    tmp_path, stage, folder, vocab, kind, held_out
):
    files = {"train-00000-of-00001.jsonl": [document(n) for n in range(9)]}
    files |= {"heldout-00000-of-00001.jsonl": held_out} if held_out else {}
    source = folder("s", "shards", files)
    code, lines = run(stage, source, vocab, tmp_path / "out", "--kind", kind, "--workers", 1)
    told = [line for line in lines if "warning" in line]
    assert code == 0 and len(told) == 1 and "too little held-out text" in told[0]
    train, heldout = pretraining.datasets(tmp_path / "out", RECIPES["demo_phase1"].phases[0].config)
    assert len(train) > 0 and heldout is None


def test_held_out_records_are_of_the_source_of_their_shard(tmp_path, stage, vocab):
    names = ["train-00000-of-00001.jsonl", "heldout-00000-of-00002.jsonl", "heldout-00001-of-00002.jsonl"]

    def make(partial):
        for number in range(3):
            texts = [document(11 * number + n) for n in range(2 + number)]
            lines = "".join(json.dumps(text) + "\n" for text in texts)
            (partial / names[number]).write_text(lines)
        return outputs.StageResult(counts={}, sources={names[1]: "wikipedia", names[2]: "books"})

    source = outputs.build(tmp_path / "shards", stage="shards", parameters={}, inputs=[], make=make).path
    assert run(stage, source, vocab, tmp_path / "out", "--workers", 1)[0] == 0
    data = records.Dataset(tmp_path / "out", "heldout")
    held_out = [tmp_path / "out" / name.replace("jsonl", "tfrecord") for name in names[1:]]
    counts = [len(list(tf.data.TFRecordDataset(str(path)))) for path in held_out]
    assert data.sources == ("wikipedia", "books") and len(data) == sum(counts)
    np.testing.assert_array_equal(data.source_of(np.arange(len(data))), np.repeat([0, 1], counts))
    assert records.Dataset(tmp_path / "out", "train").sources == ("",)


@pytest.mark.parametrize("block", [1 << 24, 2500])
def test_documents_hold_every_token_in_stretches_that_fill_a_sequence(
    tmp_path, stage, source, vocab, monkeypatch, block
):
    monkeypatch.setattr(tfrecords, "BLOCK", block)
    assert run(stage, source, vocab, tmp_path / "out", "--kind", "documents", "--workers", 1)[0] == 0
    parameters = manifest.load(tmp_path / "out").parameters
    assert "dupe_factor" not in parameters and parameters["max_seq_length"] == 37
    spec = {
        **{name: tf.io.RaggedFeature(tf.int64) for name in ("ids", "sentences")},
        "document": tf.io.FixedLenFeature([1], tf.int64),
    }
    tokenizer = WordPieceTokenizer(vocab)
    for shard in sorted(source.glob("*.jsonl")):
        texts = [json.loads(line)["sentences"] for line in shard.read_text().splitlines()]
        path = tmp_path / "out" / shard.with_suffix(".tfrecord").name
        rows = [tf.io.parse_single_example(row, spec) for row in tf.data.TFRecordDataset(str(path))]
        for number, text in enumerate(texts):
            mine = [row for row in rows if row["document"].numpy()[0] == number]
            sentences = [ids for row in mine for ids in np.split(row["ids"], np.cumsum(row["sentences"])[:-1])]
            assert [ids.tolist() for ids in sentences] == [tokenizer.encode([one])[0].tolist() for one in text]
            for row in mine[:-1]:  # as many sentences as fill the 34 tokens of both segments, and no more
                without_last = int(sum(row["sentences"][:-1]))
                assert len(row["ids"]) >= 34 and (without_last < 34 or len(row["sentences"]) == 2)


def test_a_long_document_is_tokenized_in_batches_of_its_sentences(vocab, monkeypatch):
    tokenizer = WordPieceTokenizer(vocab)
    block = [document(n)["sentences"] * (9 if n == 3 else 1) for n in range(7)]
    monkeypatch.setattr(document_files, "TEXT_BATCH", 200)
    sizes: list[int] = []
    encode = tokenizer.encode

    def counted(texts):
        sizes.append(sum(map(len, texts)))
        return encode(texts)

    monkeypatch.setattr(tokenizer, "encode", counted)
    documents, has_tokens = tfrecords.tokenize(block, tokenizer)
    assert max(sizes) < 200 + max(len(sentence) for sentences in block for sentence in sentences) and has_tokens.all()
    rows = [[encode([sentence])[0] for sentence in sentences] for sentences in block]
    assert np.array_equal(documents.ids, np.concatenate([ids for row in rows for ids in row]))
    assert np.diff(documents.sentences).tolist() == [len(ids) for row in rows for ids in row]
    assert np.diff(documents.documents).tolist() == list(map(len, block))


@pytest.mark.parametrize(("length", "share", "predictions"), [(128, 0.15, 20), (512, 0.15, 77), (20, 0.15, 3)])
def test_predictions_are_as_many_as_the_longest_sequence_needs(tmp_path, length, share, predictions):
    options = Options(source=tmp_path, vocab=tmp_path, output=tmp_path, max_seq_length=length, masked_lm_prob=share)
    assert options.max_predictions_per_seq == predictions


def test_the_records_of_the_usual_shares_keep_their_bytes(tmp_path, stage, source, vocab):
    """The hashes are those of the version before shares and single sentences were options."""
    for kind, expected in (
        ("instances", "0b5157f0cdc930659aadc610a636afd6381773f250e15fd99d63074a4c8ab2d0"),
        ("documents", "f5daa6a9be5a6e2e13638adb2a7c376fe490274e262f2ba97bcfd6f314c57947"),
    ):
        assert run(stage, source, vocab, tmp_path / kind, "--workers", 1, "--kind", kind, "--max_ngram", 2)[0] == 0
        names = sorted((tmp_path / kind).glob("*.tfrecord*"))
        assert len(names) == 8 and hashlib.sha256(b"".join(name.read_bytes() for name in names)).hexdigest() == expected


def test_shares_of_masks_are_recorded_and_those_that_do_not_add_up_are_refused(tmp_path, stage, source, vocab):
    status, said = run(stage, source, vocab, tmp_path / "out", "--mask_shares", 0.8, 0.1, 0.2)[:2]
    assert status == 2 and "--mask_shares 0.8 0.1 0.2: must be three shares that add up to 1" in str(said)
    assert not (tmp_path / "out").exists()
    assert run(stage, source, vocab, tmp_path / "out", "--workers", 1, "--mask_shares", 1, 0, 0)[0] == 0
    data = records.Dataset(tmp_path / "out", "train")
    made = data.description.instances
    assert made and list(made.mask_shares) == [1, 0, 0]
    batch = {name: value.numpy() for name, value in data.read(np.arange(len(data))).items()}
    row, slot = np.nonzero(batch["masked_lm_weights"])
    assert (batch["input_ids"][row, batch["masked_lm_positions"][row, slot]] == SPECIAL.index("[MASK]")).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["instances", "documents"])
def test_single_sentences_are_records_of_their_own_that_verify_knows(tmp_path, stage, source, vocab, kind):
    options = ("--pairs", "none", "--single_sentences", "true", "--kind", kind, "--dupe_factor", 1, "--workers", 1)
    assert run(stage, source, vocab, tmp_path / "out", *options)[0] == 0
    data = records.samples(tmp_path / "out", "train", seed=3)
    batch = {name: np.array(value) for name, value in data.read(np.arange(len(data)), np.arange(len(data))).items()}
    tokenizer = WordPieceTokenizer(vocab)
    assert len(data) == 9 * (11 + 12 + 13)
    row, slot = np.nonzero(batch["masked_lm_weights"])
    batch["input_ids"][row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
    rows = [ids[:used].tolist() for ids, used in zip(batch["input_ids"], batch["input_mask"].sum(1), strict=True)]
    assert all(ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id for ids in rows)
    sentences = {tuple(tokenizer.encode([s])[0]) for n in range(99) for s in document(n)["sentences"]}
    assert {tuple(ids[1:-1]) for ids in rows} <= sentences
    assert stage("verify", tmp_path / "out")[0] == 0
    assert run(stage, source, vocab, tmp_path / "no", "--single_sentences", "true")[0] == 2
