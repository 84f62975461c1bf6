"""Every epoch visits every sample once, whatever the number of ranks."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.config import BatchConfig
from bert.errors import UsageError
from bert.inputs import sampler
from bert.inputs.records import Dataset
from bert.inputs.sampler import BatchSampler, evaluation, permute, sample_order
from bert.training.distributed import Communicator


class Rank(Communicator):
    """Rank `rank` of `size` that never talks to the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


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
    first, second = np.split(sample_order(np.arange(2 * 997), 997, seed=5), 2)
    assert sorted(first) == sorted(second) == list(range(997))
    assert (first == second).mean() < 0.02
    assert not np.array_equal(first, sample_order(np.arange(997), 997, seed=6))


@pytest.mark.parametrize(("size", "per_device"), [(1, 12), (1, 3), (2, 3), (4, 1)])
def test_an_update_has_the_same_samples_for_any_number_of_ranks(dataset: Path, size: int, per_device: int) -> None:
    data = Dataset(dataset, "train")
    batch = BatchConfig(total=12, per_device=per_device)
    for update in (0, 3, 5):  # the last one spans two epochs of 41 samples
        parts = [BatchSampler(data, batch, seed=9, rank=rank, num_ranks=size).read(update) for rank in range(size)]
        seen = [row for part in parts for micro in part for row in micro["input_ids"].numpy().tolist()]
        wanted = data.read(sample_order(12 * update + np.arange(12), len(data), 9))["input_ids"].numpy().tolist()
        assert sorted(seen) == sorted(wanted)


@pytest.mark.parametrize("size", [3, 5, 7])
def test_ranks_that_cannot_divide_the_batch_share_the_nearest_one(dataset: Path, size: int) -> None:
    data = Dataset(dataset, "train")
    batch = BatchConfig(total=16, per_device=2, fit="nearest").divided(size)
    parts = [BatchSampler(data, batch, seed=9, rank=rank, num_ranks=size).read(3) for rank in range(size)]
    seen = [row for part in parts for micro in part for row in micro["input_ids"].numpy().tolist()]
    positions = batch.total * 3 + np.arange(batch.total)
    wanted = data.read(sample_order(positions, len(data), 9))["input_ids"].numpy().tolist()
    assert sorted(seen) == sorted(wanted) and abs(batch.total - 16) < size


class Numbered:
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
    source = Numbered(7)
    for rank in range(2):
        reader = BatchSampler(source, BatchConfig(total=6, per_device=3), seed=9, rank=rank, num_ranks=2)
        for update in range(7):  # 42 samples are 6 epochs
            reader.read(update)
    assert sorted(source.read_at) == list(range(7))
    for positions in source.read_at.values():
        assert sorted(position // 7 for position in positions) == list(range(6))


@pytest.mark.parametrize("ranks", [46 * 8, 1472])
def test_ranks_by_the_hundred_share_a_batch_without_gaps(ranks: int) -> None:
    batch = BatchConfig(total=65_536, per_device=60, fit="nearest").divided(ranks)
    source = Numbered(10**7)
    for rank in range(ranks):
        BatchSampler(source, batch, seed=9, rank=rank, num_ranks=ranks).read(2)
    read = [position for positions in source.read_at.values() for position in positions]
    assert sorted(read) == list(range(2 * batch.total, 3 * batch.total))


class Long(Dataset):
    """The dataset, its records' sizes made up."""

    def sizes(self, indices: np.ndarray) -> np.ndarray:
        return np.asarray(indices) * 7 % 41


@pytest.mark.parametrize(("ranks", "per_device"), [(1, 6), (2, 3), (3, 1)])
def test_grouped_updates_have_like_lengths_and_the_same_samples(dataset: Path, ranks: int, per_device: int) -> None:
    data, total, group = Long(dataset, "train"), 6, 5
    config = BatchConfig(total=total, per_device=per_device, bucket_by_length=group)
    readers = [BatchSampler(data, config, seed=9, rank=rank, num_ranks=ranks) for rank in range(ranks)]
    pools = []
    for pool in (0, 3):
        updates = [range(pool * group, (pool + 1) * group)[turn] for turn in range(group)]
        seen = [np.sort(readers[0]._positions(update)) for update in updates]
        positions = pool * group * total + np.arange(group * total)
        assert sorted(np.concatenate(seen).tolist()) == positions.tolist()
        sizes = [data.sizes(sample_order(at, len(data), 9)) for at in seen]
        by_size = sorted(range(group), key=lambda turn: sizes[turn].mean())
        for less, more in itertools.pairwise(by_size):
            assert sizes[less].max() <= sizes[more].min()
        pools.append(by_size)
        parts = [micro for reader in readers for micro in reader.read(updates[1])]
        rows = [row for micro in parts for row in micro["masked_lm_ids"].numpy().tolist()]
        wanted = data.read(sample_order(seen[1], len(data), 9))["masked_lm_ids"].numpy().tolist()
        assert sorted(rows) == sorted(wanted)
    assert pools[0] != pools[1]  # nor is it the same turn in every group


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


@pytest.mark.parametrize("size", [1, 2, 5])
def test_evaluation_shares_each_sample_out_once(dataset: Path, size: int) -> None:
    data, batch = Dataset(dataset, "heldout"), BatchConfig(total=15, per_device=3)
    shares = [list(evaluation(data, batch, limit=10, rank=rank, num_ranks=size)) for rank in range(size)]
    rows = [row for share in shares for part in share for row in part["input_ids"].numpy().tolist()]
    assert sorted(rows) == sorted(data.read(np.arange(10))["input_ids"].numpy().tolist())


def test_an_indivisible_batch_names_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"batch.total 100 is not a multiple of 96 .* the nearest are 96 and 192"):
        BatchConfig(total=100, per_device=32).accumulation(3)
