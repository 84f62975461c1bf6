"""Low-rank updates and heads alone: what learns, what a checkpoint has, and what reads a run afterwards."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert.convert.__main__ import convert
from bert.core.errors import UsageError
from bert.model.encoder import Encoder, variables
from bert.runs import Run
from bert.training import selection
from tasks import scoring, train
from tasks.examples import Skipped
from tasks.loading import load
from tasks.model import Reader
from tests.tasks.test_train_predict import classifier, fine_tune, folder, workdir  # noqa: F401 fixtures
from tests.training import ROOT, checkpoints, losses, same_bits, weights

LORA = "--lora.rank 3 --lora.alpha 12 --lora.targets query value inner outer"
UPDATED = ("attention/query", "attention/value", "mlp/inner", "mlp/outer")
ENCODER = ("embeddings/", "layer_0/")


def command(folder: Path, first: Path, run: Path, more: str) -> list[str]:  # noqa: F811
    """Return the arguments of tasks.train."""
    line = f"classify --init.checkpoint {first} --data.train {folder}/train.tsv --data.dev {folder}/dev.tsv"
    flags = f"--data.length 17 --data.label kind --batch.per_device 12 --batch.total 24 --run.directory {run}"
    learning = "--run.steps 6 --optimizer.warmup_steps 1 --optimizer.learning_rate 0.03"
    return f"{line} {flags} {learning} {more}".split()


def tuned(folder: Path, first: Path, run: Path, more: str = LORA) -> Path:  # noqa: F811
    train.main(command(folder, first, run, more))
    return run


def best_weights(run: Path) -> dict[str, np.ndarray]:
    best = selection.read(run)
    assert best is not None
    return weights(run, best.step)


def opened(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of the encoder as every command reads them."""
    run = Run.open(path)
    encoder = Encoder(run.config, seed=0)
    run.load(encoder)
    return {name: variable.numpy() for name, variable in variables(encoder).items()}


@pytest.mark.slow
def test_only_updates_and_heads_learn_and_every_reader_has_the_merged_weights(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = classifier(folder)
    run = tuned(folder, first, tmp_path / "run")
    size = 3 * (24 + 24) * 2 + 3 * (24 + 40) * 2 + 24 * 25 + 25 * 2
    assert f"parameters: {size:,} of " in capfd.readouterr().err
    before, after, expected = best_weights(first), best_weights(run), opened(first)
    moments = {name.removeprefix("adam_m/") for name in after if name.startswith("adam_m/")}
    assert sum(after[name].size for name in moments) == size
    for name in expected:
        assert before[name].tobytes() == after[name].tobytes(), name
    for part in UPDATED:
        a, b = (after[f"layer_0/{part}/lora_{each}"].astype(np.float64) for each in "ab")
        assert b.any()
        expected[f"layer_0/{part}/kernel"] = expected[f"layer_0/{part}/kernel"] + 12 / 3 * a @ b
    found, best = opened(run), selection.read(run)
    assert found.keys() == expected.keys() and best is not None
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)
    model = load(run)
    evaluated = scoring.evaluate(model, Reader(model, 7), folder / "dev.tsv", Skipped())
    assert evaluated["accuracy"] == pytest.approx(best.value, abs=1e-3)
    convert("export", "huggingface", run, tmp_path / "exported")
    convert("import", "huggingface", tmp_path / "exported", tmp_path / "imported")
    same_bits(opened(tmp_path / "imported"), found)
    next_run = tuned(folder, run, tmp_path / "next", f"{LORA} --optimizer.learning_rate 0")
    same_bits(opened(next_run), found)  # it starts from the merged weights, and its updates from zero


@pytest.mark.slow
def test_a_stopped_run_with_updates_goes_on_to_the_same_bits(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    first, every = classifier(folder), "--run.save_every 2 --run.evaluate_every 3 --length.evaluations 0"
    more = f"{LORA} {every} --run.keep 9"
    whole = tuned(folder, first, tmp_path / "whole", more)
    parts = shutil.copytree(whole, tmp_path / "parts")
    for step in checkpoints(parts)[1:]:
        shutil.rmtree(parts / "checkpoints" / step)
    tuned(folder, first, parts, more)
    same_bits(weights(whole, 6), weights(parts, 6))


@pytest.mark.multiprocess
@pytest.mark.timeout(1800)
@pytest.mark.thorough
def test_two_parts_of_a_model_train_updates_like_one_rank(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    first = fine_tune(folder, "classify", tmp_path / "first", "--model.num_attention_heads", "4", "--run.steps", "9")
    more = "--lora.rank 3 --lora.alpha 12 --lora.targets query output inner outer --run.log_every 1"
    one = tuned(folder, first, tmp_path / "one", more)
    line = command(folder, first, tmp_path / "two", f"{more} --parallel.tensor 2 --precision.xla true")
    launch = [str(ROOT / "scripts/launch.sh"), "-np", "2", "--", sys.executable, "-m", "tasks.train", *line]
    done = subprocess.run(launch, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    few, many = losses(one), losses(tmp_path / "two")
    assert few.keys() == many.keys() and list(many.values()) == pytest.approx(list(few.values()), rel=1e-5)
    found = weights(tmp_path / "two", 6)
    for name, value in weights(one, 6).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_frozen_encoder_keeps_its_bits_and_layers_below_frozen_ones_have_no_updates(
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    first = classifier(folder)
    before = opened(first)
    run = tuned(folder, first, tmp_path / "heads", "--init.frozen_encoder true")
    same_bits(opened(run), before)
    assert not np.array_equal(best_weights(run)["pooler/kernel"], best_weights(first)["pooler/kernel"])
    for flags, reason in (
        ("--init.frozen_encoder true --init.frozen_layers 1", "freezes all layers"),
        (f"{LORA} --init.frozen_encoder true", "leaves nothing for lora"),
        (f"{LORA} --init.frozen_layers 1", "leaves no layer for lora"),
        ("--lora.rank 25", "more than the 24 rows"),
        ("--lora.rank 2 --lora.targets gate", "not gated"),
        (f"{LORA} --init.checkpoint none --data.vocab {folder}/vocab.txt", r"needs --init\.checkpoint RUN"),
    ):
        with pytest.raises(UsageError, match=reason):
            tuned(folder, first, tmp_path / "none", flags)
    assert not (tmp_path / "none").exists()
