"""Instances: pairs and masks have the published statistics, and every instance is made of the text it came from."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.text import instance_config, instances
from bert.text.tokenization import WordPieceTokenizer

PAD, UNK, CLS, SEP, MASK, FIRST, VOCAB = 0, 1, 2, 3, 4, 5, 997
TOKENS = instances.Tokens(
    pad=PAD,
    cls=CLS,
    sep=SEP,
    mask=MASK,
    special=(),
    ordinary=np.arange(FIRST, VOCAB),
    first=(np.arange(VOCAB) % 3 == 0).astype(np.uint8),  # of the ordinary ids, a third
    last=np.ones(VOCAB, np.uint8),
)


def shape(**changes: Any) -> instance_config.InstanceConfig:
    return instance_config.InstanceConfig(**({"max_seq_length": 64, "max_predictions_per_seq": 10} | changes))


def numbers(rng: np.random.Generator, features: dict[str, np.ndarray]) -> instances.Uniform:
    return lambda count: rng.random((len(features["input_ids"]), count))


def corpus(rng: np.random.Generator, documents: int, sentences: int = 23, words: int = 17) -> instances.Documents:
    """Random documents; their lengths in sentences and words are random too, down to 0."""
    per_document = rng.integers(0, 2 * sentences, documents)
    lengths = rng.integers(0, 2 * words, per_document.sum())
    return instances.Documents.from_sentences(
        ids=rng.integers(FIRST, VOCAB, lengths.sum()).astype(np.int32),
        sentences=np.concatenate([[0], np.cumsum(lengths)]),
        documents=np.concatenate([[0], np.cumsum(per_document)]),
    )


def distinct(documents: instances.Documents) -> instances.Documents:
    """The same, but each token's id is its own position, to see where it went."""
    return instances.Documents(
        ids=np.arange(FIRST, FIRST + len(documents.ids), dtype=np.int32),
        sentences=documents.sentences,
        documents=documents.documents,
    )


@pytest.fixture(scope="module")
def many() -> tuple[instances.Documents, instances.PairPlan]:
    rng = np.random.default_rng(1)
    documents = corpus(rng, 150, 300, 7)
    return documents, instances.plan(documents, shape(max_seq_length=100), rng)


