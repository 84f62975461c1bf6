"""A small dataset in the trainer's own format, and a configuration whose sizes are odd and all different."""

from pathlib import Path

import numpy as np
import pytest

from bert import manifest, records
from bert.config import BatchConfig, ModelConfig, OptimizerConfig, PretrainConfig, RunConfig
from bert.vocabulary import SPECIAL

VOCAB, TOKENS, PREDICTIONS = 99, 13, 3


def instance(random: np.random.Generator) -> dict[str, np.ndarray]:
    """One instance of random tokens whose masked words can be learnt: each equals its position's neighbour."""
    used = int(random.integers(7, TOKENS + 1))
    ids = np.zeros(TOKENS, np.int64)
    ids[:used] = random.integers(5, VOCAB, used)
    predictions = int(random.integers(1, PREDICTIONS + 1))
    positions = np.zeros(PREDICTIONS, np.int64)
    positions[:predictions] = np.sort(random.permutation(np.arange(1, used))[:predictions])
    weights = (np.arange(PREDICTIONS) < predictions).astype(np.float32)
    return {
        "input_ids": ids,
        "input_mask": (np.arange(TOKENS) < used).astype(np.int64),
        "segment_ids": ((np.arange(TOKENS) > used // 2) & (np.arange(TOKENS) < used)).astype(np.int64),
        "masked_lm_positions": positions,
        "masked_lm_ids": np.where(weights > 0, ids[positions - 1], 0).astype(np.int64),
        "masked_lm_weights": weights,
        "next_sentence_labels": random.integers(0, 2, 1),
    }


def write_dataset(folder: Path, shards: tuple[int, ...] = (17, 24), heldout: int = 11) -> Path:
    """A dataset folder with training shards of the given sizes and one held-out shard."""

    def make(partial: Path) -> manifest.Made:
        random = np.random.default_rng(3)
        counts = {}
        for name, size in [*((f"train-{i:05d}", n) for i, n in enumerate(shards)), ("heldout-00000", heldout)]:
            with records.RecordWriter(partial / f"{name}.tfrecord") as writer:
                for _ in range(size):
                    writer.write(records.encode(instance(random)))
            counts[f"{name}.tfrecord"] = size
        (partial / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{i}" for i in range(VOCAB - 5))]) + "\n")
        spec = {
            name: {"shape": list(value.shape), "dtype": "float32" if value.dtype == np.float32 else "int64"}
            for name, value in instance(random).items()
        }
        return manifest.Made(counts={}, records=counts, extra={"features": spec, "vocab_size": VOCAB})

    manifest.build(folder, stage="tfrecords", parameters={"shards": shards}, inputs=[], make=make)
    return folder


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder shared by tests that only read it."""
    return write_dataset(tmp_path_factory.mktemp("records") / "dataset")


@pytest.fixture
def model_config() -> ModelConfig:
    """B=3, T=13, D=20, N=5, H=4, F=28, V=99: no two axes of one size."""
    return ModelConfig(
        vocab_size=VOCAB, hidden_size=20, num_hidden_layers=2, num_attention_heads=5, intermediate_size=28,
        max_position_embeddings=17,
    )  # fmt: skip


@pytest.fixture
def config(model_config: ModelConfig, dataset: Path, tmp_path: Path) -> PretrainConfig:
    """A run of a few updates of six sequences."""
    return PretrainConfig(
        model=model_config,
        batch=BatchConfig(total=6, per_device=3),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
        run=RunConfig(directory=tmp_path / "run", steps=7, log_every=2, save_every=3, evaluate_every=4, seed=5),
    )
