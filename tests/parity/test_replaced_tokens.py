"""ELECTRA's two losses are those of transformers with the same weights on the same corrupted batch."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.convert import __main__ as convert
from bert.core.config import ModelConfig, ObjectiveConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch, variables
from bert.training import checkpoint
from extensions.replaced_tokens.model import Masked, ReplacedTokensModel, draw, replaced, uniforms
from tests.parity.test_transformers import oracle, vocabulary

pytestmark = pytest.mark.parity

ELECTRA = ModelConfig(
    vocab_size=97,
    hidden_size=36,
    num_hidden_layers=3,
    num_attention_heads=6,
    intermediate_size=130,
    max_position_embeddings=23,
    embedding_size=12,
    pooler_act="gelu",
    initializer_range=0.4,
)
B, T, P = 5, 19, 4


def exported(config: ModelConfig, values: dict[str, np.ndarray], folder: Path) -> Path:
    """A folder of transformers with these weights, by our names."""
    run = folder / "run"
    run.mkdir(parents=True)
    config.save(run / "bert_config.json")
    (run / "vocab.txt").write_text(vocabulary(config))
    checkpoint.save(run, 1, {name: tf.Variable(value) for name, value in values.items()}, keep=1)
    convert.main(["export", "huggingface", str(run), str(folder / "theirs")])
    return folder / "theirs"


@pytest.mark.parametrize("width", [0.5, 1 / 3])  # 1 / 3: as wide as the embeddings, without a projection
def test_both_losses_are_those_of_transformers(width: float, tmp_path: Path) -> None:
    generator = ObjectiveConfig(name="replaced_tokens", generator_width=width, generator_layers=0.5).further(ELECTRA)
    assert generator is not None
    model = ReplacedTokensModel(ELECTRA, generator, seed=3)
    random = np.random.default_rng(5)
    for variable in variables(model).values():  # so that no bias is zero
        variable.assign_add(tf.constant(random.normal(size=variable.shape, scale=0.1), tf.float32))
    mask = (np.arange(T) < np.array([T, 11, 17, 8, T - 1])[:, None]).astype(np.int32)
    ids, segments = (random.integers(low, high, (B, T)).astype(np.int32) * mask for low, high in ((5, 97), (0, 2)))
    positions = np.stack([np.sort(1 + random.permutation(6)[:P]) for _ in range(B)])
    weights = np.ones((B, P), np.float32)
    weights[2, 3] = weights[4, 2:] = 0
    rows = np.arange(B)[:, None]
    words = ids[rows, positions] * weights.astype(np.int32)
    masked = ids.copy()
    masked[rows, positions] = np.where(weights > 0, 4, ids[rows, positions])

    tokens = TokenBatch(*(tf.constant(x) for x in (masked, mask, segments)))
    places = Masked(*(tf.reshape(tf.constant(x), [-1]) for x in (rows * T + positions, words, weights)))
    places = places._replace(places=tf.cast(places.places, tf.int32))
    mode = Mode(tf.float32, DropoutRng(None))
    found = model.measure(tokens, places, mode)
    losses = [float(found[0].loss) / weights.sum(), float(found[1].loss) / mask.sum()]

    scores = model.masked_lm(model.generator(tokens, mode, places.places), model.encoder.embeddings.word, tf.float32)
    drawn = draw(scores, model.masked_lm.biases(), uniforms(mode.dropout, tokens, places))
    corrupted = replaced(tokens.ids, places, drawn).numpy()
    labels = np.full((B, T), -100)
    labels[rows, positions] = np.where(weights > 0, words, -100)
    is_replaced = (corrupted != ids).astype(np.int64)
    assert 0 < is_replaced.sum() < weights.sum() + 1
    given = {"masked": masked, "words": labels, "corrupted": corrupted, "replaced": is_replaced}
    np.savez(tmp_path / "x.npz", attention_mask=mask, token_type_ids=segments, **given)

    values = {name: variable.numpy() for name, variable in variables(model).items()}
    shared = {name: value for name, value in values.items() if name.startswith("embeddings/") and "proj" not in name}
    own = {name.removeprefix("generator/"): value for name, value in values.items() if name.startswith("generator/")}
    own = {name.replace("projection/", "embeddings/projection/"): value for name, value in own.items()}
    others = {name: value for name, value in values.items() if not name.startswith("generator/")}
    folders = [
        exported(dataclasses.replace(generator), shared | own, tmp_path / "generator"),
        exported(ELECTRA, others, tmp_path / "discriminator"),
    ]
    (theirs,) = oracle(("detected", *folders, tmp_path / "x.npz"))
    np.testing.assert_allclose(losses, theirs, rtol=1e-5)
