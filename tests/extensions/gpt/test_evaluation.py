"""The published definitions: words, windows, the last word; with a model whose probabilities are a table."""

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from bert.core.errors import InputError
from extensions.gpt import evaluation
from extensions.gpt.detokenizer import detokenize
from extensions.gpt.scoring import Passage, Score, Scores
from extensions.tokenizers.byte_bpe import ByteBPE
from tests.extensions.gpt.runs import write_tokenizer

VOCAB = 258
WIKITEXT = " \n = Two @-@ fold = \n \n It ( the game ) had 1 @,@ 200 players ; some left . \n"
TABLE = np.random.default_rng(5).normal(0, 2, [VOCAB, VOCAB])
LOSSES = np.log(np.exp(TABLE).sum(axis=1, keepdims=True)) - TABLE  # of each token after each


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ByteBPE:
    return ByteBPE(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def bigrams(passages: Iterable[Passage]) -> Iterator[Scores]:
    """The table as a model; it also checks that no more is asked for than it can see."""
    for ids, first in passages:
        before, targets = ids[first:-1], ids[first + 1 :]
        yield Scores(LOSSES[before, targets], TABLE[before].argmax(axis=1) == targets)


def test_adjusted_perplexity_is_per_word_of_the_original_text(
    tokenizer: ByteBPE, capsys: pytest.CaptureFixture
) -> None:
    found = evaluation.wikitext(bigrams, tokenizer, WIKITEXT, 13, 3, "test.tokens")
    ids = tokenizer.encode("\n= Two-fold =\n\nIt (the game) had 1,200 players; some left.\n")
    total, words = LOSSES[ids[:-1], ids[1:]].sum(), 21
    assert detokenize(WIKITEXT) == tokenizer.decode(ids)
    assert (found["words"], found["tokens"]) == (words, len(ids))
    assert found["loss"] == pytest.approx(total / (len(ids) - 1))
    assert found["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)))
    assert found["token_ratio"] == pytest.approx((len(ids) - 1) / (words - 1))
    assert found["adjusted_perplexity"] == pytest.approx(math.exp(min(20, total / (words - 1))))
    assert "245,566" in capsys.readouterr().err  # this is not the published text


def test_bits_per_byte_divide_the_whole_loss_by_the_bytes_of_the_text() -> None:
    ids = np.random.default_rng(6).integers(0, VOCAB, 101)
    found = evaluation.heldout(bigrams, lambda begin, end: ids[begin:end], 101, 89, window=17, stride=17)
    total = LOSSES[ids[:-1], ids[1:]].sum()
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / 89)
    assert found["loss"] == pytest.approx(total / 100)


def test_a_stream_without_targets_is_an_error() -> None:
    with pytest.raises(InputError, match="1 tokens"):
        evaluation.heldout(bigrams, lambda begin, end: np.zeros(end - begin), 1, 1, window=7, stride=7)


@pytest.mark.parametrize(
    ("text", "context", "target"),
    [
        ("she saw the ship", "she saw the", " ship"),
        ("one two\n\n three", "one two", " three"),
        ("a cat sat on a", "a cat sat on", " a"),
        (" signs of signs \n", "signs of", " signs"),
        ('do you see "us"', "do you see", ' "us"'),
    ],
)
def test_the_last_word_is_the_target(text: str, context: str, target: str) -> None:
    assert evaluation.split_last_word(text, "here") == (context, target)


@pytest.mark.parametrize("text", ["", "word", " word \n"])
def test_a_passage_needs_a_context(text: str, tokenizer: ByteBPE) -> None:
    with pytest.raises(InputError, match="f: line 2: fewer than two words"):
        evaluation.lambada(bigrams, tokenizer, ["two words", text], 9, "f")


def speller(word: str, tokenizer: ByteBPE) -> Score:
    """A model that expects `word` after a "d", each letter of it after the one before, and is sure of nothing else."""
    ids = tokenizer.encode("d" + word)
    successor = dict(itertools.pairwise(ids))
    assert len(successor) == len(ids) - 1

    def score(passages: Iterable[Passage]) -> Iterator[Scores]:
        for tokens, first in passages:
            pairs = list(itertools.pairwise(tokens.tolist()))[first:]
            yield Scores(np.zeros(len(pairs)), np.array([successor.get(one) == two for one, two in pairs]))

    return score


def test_a_word_counts_only_if_all_its_tokens_are_the_likeliest(
    tokenizer: ByteBPE, capsys: pytest.CaptureFixture
) -> None:
    texts = ["she said yes", "he said\n\nyet", "so she said yes", "it seems so yes", "and yesterday"]
    found = evaluation.lambada(speller(" yes", tokenizer), tokenizer, texts, 99, "f")
    assert found == {"passages": 5, "correct": 2, "accuracy": 40.0, "shortened": 0}
    assert "5,153" in capsys.readouterr().err


def test_only_the_last_word_is_scored_and_only_long_contexts_are_cut(tokenizer: ByteBPE) -> None:
    seen = []

    def score(passages: Iterable[Passage]) -> Iterator[Scores]:
        for passage in passages:
            seen.append(passage)
            yield from bigrams([passage])

    found = evaluation.lambada(score, tokenizer, ["a long context " * 3 + "here", "a bc"], 20, "f")
    assert found["shortened"] == 1
    short, long = seen
    assert tokenizer.decode(short.ids) == "a bc" and short.first == 0
    assert tokenizer.decode(long.ids) == "ontext a long context here"[-21:] and len(long.ids) == 21
    assert tokenizer.decode(long.ids[long.first + 1 :]) == " here"


def test_a_word_longer_than_the_model_is_an_error(tokenizer: ByteBPE) -> None:
    with pytest.raises(InputError, match="line 1: the last word alone"):
        evaluation.lambada(bigrams, tokenizer, ["a bcdefgh"], 7, "f")
