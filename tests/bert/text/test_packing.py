"""Packed instances are the same training in fewer rows: what is learnt from each is what it would be in its own row."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert.core.config import BatchConfig, ModelConfig
from bert.core.errors import UsageError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.plan import demand
from bert.pretraining import Pretraining
from bert.recipes import RECIPES
from bert.text import dynamic_masking, packing, records, vocabulary
from bert.text.sampler import Batch, BatchSampler, pack
from bert.training import checkpoint
from tests.bert.model.test_encoder import scatter
from tests.training import VOCAB, losses, pretrain, train_here, weights, write_dataset

QUIET = DropoutRng(None)
SIZE = 17


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stored instances of which two or three go into a row."""
    return write_dataset(tmp_path_factory.mktemp("short") / "dataset", shortest=4)


def fewest(lengths: tuple[int, ...], size: int) -> int:
    """The least number of rows that hold instances of `lengths`, by trying every way."""
    if not lengths:
        return 0
    first, rest = lengths[0], lengths[1:]
    best = len(lengths)
    for count in range(len(rest) + 1):
        for beside in itertools.combinations(range(len(rest)), count):
            if first + sum(rest[i] for i in beside) <= size:
                best = min(best, 1 + fewest(tuple(rest[i] for i in range(len(rest)) if i not in beside), size))
    return best


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, SIZE), min_size=1, max_size=60))
@example([SIZE] * 7)  # one instance a row, which it fills
@example([SIZE - 1, 1] * 5)  # two that fill a row exactly
def test_every_instance_has_its_own_columns_of_few_rows(lengths: list[int]) -> None:
    rows, columns = packing.first_fit(np.array(lengths), SIZE)
    taken = np.zeros((len(lengths), SIZE), int)
    for length, row, column in zip(lengths, rows, columns, strict=True):
        assert column + length <= SIZE
        taken[row, column : column + length] += 1
    assert taken.max() == 1
    used = rows.max() + 1
    assert taken[:used].any(axis=1).all() and used <= len(lengths)
    bound = -(-sum(lengths) // SIZE)
    assert bound <= used <= 2 * bound  # no two rows are half empty, but the last
    again = packing.first_fit(np.array(lengths), SIZE)
    np.testing.assert_array_equal([rows, columns], again)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 11), min_size=1, max_size=7))
def test_rows_are_as_few_as_the_published_bound_says(lengths: list[int]) -> None:
    rows, _ = packing.first_fit(np.array(lengths), 11)
    assert rows.max() + 1 <= 11 / 9 * fewest(tuple(lengths), 11) + 6 / 9


