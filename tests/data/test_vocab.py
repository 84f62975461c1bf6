"""Vocabularies: trained alike every time, and only sound ones are taken."""

import json
import os
import subprocess
import sys

import pytest
from tokenizers import Tokenizer as OtherTokenizer
from tokenizers import models, normalizers, pre_tokenizers

from bert.inputs.tokenization import WordPieceTokenizer
from bert.inputs.vocabulary import SPECIAL, load_vocab

TEXT = "the river runs past seven mills and nobody remembers their builders' names, caf\u00e9 \u4e2d\u6587 1729"
WORDS = TEXT.split()


@pytest.fixture
def source(folder):
    sentences = [" ".join(WORDS[n * k % 15] for k in range(2, 40)).capitalize() + "." for n in range(300)]
    files = {f"train-0000{s}-of-00002.jsonl": [{"id": "a:1", "sentences": sentences[s::2]}] for s in range(2)}
    held_out = {"heldout-00000-of-00001.jsonl": [{"id": "a:2", "sentences": ["xylophone zyzzyva"] * 99}]}
    return folder("shards", "shards", files | held_out)


def test_hash_seeds_and_threads_do_not_change_a_byte(tmp_path, source, contents):
    for seed, threads in ((1, 1), (2, 4)):
        command = [sys.executable, "-m", "data.vocab", "--source", source, "--output", tmp_path / f"out{seed}"]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(threads)}
        subprocess.run([*command, "--size", "150"], env=environment, check=True)
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")


def test_training_does_not_import_tensorflow():
    program = "import sys, data.vocab; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_special_tokens_come_first_and_held_out_text_is_not_read(tmp_path, stage, source):
    code, lines = stage("vocab", "--source", source, "--output", tmp_path / "out", "--size", 3000)
    assert code == 0 and "the text is small" in lines[0]
    tokens = load_vocab(tmp_path / "out" / "vocab.txt")
    assert tokens[:5] == list(SPECIAL) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert {"river", "mills", "cafe", "\u4e2d", "1729"} <= set(tokens)
    assert not any("x" in token for token in tokens)


def test_both_tokenizers_agree_on_a_trained_vocabulary(tmp_path, stage, source):
    assert stage("vocab", "--source", source, "--output", tmp_path / "out", "--size", 150)[0] == 0
    tokens = load_vocab(tmp_path / "out" / "vocab.txt")
    other = OtherTokenizer(models.WordPiece({token: n for n, token in enumerate(tokens)}, unk_token="[UNK]"))
    other.normalizer = normalizers.BertNormalizer(lowercase=True)
    other.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    text = "The builder's names, " + " ".join(WORDS) + " rivermills!"
    assert WordPieceTokenizer(tmp_path / "out" / "vocab.txt").encode([text])[0].tolist() == other.encode(text).ids


def test_a_given_vocabulary_is_copied(tmp_path, stage, shared_data):
    for kind, lower_case in (("uncased", "true"), ("cased", "false")):
        given = shared_data / "vocab" / f"bert-base-{kind}-vocab.txt"
        arguments = ("--vocab", given, "--output", tmp_path / kind, "--lower_case")
        assert stage("vocab", *arguments, {"true": "false", "false": "true"}[lower_case])[0] == 3
        assert stage("vocab", *arguments, lower_case)[0] == 0
        assert (tmp_path / kind / "vocab.txt").read_bytes() == given.read_bytes()


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: [*t, "a"], lambda t: [*t, "b c"], lambda t: [*t, "Dd"]])
def test_an_unsound_vocabulary_is_refused(tmp_path, stage, change):
    (tmp_path / "vocab.txt").write_text("\n".join(change(["a", *SPECIAL])) + "\n")
    code, lines = stage("vocab", "--vocab", tmp_path / "vocab.txt", "--output", tmp_path / "out")
    assert (code, len(lines)) == (3, 1) and "vocab.txt" in lines[0] and not (tmp_path / "out").exists()


def test_size_or_file_must_be_given(tmp_path, stage, source):
    assert stage("vocab", "--source", source, "--output", tmp_path / "out")[0] == 2
    assert stage("vocab", "--size", 500, "--output", tmp_path / "out")[0] == 2
    assert stage("vocab", "--vocab", tmp_path / "none.txt", "--output", tmp_path / "out")[0] == 3


def test_a_source_beside_a_given_vocabulary_is_no_input(tmp_path, stage, source):
    (tmp_path / "given.txt").write_text("\n".join([*SPECIAL, "a"]) + "\n")
    arguments = ("--vocab", tmp_path / "given.txt", "--source", source, "--output", tmp_path / "out")
    assert stage("vocab", *arguments)[0] == 0
    content = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert list(content["inputs"]) == ["given.txt"]
    assert content["parameters"] == {"lower_case": True, "max_megabytes": 200, "size": None}