def test_empty_sentences_and_documents_are_dropped():
    found = instances.Documents.from_sentences(
        np.arange(6, dtype=np.int32), np.array([0, 0, 2, 2, 5, 6, 6]), np.array([0, 1, 3, 3, 6])
    )
    assert found.sentences.tolist() == [0, 2, 5, 6]
    assert found.documents.tolist() == [0, 1, 3]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 9),
    length=st.integers(8, 40),
    short=st.sampled_from([0.0, 0.1, 1.0]),
    pairs=st.sampled_from(["nsp", "sop", "none"]),
)
def test_segments_are_text_of_the_documents(seed, count, length, short, pairs):
    rng = np.random.default_rng(seed)
    documents = distinct(corpus(rng, count, 5, 6))
    made = shape(max_seq_length=length, max_predictions_per_seq=3, short_seq_prob=short, pairs=pairs)
    plan = instances.plan(documents, made, rng)
    features = instances.build(documents.ids, plan, made, TOKENS)
    document_of = np.repeat(np.arange(len(documents.documents) - 1), np.diff(documents.sentences[documents.documents]))
    for ids, inside, segments, label in zip(
        *(features[n] for n in ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")), strict=True
    ):
        used = int(inside.sum())
        assert inside.tolist() == [1] * used + [0] * (length - used)
        assert ids[0] == CLS and ids[used - 1] == SEP and (ids[used:] == PAD).all()
        middle = ids[1 : used - 1].tolist().index(SEP) + 1
        assert segments.tolist() == [0] * (middle + 1) + [1] * (used - middle - 1) + [0] * (length - used)
        a, b = ids[1:middle] - FIRST, ids[middle + 1 : used - 1] - FIRST
        assert len(a) and len(b)
        for segment in (a, b):  # one chunk of one document
            assert (np.diff(segment) == 1).all() and len(set(document_of[segment])) == 1
        same = document_of[a[0]] == document_of[b[0]]
        if not label[0]:
            assert same and b[0] > a[-1]
        elif pairs == "nsp":
            assert not same
        else:
            assert pairs == "sop" and same and b[-1] < a[0]


@pytest.mark.parametrize(("pairs", "share"), [("nsp", 0.5), ("sop", 0.5), ("none", 0.0)])
def test_half_of_the_pairs_are_random_or_swapped(many, pairs, share):
    documents, plan = many
    if pairs != "nsp":
        plan = instances.plan(documents, shape(max_seq_length=100, pairs=pairs), np.random.default_rng(2))
    assert len(plan) > 2000
    assert plan.label.mean() == pytest.approx(share, abs=0.03)


def test_a_tenth_of_the_instances_are_short(many):
    documents, plan = many
    rng = np.random.default_rng(2)
    none_short = instances.plan(documents, shape(max_seq_length=100, short_seq_prob=0.0), rng)
    full = [((p.a_end - p.a_begin) + (p.b_end - p.b_begin) == 97).mean() for p in (plan, none_short)]
    assert 0.8 < full[0] / full[1] < 0.95


def test_every_token_is_used_in_each_round():
    rng = np.random.default_rng(3)
    documents = corpus(rng, 60, 9, 4)  # no sentence fills a sequence
    plan = instances.plan(documents, shape(max_seq_length=400), rng)
    used = np.zeros(len(documents.ids), bool)
    for begin, end in [*zip(plan.a_begin, plan.a_end, strict=True), *zip(plan.b_begin, plan.b_end, strict=True)]:
        used[begin:end] = True
    assert used.mean() > 0.97  # the rest was cut off to fit


def test_a_lone_document_is_paired_with_itself():
    rng = np.random.default_rng(4)
    ids = rng.integers(FIRST, VOCAB, 600).astype(np.int32)
    documents = instances.Documents(ids=ids, sentences=np.arange(0, 601, 10), documents=np.array([0, 60]))
    plan = instances.plan(documents, shape(), rng)
    assert len(plan) and not plan.label.any()
    one = instances.Documents(ids=ids, sentences=np.array([0, 600]), documents=np.array([0, 1]))
    assert (len(instances.plan(one, shape(), rng)), instances.plan(one, shape(), rng).skipped) == (0, 1)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(2, 61))
def test_truncation_leaves_what_taking_one_by_one_leaves(a, b, room):
    left, right = a, b
    while left + right > room:
        left, right = (left - 1, right) if left > right else (left, right - 1)
    ends = (np.array([end]) for end in (100, 100 + a, 500, 500 + b, 0))
    plan = instances.PairPlan(**dict(zip(instances.COLUMNS, ends, strict=True)), skipped=0)
    cut = instances._truncate(plan, room, np.random.default_rng(0).random((1, 2)))
    assert (int((cut.a_end - cut.a_begin)[0]), int((cut.b_end - cut.b_begin)[0])) == (left, right)
    assert cut.a_begin[0] >= 100 and cut.a_end[0] <= 100 + a and cut.b_begin[0] >= 500 and cut.b_end[0] <= 500 + b


