"""Continue texts by a causal model, token by token.

The prompts of a batch may differ in length. Keys and values of earlier tokens are kept (cache.py), so that a new
token costs one forward pass of one token. A text depends neither on the texts beside it nor on the batch's size, up
to rounding.

Shapes: B texts, T new tokens, V vocabulary.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import tensorflow as tf

from bert.core.errors import IntegrityError, ResourceError
from bert.hardware import graphs
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.text import sampler
from extensions.gpt import sampling
from extensions.gpt.cache import Cache
from extensions.gpt.sampling import Choice
from extensions.gpt.trained import Trained

LENGTH_MULTIPLE = 16  # tokens: prompts are padded to a multiple; the model is compiled for each length

Step = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
End = Literal["end", "max_tokens", "positions"]


@dataclass(kw_only=True)
class Continuation:
    """A prompt, and its new tokens without the end token."""

    prompt: Sequence[int]
    max_tokens: int
    positions: int
    """tokens that the model takes; a text may have one more, the last one"""
    ids: list[int] = field(default_factory=list)
    end: End | None = None
    """why there are no more tokens: the end token was chosen, there are `max_tokens`, or no more positions"""

    @property
    def limit(self) -> int:
        """Return the largest number of new tokens."""
        return min(self.max_tokens, self.positions - len(self.prompt) + 1)

    def add(self, token: int, is_end: bool) -> None:
        """Add a new token, or notice that there are no more."""
        if is_end:
            self.end = "end"
            return
        self.ids.append(token)
        if len(self.ids) == self.limit:
            self.end = "max_tokens" if self.limit == self.max_tokens else "positions"


@dataclass(kw_only=True)
class Timing:
    """What has taken how long so far, without the compilation."""

    prompts: float = 0.0
    """seconds for first tokens"""
    seconds: float = 0.0
    """seconds for all others"""
    tokens: int = 0
    """number of those others"""


class Generator:
    """Continue prompts, `batch` at once."""

    def __init__(self, trained: Trained, choice: Choice, *, seed: int, batch: int) -> None:
        self.encoder, self.end = trained.encoder, trained.tokenizer.end
        self.choice, self.seed, self.batch, self.timing = choice, seed, batch, Timing()

    def generate(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, memory: int | None = None
    ) -> Iterator[Continuation]:
        """Yield the continuation of each prompt, in order.

        Prompts have at least one token, and no more than the model has positions. Raise ResourceError if keys and
        values need more than `memory` bytes, IntegrityError if a score is not finite.
        """
        positions = self.encoder.config.max_position_embeddings
        texts = [Continuation(prompt=prompt, max_tokens=max_tokens, positions=positions) for prompt in prompts]
        assert all(0 < len(prompt) <= positions for prompt in prompts)
        rows, longest = min(self.batch, len(texts)), max(map(len, prompts))
        width = sampler.padded_length(longest, LENGTH_MULTIPLE, positions)
        places = width + max(text.limit for text in texts) - 1
        _check_memory(Cache.bytes(self.encoder.config, rows, places, tf.float32), memory, rows, places)
        cache = Cache.empty(self.encoder.config, rows, places, tf.float32)
        step = _compiled(self.encoder, cache, self.choice, self.seed)
        for tokens in (width, 1):  # compile now, so that no text waits for it
            cache.restart(tf.zeros([rows], tf.int32))
            step(tf.zeros([rows, tokens], tf.int32), tf.range(rows))
        for begin in range(0, len(texts), rows):
            group = texts[begin : begin + rows]
            self._continue(group, width, cache, functools.partial(step, samples=tf.range(begin, begin + rows)))
            yield from group

    def _continue(self, texts: list[Continuation], width: int, cache: Cache, step: Step) -> None:
        """Continue the texts of one batch until each has ended."""
        rows = cache.padding.shape[0]
        ids = np.full([rows, width], self.end, np.int32)  # the last batch may have unused rows
        for row, text in enumerate(texts):
            ids[row, width - len(text.prompt) :] = text.prompt
        cache.restart([width - len(text.prompt) for text in texts] + [0] * (rows - len(texts)))
        begun = time.perf_counter()
        while active := [row for row, text in enumerate(texts) if text.end is None]:
            chosen, finite = step(tf.constant(ids))
            if not finite.numpy():
                raise IntegrityError("the model's scores are not finite: its training failed; use another checkpoint")
            tokens, now = chosen.numpy(), time.perf_counter()
            self._count(now - begun, len(active), first=ids.shape[1] > 1)
            for row in active:
                texts[row].add(int(tokens[row]), bool(tokens[row] == self.end))
            ids, begun = tokens[:, None], now

    def _count(self, seconds: float, tokens: int, first: bool) -> None:
        if first:
            self.timing.prompts += seconds
        else:
            self.timing.seconds += seconds
            self.timing.tokens += tokens


def _check_memory(need: int, memory: int | None, rows: int, places: int) -> None:
    if memory is not None and need > memory:
        raise ResourceError(
            f"keys and values of {rows} texts of {places} tokens need {need / 2**30:,.1f} GiB; there are "
            f"{memory / 2**30:,.1f} GiB; give a smaller --batch or --max_tokens"
        )


def _compiled(encoder: Encoder, cache: Cache, choice: Choice, seed: int) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return a function of the next tokens of all texts [B, T] and the numbers of the samples [B].

    It adds the tokens to the cache, and returns the tokens chosen to follow [B], and whether all scores were finite.
    """
    rows = cache.padding.shape[0]

    @graphs.function(input_signature=[tf.TensorSpec([rows, None], tf.int32), tf.TensorSpec([rows], tf.int32)])
    def step(ids: tf.Tensor, samples: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores = logits(encoder, cache, ids)
        numbers = sampling.uniforms(seed, samples, cache.filled - cache.padding)
        return sampling.pick(scores, choice, numbers), tf.reduce_all(tf.math.is_finite(scores))

    return step


def logits(encoder: Encoder, cache: Cache, ids: tf.Tensor) -> tf.Tensor:
    """Return the scores of the vocabulary after the last of the next tokens, [B, V] float32, for ids [B, T].

    The tokens are added to the cache.
    """
    rows, tokens = tf.shape(ids)[0], tf.shape(ids)[1]
    last = tf.range(1, rows + 1) * tokens - 1
    batch = TokenBatch(ids, positions=cache.positions(tokens))
    hidden = encoder(batch, Mode(tf.float32, DropoutRng(None), cache=cache), last)  # [B, D]
    cache.advance(tokens)
    return tf.matmul(hidden, encoder.embeddings.word, transpose_b=True)
