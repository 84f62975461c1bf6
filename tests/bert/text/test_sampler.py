"""Every epoch visits every sample once, whatever the number of ranks."""

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.core.config import BatchConfig
from bert.core.errors import UsageError
from bert.text import sampler
from bert.text.records import Dataset
from bert.text.sampler import BatchSampler, SampleOrder, evaluation, permute
from tests.training import write_dataset


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5000), st.integers(0, 2**40))
def test_permute_is_a_permutation(size: int, key: int) -> None:
    assert sorted(permute(np.arange(size), size, key)) == list(range(size))


def test_permute_reaches_a_corpus_without_storing_it() -> None:
    size = 500_000_000
    images = permute(np.arange(10_007), size, key=3)
    assert len(np.unique(images)) == 10_007 and images.max() < size
    assert images.mean() == pytest.approx(size / 2, rel=0.02)  # spread over the whole
    assert abs(np.corrcoef(images[:-1], images[1:])[0, 1]) < 0.03


def test_epochs_have_different_orders_and_all_samples() -> None:
    first, second = np.split(SampleOrder(997, 12, seed=5)(np.arange(2 * 997)), 2)
    assert sorted(first) == sorted(second) == list(range(997))
    assert (first == second).mean() < 0.02
    assert not np.array_equal(first, SampleOrder(997, 12, seed=6)(np.arange(997)))


class Placed:
    """Samples without content; `read_at` has the positions that were read, by sample."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.read_at: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return self.size

    def read(self, indices: np.ndarray, positions: np.ndarray) -> dict[str, tf.Tensor]:
        for index, position in zip(indices.tolist(), positions.tolist(), strict=True):
            self.read_at.setdefault(index, []).append(position)
        return {}


def test_a_sample_has_another_position_in_each_epoch() -> None:
    """Masks that are drawn while reading depend on the position: with equal ones they would repeat in every epoch."""
    source = Placed(7)
    for rank in range(2):
        reader = BatchSampler(source, BatchConfig(total=6, per_device=3), seed=9, rank=rank, num_ranks=2)
        for update in range(7):  # 42 samples are 6 epochs
            reader.read(update)
    assert sorted(source.read_at) == list(range(7))
    for positions in source.read_at.values():
        assert sorted(position // 7 for position in positions) == list(range(6))


class Numbered(Dataset):
    """Samples that are their own numbers, of made-up sizes."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def sizes(self, indices: np.ndarray) -> np.ndarray:
        return np.asarray(indices) * 7919 % 97

    def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> dict[str, Any]:
        return {"input_ids": indices.tolist()}


