"""Windows cover every token, and keep the characters that each came from."""

import json
import string
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.core import manifest
from bert.core.errors import InputError, UsageError
from bert.text import records
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from squad import answers, examples, features, metric
from squad.config import SquadData, Windowing
from squad.examples import Example

REAL = Path(__file__).parents[3] / "shared" / "data"
SMALL = Windowing(max_seq_length=23, doc_stride=5, max_query_length=7)
ODD_WORDS = [
    "\U0001f468\u200d\U0001f469",
    "caf\u00e9",
    "nai\u0308ve",
    "\u6771\u4eac",
    "\U0001f389",
    "H\u00b2O",
    "x\u2026y",
    "\u0130zmir",
]
ODD_WORDS += ["\ufb01ne", "a\u0301\u0302b", "\u00bd", "(b)", "U.S.", "zero\u200bwidth", "\ud55c\uad6d", "\u00dfs"]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    """Every printable character, alone and as a continuation, and a few words."""
    characters = string.digits + string.ascii_lowercase + string.punctuation + "\u6771\u4eac\u2044"
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *characters, *(f"##{c}" for c in characters), "river", "cafe", "##ly"]) + "\n")
    return path


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return WordPieceTokenizer(vocab)


def asked(question="who", passage=0, identity="q"):
    return Example(id=identity, question=question, passage=passage, answers=())


def test_a_window_reads_cls_question_sep_passage_sep(tokenizer):
    passages = features.tokenize(tokenizer, ["river " * 30, ""])
    batch = features.windows(tokenizer, [asked("who is this cafe"), asked("river", 1)], passages, SMALL)
    assert batch.places.question.tolist() == [0, 0, 0, 0, 0, 1]
    assert batch.places.first.tolist() == [0, 5, 10, 15, 20, 0]
    assert batch.places.length.tolist() == [13, 13, 13, 13, 10, 0]
    for row in range(6):
        words = [tokenizer.vocab[token] for token in batch.inputs["input_ids"][row]]
        question = ["river"] if row == 5 else ["w", "##h", "##o", "i", "##s", "t", "##h"]  # cut after 7 pieces
        told = ["river"] * batch.places.length[row]
        asked_part, told_part = ["[CLS]", *question, "[SEP]"], [*told, "[SEP]"]
        padding = 23 - len(asked_part) - len(told_part)
        assert words == asked_part + told_part + ["[PAD]"] * padding
        assert batch.places.offset[row] == len(asked_part)
        assert batch.inputs["input_mask"][row].tolist() == [1] * (23 - padding) + [0] * padding
        assert batch.inputs["segment_ids"][row].tolist() == [0] * len(asked_part) + [1] * len(told_part) + [0] * padding


@settings(max_examples=40)
@given(st.lists(st.sampled_from([*ODD_WORDS, "river", " ", "\u00a0", ",", "'s"]), max_size=40), st.randoms())
def test_an_answer_is_always_cut_from_its_place_in_the_passage(tokenizer, words, random):
    passages = [" ".join(words), "".join(words)]
    tokens = features.tokenize(tokenizer, passages)
    questions = [asked("cafe", 1, "a"), asked("is the river", 0, "b")]
    batch = features.windows(tokenizer, questions, tokens, SMALL)
    rng = np.random.default_rng(random.randrange(1000))
    logits = (rng.normal(size=batch.inputs["input_ids"].shape), rng.normal(size=batch.inputs["input_ids"].shape))
    found = answers.n_best_answers(questions, passages, tokens, batch.places, logits, 6, 4, null=False)
    for question, said in zip(questions, found, strict=True):
        candidates, passage = said.candidates, passages[question.passage]
        assert len({candidate.text for candidate in candidates}) == len(candidates) >= 1
        for candidate in candidates:
            assert passage[candidate.start : candidate.start + len(candidate.text)] == candidate.text
            assert bool(candidate.text) == bool(tokenizer.encode([passage])[0].size)


@pytest.mark.parametrize("word", ODD_WORDS)
def test_an_odd_answer_survives_its_way_through_the_tokens(tokenizer, word):
    passage = f"\u00e9t\u00e9 \U0001f30a\U0001f30a {word}, {word} \u6771 end"
    tokens = features.tokenize(tokenizer, ["other text", passage])
    row = tokens.row(1)
    for start in (passage.index(word), passage.rindex(word)):
        span = features.token_span(tokens.starts[row], tokens.ends[row], start, start + len(word))
        assert span is not None
        assert passage[tokens.starts[row][span[0]] : tokens.ends[row][span[1]]] == word


def test_characters_without_a_token_have_no_span(tokenizer):
    tokens = features.tokenize(tokenizer, ["a   b"])
    assert features.token_span(tokens.starts, tokens.ends, 2, 4) is None
    assert features.token_span(tokens.starts, tokens.ends, 2, 5) == (1, 1)


