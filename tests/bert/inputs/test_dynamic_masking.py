"""Instances made while reading: text of their chunks, other ones in each epoch, the same for any number of ranks."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.config import BatchConfig
from bert.errors import InputError
from bert.inputs import dynamic_masking, records, tf_example
from bert.inputs.instances import InstanceConfig
from bert.inputs.sampler import BatchSampler
from bert.inputs.vocabulary import SPECIAL
from bert.pretrain import main
from bert.storage import outputs
from bert.training.distributed import Communicator
from bert.training.loop import Data

VOCAB, FIRST = 4099, 5
SHAPE = InstanceConfig(max_seq_length=31, max_predictions_per_seq=5)


def write(folder: Path, shards: dict[str, int], documents: int = 4) -> Path:
    """Chunks of known text: token t of document d of any shard is d * 1000 + t + FIRST, in sentences of 2 to 9."""
    random = np.random.default_rng(3)

    def make(partial: Path) -> outputs.StageResult:
        for name, count in shards.items():
            with records.RecordWriter(partial / f"{name}.tfrecord") as writer:
                for number in range(count):
                    document = number * documents // count
                    lengths = random.integers(2, 10, random.integers(1, 9))
                    begin = document * 1000 + FIRST + int(random.integers(0, 900))
                    row = {"ids": np.arange(begin, begin + lengths.sum()), "sentences": lengths, "document": [document]}
                    writer.write(tf_example.encode({key: np.asarray(value) for key, value in row.items()}))
        (partial / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{i}" for i in range(VOCAB - 5))]) + "\n")
        features = {"ids": {"shape": [None], "dtype": "int64"}}
        extra = {"kind": "documents", "features": features, "instances": dataclasses.asdict(SHAPE)}
        written = {f"{name}.tfrecord": count for name, count in shards.items()}
        num_train = sum(name.startswith("train") for name in shards)
        counts = {"train": {"chunks": sum(shards.values()), "documents": num_train * documents}}
        return outputs.StageResult(counts=counts, records=written, extra={**extra, "vocab_size": VOCAB})

    outputs.build(folder, stage="tfrecords", parameters={}, inputs=[], make=make)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("chunks") / "made", {"train-0": 53, "train-1": 41, "heldout-0": 23})


@pytest.fixture(scope="module")
def train(folder: Path) -> Data:
    return dynamic_masking.source(folder, "train", seed=11)


def unmasked(batch: dict[str, np.ndarray]) -> np.ndarray:
    ids = batch["input_ids"].copy()
    row, slot = np.nonzero(batch["masked_lm_weights"])
    ids[row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
    return ids


def read(data: Data, indices: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in data.read(indices, positions).items()}


def test_segments_are_text_of_the_stretch_and_of_its_rest_or_another_document(train: Data) -> None:
    indices = np.tile(np.arange(94), 20)
    batch = read(train, indices, np.arange(len(indices)))
    ids = unmasked(batch)
    stored = read_ids(train)
    for n, index in enumerate(indices):
        used = int(batch["input_mask"][n].sum())
        middle = ids[n, :used].tolist().index(3)
        a, b = ids[n, 1:middle], ids[n, middle + 1 : used - 1]
        assert ids[n, 0] == 2 and ids[n, used - 1] == 3 and used <= 31 and len(a) and len(b)
        assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
        assert stored[index][0] <= a[0] and a[-1] <= stored[index][-1]
        if not batch["next_sentence_labels"][n, 0]:
            assert b[-1] <= stored[index][-1] and b[0] > a[-1]
    labels = batch["next_sentence_labels"][[len(read_sentences(train)[i]) > 1 for i in indices]]
    assert labels.mean() == pytest.approx(0.5, abs=0.04)
    assert batch["masked_lm_weights"].sum() / batch["input_mask"].sum() == pytest.approx(0.15, abs=0.01)


def read_ids(data: Data) -> list[np.ndarray]:
    return [parsed(data, n).feature["ids"].int64_list.value for n in range(len(data))]


def read_sentences(data: Data) -> list[np.ndarray]:
    return [parsed(data, n).feature["sentences"].int64_list.value for n in range(len(data))]


def parsed(data: Data, index: int) -> tf.train.Features:
    assert isinstance(data, dynamic_masking.DynamicMasking)
    return tf.train.Example.FromString(data.stored.payload(index)).features


def test_random_seconds_are_of_another_document(train: Data) -> None:
    batch = read(train, np.arange(94), np.arange(94))
    ids = unmasked(batch)
    documents = {  # by shard and number; token ids say the number
        index: (index >= 53, parsed(train, index).feature["document"].int64_list.value[0]) for index in range(94)
    }
    foreign = same_number = 0
    for n in np.flatnonzero(batch["next_sentence_labels"][:, 0]).tolist():
        used = int(batch["input_mask"][n].sum())
        middle = ids[n, :used].tolist().index(3)
        theirs = (ids[n, middle + 1] - FIRST) // 1000
        foreign += 1
        same_number += theirs == documents[n][1]
    assert foreign > 30 and same_number < 0.4 * foreign  # the same number occurs in the other shard only


@pytest.mark.parametrize(("pairs", "share"), [("sop", 0.5), ("none", 0.0)])
def test_without_next_sentences_a_pair_is_the_stretch_itself(folder: Path, pairs: Any, share: float) -> None:
    data = dynamic_masking.source(folder, "train", seed=11)
    assert isinstance(data, dynamic_masking.DynamicMasking)
    data.config = dataclasses.replace(data.config, pairs=pairs)
    indices = np.tile(np.arange(94), 20)
    batch = read(data, indices, np.arange(len(indices)))
    ids, stored = unmasked(batch), read_ids(data)
    for n, index in enumerate(indices):
        used = int(batch["input_mask"][n].sum())
        middle = ids[n, :used].tolist().index(3)
        a, b = ids[n, 1:middle], ids[n, middle + 1 : used - 1]
        first, second = (b, a) if batch["next_sentence_labels"][n, 0] else (a, b)
        assert stored[index][0] <= min(*a, *b) and max(*a, *b) <= stored[index][-1] and second[0] > first[-1]
    assert batch["next_sentence_labels"].mean() == pytest.approx(share, abs=0.04)


def test_a_sample_depends_on_its_position_alone(train: Data) -> None:
    whole = read(train, np.array([7, 3, 90, 7]), np.array([100, 5, 6, 800]))
    for row, (index, position) in enumerate([(7, 100), (3, 5), (90, 6), (7, 800)]):
        for name, value in read(train, np.array([index]), np.array([position])).items():
            np.testing.assert_array_equal(value[0], whole[name][row], err_msg=name)
    assert not np.array_equal(whole["input_ids"][0], whole["input_ids"][3])  # another epoch, another instance
    other = dynamic_masking.source(train.manifest.path, "train", seed=12)
    assert not np.array_equal(read(other, np.array([7]), np.array([100]))["input_ids"][0], whole["input_ids"][0])


def test_one_document_alone_has_no_pairs_for_nsp(tmp_path: Path) -> None:
    folder = write(tmp_path / "one", {"train-0": 9, "heldout-0": 7}, documents=1)
    data = dynamic_masking.source(folder, "train", seed=1)
    batch = read(data, np.tile(np.arange(9), 20), np.arange(180))
    assert any(len(sentences) == 1 for sentences in read_sentences(data))
    assert not batch["next_sentence_labels"].any() and data.only_label() == 0
    with pytest.raises(InputError, match=r"one: all training pairs have label 0, .* --pairs sop or none"):
        main(["bert_mini_phase1", "--data.train", str(folder), "--run.steps", "3", "--print", "1"])


def test_ranks_make_the_same_update_together(train: Data) -> None:
    class Rank(Communicator):
        def __init__(self, rank: int, size: int) -> None:
            self.rank, self.size = rank, size

    batch = BatchConfig(total=12, per_device=3)
    alone = [row for part in BatchSampler(train, batch, 9).read(11) for row in part["input_ids"].numpy().tolist()]
    two = [BatchSampler(train, batch, 9, rank=rank, num_ranks=2).read(11) for rank in range(2)]
    assert sorted(alone) == sorted(row for parts in two for part in parts for row in part["input_ids"].numpy().tolist())


@pytest.mark.slow
def test_the_trainer_takes_them_as_it_takes_stored_instances(folder: Path, tmp_path: Path) -> None:
    small = ["--model.hidden_size", "20", "--model.num_attention_heads", "5", "--model.intermediate_size", "28"]
    run = ["--run.steps", "3", "--run.directory", str(tmp_path / "run")]
    batch = ["--batch.total", "6", "--batch.per_device", "3"]
    main(["bert_mini_phase1", "--data.train", str(folder), *small, *run, *batch])
    assert (tmp_path / "run" / "checkpoints" / "step-00000003").is_dir()