def test_many_instances_leave_little_padding() -> None:
    random = np.random.default_rng(1)
    for lengths in (random.integers(5, 513, 256), np.minimum(random.geometric(1 / 140, 256) + 20, 512)):
        rows, _ = packing.first_fit(lengths, 512)
        assert rows.max() + 1 <= 1.05 * -(-lengths.sum() // 512)


@given(st.integers(1, 300))
def test_there_are_few_numbers_of_rows(most: int) -> None:
    found = [packing.rounded(rows, most) for rows in range(1, most + 1)]
    assert len(set(found)) <= packing.MAX_ROW_COUNTS and found[-1] == most
    assert all(rows <= more <= most for rows, more in enumerate(found, start=1))


def batch_of(lengths: list[int], *, predictions: int = 3, size: int = SIZE, seed: int = 1) -> dict[str, np.ndarray]:
    """Padded instances of the given lengths, as the reader gives them; some predictions weigh nothing."""
    random, count = np.random.default_rng(seed), len(lengths)
    mask = (np.arange(size) < np.array(lengths)[:, None]).astype(np.int32)
    weights = (np.arange(predictions) <= random.integers(0, predictions, (count, 1))).astype(np.float32)
    places = random.integers(0, np.array(lengths)[:, None], (count, predictions))
    return {
        "input_ids": (random.integers(5, VOCAB, (count, size)) * mask).astype(np.int32),
        "input_mask": mask,
        "segment_ids": (random.integers(0, 2, (count, size)) * mask).astype(np.int32),
        "masked_lm_positions": (places * (weights > 0)).astype(np.int32),
        "masked_lm_ids": (random.integers(5, VOCAB, (count, predictions)) * (weights > 0)).astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": random.integers(0, 2, (count, 1)).astype(np.int32),
    }


def tensors(batch: dict[str, np.ndarray]) -> Batch:
    return {name: tf.constant(value) for name, value in batch.items()}


CASES = {
    "several a row": [13, 4, 9, 7, 2, 6, 11, 3, 5],  # 60 tokens: 4 rows of 17
    "rows filled exactly": [10, 17, 7, 12, 5],
    "one a row": [13, 17, 11, 9, 15],
    "all in one": [3, 5, 2, 4],
    "an empty row": [9, 6, 2] * 11,  # 33 instances in 11 rows; of so many the number of rows is even
}


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(3, SIZE), min_size=1, max_size=41))
def test_packing_moves_tokens_and_what_points_to_them_and_nothing_else(lengths: list[int]) -> None:
    batch = batch_of(lengths)
    found = packing.pack(batch)
    ids, numbers = found["input_ids"].reshape(-1), found["input_mask"].reshape(-1)
    assert {name for name in found if found[name].dtype not in (np.int32, np.float32)} == set()
    assert np.count_nonzero(numbers) == sum(lengths) and not ids[numbers == 0].any()
    assert len(found["input_ids"]) == packing.rounded(
        packing.first_fit(np.array(lengths), SIZE)[0].max() + 1, len(lengths)
    )
    for n, length in enumerate(lengths):
        first = found["first_tokens"][n]
        assert first // SIZE == (first + length - 1) // SIZE  # it is not cut
        for name in ("input_ids", "segment_ids"):
            assert found[name].reshape(-1)[first : first + length].tolist() == batch[name][n, :length].tolist()
        assert found["position_ids"].reshape(-1)[first : first + length].tolist() == list(range(length))
        assert np.flatnonzero(numbers == n + 1).tolist() == list(range(first, first + length))
    predicted, moved = batch["masked_lm_weights"] > 0, found["masked_lm_weights"] > 0
    pointed = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], axis=1)
    assert ids[found["masked_lm_positions"][moved]].tolist() == pointed[predicted].tolist()
    for name in ("masked_lm_ids", "masked_lm_weights"):
        assert found[name][moved].tolist() == batch[name][predicted].tolist() and not found[name][~moved].any()
    assert len(moved) == len(found["input_ids"]) or moved[:-1].all()  # more rows only if they are needed
    np.testing.assert_array_equal(found["next_sentence_labels"], batch["next_sentence_labels"])


