"""Buckets hold every gradient once, in the order in which the backward pass computes them, and are not too large."""

import math

from hypothesis import given
from hypothesis import strategies as st

from bert.training.buckets import buckets

NAMES = ["embeddings/word", "embeddings/position", "layer_0/mlp/inner/kernel", "layer_10/mlp/inner/kernel"]
NAMES += ["layer_2/attention/key/bias", "final/layer_norm/gamma", "masked_lm/bias", "pooler/kernel"]
SIZES = dict(zip(NAMES, (400, 70, 100, 100, 10, 5, 20, 30), strict=True))


def names(limit: float) -> list[list[str]]:
    return [[NAMES[place] for place in bucket] for bucket in buckets(SIZES, limit)]


def test_heads_come_first_and_embeddings_last() -> None:
    heads, layers, embeddings = NAMES[5:], [NAMES[3], NAMES[4], NAMES[2]], NAMES[:2]
    assert names(math.inf) == [[*heads, *layers, *embeddings]]
    assert names(120) == [heads, [layers[0], layers[1]], [layers[2]], [embeddings[0]], [embeddings[1]]]


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 500), min_size=1), st.integers(1, 2000))
def test_every_gradient_is_in_one_bucket_and_only_a_single_one_exceeds_the_limit(
    sizes: dict[str, int], limit: int
) -> None:
    filled, values = buckets(sizes, limit), list(sizes.values())
    assert sorted(place for bucket in filled for place in bucket) == list(range(len(sizes)))
    assert all(sum(values[place] for place in bucket) <= limit or len(bucket) == 1 for bucket in filled)