@pytest.mark.skipif(not REAL.exists(), reason="no ../shared/data: the real question sets are not here")
def test_real_answers_survive_their_way_through_the_tokens():
    tokenizer = WordPieceTokenizer(REAL / "vocab" / "bert-base-uncased-vocab.txt")
    dataset = examples.read_dataset(REAL / "squad" / "dev-v1.1.json.xz")
    tokens = features.tokenize(tokenizer, dataset.passages)
    kept = 0
    for span in examples.spans(dataset, impossible=False).spans:
        row, passage = tokens.row(span.example.passage), dataset.passages[span.example.passage]
        found = features.token_span(tokens.starts[row], tokens.ends[row], span.start, span.end)
        assert found is not None
        text = passage[tokens.starts[row][found[0]] : tokens.ends[row][found[1]]]
        assert passage[span.start : span.end].strip() in text
        kept += metric.exact_match(text, span.example.answers[0].text)
    assert kept / len(dataset.examples) > 0.99


def test_an_answer_is_labelled_in_the_windows_that_hold_the_whole_of_it(tokenizer):
    passages = features.tokenize(tokenizer, [" ".join(string.digits + string.ascii_lowercase)])
    batch = features.windows(tokenizer, [asked("cafe river cafe river cafe")], passages, SMALL)
    passage, cut = passages.ids.tolist(), 0
    assert len(set(passage)) == 36  # no two tokens are equal
    for first in range(36):
        for last in range(first, min(first + 9, 36)):
            answer = passage[first : last + 1]
            for row, ids in enumerate(batch.inputs["input_ids"].tolist()):
                held = [at for at in range(23) if ids[at : at + len(answer)] == answer]
                wanted = (held[0], held[0] + last - first) if held else (0, 0)
                assert features.label(batch.places, row, (first, last)) == wanted
                cut += not held and bool({answer[0], answer[-1]} & set(ids))
    assert cut > 50  # answers that begin or end in a window, but are not whole in it


def train_file(folder, *answers_of_q):
    """Questions with the answers (text, start); the impossible one if that is None."""
    passage = "river " * 20 + "the cafe Nil is old " + "river " * 15
    qas: list[dict[str, Any]] = [
        {"id": f"q{n}", "question": "which cafe?", "answers": [{"text": found[0], "answer_start": found[1]}]}
        if found
        else {"id": f"q{n}", "question": "which river?", "answers": [], "is_impossible": True}
        for n, found in enumerate(answers_of_q)
    ]
    path = folder / "train.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": passage, "qas": qas}]}]}))
    return path


def test_training_records_point_at_the_answer_or_at_cls(tmp_path, vocab, tokenizer):
    path = train_file(tmp_path, ("Nil", 129), ("cafe Nil", 0), ("Nile", 129))
    folder = features.training_set(SquadData(train_file=path), tokenizer, vocab, SMALL, tmp_path / "work")
    made = manifest.load(folder)
    assert made.counts["inferred"] == 1
    assert made.extra["dropped"] == {"q2": "the answer is not in its passage"}
    dataset = records.Dataset(folder, "train")
    assert len(dataset) == made.counts["windows"]
    rows = {name: value.numpy() for name, value in dataset.read(np.arange(len(dataset))).items()}
    assert {rows[name].shape[1] for name in ("input_ids", "input_mask", "segment_ids")} == {23}
    assert {rows[name].shape[1] for name in ("start_positions", "end_positions")} == {1}
    read = set()
    for row, (start,), (end,) in zip(rows["input_ids"], rows["start_positions"], rows["end_positions"], strict=True):
        read.add(" ".join(tokenizer.vocab[token] for token in row[start : end + 1]))
        whole = " n ##i ##l " in " " + " ".join(tokenizer.vocab[token] for token in row) + " "
        assert whole or start == 0
    assert read == {"[CLS]", "n ##i ##l", "cafe n ##i ##l"}


def test_every_window_of_an_impossible_question_points_at_cls(tmp_path, vocab, tokenizer):
    """Whatever it gives as answers."""
    path = train_file(tmp_path, None, ("Nil", 129), None)
    content = json.loads(path.read_text())
    content["data"][0]["paragraphs"][0]["qas"][2]["answers"] = [{"text": "Nil", "answer_start": 129}]
    path.write_text(json.dumps(content))
    folder = features.training_set(SquadData(train_file=path), tokenizer, vocab, SMALL, tmp_path / "work")
    made, dataset = manifest.load(folder), records.Dataset(folder, "train")
    assert (made.counts["impossible"], made.extra["dropped"]) == (2, {})
    rows = {name: value.numpy() for name, value in dataset.read(np.arange(len(dataset))).items()}
    river = (rows["input_ids"][:, :13] == tokenizer.vocab.index("river")).argmax(axis=1) == 6  # [CLS] w ##h ##i ##c ##h
    assert 0 < river.sum() < len(river)
    assert len(river) % 3 == 0 and river.sum() == len(river) * 2 // 3
    assert not rows["start_positions"][river].any() and not rows["end_positions"][river].any()
    assert rows["start_positions"][~river].any()

    data = SquadData(train_file=path, impossible=False)
    answerable = features.training_set(data, tokenizer, vocab, SMALL, tmp_path / "work")
    assert answerable != folder
    found = manifest.load(answerable)
    assert (found.counts["impossible"], set(found.extra["dropped"])) == (0, {"q0", "q2"})


