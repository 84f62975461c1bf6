"""The command trains a causal model: resuming, several ranks; its mistakes are in tests/bert/test_pretrain.py."""

import json
import shutil
from pathlib import Path

import pytest

from bert import pretrain
from bert.core import cli
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text.tokenization import tokenizer_for
from extensions.gpt.token_stream import TokenStream
from tests.training import losses, same_bits, train_here, weights
from tests.training import pretrain as command

WIDTH = ["--model.hidden_size", "20", "--model.num_attention_heads", "5", "--model.intermediate_size", "28"]
BATCH = ["--batch.total", "6", "--batch.per_device", "3", "--data.length", "13", "--optimizer.warmup_steps", "2"]
RUN = ["--run.log_every", "1", "--run.evaluate_every", "5", "--run.save_every", "4"]
SMALL = [*WIDTH, *BATCH, *RUN]


def test_a_recipe_for_bert_refuses_a_length(dataset: Path) -> None:
    with pytest.raises(cli.UserError, match=r"data\.length is for causal models"):
        pretrain.main(["demo_phase1", "--data.train", str(dataset), "--data.length", "7"])


@pytest.mark.slow
def test_a_run_goes_on_with_the_bits_of_one_that_was_not_stopped(tokens: Path, tmp_path: Path) -> None:
    dropout = ["--model.hidden_dropout_prob", "0.1", "--model.attention_probs_dropout_prob", "0.1"]
    given = ["gpt2_smoke", "--data.train", str(tokens), *SMALL, *dropout, "--run.steps", "9"]
    pretrain.main([*given, "--run.directory", str(tmp_path / "whole")])
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped/checkpoints/step-00000009")
    pretrain.main([*given, "--run.directory", str(tmp_path / "stopped")])
    same_bits(weights(tmp_path / "whole", 9), weights(tmp_path / "stopped", 9))
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if line["split"] == "train"]
    assert rates[:3] == [0.0, pytest.approx(1.5e-3), pytest.approx(3e-3)] and rates[-1] < rates[3]
    *_, heldout, fed = lines
    assert heldout["split"] == "heldout" and 0 < heldout["lm_loss"] < 7 and "lm_accuracy" in heldout
    assert fed["split"] == "fed" and fed["different"] <= fed["samples"]
    assert (tmp_path / "whole/tokenizer.json").read_bytes() == (tokens / "tokenizer.json").read_bytes()
    assert TokenStream(tokens, "heldout", 13).spec["input_ids"]["shape"] == [14]
    with pytest.raises(InputError, match="a causal model, which reads no word pieces"):
        tokenizer_for(tmp_path / "whole/vocab.txt", ModelConfig.load(tmp_path / "whole/bert_config.json"))


def test_the_plan_is_that_of_the_model(tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain.main(["gpt2_345m", "--data.train", str(tokens), "--data.length", "13", "--print", "8"])
    said = capsys.readouterr().out
    assert "500,000 of 64 sequences of 13 tokens" in said and "each 2 micro-batches of 4 per update" in said


@pytest.mark.slow
def test_it_learns_in_16_bits_with_recomputed_activations(tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    form = ["--precision.compute", "bfloat16", "--precision.residual", "bfloat16"]
    form += ["--model.recompute_activations", "true", "--run.steps", "150"]
    seldom = ["--run.log_every", "50", "--run.save_every", "150", "--run.evaluate_every", "75"]
    pretrain.main(["gpt2_smoke", "--data.train", str(tokens), "--run.directory", str(run), *SMALL, *form, *seldom])
    assert losses(run)[150, "heldout"] < 4.5  # a token that is drawn costs ln 257 = 5.5


HEADS = ["--model.num_attention_heads", "4", "--model.max_position_embeddings", "64"]


NINE = [*SMALL, *HEADS, "--run.steps", "9"]


@pytest.fixture(scope="module")
def on_one_rank(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    run = tmp_path_factory.mktemp("one") / "run"
    train_here(tokens, run, *NINE, recipe="gpt2_smoke")
    return list(losses(run).values())


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "more",
    [
        ["--parallel.shard_optimizer", "true", "--precision.xla", "true"],
        pytest.param(["--parallel.tensor", "2"], marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_two_ranks_learn_what_one_learns(
    more: list[str], on_one_rank: list[float], tokens: Path, tmp_path: Path
) -> None:
    done = command(tokens, tmp_path / "run", *NINE, *more, ranks=2, recipe="gpt2_smoke")
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(losses(tmp_path / "run").values()) == pytest.approx(on_one_rank, rel=1e-6)
