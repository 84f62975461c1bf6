"""Buckets hold every gradient once, in the order of the backward pass, are not too large, and are reduced in turn."""

import itertools
import math

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.model.weights import depth
from bert.training.buckets import bucket_by_bucket, buckets, first_layers

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


@given(st.integers(1, 9), st.integers(1, 400))
def test_a_layer_is_divided_only_if_it_is_larger_than_a_bucket(layers: int, limit: int) -> None:
    kinds = {"attention/key/kernel": 40, "attention/key/bias": 3, "mlp/inner/kernel": 57}  # 100 bytes in a layer
    sizes = {f"layer_{number}/{kind}": size for number in range(layers) for kind, size in kinds.items()}
    found = [{depth(list(sizes)[place]) for place in bucket} for bucket in buckets(sizes, limit)]
    divided = [number for number in range(1, layers + 1) if sum(number in bucket for bucket in found) > 1]
    assert len(divided) == (layers if limit < 100 else 0)
    assert all(len(bucket) == 1 for bucket in found) or limit >= 100


def test_groups_of_layers_begin_where_buckets_are_complete() -> None:
    names = ["embeddings/word", *(f"layer_{number}/mlp/inner/kernel" for number in range(5)), "pooler/kernel"]
    assert first_layers(names, [[6, 5, 4], [3, 2, 1], [0]]) == (0, 3)
    assert first_layers(names, [[6], [5], [4], [3], [2], [1, 0]]) == (0, 1, 2, 3, 4)
    assert first_layers(names, [list(range(7))]) == (0,)


@given(st.permutations(range(7)), st.lists(st.integers(0, 7), max_size=3))
def test_the_results_of_a_collective_are_those_of_the_tensors_at_the_same_places(
    order: list[int], cuts: list[int]
) -> None:
    edges = [0, *sorted(cuts), 7]
    divided = [order[first:last] for first, last in itertools.pairwise(edges)]
    tensors = [tf.fill([1 + place], 2.0 * place) for place in range(7)]
    calls = []

    def collective(number: int, given: list[tf.Tensor]) -> list[tf.Tensor]:
        calls.append((number, len(given)))
        return [tensor + 1.0 for tensor in given]

    results = dict(bucket_by_bucket(divided, tensors, collective))
    assert calls == [(number, len(bucket)) for number, bucket in enumerate(divided)]
    assert {place: result.numpy().tolist() for place, result in results.items()} == {
        place: [2.0 * place + 1] * (1 + place) for place in range(7)
    }


def test_results_are_taken_before_the_collective_of_the_next_bucket() -> None:
    said: list[str] = []

    def collective(number: int, given: list[tf.Tensor]) -> list[tf.Tensor]:
        said.append(f"bucket {number}")
        return given

    for place, _ in bucket_by_bucket([[2], [0, 1]], [tf.zeros([])] * 3, collective):
        said.append(f"place {place}")
    assert said == ["bucket 0", "place 2", "bucket 1", "place 0", "place 1"]