def test_malformed_questions_are_left_out_of_training_or_refused(tmp_path, vocab, tokenizer, capsys):
    path = train_file(tmp_path, ("Nil", 129), ("Nil", True))
    folder = features.training_set(SquadData(train_file=path), tokenizer, vocab, SMALL, tmp_path / "work")
    made = manifest.load(folder)
    assert (made.counts["questions"], made.counts["malformed"]) == (2, 1)
    assert str(tmp_path) not in json.dumps(made.extra["malformed"])
    said = capsys.readouterr().err
    assert "1 malformed items are not used: article 0, paragraph 0, question 1 (id 'q1')" in said
    with pytest.raises(InputError, match=r"train\.json: .*\(id 'q1'\).*'answer_start' is a boolean"):
        features.training_set(SquadData(train_file=path, strict=True), tokenizer, vocab, SMALL, tmp_path / "work")


def test_a_passage_of_a_megabyte_is_cut_without_tables_of_its_square(tokenizer):
    tracemalloc.start()
    tokens = features.tokenize(tokenizer, ["river cafe " * 90_000])
    batch = features.windows(tokenizer, [asked()], tokens, Windowing())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert batch.places.length.sum() > 180_000
    assert batch.places.max_context.sum() == 180_000  # each token is best seen once
    assert peak < 300e6


def test_a_question_about_many_passages_is_encoded_once(tokenizer, monkeypatch):
    texts = ["w h o", "a b c d e", "x"]
    questions = [asked("who is it", n) for n in range(3)] + [asked("x", 1)]
    tokens = features.tokenize(tokenizer, texts)
    windowing = Windowing(max_seq_length=12, doc_stride=2, max_query_length=2)
    alone = [features.windows(tokenizer, [question], tokens, windowing).inputs for question in questions]
    seen, encode = [], WordPieceTokenizer.encode

    def counted(self, given):
        seen.extend(given)
        return encode(self, given)

    monkeypatch.setattr(WordPieceTokenizer, "encode", counted)
    together = features.windows(tokenizer, questions, tokens, windowing)
    assert seen == ["who is it", "x"]
    for name, found in together.inputs.items():
        np.testing.assert_array_equal(found, np.concatenate([one[name] for one in alone]))


def test_what_training_does_not_read_is_told(tmp_path, vocab, tokenizer, capsys):
    """A cut question, an answer that predictions do not reach, one that no window holds, and a second answer."""
    longer, longest = ("river " * 31 + "river", 133), ("river " * 59 + "river", 133)
    path = train_file(tmp_path, ("Nil", 129), longer, longest, ("cafe", 124))
    content = json.loads(path.read_text())
    paragraph = content["data"][0]["paragraphs"][0]
    paragraph["context"], paragraph["qas"][0]["question"] = "river " * 20 + "the cafe Nil" + " river" * 60, "which " * 9
    paragraph["qas"][3]["answers"] *= 2
    path.write_text(json.dumps(content))
    windowing = Windowing(max_seq_length=59, doc_stride=13, max_query_length=29)
    folder = features.training_set(SquadData(train_file=path), tokenizer, vocab, windowing, tmp_path / "work")
    assert manifest.load(folder).counts["dropped"] == 0
    said = capsys.readouterr().err.splitlines()
    kinds = ("several answers", "29 tokens and are cut", "more than 30 tokens; squad.predict", "no window holds")
    assert [kind in line for kind, line in zip(kinds, said, strict=True)] == [True] * 4
    assert [line.split(": ")[2].split()[0] for line in said] == ["1", "1", "2", "1"]


def test_training_records_are_made_once_for_each_setting(tmp_path, vocab, tokenizer):
    path = train_file(tmp_path, ("Nil", 129))
    first = features.training_set(SquadData(train_file=path), tokenizer, vocab, SMALL, tmp_path)
    stamp = (first / manifest.NAME).stat().st_mtime_ns
    assert features.training_set(SquadData(train_file=path), tokenizer, vocab, SMALL, tmp_path) == first
    assert (first / manifest.NAME).stat().st_mtime_ns == stamp
    other = Windowing(max_seq_length=23, doc_stride=6, max_query_length=7)
    assert features.training_set(SquadData(train_file=path), tokenizer, vocab, other, tmp_path) != first


def test_a_file_without_an_answer_to_learn_from_is_refused_and_leaves_nothing(tmp_path, vocab, tokenizer):
    with pytest.raises(InputError, match=r"train\.json: none of its 1 questions .* \(question q0: .* not in its"):
        data = SquadData(train_file=train_file(tmp_path, ("Nile", 0)))
        features.training_set(data, tokenizer, vocab, SMALL, tmp_path / "work")
    assert not [path for path in (tmp_path / "work").rglob("*") if path.is_file()]


@pytest.mark.parametrize("setting", [{"doc_stride": 0}, {"max_query_length": 0}, {"max_seq_length": 67}])
def test_windows_without_room_or_progress_are_refused(setting):
    with pytest.raises(UsageError):
        Windowing(**setting)
