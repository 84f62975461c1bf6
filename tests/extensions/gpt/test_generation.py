"""Generated texts are those of the full forward pass over all earlier tokens, whatever stands beside them."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import IntegrityError, ResourceError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch
from extensions.gpt import generation, sampling, trained
from extensions.gpt.cache import Cache
from extensions.gpt.generation import Continuation, Generator
from extensions.gpt.sampling import Choice
from extensions.gpt.trained import Trained
from tests.extensions.gpt.runs import SIZES, write_run

POSITIONS, VOCAB = SIZES["max_position_embeddings"], SIZES["vocab_size"]
GREEDY = Choice(temperature=0)
RANDOM = np.random.default_rng(9)
PROMPTS = [RANDOM.integers(0, VOCAB, length).tolist() for length in (7, 1, 19, 13, 17)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained.load(write_run(tmp_path_factory.mktemp("generation") / "run"))


def full_logits(model: Trained, texts: list[list[int]]) -> np.ndarray:
    """The scores after each token [B, T, V], without a cache; padding stands behind shorter texts."""
    ids = np.zeros([len(texts), POSITIONS], np.int32)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text[:POSITIONS]
    hidden = model.encoder(TokenBatch(tf.constant(ids)), Mode(tf.float32, DropoutRng(None)))
    return np.asarray(hidden @ tf.transpose(model.encoder.embeddings.word))


def check_choices(model: Trained, texts: list[Continuation], choice: Choice, seed: int) -> None:
    """Assert that each token is the one that the full forward pass over all tokens before it chooses."""
    scores = full_logits(model, [[*text.prompt, *text.ids] for text in texts])
    for sample, text in enumerate(texts):
        expected = text.ids + [model.tokenizer.end] * (text.end == "end")
        places = len(text.prompt) + tf.range(len(expected))
        numbers = sampling.uniforms(seed, tf.fill([len(expected)], sample), places)
        rows = tf.constant(scores[sample, len(text.prompt) - 1 :][: len(expected)])
        assert sampling.pick(rows, choice, numbers).numpy().tolist() == expected


def generated(model: Trained, choice: Choice = GREEDY, seed: int = 0, batch: int = 8) -> list[Continuation]:
    return list(Generator(model, choice, seed=seed, batch=batch).generate(PROMPTS, 12))


@pytest.mark.slow
def test_cached_logits_equal_the_full_forward_pass(model: Trained) -> None:
    texts = [RANDOM.integers(0, VOCAB, 17 + row).tolist() for row in range(3)]
    expected = full_logits(model, texts)
    lengths = [4, 2, 7]  # of the prompts; then come one or two tokens at a time
    cache = Cache.empty(model.encoder.config, 3, 16, tf.float32)
    cache.restart([7 - length for length in lengths])
    ids = np.zeros([3, 7], np.int32)
    for row, length in enumerate(lengths):
        ids[row, 7 - length :] = texts[row][:length]
    for width in (1, 2, 1, 2, 0):
        found = generation.logits(model.encoder, cache, tf.constant(ids)).numpy()
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(found[row], expected[row, length - 1], rtol=0, atol=1e-5)
        ids = np.array([text[length : length + width] for text, length in zip(texts, lengths, strict=True)], np.int32)
        lengths = [length + width for length in lengths]
    assert np.abs(expected).max() > 1


@pytest.mark.slow
def test_greedy_texts_are_those_of_the_full_forward_pass(model: Trained) -> None:
    texts = generated(model)
    check_choices(model, texts, GREEDY, seed=0)
    assert {len(text.ids) for text in texts} == {12}
    assert len({tuple(text.ids) for text in texts}) == len(PROMPTS)


@pytest.mark.slow
def test_drawn_texts_depend_on_seed_and_place_alone(model: Trained) -> None:
    choice = Choice(temperature=0.9, top_k=29, top_p=0.95)
    texts = generated(model, choice, seed=4, batch=5)
    check_choices(model, texts, choice, seed=4)
    assert generated(model, choice, seed=4, batch=2) == texts
    assert generated(model, choice, seed=5, batch=5) != texts


@pytest.mark.slow
def test_a_text_ends_at_the_last_position(model: Trained) -> None:
    prompts = [list(range(POSITIONS)), list(range(POSITIONS - 2)), [5, 6]]
    found = list(Generator(model, Choice(top_k=4), seed=1, batch=2).generate(prompts, 9))
    assert [(len(text.ids), text.end) for text in found] == [(1, "positions"), (3, "positions"), (9, "max_tokens")]


def test_a_text_ends_before_the_end_token() -> None:
    text = Continuation(prompt=[1, 2], max_tokens=3, positions=9)
    for token in (4, 5):
        text.add(token, is_end=False)
    text.add(257, is_end=True)
    assert (text.ids, text.end) == ([4, 5], "end")


@pytest.mark.slow
def test_texts_of_a_batch_end_each_on_its_own(tmp_path: Path) -> None:
    """A token that is chosen gives its embedding, slightly longer, to the end token."""
    model = trained.load(write_run(tmp_path / "run"))
    word, chosen = model.encoder.embeddings.word, generated(model)[1].ids[2]
    word.scatter_nd_update([[model.tokenizer.end]], word.numpy()[[chosen]] * 1.1)
    texts = generated(model)
    check_choices(model, texts, GREEDY, seed=0)
    assert {text.end for text in texts} == {"end", "max_tokens"}


def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    model = trained.load(write_run(tmp_path / "run"))
    model.encoder.embeddings.word.assign(model.encoder.embeddings.word * np.nan)
    with pytest.raises(IntegrityError, match="not finite"):
        generated(model)


def test_keys_and_values_must_fit_the_memory(model: Trained) -> None:
    need = 2 * 3 * 4 * (32 + 4) * 20 * 4  # layers, texts, places, width, bytes of float32
    generator = Generator(model, GREEDY, seed=0, batch=4)
    with pytest.raises(ResourceError, match="4 texts of 36 tokens need"):
        next(generator.generate(PROMPTS, 5, memory=need - 1))


def test_tokens_are_counted_after_the_first_of_each_text(model: Trained) -> None:
    generator = Generator(model, Choice(top_k=4), seed=1, batch=2)
    texts = list(generator.generate(PROMPTS, 5))
    assert generator.timing.tokens == sum(len(text.ids) - 1 + (text.end == "end") for text in texts)
    assert generator.timing.seconds > 0 and generator.timing.prompts > 0
