"""Attention without its weights in memory: cuDNN's, or with dropout on the weights that of kernels of this project."""

import tensorflow as tf

from bert.core.config import ModelConfig, PrecisionConfig
from bert.core.errors import UsageError
from bert.hardware import graphs
from bert.model import attention as plain
from bert.model.attention import SCORE_SCALE, exchange_heads_and_tokens, scale
from bert.model.dropout import DropoutRng
from bert.model.encoder import TokenBatch
from bert.model.kernels import Kernel
from extensions.kernels import cudnn, flash
from extensions.kernels.bits import packed
from extensions.kernels.comparison import compared, compiled_in_16_bits


def supports(tokens: int | None, head_width: int, rate: float) -> bool:
    """Return whether fused attention takes sequences of `tokens` tokens and heads of `head_width`.

    rate: of dropout. At 0 the answer is always yes: cuDNN itself refuses sizes that it does not support.
    """
    return rate == 0 or flash.supports(tokens, head_width)


def attend(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, *bits: tf.Tensor, rate: float) -> tf.Tensor:
    """Return what `bert.model.attention.attend` does, by cuDNN if the rate is 0; bits: of `packed` for [B, N, T, T]."""
    q, k, v = map(exchange_heads_and_tokens, (q, k, v))
    if rate == 0:
        return exchange_heads_and_tokens(cudnn.attend(q, k, v, mask, SCORE_SCALE))
    return exchange_heads_and_tokens(flash.attend(q, k, v, mask, *bits, rate=rate, factor=SCORE_SCALE))


def check(model: ModelConfig, precision: PrecisionConfig, tokens: int) -> None:
    """Raise UsageError if fused attention does not run here, or its results are wrong.

    tokens: length of the run's sequences. With dropout, some lengths have no kernel.
    """
    compiled_in_16_bits("fused_attention", precision)
    heads, width, dtype = model.num_attention_heads, model.hidden_size // model.num_attention_heads, precision.compute
    rate = model.attention_probs_dropout_prob
    if not supports(tokens, width, rate):
        raise UsageError(
            f"fused attention with dropout has no kernel for {tokens} tokens and heads of {width}; it takes a multiple "
            f"of {flash.SMALLEST} tokens, and heads of {flash.HEAD_WIDTHS}; leave out --model.fused_attention"
        )
    q, k, v, upstream = (
        tf.cast(tf.random.stateless_normal([2, heads, tokens, width], seed=(3, number)), dtype) for number in range(4)
    )
    present = tf.sequence_mask([tokens, (tokens + 1) // 2])
    mask = TokenBatch(present, present).attention_mask(model.causal)

    @graphs.function(jit_compile=True)
    def attend_and_differentiate(fused: bool) -> list[tf.Tensor]:
        draw, compute = (packed, attend) if fused else (DropoutRng.bits, plain.attend)
        bits = draw(DropoutRng(tf.constant([5, 6], tf.int64)), tf.constant([2, heads, tokens, tokens]), rate)
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            output = compute(q * scale(width), k, v, mask, *bits, rate=rate)
        return [output, *tape.gradient(output, [q, k, v], upstream)]

    kind = "fused attention with dropout" if rate else "cuDNN's attention"
    compared(attend_and_differentiate, kind, "--model.fused_attention")


def called(model: ModelConfig) -> str:
    """Return how a run names the kernel, which without dropout is cuDNN's."""
    return "fused attention" if model.attention_probs_dropout_prob else "attention by cuDNN"


KERNEL = Kernel(supports, attend, called, check, packed)
