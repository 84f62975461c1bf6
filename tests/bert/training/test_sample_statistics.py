"""What a run says that it was fed is what it read: counted by the samples themselves, on all ranks."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import BatchConfig
from bert.text.records import Dataset
from bert.text.sampler import BatchSampler
from bert.training import sample_statistics

LENGTH = 11


class Counting(Dataset):
    """Samples that count how often each was read; they have `LENGTH` positions and a label."""

    def __init__(self, lengths: np.ndarray, labels: np.ndarray) -> None:
        self.lengths, self.labels = lengths, labels
        self.reads: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.lengths)

    def sizes(self, indices: np.ndarray) -> np.ndarray:
        return self.lengths[indices]

    def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> dict[str, Any]:
        self.reads.update(indices.tolist())
        mask = np.arange(LENGTH) < self.lengths[indices][:, None]
        arrays = {"input_ids": mask * 7, "input_mask": mask, "segment_ids": mask & (np.arange(LENGTH) > 3)}
        named = {name: tf.constant(values, tf.int32) for name, values in arrays.items()}
        return named | {"label": tf.constant(self.labels[indices][:, None], tf.int32)}


def made(count: int, seed: int = 1) -> Counting:
    random = np.random.default_rng(seed)
    return Counting(random.integers(5, LENGTH + 1, count), random.integers(0, 3, count))


@pytest.mark.parametrize("group", [0, 4])
@pytest.mark.parametrize(("count", "updates"), [(7, 9), (25, 4), (41, 3), (1, 2)])
def test_reads_are_those_of_all_ranks(count: int, updates: int, group: int) -> None:
    samples, batch = made(count), BatchConfig(total=12, per_device=3, bucket_by_length=group)
    readers = [BatchSampler(samples, batch, seed=9, rank=rank, num_ranks=2) for rank in range(2)]
    for reader in readers:
        list(reader.iterate(0, updates))
    times = [samples.reads[number] for number in range(count)]
    found = sample_statistics.figures(readers[0], updates, updates, labelled=True)
    wanted = {"samples": count, "reads": 12 * updates, "different": sum(time > 0 for time in times)}
    wanted |= {"least": min(times), "most": max(times)}
    assert {key: found[key] for key in wanted} == wanted
    assert not [line for line in sample_statistics.warnings(found) if "left out" in line]


def test_the_samples_are_described_as_they_are() -> None:
    samples = made(60)
    found = sample_statistics.figures(
        BatchSampler(samples, BatchConfig(total=12, per_device=3), seed=9), 5, 5, labelled=True
    )
    assert found["tokens"] == pytest.approx(samples.lengths.mean())
    assert found["full"] == pytest.approx((samples.lengths == LENGTH).mean())
    for label in range(3):
        assert found[f"label_{label}"] == pytest.approx((samples.labels == label).mean())
    line = sample_statistics.describe(found, ("no", "yes", "?"))
    assert line.startswith("60 reads of 60 samples (1 epochs); 60 different ones, 1 to 1 times each; ")
    assert f"labels no {(samples.labels == 0).mean():.1%}, yes" in line
    plain = sample_statistics.figures(
        BatchSampler(samples, BatchConfig(total=12, per_device=3), seed=9), 5, 5, labelled=False
    )
    assert not [key for key in plain if key.startswith("label")]


def test_masks_of_pretraining_are_counted(dataset: Path) -> None:
    data = Dataset(dataset, "train")
    found = sample_statistics.figures(
        BatchSampler(data, BatchConfig(total=41, per_device=41), seed=9), 1, 1, labelled=True
    )
    whole = {name: value.numpy() for name, value in data.read(np.arange(41)).items()}
    assert found["masked"] == pytest.approx(whole["masked_lm_weights"].sum() / whole["input_mask"].sum())
    assert found["label_1"] == pytest.approx(whole["next_sentence_labels"].mean())


class LosesSamples(BatchSampler):
    """A sampler whose updates all have the samples of the first one."""

    def positions(self, update: int, end: int = 0) -> np.ndarray:
        return np.arange(self.batch.total)


def test_an_epoch_that_left_samples_out_is_reported() -> None:
    found = sample_statistics.figures(
        LosesSamples(made(36), BatchConfig(total=12, per_device=3), seed=9), 3, 3, labelled=True
    )
    assert found["different"] == 12 and found["least"] == 0 and found["most"] == 3
    assert "a sample was read 0 times in 1 epochs; some were left out" in sample_statistics.warnings(found)


def test_a_label_that_the_length_tells_is_reported() -> None:
    samples = made(3000)
    batch = BatchConfig(total=12, per_device=3)
    assert not sample_statistics.warnings(
        sample_statistics.figures(BatchSampler(samples, batch, seed=9), 250, 250, labelled=True)
    )
    random = np.random.default_rng(2)
    samples.labels = np.where(random.random(3000) < 0.3, samples.lengths > 8, random.integers(0, 2, 3000))
    (line,) = sample_statistics.warnings(
        sample_statistics.figures(BatchSampler(samples, batch, seed=9), 250, 250, labelled=True)
    )
    assert line.startswith("the length alone tells the label in ")
    samples.labels[:] = 1
    assert sample_statistics.warnings(
        sample_statistics.figures(BatchSampler(samples, batch, seed=9), 250, 250, labelled=True)
    ) == ["all labels are of one class: nothing is learned from them"]


def test_reads_of_a_large_set_are_not_counted_one_by_one() -> None:
    class Endless(Counting):
        def __len__(self) -> int:
            return 10**9

        def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> dict[str, Any]:
            return super().read(indices % 60)

    samples = Endless(made(60).lengths, made(60).labels)
    found = sample_statistics.figures(
        BatchSampler(samples, BatchConfig(total=12, per_device=3), seed=9), 10**7, 10**7, labelled=True
    )
    assert "least" not in found and samples.reads.total() == sample_statistics.LOOKED_AT
    assert sample_statistics.describe(found).startswith("120,000,000 reads of 1,000,000,000 samples (0.12 epochs); ")
