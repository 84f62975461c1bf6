"""A vocabulary is read with every problem named."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert.core.errors import InputError
from bert.text import vocabulary
from bert.text.normalization import TokenizerConfig
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL, is_lower_case, load_vocab, rules_of
from data.vocab import check_case

TOKENS = [*SPECIAL, "the", "river", "##s", "caf\u00e9"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*SPECIAL, "a", "b", "a"], "line 8: 'a' is also at line 6"),
        ([*SPECIAL, "", "b"], "line 6: '' is not a token"),
        ([*SPECIAL, "two words"], "line 6: 'two words' is not a token"),
        ([*SPECIAL[:4], "a"], r"\[MASK\] missing"),
    ],
)
def test_a_faulty_vocabulary_is_refused_with_its_line(lines: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=message):
        load_vocab(path)


def test_a_vocabulary_like_the_chinese_one_of_google_is_an_uncased_one(tmp_path: Path) -> None:
    """It has a line separator as a token, and markers with capitals."""
    path, tokens = tmp_path / "vocab.txt", [*SPECIAL, "[unused1]", "<S>", "<T>", "\u2028", "##\u2028", "\u6211", "nba"]
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    assert load_vocab(path) == tokens and is_lower_case(tokens) and not is_lower_case([*tokens, "NBA"])
    assert check_case(path, True).lower_case
    ids, _ = WordPieceTokenizer(path).encode(["\u6211 NBA"])
    assert [tokens[number] for number in ids] == ["\u6211", "nba"]


def test_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(f"{token}\r\n" for token in TOKENS).encode())
    assert load_vocab(path) == TOKENS


@pytest.mark.parametrize(
    ("beside", "rules"),
    [
        ({}, TokenizerConfig()),
        ({"tokenizer_config.json": {}}, TokenizerConfig(longest_word=100)),  # as transformers understands it
        (
            {"tokenizer_config.json": {"strip_accents": False, "model_max_length": 512}},
            TokenizerConfig(strip_accents=False, longest_word=100),
        ),
        (
            {"tokenizer_config.json": {"do_lower_case": False, "strip_accents": None}},
            TokenizerConfig(lower_case=False, strip_accents=False, longest_word=100),
        ),
        ({"config.json": {"model_type": "bert", "architectures": ["BertModel"]}}, TokenizerConfig()),  # of Hugging Face
        ({"config.json": {"config": {}, "versions": {}, "imported": {}}}, TokenizerConfig()),  # an import of it
        ({"manifest.json": {"stage": "vocab"}}, TokenizerConfig()),
        ({"manifest.json": {"stage": "adopt"}}, TokenizerConfig()),
    ],
)
def test_the_rules_are_those_of_who_made_the_folder(
    beside: dict[str, Any], rules: TokenizerConfig, tmp_path: Path
) -> None:
    write(beside, tmp_path)
    tokens = [*SPECIAL, "a"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    assert rules_of(tmp_path / "vocab.txt", tokens) == rules
    (copy := tmp_path / "copy").mkdir()
    vocabulary.copy(tmp_path / "vocab.txt", copy)
    assert rules_of(copy / "vocab.txt", tokens) == rules and load_vocab(copy / "vocab.txt") == tokens


def write(beside: dict[str, Any], folder: Path) -> None:
    for name, content in beside.items():
        if name == "manifest.json":
            content |= {"parameters": {}, "inputs": {}, "versions": {}, "files": {}, "counts": {}, "extra": {}}
        (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize(
    "beside",
    [
        {"config.json": {"config": {}, "versions": {}, "version": 2}},
        {"manifest.json": {"stage": "tfrecords"}},
        {"tokenizer_config.json": {"folds_compatibility_characters": True}},  # a run of its records
    ],
)
def test_runs_and_records_of_version_1_are_refused(beside: dict[str, Any], tmp_path: Path) -> None:
    write(beside, tmp_path)
    with pytest.raises(InputError, match=r"made by version 1\.0 of this program.*; make the records and the run again"):
        rules_of(tmp_path / "vocab.txt", [*SPECIAL, "a"])


def test_written_rules_are_read_back(tmp_path: Path) -> None:
    tokens = [*SPECIAL, "[E1]", "a"]
    rules = TokenizerConfig(
        lower_case=False, strip_accents=True, split_ideographs=False, longest_word=7, special=("[E1]",)
    )
    vocabulary.write(tokens, rules, tmp_path)
    assert rules_of(tmp_path / "vocab.txt", load_vocab(tmp_path / "vocab.txt")) == rules
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["unicode_version"] == "14.0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        ("[]", "not an object"),
        ('{"strip_accents": "no"}', "strip_accents is 'no'; give a bool"),
        ('{"additional_special_tokens": [1]}', "give a list of tokens"),
        ('{"additional_special_tokens": ["[E1]"]}', r"the special token '\[E1\]' is not in the vocabulary"),
        ('{"unicode_version": "15.1"}', "unicode_version is '15.1', but texts become words here by Unicode 14.0"),
    ],
)
def test_faulty_rules_are_refused_with_their_file(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(InputError, match=message) as refused:
        rules_of(tmp_path / "vocab.txt", [*SPECIAL, "a"])
    assert str(tmp_path / "tokenizer_config.json") in str(refused.value)