def updates(count: int, batch: BatchConfig, ends: int, ranks: int = 1, first: int = 0) -> list[list[int]]:
    """Return the samples of the updates first..ends-1 of a run that ends there, in the order of the micro-batches."""
    readers = [BatchSampler(Numbered(count), batch, seed=9, rank=rank, num_ranks=ranks) for rank in range(ranks)]
    made = []
    with mock.patch.object(sampler, "trim_padding", lambda micro_batch: micro_batch):
        for update in range(first, ends):
            of_ranks = [reader.read(update, ends) for reader in readers]
            made.append([n for turn in zip(*of_ranks, strict=True) for micro in turn for n in micro["input_ids"]])
    return made


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 150),
    total=st.sampled_from([1, 2, 3, 8, 12, 32, 33]),
    group=st.sampled_from([0, 1, 2, 5, 64]),
    length=st.integers(1, 40),
    ranks=st.sampled_from([1, 2, 3, 4]),
    data=st.data(),
)
def test_every_epoch_reads_every_sample_once(
    count: int, total: int, group: int, length: int, ranks: int, data: st.DataObject
) -> None:
    """Sets from one sample on: smaller than a batch, than two, than a pool; runs that end within an epoch or pool."""
    length = min(length, 4 * count + 3)  # each update of one that is much larger than the set reads it many times
    batch = BatchConfig(total=total, per_device=total, bucket_by_length=group)
    made = updates(count, batch, length)
    read = np.zeros(count, np.int64)
    for number, samples in enumerate(made, start=1):
        assert len(samples) == total
        most = np.bincount(samples, minlength=count)
        assert most.max() == -(-total // count), "a batch has a sample twice and could do without"
        read += most
        if number * total % count < total or not group:  # an epoch ends in this update, or each is in order
            assert read.min() == number * total // count
    assert read.max() - read.min() <= 1 and read.min() == length * total // count
    first = data.draw(st.integers(0, length - 1))
    assert updates(count, batch, length, first=first) == made[first:], "a resumed run has another order"
    if total % ranks == 0:
        sizes = [size for size in range(1, total + 1) if total // ranks % size == 0]
        divided = BatchConfig(total=total, per_device=data.draw(st.sampled_from(sizes)), bucket_by_length=group)
        assert updates(count, divided, length, ranks) == made, "the order depends on the number of ranks"


def test_the_order_of_a_large_set_is_the_permutation_but_for_borders_of_epochs() -> None:
    size, total = 1000, 12
    order = SampleOrder(size, total, seed=5)(np.arange(3 * size))
    for epoch in range(3):
        plain = permute(np.arange(size), size, key=5 * 2**32 + epoch)
        np.testing.assert_array_equal(order[epoch * size :][total:size], plain[total:])


@pytest.mark.slow
def test_a_cycle_of_many_epochs_resumes_at_its_end() -> None:
    """Each of 1,500 epochs depends on the one before: more than Python's recursion is deep."""
    count, total, last = 1501, 1500, 1400
    order = SampleOrder(count, total, seed=3)(last * total + np.arange(total))
    assert len(np.unique(order)) == total


@pytest.mark.parametrize(("ranks", "per_device"), [(1, 6), (2, 3), (3, 1)])
def test_grouped_updates_have_like_lengths_and_another_turn_in_every_pool(ranks: int, per_device: int) -> None:
    data, group = Numbered(6 * 23 + 1), 5
    batch = BatchConfig(total=6, per_device=per_device, bucket_by_length=group)
    reader = BatchSampler(data, batch, seed=9, rank=0, num_ranks=ranks)
    turns = []
    for pool in range(4):  # the fifth has three updates, and an update then begins the next epoch
        sizes = [data.sizes(reader.order(reader.positions(pool * group + turn))) for turn in range(group)]
        by_size = sorted(range(group), key=lambda turn: sizes[turn].mean())
        for less, more in itertools.pairwise(by_size):
            assert sizes[less].max() <= sizes[more].min()
        turns.append(by_size)
    assert len(set(map(tuple, turns))) > 1


def test_grouped_batches_are_cut_to_their_longest_row(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "LENGTH_MULTIPLES", {64: 2})
    data = Dataset(dataset, "train")
    config = BatchConfig(total=6, per_device=3, bucket_by_length=4)
    narrow = 0
    for update in range(4):
        for batch in BatchSampler(data, config, seed=9).read(update):
            longest = int(batch["input_mask"].numpy().sum(axis=1).max())
            width = batch["input_ids"].shape[1]
            assert width == min(longest + longest % 2, 13) == batch["segment_ids"].shape[1]
            assert batch["masked_lm_positions"].shape[1] == 3
            narrow += width < 12
    assert narrow, "every batch had a long row"


def test_short_batches_have_finer_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        sampler.padded_length(tokens, sampler.training_multiple(tokens), 512) for tokens in (1, 17, 64, 65, 97, 300)
    ]
    assert found == [8, 24, 64, 80, 112, 320]
    monkeypatch.setattr(sampler, "has_gpu", lambda: True)
    assert sampler.training_multiple(5) == 128


def test_samples_of_unknown_length_cannot_be_grouped() -> None:
    class StageResult:
        def __len__(self) -> int:
            return 41

        def read(self, indices: np.ndarray, positions: np.ndarray) -> sampler.Batch:
            raise AssertionError("nothing is to be read")

    with pytest.raises(UsageError, match=r"batch\.bucket_by_length needs stored instances"):
        BatchSampler(StageResult(), BatchConfig(total=6, per_device=3, bucket_by_length=2), seed=1)


def test_the_size_of_a_record_tells_its_length(dataset: Path) -> None:
    data = Dataset(dataset, "train")
    everything = np.arange(len(data))
    assert data.sizes(everything).tolist() == [len(data.payload(int(index))) + 16 for index in everything]


def test_reading_ahead_changes_nothing(dataset: Path) -> None:
    plain = BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=3), seed=1)
    ahead = list(plain.iterate(2, 7))
    assert len(ahead) == 5
    for update, got in enumerate(ahead, start=2):
        for one, two in zip(got, plain.read(update), strict=True):
            np.testing.assert_array_equal(one["input_ids"], two["input_ids"])


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Held-out samples, most of them of the first source."""
    folder = tmp_path_factory.mktemp("sources") / "dataset"
    return Dataset(write_dataset(folder, heldout={"wikipedia": 31, "books": 10}), "heldout")


@pytest.mark.parametrize("limit", [14, 1000])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_evaluation_shares_each_sample_out_once_in_batches_of_one_source(
    two_sources: Dataset, size: int, limit: int
) -> None:
    batch, data = BatchConfig(total=15, per_device=3), two_sources
    shares = [list(evaluation(data, batch, limit, rank=rank, num_ranks=size)) for rank in range(size)]
    found = [(row, source) for share in shares for source, part in share for row in part["input_ids"].numpy().tolist()]
    every = data.read(np.arange(41))["input_ids"].numpy().tolist()
    chosen = sampler.evaluated(41, limit)
    assert sorted(found) == sorted((every[n], "wikipedia" if n < 31 else "books") for n in chosen)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert len(chosen) == min(limit, 41) and (np.diff(chosen) > 0).all()


def test_evaluation_by_length_takes_the_same_samples_with_less_padding(
    two_sources: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "LENGTH_MULTIPLES", {65_536: 1})
    monkeypatch.setattr(sampler, "EVALUATION_MULTIPLE", 4)
    found = {}
    for group in (0, 1):
        batches = evaluation(two_sources, BatchConfig(total=4, per_device=4, bucket_by_length=group), 29)
        read = [(source, {name: value.numpy() for name, value in batch.items()}) for source, batch in batches]
        assert (len({batch["input_ids"].shape[1] for _, batch in read}) > 1) == bool(group)
        found[group] = sorted(
            (source, ids[: mask.sum()].tolist(), labels.tolist())
            for source, batch in read
            for ids, mask, labels in zip(batch["input_ids"], batch["input_mask"], batch["masked_lm_ids"], strict=True)
        )
    assert found[0] == found[1] and len(found[0]) == 29


def test_evaluation_packs_the_same_samples(tmp_path: Path) -> None:
    found, data = {}, Dataset(write_dataset(tmp_path / "dataset", heldout=41, shortest=4), "heldout")
    for packs in (False, True):
        batches = list(evaluation(data, BatchConfig(total=4, per_device=4, pack=packs), 29))
        assert sum(sampler.samples_in(batch) for _, batch in batches) == 29
        assert (sum(len(batch["input_ids"]) for _, batch in batches) < 29) == packs
        found[packs] = [batch["masked_lm_ids"].numpy()[batch["masked_lm_weights"] > 0].tolist() for _, batch in batches]
    assert found[True] == found[False]


def test_the_evaluated_samples_are_spread_over_all() -> None:
    size, limit = 400_009, 2048
    chosen = sampler.evaluated(size, limit)
    assert len(np.unique(chosen)) == limit and chosen.max() < size
    share = (chosen >= 0.58 * size).mean()  # a source that has the last 42 % of the samples
    assert share == pytest.approx(0.42, abs=4 * (0.42 * 0.58 / limit) ** 0.5)
    assert np.array_equal(sampler.evaluated(limit, size), np.arange(limit))
