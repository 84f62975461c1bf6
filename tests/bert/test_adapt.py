"""A trained model with new words: they begin as the mean of what they replace, and nothing else changes."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bert import adapt, labels
from bert.core import cli
from bert.core.errors import UsageError
from bert.labels import Head
from bert.model.heads import TaskModel
from bert.pretraining import PretrainingModel
from bert.text.normalization import TokenizerConfig
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL, check_vocab, is_lower_case, load_vocab
from bert.text.wordpiece import WordPiece
from squad.model import AnswerSpans
from tests import training
from tests.bert.convert.folders import SMALL, Choices, Sequences, Words, a_run, weights

PIECES = ["[unused0]", "hep", "##ato", "##cyte", "##s", "the", "a", "[unused7]", "##a", "x", "#"]  # ids 5 to 15
HEP, ATO, CYTE, S, UNK, UNUSED0, UNUSED7 = 6, 7, 8, 9, 1, 5, 12
CONFIG = dataclasses.replace(SMALL, type_vocab_size=2)


def run_adapt(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["adapt", *map(str, arguments)])
    with pytest.raises(SystemExit) as ending:
        cli.main(adapt.main)
    return int(str(ending.value.code))


def command(folder: Path) -> tuple[object, ...]:
    return folder / "run", "--words", folder / "words.txt", "--output", folder / "new"


def test_a_new_word_is_the_mean_of_its_pieces_and_all_else_keeps_its_bits(tmp_path, monkeypatch, capsys):
    old = a_run(tmp_path / "run", CONFIG, PretrainingModel(CONFIG, 0), PIECES)
    listed = "Hepatocyte\nhepatocytes\n##atocyte\nqux\nthe\nhepatocyte\nnew york\n\n[MASK]\n"
    (tmp_path / "words.txt").write_text(listed)
    assert run_adapt(monkeypatch, *command(tmp_path)) == 0
    said = capsys.readouterr().err
    assert "2 already in the vocabulary ('the', '[MASK]')" in said and "1 repeated ('hepatocyte')" in said
    assert "1 not one word to the tokenizer ('new york')" in said and "1 words taken as the tokenizer" in said
    assert "4 new words, 2 in place of [unused] entries and 2 appended; 33 entries" in said and "1 were unknown" in said
    before, after = load_vocab(tmp_path / "run/vocab.txt"), load_vocab(tmp_path / "new/vocab.txt")
    assert after[UNUSED0] == "hepatocyte" and after[UNUSED7] == "hepatocytes" and after[31:] == ["##atocyte", "qux"]
    assert [n for n in range(31) if after[n] != before[n]] == [UNUSED0, UNUSED7]
    new = weights(tmp_path / "new")
    assert new.keys() == old.keys()
    for name, value in old.items():
        if name not in ("embeddings/word", "masked_lm/bias"):
            assert new[name].tobytes() == value.tobytes(), name
    replaced = {UNUSED0: [HEP, ATO, CYTE], UNUSED7: [HEP, ATO, CYTE, S], 31: [ATO, CYTE], 32: [UNK]}
    for name in ("embeddings/word", "masked_lm/bias"):
        assert new[name].dtype == np.float32 and len(new[name]) == 33
        for number in range(33):
            if number in replaced:
                expected = sum(old[name][piece] for piece in replaced[number]) / len(replaced[number])
                np.testing.assert_allclose(new[name][number], expected, rtol=1e-6, atol=1e-8)
            else:
                assert new[name][number].tobytes() == old[name][number].tobytes()
    ids, _ = WordPieceTokenizer(tmp_path / "new/vocab.txt").encode(["The hepatocytes, xatocyte"])
    assert [after[number] for number in ids] == ["the", "hepatocytes", "[UNK]", "x", "##atocyte"]
    facts = json.loads((tmp_path / "new/config.json").read_text())
    assert facts["imported"]["origin"] == "adapt run" and facts["config"]["model.vocab_size"] == 33
    heads = ["replaced_token", "answer_span", "classifier", "multilabel", "choice", "tags"]
    assert facts["imported"]["missing_heads"] == heads
    assert "adam_m/pooler/kernel" in facts["imported"]["ignored"]
    assert facts["adapted"] == {"words": "words.txt", "renamed": 2, "appended": 2}
    assert json.loads((tmp_path / "new/bert_config.json").read_text())["vocab_size"] == 33


def test_unused_entries_can_stay_and_a_head_for_words_is_not_needed(tmp_path, monkeypatch):
    old = a_run(tmp_path / "run", CONFIG, TaskModel(CONFIG, 0, AnswerSpans.described), PIECES)
    (tmp_path / "words.txt").write_text("\ufeffhepatocyte\r\n")
    assert run_adapt(monkeypatch, *command(tmp_path), "--unused", "false") == 0
    assert load_vocab(tmp_path / "new/vocab.txt") == [*load_vocab(tmp_path / "run/vocab.txt"), "hepatocyte"]
    new = weights(tmp_path / "new")
    assert new.keys() == old.keys() and new["embeddings/word"].shape == (32, 20)


@pytest.mark.parametrize(
    ("module", "head"),
    [
        (Words(CONFIG, classes=3), Head(kind="tags", labels=("O", "B-PER", "I-PER"))),
        (Sequences(CONFIG, classes=1), Head(kind="classifier", regression=True)),
        (Choices(CONFIG), Head(kind="choice")),
    ],
)
def test_new_words_keep_every_head(tmp_path, monkeypatch, module, head):
    old = a_run(tmp_path / "run", CONFIG, module, PIECES)
    of_texts = {"inputs": {"length": 9, "odd_to_longer": True}, "embedding": {"pool": "cls", "normalize": True}}
    (tmp_path / "run/config.json").write_text(json.dumps(head.entries() | of_texts))
    training.sign(tmp_path / "run")
    (tmp_path / "words.txt").write_text("hepatocyte\n")
    assert run_adapt(monkeypatch, *command(tmp_path)) == 0
    assert labels.read(tmp_path / "new") == head
    assert labels.settings(tmp_path / "new").items() >= of_texts.items()
    new = weights(tmp_path / "new")
    assert new.keys() == old.keys() and new[f"{head.kind}/kernel"].tobytes() == old[f"{head.kind}/kernel"].tobytes()


def test_new_words_have_rows_of_a_table_of_scores(tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, masked_lm_head="linear")
    old = a_run(tmp_path / "run", config, PretrainingModel(config, 0), PIECES)
    (tmp_path / "words.txt").write_text("hepatocyte\n")
    assert run_adapt(monkeypatch, *command(tmp_path), "--unused", "false") == 0
    new, rows = weights(tmp_path / "new")["masked_lm/words"], old["masked_lm/words"]
    assert new.shape == (32, 20) and new[:31].tobytes() == rows.tobytes()
    np.testing.assert_allclose(new[31], rows[[HEP, ATO, CYTE]].mean(axis=0), rtol=1e-6, atol=1e-8)


def test_new_words_take_rows_without_an_entry(tmp_path, monkeypatch, capsys):
    old = a_run(tmp_path / "run", CONFIG, PretrainingModel(CONFIG, 0), PIECES)
    entries = load_vocab(tmp_path / "run/vocab.txt")
    (tmp_path / "run/vocab.txt").write_text("\n".join(entries[:29]) + "\n")
    training.sign(tmp_path / "run")
    (tmp_path / "words.txt").write_text("hepatocyte\n")
    assert run_adapt(monkeypatch, *command(tmp_path), "--unused", "false") == 0
    assert "29 entries for 31 rows of embeddings; the last 2 rows" in capsys.readouterr().err
    new = weights(tmp_path / "new")["embeddings/word"]
    assert new.shape == (31, 20) and load_vocab(tmp_path / "new/vocab.txt") == [*entries[:29], "hepatocyte"]
    assert new[:29].tobytes() == old["embeddings/word"][:29].tobytes()
    np.testing.assert_allclose(new[29], old["embeddings/word"][[HEP, ATO, CYTE]].mean(axis=0), rtol=1e-6, atol=1e-8)
    assert new[30].tobytes() == old["embeddings/word"][30].tobytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [("the\n\n", 3, "no word that the vocabulary"), (b"\xff", 3, "not UTF-8"), (None, 3, "no such file")],
)
def test_a_list_without_a_new_word_is_one_line(tmp_path, monkeypatch, capsys, words, code, said):
    a_run(tmp_path / "run", CONFIG, PretrainingModel(CONFIG, 0), PIECES)
    if words is not None:
        (tmp_path / "words.txt").write_bytes(words if isinstance(words, bytes) else words.encode())
    assert run_adapt(monkeypatch, *command(tmp_path)) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(lines) == 1 and said in lines[0] and not (tmp_path / "new").exists()


def rules(lower_case: bool) -> TokenizerConfig:
    return TokenizerConfig(lower_case=lower_case, strip_accents=lower_case)


def test_words_are_taken_as_the_tokenizer_will_meet_them():
    def chosen(*lines: str, lower_case: bool = True) -> adapt.Choice:
        vocabulary = [*SPECIAL, *PIECES, "D"]
        return adapt.choose(lines, vocabulary, WordPiece(vocabulary, rules(lower_case)))

    words = chosen("Na\u00efve", "naive", "##ASE", "\uff48ep\u00adx", "\u03b2").words
    assert words == ["naive", "##ase", "\uff48epx", "\u03b2"]
    assert chosen("DNA", "dna", "##ASE", "Ti", "Ti", lower_case=False).words == ["DNA", "dna", "##ASE", "Ti"]
    left = chosen("il-6", "##-6", "##", "###", "\u4e2d\u6587", "a\tb", "\x07", "[NEW]", "q" * 201, "the").left_out
    assert left == {
        adapt.DIVIDED: ["il-6", "##-6", "##", "###", "\u4e2d\u6587", "a\tb", "\x07", "[NEW]"],
        adapt.LONG: ["q" * 201],
        adapt.KNOWN: ["the"],
    }


@example(["\u13a0", "\u0130", "\u00df", "\u1e9e", "\u01c5", "##\u0301", "\u212b", "\ufb01"], True, True)
@given(st.lists(st.text(max_size=9)), st.booleans(), st.booleans())
def test_the_tokenizer_finds_every_new_word_of_any_list(lines: list[str], lower_case: bool, unused: bool) -> None:
    vocabulary = [*SPECIAL, *PIECES, *(() if lower_case else "D")]
    choice = adapt.choose(lines, vocabulary, WordPiece(vocabulary, rules(lower_case)))
    assert len(choice.words) + sum(map(len, choice.left_out.values())) == sum(bool(line.strip()) for line in lines)
    extended = adapt.extend(vocabulary, choice.words, unused)
    check_vocab(extended.tokens, Path("vocab.txt"))
    assert is_lower_case(extended.tokens) == lower_case
    splitter = WordPiece(extended.tokens, rules(lower_case))
    for word, number in zip(choice.words, extended.ids, strict=True):
        assert splitter.pieces(word) == (number,)
        if not word.startswith("##"):
            assert splitter.encode([word])[0].tolist() == [number]


@pytest.mark.slow
def test_pretraining_goes_on_with_data_of_the_new_vocabulary(tmp_path, monkeypatch):
    dataset = training.write_dataset(tmp_path / "data")
    final = load_vocab(dataset / "vocab.txt")
    config = dataclasses.replace(CONFIG, vocab_size=96)  # otherwise as training.TINY says
    words = [*final[5:20], "[unused3]", *final[21:96]]
    old = a_run(tmp_path / "run", config, PretrainingModel(config, 0), words)
    (tmp_path / "words.txt").write_text("\n".join([final[20], *final[96:]]))
    assert run_adapt(monkeypatch, *command(tmp_path)) == 0
    assert (tmp_path / "new/vocab.txt").read_bytes() == (dataset / "vocab.txt").read_bytes()
    more = ("--model.num_hidden_layers", "2", "--run.steps", "1")
    with pytest.raises(UsageError, match="96, but"):
        training.train_here(dataset, tmp_path / "a", "--init.checkpoint", str(tmp_path / "run"), *more)
    training.train_here(dataset, tmp_path / "b", "--init.checkpoint", str(tmp_path / "new"), *more)
    trained = training.weights(tmp_path / "b", 1)["embeddings/word"]
    assert trained.shape == (99, 20) and np.abs(trained[:96] - old["embeddings/word"])[21:].max() < 0.1
