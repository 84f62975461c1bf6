"""A tiny dataset in the format of the trainer, the command that trains on it, and readers of its run directory."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert import pretrain as pretraining_command
from bert.core import checked_json, outputs
from bert.text import frames, tf_example, token_file, vocabulary
from bert.text.normalization import UNCASED
from bert.text.vocabulary import SPECIAL, TOKENIZER
from bert.training import description, metrics
from extensions.tokenizers import byte_bpe

ROOT = Path(__file__).resolve().parent.parent
VOCAB, TOKENS, PREDICTIONS = 99, 13, 3
CAUSAL_VOCAB = 257  # all bytes, and the end of a text
SIZES = ["--model.hidden_size", "20", "--model.num_attention_heads", "5", "--model.intermediate_size", "28"]
SIZES += ["--model.max_position_embeddings", "17"]
SIZES += ["--model.hidden_dropout_prob", "0.1", "--model.attention_probs_dropout_prob", "0.1"]
SIZES += ["--batch.total", "6", "--run.log_every", "1"]
SIZES += ["--run.evaluate_every", "0", "--optimizer.learning_rate", "0.01", "--optimizer.warmup_steps", "2"]
EVALUATED = ["--run.evaluate_every", "4"]
TINY = [*SIZES, "--model.num_hidden_layers", "1"]  # to trace a layer takes seconds
STEPS = 48
SPECIAL_NAME = "a b\n$(touch x) `touch y`; touch z #'\"{q}~&|>u"  # to a shell
LENGTH = [*EVALUATED, "--run.steps", str(STEPS), "--run.save_every", "2", "--run.keep", "6", "--run.keep_every", "12"]

State = dict[str, np.ndarray]
Finished = subprocess.CompletedProcess[str]


def instance(random: np.random.Generator, shortest: int = 7) -> dict[str, np.ndarray]:
    """Return an instance of random tokens whose masked words can be learnt: each equals the token before it."""
    used = int(random.integers(shortest, TOKENS + 1))
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


def write_dataset(
    folder: Path,
    shards: tuple[int, ...] = (17, 24),
    heldout: int | dict[str, int] = 11,
    seed: int = 3,
    shortest: int = 7,
    label: int | None = None,
    pairs: str = "",
) -> Path:
    """Write a dataset folder with training shards of the given sizes and one held-out shard, or one of each source.

    label: that of all held-out pairs; None: random ones. pairs: the objective on pairs that the folder names.
    """
    of_source = heldout if isinstance(heldout, dict) else {"": heldout}
    sizes = {f"train-{i:05d}": size for i, size in enumerate(shards)}
    sizes |= {f"heldout-{i:05d}": size for i, size in enumerate(of_source.values())}

    def make(partial: Path) -> outputs.StageResult:
        random = np.random.default_rng(seed)
        for name, size in sizes.items():
            with frames.RecordWriter(partial / f"{name}.tfrecord") as writer:
                for _ in range(size):
                    row = instance(random, shortest)
                    if name.startswith("heldout") and label is not None:
                        row["next_sentence_labels"] = np.array([label])
                    writer.write(tf_example.encode(row))
        counts = {f"{name}.tfrecord": size for name, size in sizes.items()}
        sources = {f"heldout-{i:05d}.tfrecord": source for i, source in enumerate(of_source)}
        vocabulary.write([*SPECIAL, *(f"w{i}" for i in range(VOCAB - 5))], UNCASED, partial)
        spec = {
            name: {"shape": list(value.shape), "dtype": "float32" if value.dtype == np.float32 else "int64"}
            for name, value in instance(random).items()
        }
        extra: dict[str, Any] = {"features": spec, "vocab_size": VOCAB}
        if pairs:
            made = {"max_seq_length": TOKENS, "max_predictions_per_seq": PREDICTIONS, "pairs": pairs}
            extra["instances"] = made
        return outputs.StageResult(counts={}, records=counts, sources=dict(sources), extra=extra)

    outputs.build(folder, stage="tfrecords", parameters={"shards": shards, "seed": seed}, inputs=[], make=make)
    return folder


def command(
    dataset: Path,
    run: Path,
    *more: str,
    ranks: int = 1,
    per_device: int = 3,
    patch: str | None = None,
    recipe: str = "demo_phase1",
) -> list[str]:
    """Return the command that trains on `dataset` in `run`, 6 sequences per step, after the Python in `patch`."""
    launch = [str(ROOT / "scripts" / "launch.sh"), "-np", str(ranks), "--"] if ranks > 1 else []
    main = "from bert import pretrain\nfrom bert.core import cli\ncli.main(pretrain.main)"
    module = ["-m", "bert.pretrain"] if patch is None else ["-c", f"{textwrap.dedent(patch)}\n{main}"]
    places = ["--data.train", str(dataset), "--run.directory", str(run), "--batch.per_device", str(per_device)]
    return [*launch, sys.executable, *module, recipe, *places, *TINY, *more]


def pretrain(
    dataset: Path,
    run: Path,
    *more: str,
    ranks: int = 1,
    per_device: int = 3,
    patch: str | None = None,
    recipe: str = "demo_phase1",
    cwd: Path = ROOT,
    **environment: str,
) -> Finished:
    """Run that command to its end."""
    line = command(dataset, run, *more, ranks=ranks, per_device=per_device, patch=patch, recipe=recipe)
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(line, cwd=cwd, env=variables, capture_output=True, text=True, timeout=500)


def train_here(dataset: Path, run: Path, *more: str, per_device: int = 3, recipe: str = "demo_phase1") -> None:
    """Do what that command does in this process, which saves the start of another one; raise its errors."""
    line = command(dataset, run, *more, per_device=per_device, recipe=recipe)
    pretraining_command.main(line[line.index("bert.pretrain") + 1 :])


def errors(said: str) -> list[str]:
    """Return the lines of standard error that report an error, or that the run was stopped."""
    return [line for line in said.splitlines() if line.startswith(("error:", "stopped ", "Traceback"))]


def weights(run: Path, step: int) -> State:
    """Return all variables of the checkpoint of `step`, by name: weights, slots, counters.

    `spikes/losses` is infinite at the places of losses to come. NumPy warns of an invalid value if two are subtracted;
    `assert_allclose` and `same_bits` compare them without that.
    """
    reader = tf.train.load_checkpoint(str(run / "checkpoints" / f"step-{step:08d}" / "variables"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def measured(run: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """Return the run's metrics by step and split, without those that depend on time; no step may occur twice."""
    timed = metrics.Clock(flops=lambda tokens, sequences: 1.0, replicas=1, peak=1.0).rates().keys()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    by_step = {(line["step"], line["split"]): {k: v for k, v in line.items() if k not in timed} for line in lines}
    assert len(by_step) == len(lines), "a step was logged twice"
    return by_step


