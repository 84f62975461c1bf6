"""Evaluate a causal model on WikiText, LAMBADA and held-out tokens, without training on them.

The definitions of the first two are those of Megatron-LM (`tasks/zeroshot_gpt`, github.com/NVIDIA/Megatron-LM, up to
2025), so that figures can be compared with published ones (Shoeybi et al. 2019).
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bert.core.errors import InputError
from bert.core.progress import Progress
from bert.text.causal_tokenizer import CausalTokenizer
from extensions.gpt import detokenizer, windows
from extensions.gpt.scoring import Passage, Score

LARGEST_LOSS = 20.0  # nats a token: the exponent of a perplexity is at most this
WIKITEXT103_WORDS = 245_566  # of the test set
LAMBADA_PASSAGES = 5153  # of the test set

Read = Callable[[int, int], np.ndarray]  # tokens begin .. end - 1 of a stream


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity:
    """How well a model predicts a stream of tokens. The first token is given, not predicted."""

    tokens: int
    loss: float
    """mean over the predicted tokens, in nats"""
    window: int
    """tokens that the model sees at once"""
    stride: int
    """tokens by which the window moves"""

    @property
    def total(self) -> float:
        """Return the summed loss in nats."""
        return self.loss * (self.tokens - 1)

    def fields(self) -> dict[str, Any]:
        """Return all figures by name."""
        return dataclasses.asdict(self) | {"perplexity": perplexity(self.loss)}


def perplexity(loss: float) -> float:
    """Return exp(loss), of at most `LARGEST_LOSS`."""
    return math.exp(min(loss, LARGEST_LOSS))


def stream_loss(score: Score, read: Read, tokens: int, window: int, stride: int, what: str) -> Perplexity:
    """Score a stream of this many tokens by overlapping windows. Raise InputError about `what` if it has no target."""
    if tokens < 2:
        raise InputError(f"{what}: {tokens} tokens, and the first one is not predicted; give more text")
    passages = (Passage(read(begin, end + 1), first) for begin, end, first in windows.windows(tokens, window, stride))
    total = 0.0
    with Progress("evaluate", "windows", windows.count(tokens, window, stride)) as progress:
        for scores in progress.each(score(passages)):
            total += float(scores.losses.sum())
    return Perplexity(tokens=tokens, loss=total / (tokens - 1), window=window, stride=stride)


def wikitext(
    score: Score, tokenizer: CausalTokenizer, text: str, window: int, stride: int, what: str
) -> dict[str, Any]:
    """Return the adjusted word perplexity of a test set of WikiText, in its original form, and what it is made of.

    Words are counted in the original text, tokens in the detokenized one. With the mean loss over all tokens but the
    first: adjusted = exp(loss * (tokens - 1) / (words - 1)).
    """
    words = detokenizer.count_words(text)
    if words < 2:
        raise InputError(f"{what}: {words} words; give the test set of WikiText")
    if words != WIKITEXT103_WORDS:
        print(
            f"warning: {what}: {words:,} words, but the test set of WikiText-103 has {WIKITEXT103_WORDS:,}; its "
            "published perplexities are of another text",
            file=sys.stderr,
        )
    ids = np.array(tokenizer.encode(detokenizer.detokenize(text)), np.int32)
    result = stream_loss(score, lambda begin, end: ids[begin:end], len(ids), window, stride, what)
    ratio = (result.tokens - 1) / (words - 1)
    return result.fields() | {
        "words": words,
        "token_ratio": ratio,
        "adjusted_perplexity": perplexity(result.loss * ratio),
    }


def heldout(score: Score, read: Read, tokens: int, text_bytes: int, window: int, stride: int) -> dict[str, Any]:
    """Return perplexity and bits per byte of a stream of tokens that has `text_bytes` bytes of text in UTF-8."""
    result = stream_loss(score, read, tokens, window, stride, "held-out tokens")
    bits = result.total / math.log(2) / text_bytes if text_bytes else math.nan
    return result.fields() | {"bytes": text_bytes, "bits_per_byte": bits}


def lambada(score: Score, tokenizer: CausalTokenizer, texts: Iterable[str], limit: int, what: str) -> dict[str, Any]:
    """Return the percentage of passages whose last word the model predicts, given all words before it.

    The strict form: all tokens of the word must be the likeliest ones, each after those before it. Contexts longer than
    the model's `limit` of tokens lose their beginning; they are counted as `shortened`.
    """
    passages, shortened = [], 0
    for number, text in enumerate(texts, 1):
        context, target = split_last_word(text, f"{what}: line {number}")
        head, word = tokenizer.encode(context), tokenizer.encode(target)
        ids = np.array((head + word)[-limit - 1 :], np.int32)
        if len(word) >= len(ids):
            raise InputError(f"{what}: line {number}: the last word alone fills the model's {limit} positions")
        shortened += len(ids) < len(head) + len(word)
        passages.append(Passage(ids, len(ids) - len(word) - 1))
    if not passages:
        raise InputError(f"{what}: no passages; give lambada_test.jsonl")
    if len(passages) != LAMBADA_PASSAGES:
        print(
            f"warning: {what}: {len(passages):,} passages, but the test set of LAMBADA has {LAMBADA_PASSAGES:,}",
            file=sys.stderr,
        )
    passages.sort(key=lambda passage: len(passage.ids))  # so that those scored together have little padding
    with Progress("evaluate", "passages", len(passages)) as progress:
        correct = sum(bool(scores.likeliest.all()) for scores in progress.each(score(passages)))
    return {
        "passages": len(passages),
        "correct": correct,
        "accuracy": 100 * correct / len(passages),
        "shortened": shortened,
    }


def split_last_word(text: str, what: str) -> tuple[str, str]:
    """Return the context of a passage and its last word with a space before it.

    White space separates words, and a context has none at its ends. Raise InputError, naming `what`, if the passage has
    fewer than two words.
    """
    words = text.split()
    if len(words) < 2:
        raise InputError(f"{what}: fewer than two words; give passages with a context")
    return text[: text.rfind(words[-1])].strip(), f" {words[-1]}"
