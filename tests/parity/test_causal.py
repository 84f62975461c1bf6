"""Texts and losses of a causal model equal those of transformers' GPT-2 with the same weights."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bert.convert import __main__ as convert
from extensions.gpt import evaluate_lm, trained
from extensions.gpt.detokenizer import detokenize
from extensions.gpt.generation import Generator
from extensions.gpt.sampling import Choice
from tests.extensions.gpt.runs import write_tokenizer
from tests.parity.test_transformers import oracle

pytestmark = pytest.mark.parity

THEIRS = {"vocab_size": 258, "n_embd": 36, "n_layer": 3, "n_head": 4, "n_inner": 100, "n_positions": 61}
TEXT = " \n = Two @-@ fold = \n \n It ( the game ) had 1 @,@ 200 players ; some left . " + "Others came . \n" * 9


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in theirs/ and run/."""
    root = tmp_path_factory.mktemp("causal")
    oracle(("gpt2", root / "theirs", 3, THEIRS))
    write_tokenizer(root / "theirs")
    convert.main(["import", "huggingface", str(root / "theirs"), str(root / "run")])
    return root


def test_greedy_texts_are_theirs(root: Path) -> None:
    random, count = np.random.default_rng(8), 23
    prompts = [random.integers(0, 257, length).tolist() for length in (1, 19, 7, 30)]
    model = trained.load(root / "run")
    found = [text.ids for text in Generator(model, Choice(0), seed=0, batch=3).generate(prompts, count)]
    expected = oracle(("continued", root / "theirs", prompts, count))[0]
    end = model.tokenizer.end
    assert found == [ids[: ids.index(end)] if end in ids else ids for ids in expected]
    assert max(len(set(ids)) for ids in expected) > 5


@pytest.mark.parametrize(("window", "stride"), [(61, 32), (40, 7), (23, 23)])
def test_perplexity_in_overlapping_windows_is_theirs(
    window: int, stride: int, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, ids = tmp_path / "wiki.test.tokens", trained.load(root / "run").tokenizer.encode(detokenize(TEXT))
    path.write_text(TEXT)
    sizes = ["--window", str(window), "--stride", str(stride)]
    evaluate_lm.main([str(root / "run"), "wikitext", str(path), "--json", *sizes])
    found, losses = json.loads(capsys.readouterr().out), oracle(("stream", root / "theirs", ids, window, stride))[0]
    assert found["tokens"] - 1 == len(losses) == len(ids) - 1
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["adjusted_perplexity"] == pytest.approx(
        math.exp(min(20, sum(losses) / (len(TEXT.strip().split(" ")) - 1))), rel=1e-4
    )