def losses(run: Path) -> dict[tuple[int, str], float]:
    """Return the run's losses by step and split."""
    return {key: line["loss"] for key, line in measured(run).items() if "loss" in line}


def checkpoints(run: Path) -> list[str]:
    """Return the names in the run's folder of checkpoints, hidden ones included."""
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def sign(run: Path) -> None:
    """Make the manifests of the run's checkpoints record what its configuration and vocabulary are now."""
    for path in (run / "checkpoints").glob("step-*/manifest.json"):
        facts = json.loads(path.read_text())
        facts["extra"]["description"] = description.hashes(run)
        facts.pop(checked_json.KEY, None)
        checked_json.write(path, facts)


def same_bits(one: State, two: State) -> None:
    """Fail with the name of a variable if any bit of it differs."""
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value.tobytes() == two[name].tobytes(), name


def token_folder(
    folder: Path, splits: dict[str, list[list[int]]], vocab: int, tokenizer: bytes, text_bytes: int, **changes: Any
) -> Path:
    """Write a folder as data.tokens does, with the tokens of each file of each split; changes: of the manifest."""

    def make(partial: Path) -> outputs.StageResult:
        (partial / TOKENIZER).write_bytes(tokenizer)
        counts, files = {}, {}
        for split, pieces in splits.items():
            for number, ids in enumerate(pieces):
                with token_file.TokenWriter(partial / f"{split}-{number:05d}.tokens", vocab) as writer:
                    writer.write(ids)
                files[writer.path.name] = writer.count
            counts[split] = {"documents": 1, "tokens": sum(map(len, pieces)), "bytes": text_bytes}
        described = {"kind": "tokens", "dtype": token_file.dtype_for(vocab), "vocab_size": vocab, "end_id": vocab - 1}
        extra = described | {"tokenizer_sha256": hashlib.sha256(tokenizer).hexdigest()} | changes
        return outputs.StageResult(counts=counts, records=files, extra=extra)

    outputs.build(folder, stage="tokens", parameters={}, inputs=[], make=make)
    return folder


def write_tokens(folder: Path, train: int = 1000, heldout: int = 150) -> Path:
    """Write such a folder, whose next token follows from the one before it, but for each fifth."""
    random, splits = np.random.default_rng(7), {}
    for split, size in (("train", train), ("heldout", heldout)):
        ids = random.integers(0, CAUSAL_VOCAB, size)
        for place in range(1, size):
            if place % 5:
                ids[place] = (3 * ids[place - 1] + 1) % CAUSAL_VOCAB
        splits[split] = [ids.tolist()]
    tokens = {token: n for n, token in enumerate((*byte_bpe.BYTES, byte_bpe.END))}
    text = byte_bpe.text_of(tokens, [], folder)
    return token_folder(folder, splits, CAUSAL_VOCAB, text.encode(), 4 * train)
