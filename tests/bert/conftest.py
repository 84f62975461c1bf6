"""A small dataset in the trainer's own format, and a configuration whose sizes are odd and all different."""

import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PretrainConfig, RunConfig
from bert.core.stopping import STOP_SIGNALS
from tests.training import VOCAB, write_dataset, write_tokens


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder shared by tests that only read it."""
    return write_dataset(tmp_path_factory.mktemp("records") / "dataset")


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for causal models."""
    return write_tokens(tmp_path_factory.mktemp("stream") / "tokens")


@pytest.fixture
def handlers() -> Iterator[dict[int, object]]:
    """Handlers of signals of one test, which are set back after it."""
    before = {kind: signal.getsignal(kind) for kind in STOP_SIGNALS}
    for kind in STOP_SIGNALS:
        signal.signal(kind, signal.default_int_handler)
    yield dict.fromkeys(STOP_SIGNALS, signal.default_int_handler)
    for kind, old in before.items():
        signal.signal(kind, old)


@pytest.fixture
def model_config() -> ModelConfig:
    """B=3, T=13, D=20, N=5, H=4, F=28, V=99: no two axes of one size."""
    return ModelConfig(
        vocab_size=VOCAB,
        hidden_size=20,
        num_hidden_layers=2,
        num_attention_heads=5,
        intermediate_size=28,
        max_position_embeddings=17,
    )


@pytest.fixture
def shallow_config(model_config: ModelConfig) -> ModelConfig:
    """A model of one layer, for tests of updates: to trace a layer takes seconds."""
    return dataclasses.replace(model_config, num_hidden_layers=1)


@pytest.fixture
def config(model_config: ModelConfig, dataset: Path, tmp_path: Path) -> PretrainConfig:
    """A run of a few updates of six sequences."""
    return PretrainConfig(
        model=model_config,
        batch=BatchConfig(total=6, per_device=3),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
        run=RunConfig(directory=tmp_path / "run", steps=7, log_every=2, save_every=3, evaluate_every=4, seed=5),
    )