def learnt(task: Pretraining, batch: Batch) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Measures of a batch and the gradient of its loss."""
    weight = task.weights(batch)
    trained = variables(task.module)
    with tf.GradientTape() as tape:
        found = task.measure(batch, Mode(tf.float32, QUIET))
        loss = tf.add_n([found[name].loss / weight[name] for name in found])
    gradients = tape.gradient(loss, trained)
    values = {f"{name}_{field}": float(v) for name, m in found.items() for field, v in m._asdict().items()}
    values |= {f"{name}_weight": float(v) for name, v in weight.items()} | {"loss": float(loss)}
    return values, {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in gradients.items()}


@pytest.mark.parametrize(
    ("case", "pairs"),
    [
        pytest.param("several a row", "nsp", marks=pytest.mark.slow),
        ("several a row", "none"),
        pytest.param("rows filled exactly", "nsp", marks=pytest.mark.slow),
        pytest.param("an empty row", "nsp", marks=pytest.mark.slow),
        pytest.param("one a row", "nsp", marks=pytest.mark.thorough),
        pytest.param("all in one", "nsp", marks=pytest.mark.thorough),
    ],
)
def test_losses_and_gradients_are_those_of_the_padded_batch(case: str, pairs: str, model_config: ModelConfig) -> None:
    model_config = dataclasses.replace(model_config, recompute_activations=case == "rows filled exactly")
    config = dataclasses.replace(model_config, norm_placement="pre") if case == "several a row" else model_config
    task = Pretraining(config, seed=3, pairs=pairs)
    scatter(task.module)
    batch = tensors(batch_of(CASES[case]))
    (plain, plain_gradients), (values, gradients) = learnt(task, batch), learnt(task, pack(batch))
    assert values == pytest.approx(plain, rel=1e-5) and len(values) == (4 if pairs == "none" else 7)
    largest = max(np.abs(gradient).max() for gradient in plain_gradients.values())
    for name, gradient in plain_gradients.items():
        scale = max(np.abs(gradient).max(), 1e-2 * largest)  # a key's bias has none but for rounding
        np.testing.assert_allclose(gradients[name], gradient, rtol=1e-5, atol=1e-5 * scale, err_msg=name)


def test_instances_made_while_reading_are_packed_too(tmp_path: Path) -> None:
    from tests.bert.text.test_dynamic_masking import write

    data = records.samples(write(tmp_path / "made", {"train-0": 53}), "train", seed=11)
    assert isinstance(data, dynamic_masking.DynamicMasking)
    data.config = dataclasses.replace(data.config, short_seq_prob=0.7)
    sizes = BatchConfig(total=46, per_device=23)
    plain = BatchSampler(data, sizes, seed=1).read(3)
    rows = BatchSampler(data, dataclasses.replace(sizes, pack=True), seed=1).read(3)
    for padded, batch in zip(plain, rows, strict=True):
        assert len(batch["input_ids"]) == len(batch["masked_lm_ids"]) < 23
        np.testing.assert_array_equal(batch["next_sentence_labels"], padded["next_sentence_labels"])
        held, moved = (part["input_ids"].numpy()[part["input_mask"].numpy() > 0] for part in (padded, batch))
        assert sorted(held) == sorted(moved)


def test_packing_and_grouping_at_once_is_refused() -> None:
    with pytest.raises(UsageError, match=r"batch\.pack and batch\.bucket_by_length both avoid padding; give one"):
        BatchConfig(total=6, per_device=3, bucket_by_length=2, pack=True)


def test_questions_are_not_packed() -> None:
    from squad.recipes import RECIPES as questions

    config = questions["squad_mini"]()
    with pytest.raises(UsageError, match=r"batch\.pack is for pretraining"):
        dataclasses.replace(config, batch=BatchConfig(total=6, per_device=3, pack=True))


def test_the_plan_of_a_packed_run_is_an_upper_bound() -> None:
    config = RECIPES["demo_phase1"].phases[0].config
    config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, pack=True))
    said = demand.describe(config, 1, sequence=128, predictions=20, available=41)
    assert said["tokens"].startswith("at most ") and said["arithmetic"].startswith("at most ")


PACKED = ["--batch.pack", "true", "--batch.total", "14", "--run.save_every", "4", "--optimizer.learning_rate", "1e-3"]


ONE_READER = """
    import os
    import tensorflow as tf
    from bert.training import checkpoint
    def refused(*_):
        raise AssertionError("a rank other than 0 reads weights")
    if os.environ["HOROVOD_RANK"] != "0":
        tf.train.load_checkpoint = checkpoint.check_trained = refused
"""


def saved(run: Path, data: Path, model: ModelConfig, spread: float) -> Path:
    """Make a run with random weights of this standard deviation."""
    run.mkdir()
    model = dataclasses.replace(model, initializer_range=spread)
    model.save(run / "bert_config.json")
    vocabulary.copy(data / "vocab.txt", run)
    checkpoint.save(run, 1, variables(Pretraining(model, seed=8).module), keep=1)
    return run


@pytest.mark.multiprocess
@pytest.mark.thorough
def test_two_ranks_pack_the_batches_of_one_and_one_of_them_reads_weights(
    short: Path, model_config: ModelConfig, tmp_path: Path
) -> None:
    start = saved(tmp_path / "start", short, model_config, 0.02)
    teacher = saved(tmp_path / "teacher", short, dataclasses.replace(model_config, hidden_size=30), 0.5)
    flags = [*PACKED, "--run.steps", "6", "--init.checkpoint", str(start), "--distill.teacher", str(teacher)]
    flags += ["--distill.hidden", "1", "--distill.attention", "1", "--distill.relations", "1"]
    # They accumulate 2 and 1 micro-batches of 7, with dropout.
    train_here(short, tmp_path / "1", *flags, per_device=7)
    done = pretrain(short, tmp_path / "2", *flags, ranks=2, per_device=7, patch=ONE_READER)
    assert done.returncode == 0, done.stderr
    one, two = (losses(tmp_path / str(ranks)) for ranks in (1, 2))
    assert len(one) == 8 and two == pytest.approx(one, rel=1e-5)
    for name, value in weights(tmp_path / "1", 6).items():
        np.testing.assert_allclose(value, weights(tmp_path / "2", 6)[name], rtol=1e-3, atol=2e-5, err_msg=name)
