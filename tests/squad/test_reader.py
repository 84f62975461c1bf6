"""Windows are scored in few shapes, and the scores are those of each window alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.core.errors import IntegrityError
from bert.hardware.choices import Compute
from bert.model.encoder import variables
from bert.model.heads import TaskModel
from bert.model.inference import InferenceEncoder
from bert.runs import Run
from bert.text.vocabulary import SPECIAL
from squad.config import Windowing
from squad.features import INPUTS, Places, Windows
from squad.model import AnswerSpans
from squad.reader import Reader
from tasks.model import FineTuned

LONGEST = 61
CONFIG = ModelConfig(
    vocab_size=11,
    hidden_size=20,
    num_hidden_layers=1,
    num_attention_heads=5,
    intermediate_size=28,
    max_position_embeddings=LONGEST,
)


@pytest.fixture
def model() -> TaskModel:
    found, random = TaskModel(CONFIG, 1, AnswerSpans.described), np.random.default_rng(1)
    for variable in variables(found).values():
        variable.assign_add(random.normal(0, 0.2, variable.shape))
    return found


@pytest.fixture
def read(model: TaskModel, tmp_path: Path) -> Callable[..., Reader]:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *"abcdef"]) + "\n")

    def reader(batch: int, compute: Compute = "float32") -> Reader:
        fine_tuned = FineTuned(
            run=Run(tmp_path, CONFIG),
            encoder=InferenceEncoder(model.encoder, tf.as_dtype(compute)),
            head=model.head,
            kind=AnswerSpans(Windowing(max_seq_length=LONGEST, max_query_length=9), impossible=False),
        )
        return Reader(fine_tuned, batch=batch, n_best=3, max_answer_length=5, limit=None)

    return reader


def windows(count: int, seed: int, longest: int = LONGEST) -> Windows:
    """Random tokens; of what else a window has, scoring needs nothing."""
    random = np.random.default_rng(seed)
    mask = (np.arange(LONGEST) < random.integers(7, longest + 1, count)[:, None]).astype(np.int32)
    ids, segments = (mask * random.integers(low, high, mask.shape, np.int32) for low, high in ((5, 11), (0, 2)))
    none = np.zeros(count, np.int32)
    inputs = dict(zip(INPUTS, (ids, mask, segments), strict=True))
    return Windows(inputs, Places(none, none, none, none, mask > 0))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "batch"), [(37, 16), (2, 32)])
def test_scores_are_those_of_each_window_alone(count: int, batch: int, read: Callable[..., Reader]) -> None:
    given = windows(count, 7)
    together, alone = (np.stack(read(size).outputs(given.inputs)) for size in (batch, 1))
    there = given.inputs["input_mask"] > 0
    assert together[:, there].std() > 0.1
    np.testing.assert_allclose(together[:, there], alone[:, there], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("compute", "bits"), [("bfloat16", 8), ("float16", 11)])
def test_products_in_half_precision_give_float32_scores_close_by(
    compute: Compute, bits: int, read: Callable[..., Reader]
) -> None:
    given = windows(23, 3)
    kinds: tuple[Compute, ...] = ("float32", compute)
    exact, rounded = (np.stack(read(8, kind).outputs(given.inputs)) for kind in kinds)
    assert exact.dtype == rounded.dtype == np.float32
    error = np.abs(exact - rounded)[:, given.inputs["input_mask"] > 0]
    assert 0 < error.max() < 30 * 2.0**-bits * np.abs(exact).max()
    coarse = tf.cast(tf.cast(rounded, tf.as_dtype(compute)), tf.float32).numpy()
    assert np.any(coarse != rounded)  # the scores themselves were not rounded


@pytest.mark.slow
def test_float16_that_overflows_is_told_from_a_failed_training(model: TaskModel, read: Callable[..., Reader]) -> None:
    inner = model.encoder.layers[0].mlp.inner
    inner.kernel.assign(inner.kernel * 1e5)
    with pytest.raises(IntegrityError, match="use --compute float32"):
        read(8, "float16").outputs(windows(5, 3).inputs)
    inner.kernel.assign(inner.kernel * np.nan)
    with pytest.raises(IntegrityError, match="its training failed"):
        read(8).outputs(windows(5, 3).inputs)
