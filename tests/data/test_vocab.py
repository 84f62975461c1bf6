"""Vocabularies: trained alike every time, and only sound ones are taken."""

import json
import os
import subprocess
import sys

import pytest

from bert.core import manifest
from bert.text.normalization import TokenizerConfig
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL, load_vocab
from bert.text.wordpiece import WordPiece
from data.pipeline import document_files
from data.vocab import train, unknown_share

TEXT = "the river runs past seven mills and nobody remembers their builders' names, caf\u00e9 \u4e2d\u6587 1729"
WORDS = TEXT.split()


@pytest.fixture
def source(folder):
    sentences = [" ".join(WORDS[n * k % 15] for k in range(2, 40)).capitalize() + "." for n in range(300)]
    files = {f"train-0000{s}-of-00002.jsonl": [{"id": "a:1", "sentences": sentences[s::2]}] for s in range(2)}
    held_out = {"heldout-00000-of-00001.jsonl": [{"id": "a:2", "sentences": ["xylophone zyzzyva"] * 99}]}
    return folder("shards", "shards", files | held_out)


@pytest.mark.slow
@pytest.mark.parametrize("documents", [300, 7001])  # the latter have more than 1 MB
def test_hash_seeds_and_threads_do_not_change_a_byte(tmp_path, folder, contents, documents):
    records = [
        {"id": f"a:{n}", "sentences": [" ".join(WORDS[n * k % 15] for k in range(2, 40)).capitalize() + "."]}
        for n in range(documents)
    ]
    source = folder("shards", "shards", {f"train-0000{s}-of-00002.jsonl": records[s::2] for s in range(2)})
    for seed, threads in ((1, 1), (2, 4)):
        command = [sys.executable, "-m", "data.vocab", "--source", source, "--output", tmp_path / f"out{seed}"]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(threads)}
        subprocess.run([*command, "--size", "150", "--max_megabytes", "1"], env=environment, check=True)
    sampled = manifest.load(tmp_path / "out1", "vocab").extra["losses"]["documents"]["in"]
    size = sum(path.stat().st_size for path in source.glob("train-*"))
    assert sampled == documents if size <= 1_000_000 else 0.8e6 < sampled / documents * size < 1.02e6
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")


def test_the_shards_are_read_once(tmp_path, stage, source, monkeypatch):
    reads: list[int] = []
    lines = document_files.lines

    def counted(some):
        reads.append(len(some))
        return lines(some)

    monkeypatch.setattr(document_files, "lines", counted)
    assert stage("vocab", "--source", source, "--output", tmp_path / "out", "--size", 150)[0] == 0
    assert reads == [len(list(source.glob("train-*.jsonl")))]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_special_tokens_come_first_and_held_out_text_is_not_read(tmp_path, stage, source):
    code, lines = stage("vocab", "--source", source, "--output", tmp_path / "out", "--size", 3000)
    assert code == 0 and "instead of 3,000: no more pieces occur twice" in lines[1]
    assert "vocab: 0.00% of the tokens are [UNK]" in lines[2]
    tokens = load_vocab(tmp_path / "out" / "vocab.txt")
    assert tokens[:5] == list(SPECIAL) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert {"river", "mills", "cafe", "\u4e2d", "1729"} <= set(tokens)
    assert not any("x" in token for token in tokens)


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


CHINESE = [chr(code) for code in range(0x4E00, 0x4E00 + 1500)]


def test_a_vocabulary_of_many_characters_has_them_all_and_none_that_is_never_used() -> None:
    text = " ".join("".join(CHINESE[begin : begin + 50]) for begin in range(0, 1500, 50))
    tokens = train(lambda: [text] * 3, 4000, TokenizerConfig())
    assert set(CHINESE) <= set(tokens) and not any(token.startswith("##") for token in tokens)
    assert unknown_share([text], tokens, TokenizerConfig()) == 0
    fewer = train(lambda: [text] * 3, 2000, TokenizerConfig())  # at most half of the entries are characters
    assert 0.32 < unknown_share([text], fewer, TokenizerConfig()) < 0.35


@pytest.mark.parametrize("special", [(), ("[E1]", "[/E1]", "[E2]")])
@pytest.mark.parametrize("size", [100, 777])
def test_a_vocabulary_has_at_most_the_size_that_was_asked_for(size: int, special: tuple[str, ...]) -> None:
    """Also where characters alone fill it, each of which is there twice: at the beginning of words and inside."""
    syllables = [chr(code) for code in range(0xAC00, 0xAC00 + 900)]
    text = " ".join("".join(syllables[begin : begin + 3]) for begin in range(0, 900, 3))
    rules = TokenizerConfig(lower_case=False, strip_accents=False, special=special)
    tokens = train(lambda: [text] * 3, size, rules)
    assert len(tokens) in (size, size - 1) and tokens[: 5 + len(special)] == [*SPECIAL, *special]


def test_words_of_training_are_those_of_reading() -> None:
    """Of a German text no entry is one that the tokenizer never makes."""
    text = "Die Stra\xdfe ist gro\xdf, der Fu\xdf ist wei\xdf: \xc4pfel \u017eluv \xb2. "
    for rules in (
        TokenizerConfig(),
        TokenizerConfig(strip_accents=False),
        TokenizerConfig(lower_case=False, strip_accents=False),
    ):
        tokens = train(lambda: [text] * 9, 300, rules)
        used = {tokens[number] for number in WordPiece(tokens, rules).encode([text])[0]}
        umlaut = ("a" if rules.strip_accents else "\xe4") + "pfel"
        assert {"stra\xdfe", umlaut} <= {token.lower() for token in used}


def test_accents_that_go_are_told_where_they_are_many_and_not_chosen(tmp_path, stage, folder):
    for name, text in (("german", "die m\xfchle f\xfcr das dorf"), ("english", "the mill " * 60 + "caf\xe9")):
        source = folder(name, "shards", {"train-00000-of-00001.jsonl": [{"id": "1", "sentences": [text] * 9}]})
        for flags in ((), ("--strip_accents", "false"), ("--strip_accents", "true"), ("--lower_case", "false")):
            command = ("--source", source, "--output", tmp_path / f"{name}{len(flags)}{flags[-1:]}", "--size", 100)
            code, lines = stage("vocab", *command, *flags)
            told = [line for line in lines if "without their accents" in line]
            assert code == 0 and len(told) == (name == "german" and not flags)
            assert all("40.0% of the words" in line and "--strip_accents false" in line for line in told)


def test_special_tokens_of_the_user_are_tokens(tmp_path, stage, source):
    arguments = ("--source", source, "--output", tmp_path / "out", "--size", 300, "--special", "[E1]", "[/E1]")
    assert stage("vocab", *arguments)[0] == 0
    tokenizer = WordPieceTokenizer(tmp_path / "out" / "vocab.txt")
    assert tokenizer.vocab[5:7] == ["[E1]", "[/E1]"]
    assert [tokenizer.vocab[number] for number in tokenizer.encode(["[E1]river[/E1]"])[0]] == ["[E1]", "river", "[/E1]"]
    refused, lines = stage("vocab", *arguments[:-2], "[SEP]")
    assert refused == 2 and "--special '[SEP]'" in lines[0]