@pytest.mark.parametrize("whole_word_mask", [False, True])
def test_masks_have_the_published_statistics(many, whole_word_mask):
    documents, plan = many
    made = shape(max_seq_length=100, max_predictions_per_seq=20, whole_word_mask=whole_word_mask)
    built = instances.build(documents.ids, plan, made, TOKENS)
    masked = instances.mask(built, made, TOKENS, numbers(np.random.default_rng(5), built))
    row, slot = np.nonzero(masked["masked_lm_weights"])
    position, label = masked["masked_lm_positions"][row, slot], masked["masked_lm_ids"][row, slot]
    assert len(row) / built["input_mask"].sum() == pytest.approx(0.15, abs=0.005)
    now = masked["input_ids"][row, position]
    assert (label == built["input_ids"][row, position]).all()
    assert (now == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (now == label).mean() == pytest.approx(0.1, abs=0.01)
    assert not np.isin(label, [PAD, CLS, SEP]).any() and not np.isin(now, [PAD, CLS, SEP]).any()
    touched = np.zeros_like(built["input_ids"], bool)
    touched[row, position] = True
    assert (masked["input_ids"] == built["input_ids"])[~touched].all()
    assert touched.sum() == len(row)  # no position twice
    spread = np.bincount(position, minlength=100)[10:80]  # no part of the sequence is preferred
    assert spread.min() > 0.7 * spread.max()


@pytest.mark.parametrize("shares", [(0.9, 0.1, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.25, 0.45, 0.3)])
def test_masks_have_the_shares_that_were_asked_for(many, shares):
    documents, plan = many
    made = shape(max_seq_length=100, max_predictions_per_seq=20, mask_shares=shares)
    built = instances.build(documents.ids, plan, made, TOKENS)
    masked = instances.mask(built, made, TOKENS, numbers(np.random.default_rng(5), built))
    row, slot = np.nonzero(masked["masked_lm_weights"])
    now, label = masked["input_ids"][row, masked["masked_lm_positions"][row, slot]], masked["masked_lm_ids"][row, slot]
    by_chance = shares[1] / (VOCAB - FIRST)  # a random token is the token itself
    found = [(now == MASK).mean(), ((now != MASK) & (now != label)).mean(), (now == label).mean()]
    expected = [shares[0], shares[1] - by_chance, shares[2] + by_chance]
    assert found == pytest.approx(expected, abs=0.01)
    assert [share == 0 for share in found] == [share == 0 for share in expected]


@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.2), (0.8, 0.2), (1.1, 0.0, -0.1), ()])
def test_shares_that_do_not_add_up_to_one_are_refused(shares):
    with pytest.raises(ValueError, match="not three shares that add up to 1"):
        shape(mask_shares=shares)


def test_a_single_sentence_is_an_instance_without_a_second_segment():
    documents = corpus(np.random.default_rng(4), 9, words=21)
    made = shape(max_seq_length=31, pairs="none", single_sentences=True)
    plan = instances.plan(documents, made, np.random.default_rng(5))
    assert len(plan) == len(documents.sentences) - 1 and plan.skipped == 0
    built = instances.build(documents.ids, plan, made, TOKENS)
    for number, (begin, end) in enumerate(itertools.pairwise(documents.sentences)):
        sentence = documents.ids[begin:end].tolist()
        row = built["input_ids"][number, : built["input_mask"][number].sum()].tolist()
        assert (row[0], row[-1], len(row)) == (CLS, SEP, min(len(sentence), 29) + 2)
        assert f" {' '.join(map(str, row[1:-1]))} " in f" {' '.join(map(str, sentence))} "
    assert not built["segment_ids"].any() and (built["input_ids"][built["input_mask"] == 0] == PAD).all()
    np.testing.assert_array_equal(instances.chunks(documents, made), np.arange(len(plan) + 1))


