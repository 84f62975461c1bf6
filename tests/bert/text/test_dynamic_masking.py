"""Instances made while reading: text of their chunks, other ones in each epoch, the same for any number of ranks."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert import evaluate
from bert.core import outputs
from bert.core.errors import InputError, UsageError
from bert.pretrain import main
from bert.text import dynamic_masking, frames, instances, records, tf_example, vocabulary
from bert.text.instance_config import InstanceConfig
from bert.text.normalization import UNCASED
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from bert.training.loop import Data
from tests import finished

VOCAB, FIRST = 4099, 5
SHAPE = InstanceConfig(max_seq_length=31, max_predictions_per_seq=5)


def write(folder: Path, shards: dict[str, int], documents: int = 4) -> Path:
    """Chunks of known text: token t of document d of any shard is d * 1000 + t + FIRST, in sentences of 2 to 9."""
    random = np.random.default_rng(3)

    def rows(count: int) -> Iterator[dict[str, Any]]:
        document, token = 0, 0
        for number in range(count):
            if number * documents // count > document:
                document, token = document + 1, 0
            lengths = random.integers(2, 10, random.integers(1, 9))
            begin, token = document * 1000 + FIRST + token, token + int(lengths.sum())
            yield {"ids": np.arange(begin, begin + lengths.sum()), "sentences": lengths, "document": [document]}

    return write_rows(folder, {name: rows(count) for name, count in shards.items()})


def write_rows(folder: Path, shards: dict[str, Iterator[dict[str, Any]]], shape: InstanceConfig = SHAPE) -> Path:
    """Write chunks as `python -m data.tfrecords --kind documents` does."""

    def make(partial: Path) -> outputs.StageResult:
        written = {}
        for name, rows in shards.items():
            with frames.RecordWriter(partial / f"{name}.tfrecord") as writer:
                for row in rows:
                    writer.write(tf_example.encode({key: np.asarray(value) for key, value in row.items()}))
            written[f"{name}.tfrecord"] = writer.count
        vocabulary.write([*SPECIAL, *(f"w{i}" for i in range(VOCAB - 5))], UNCASED, partial)
        features = {"ids": {"shape": [None], "dtype": "int64"}}
        extra = {"kind": "documents", "features": features, "instances": dataclasses.asdict(shape)}
        return outputs.StageResult(counts={}, records=written, extra={**extra, "vocab_size": VOCAB})

    outputs.build(folder, stage="tfrecords", parameters={}, inputs=[], make=make)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("chunks") / "made", {"train-0": 53, "train-1": 41, "heldout-0": 23})


@pytest.fixture(scope="module")
def train(folder: Path) -> Data:
    return records.samples(folder, "train", seed=11)


def unmasked(batch: dict[str, np.ndarray]) -> np.ndarray:
    ids = batch["input_ids"].copy()
    row, slot = np.nonzero(batch["masked_lm_weights"])
    ids[row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
    return ids


def read(data: Data, indices: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in data.read(indices, positions).items()}


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "share"), [("nsp", 0.5), ("sop", 0.5), ("none", 0.0)])
def test_segments_are_text_of_the_stretch_and_of_its_rest_or_another_document(
    folder: Path, pairs: Any, share: float
) -> None:
    train = records.samples(folder, "train", seed=11)
    assert isinstance(train, dynamic_masking.DynamicMasking)
    train.config = dataclasses.replace(train.config, pairs=pairs)
    indices = np.tile(np.arange(94), 20)
    batch = read(train, indices, np.arange(len(indices)))
    ids, stored = unmasked(batch), read_ids(train)
    for n, index in enumerate(indices):
        used = int(batch["input_mask"][n].sum())
        middle = ids[n, :used].tolist().index(3)
        a, b = ids[n, 1:middle], ids[n, middle + 1 : used - 1]
        assert ids[n, 0] == 2 and ids[n, used - 1] == 3 and used <= 31 and len(a) and len(b)
        assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
        other = bool(batch["next_sentence_labels"][n, 0])
        first, second = (b, a) if other and pairs == "sop" else (a, b)
        assert stored[index][0] <= first[0] and first[-1] <= stored[index][-1]
        if not other or pairs == "sop":
            assert second[-1] <= stored[index][-1] and second[0] > first[-1]
    several = [len(read_sentences(train)[i]) > 1 for i in indices]
    labels = batch["next_sentence_labels"][several if pairs == "nsp" else slice(None)]
    assert labels.mean() == pytest.approx(share, abs=0.04)
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


def test_a_sample_depends_on_its_position_alone(train: Data) -> None:
    whole = read(train, np.array([7, 3, 90, 7]), np.array([100, 5, 6, 800]))
    for row, (index, position) in enumerate([(7, 100), (3, 5), (90, 6), (7, 800)]):
        for name, value in read(train, np.array([index]), np.array([position])).items():
            np.testing.assert_array_equal(value[0], whole[name][row], err_msg=name)
    assert not np.array_equal(whole["input_ids"][0], whole["input_ids"][3])  # another epoch, another instance
    other = records.samples(train.manifest.path, "train", seed=12)
    assert not np.array_equal(read(other, np.array([7]), np.array([100]))["input_ids"][0], whole["input_ids"][0])


def test_no_pair_of_one_document_alone_is_called_random(tmp_path: Path) -> None:
    folder = write(tmp_path / "one", {"train-0": 9, "heldout-0": 7}, documents=1)
    data = records.samples(folder, "train", seed=1)
    assert not read(data, np.arange(9), np.arange(9))["next_sentence_labels"].any()
    finished.sign(folder, counts={"train": {"chunks": 9, "documents": 1}})
    with pytest.raises(InputError, match=r"one: all training pairs have label 0, .* --pairs sop or none"):
        main(["bert_mini_phase1", "--data.train", str(folder), "--run.steps", "3", "--print", "1"])


LENGTHS = (60, 20, 300, 9, 140, 35)  # mean sentences of documents: articles, and stubs


@pytest.fixture(scope="module", params=[40, 120])
def documents_of_all_lengths(request: pytest.FixtureRequest) -> tuple[instances.Documents, InstanceConfig]:
    """Documents of 1 to 600 sentences of 3 to 40 tokens, and the shape of sequences that hold some of them."""
    rng = np.random.default_rng(8)
    sentences = rng.integers(1, 2 * np.resize(LENGTHS, 300))
    lengths = np.clip(rng.gamma(3, 5, sentences.sum()).astype(np.int64), 3, 40)
    return instances.Documents(
        ids=np.full(lengths.sum(), FIRST, np.int32),
        sentences=np.concatenate([[0], np.cumsum(lengths)]),
        documents=np.concatenate([[0], np.cumsum(sentences)]),
    ), InstanceConfig(max_seq_length=request.param, max_predictions_per_seq=5)


def best_rule(numbers: np.ndarray, labels: np.ndarray) -> float:
    """Return how often the best rule that knows only a number is right: learned on one half, scored on the other."""
    half = len(labels) // 2
    ones = np.bincount(numbers[:half], labels[:half] - 0.5, minlength=numbers.max() + 1)  # above 0: label 1 is likelier
    return float(((ones[numbers[half:]] > 0) == labels[half:]).mean())


@pytest.mark.slow
@pytest.mark.parametrize("pairs", ["nsp", "sop"])
def test_lengths_do_not_tell_the_label(
    documents_of_all_lengths: tuple[instances.Documents, InstanceConfig], tmp_path: Path, pairs: Any
) -> None:
    """No length of the pair tells more than it does of instances that are made in advance, where none tells much."""
    documents, shape = documents_of_all_lengths
    shape = dataclasses.replace(shape, pairs=pairs)
    rng = np.random.default_rng(4)
    cuts = instances.chunks(documents, shape)
    owner = np.searchsorted(documents.documents, cuts[:-1], side="right") - 1
    rows = (
        {
            "ids": documents.ids[documents.sentences[first] : documents.sentences[last]],
            "sentences": np.diff(documents.sentences[first : last + 1]),
            "document": [number],
        }
        for first, last, number in zip(cuts[:-1], cuts[1:], owner, strict=True)
    )
    data = records.samples(write_rows(tmp_path / "made", {"train-0": rows}, shape), "train", seed=11)
    epochs = 3
    order = np.concatenate([rng.permutation(len(data)) for _ in range(epochs)])
    batch = read(data, order, np.arange(len(order)))
    plan = instances.plan(documents, shape, rng)
    plan = plan.rows(rng.permutation(len(plan)))
    tokens = instances.Tokens.of(WordPieceTokenizer(tmp_path / "made" / "vocab.txt"))
    made = instances.build(documents.ids, plan, shape, tokens)
    shares = []
    for features in (batch, made):
        total, second = features["input_mask"].sum(axis=1), features["segment_ids"].sum(axis=1)
        label = features["next_sentence_labels"][:, 0]
        shares.append([best_rule(lengths, label) for lengths in (total, second, total - second)])
    # Of sentences in order the second part ends with the sentence that fills the sequence, so it is a little longer.
    assert max(shares[0]) < max(*shares[1], 0.53) + 0.01 and max(shares[1]) < 0.56, shares
    assert batch["next_sentence_labels"].mean() == pytest.approx(0.5, abs=0.02)


def test_a_random_second_segment_goes_on_into_the_chunk_behind(train: Data) -> None:
    """It begins in one chunk and is long enough, though chunks here are short; it never mixes documents."""
    batch = read(train, np.tile(np.arange(94), 20), np.arange(94 * 20))
    ids, ends = unmasked(batch), {int(row[-1]) for row in read_ids(train)}
    crossing = 0
    for n in np.flatnonzero(batch["next_sentence_labels"][:, 0]).tolist():
        used, second = int(batch["input_mask"][n].sum()), int(batch["segment_ids"][n].sum())
        b = ids[n, used - second : used - 1]
        assert len(set((b - FIRST) // 1000)) == 1
        crossing += bool(ends & set(b[:-1].tolist()))
    assert crossing > 100


@pytest.mark.slow
def test_the_trainer_takes_them_as_it_takes_stored_instances(folder: Path, tmp_path: Path) -> None:
    small = ["--model.hidden_size", "20", "--model.num_attention_heads", "5", "--model.intermediate_size", "28"]
    small += ["--model.num_hidden_layers", "1"]
    run = ["--run.steps", "3", "--run.directory", str(tmp_path / "run")]
    batch = ["--batch.total", "6", "--batch.per_device", "3"]
    main(["bert_mini_phase1", "--data.train", str(folder), *small, *run, *batch])
    assert (tmp_path / "run" / "checkpoints" / "step-00000003").is_dir()


def test_the_samples_of_the_usual_shares_keep_their_bits(train: Data) -> None:
    """The hash is that of the version before shares and single sentences were options."""
    batch = read(train, np.arange(94), np.arange(94) * 7)
    content = b"".join(batch[name].tobytes() for name in sorted(batch))
    assert hashlib.sha256(content).hexdigest() == "104bc8812c8b4db145157bc245336e914b760bbaf5dfa22db994bfa4853b1da6"


def test_the_shares_of_a_run_take_the_place_of_those_of_the_records(folder: Path, dataset: Path) -> None:
    data = records.samples(folder, "train", seed=11, mask_shares=(0.0, 0.0, 1.0))
    batch = read(data, np.arange(94), np.arange(94))
    np.testing.assert_array_equal(batch["input_ids"], unmasked(batch))
    with pytest.raises(UsageError, match=r"--data\.mask_shares 0\.5 0\.1 0\.1: must be three shares that add up to 1"):
        main(["bert_mini_phase1", "--data.train", str(folder), "--data.mask_shares", "0.5", "0.1", "0.1"])
    with pytest.raises(
        UsageError, match=r"data\.mask_shares 0\.9 0\.1 0: the samples in .* were masked with 0\.8 0\.1 0\.1"
    ):
        more = ["--data.mask_shares", "0.9", "0.1", "0", "--run.steps", "3", "--print", "1"]
        main(["bert_mini_phase1", "--data.train", str(dataset), *more])


@pytest.mark.slow
def test_an_evaluation_compares_runs_by_shares_of_its_own(
    folder: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given shares take the place of those of the training; without any, the run's are taken."""
    small = ["--model.hidden_size", "20", "--model.num_attention_heads", "5", "--model.intermediate_size", "28"]
    small += ["--batch.total", "6", "--batch.per_device", "3", "--run.steps", "1", "--optimizer.learning_rate", "1e-9"]
    small += ["--model.num_hidden_layers", "1"]
    stay, masked = ("0", "0", "1"), ("1", "0", "0")
    for name, shares in (("a", stay), ("b", masked)):
        run = ["--run.directory", str(tmp_path / name), "--data.mask_shares", *shares]
        main(["bert_mini_phase1", "--data.train", str(folder), *small, *run])

    def figures(run: str, *more: str) -> dict[str, float]:
        capsys.readouterr()
        evaluate.main([str(tmp_path / run), "--data", str(folder), *more])
        found: dict[str, float] = json.loads(capsys.readouterr().out)
        return found

    assert figures("a") == figures("a", "--mask_shares", *stay) != figures("a", "--mask_shares", *masked)
    assert figures("a", "--mask_shares", *masked) == pytest.approx(figures("b"), rel=1e-5)
    with pytest.raises(UsageError, match=f"--mask_shares: the samples in {dataset} are masked already"):
        evaluate.main([str(tmp_path / "a"), "--data", str(dataset), "--mask_shares", *masked])
    with pytest.raises(UsageError, match="--mask_shares 1 1 0: must be three shares that add up to 1"):
        figures("a", "--mask_shares", "1", "1", "0")
    with pytest.raises(UsageError, match="--mask_shares is for --data"):
        evaluate.main([str(tmp_path / "a"), "--text", "texts.txt", "--mask_shares", *masked])