def test_random_words_are_neither_special_nor_unused(tmp_path):
    vocab = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused99]", "cat", "##s", "[", "unused"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    tokens = instances.Tokens.of(WordPieceTokenizer(tmp_path / "vocab.txt"))
    ids = np.tile(np.array([3, *[7] * 27, 4, 0, 0]), (200, 1))
    features = {"input_ids": ids, "input_mask": (ids > 0).astype(np.int64), "segment_ids": np.zeros_like(ids)}
    made = shape(max_seq_length=31, max_predictions_per_seq=27, masked_lm_prob=0.9)
    masked = instances.mask(features, made, tokens, numbers(np.random.default_rng(8), features))["input_ids"]
    assert {vocab[token] for token in np.unique(masked[:, 1:28])} == {"[MASK]", "cat", "##s", "[", "unused"}


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    cap=st.integers(1, 12),
    share=st.floats(0.01, 0.9),
    whole_word_mask=st.booleans(),
    longest=st.integers(1, 4),
)
def test_masks_keep_their_bounds(seed, cap, share, whole_word_mask, longest):
    """Of single words and of runs of up to four."""
    rng = np.random.default_rng(seed)
    documents = corpus(rng, 6, 7, 6)
    made = shape(
        max_seq_length=32,
        max_predictions_per_seq=cap,
        masked_lm_prob=share,
        whole_word_mask=whole_word_mask,
        max_ngram=longest,
    )
    built = instances.build(documents.ids, instances.plan(documents, made, rng), made, TOKENS)
    masked = instances.mask(built, made, TOKENS, numbers(rng, built))
    count = masked["masked_lm_weights"].sum(1)
    wanted = np.clip(np.round(built["input_mask"].sum(1) * share), 1, cap)
    full = count == np.minimum(wanted, (built["input_ids"] >= FIRST).sum(1))
    assert (count <= wanted).all()
    if not whole_word_mask:
        assert full.all() if longest == 1 else full.mean() > 0.5  # single tokens fill up what longer runs leave
    for n, (positions, weights) in enumerate(
        zip(masked["masked_lm_positions"], masked["masked_lm_weights"], strict=True)
    ):
        used = positions[weights > 0]
        assert (np.diff(used) > 0).all()  # in order, none twice
        assert (weights[: len(used)] == 1).all() and not positions[len(used) :].any()
        if whole_word_mask:
            ids, chosen = built["input_ids"][n], np.isin(np.arange(32), used)
            for at in range(2, 32):  # a piece that continues a word shares its fate
                if ids[at] >= FIRST and ids[at - 1] >= FIRST and TOKENS.first[ids[at]]:
                    assert chosen[at] == chosen[at - 1]


def test_longer_runs_are_rarer_and_masks_as_many(many):
    documents, plan = many
    plan = plan.rows(slice(0, 3000))
    runs = []
    for longest in (1, 3):
        made = shape(max_seq_length=100, max_predictions_per_seq=20, max_ngram=longest)
        built = instances.build(documents.ids, plan, made, TOKENS)
        masked = instances.mask(built, made, TOKENS, numbers(np.random.default_rng(5), built))
        assert masked["masked_lm_weights"].sum() / built["input_mask"].sum() == pytest.approx(0.15, abs=0.006)
        chosen = np.zeros(built["input_ids"].shape, int)
        row, slot = np.nonzero(masked["masked_lm_weights"])
        chosen[row, masked["masked_lm_positions"][row, slot]] = 1
        edges = np.diff(np.pad(chosen, ((0, 0), (1, 1))), axis=1)
        lengths = np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]
        runs.append(np.bincount(lengths, minlength=6))
    # Single words: a run of two is chance. Runs of 1, 2 and 3 with odds 6 : 3 : 2.
    assert runs[0][2] < 0.25 * runs[0][1]
    assert runs[1][1] > runs[1][2] > runs[1][4] and runs[1][3] > 3 * runs[0][3]


def test_special_tokens_of_the_user_are_never_masked(many):
    (documents, plan), rng = many, np.random.default_rng(7)
    special = int(np.bincount(documents.ids).argmax())
    tokens = dataclasses.replace(TOKENS, special=(special,))
    features = instances.build(documents.ids, plan, shape(), tokens)
    masked = instances.mask(features, shape(), tokens, numbers(rng, features))
    assert (features["input_ids"] == special).any()
    assert not (masked["masked_lm_ids"][masked["masked_lm_weights"] > 0] == special).any()
    assert ((features["input_ids"] == special) <= (masked["input_ids"] == special)).all()
