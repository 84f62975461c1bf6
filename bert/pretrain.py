"""Pretrains BERT: masked language model and, as the data have it, next sentence or sentence order prediction.

    python -m bert.pretrain RECIPE --data.train DIR [--init.checkpoint RUN] [--section.field VALUE ...]
    horovodrun -np N python -m bert.pretrain RECIPE ...

RECIPE is a function of bert/recipes.py. RUN is an earlier phase, all of whose weights are taken, or an import: heads
that it says it lacks are named and start fresh. The same command resumes a stopped run. With --print N it only says
what the run would be on N ranks: tokens, micro-batches, memory, traffic. With --smoke it runs in miniature, in a folder
of its own.
"""

import dataclasses
from pathlib import Path

import tensorflow as tf

from bert import cli, paths, plan
from bert.config import ModelConfig, PretrainConfig
from bert.errors import UsageError
from bert.hardware.devices import Device
from bert.inputs import dynamic_masking
from bert.inputs.sampler import Batch
from bert.model import heads, losses
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.recipes import RECIPES, SMOKE
from bert.training import loop, resume
from bert.training.distributed import connect

SPLITS = ("train", "heldout")


class PretrainingModel(tf.Module):
    """Encoder with the masked-LM head and, unless nothing is asked of pairs, the pooler and the head for that."""

    def __init__(self, config: ModelConfig, seed: int, pairs: str = "nsp") -> None:
        super().__init__()
        self.encoder = Encoder(config, seed)
        self.masked_lm = heads.MaskedLM(config, seed)
        self.pooler = heads.Pooler(config, seed) if pairs != "none" else None
        self.next_sentence = heads.NextSentence(config, seed) if pairs != "none" else None

    def __call__(self, batch: Batch, rng: DropoutRng, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Logits of the masked positions, without their bias, [B, P, U] in dtype; of the pair [B, 2].

        Of a packed batch (`packing.pack`) they are the same ones in the same order.
        """
        masked, first = _read(batch)
        tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"], batch.get("position_ids"))
        read = masked if self.pooler is None else tf.concat([masked, first], axis=0)
        hidden = self.encoder(tokens, Mode(dtype, rng), read)
        scores = self.masked_lm(hidden[: tf.size(masked)], self.encoder.embeddings.word, dtype)
        words = tf.reshape(scores, [-1, tf.shape(batch["masked_lm_positions"])[1], scores.shape[1]])
        if self.pooler is None or self.next_sentence is None:
            return words, None
        return words, self.next_sentence(self.pooler(hidden[tf.size(masked) :, None]))


def _read(batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
    """Places in the flattened batch of masked tokens [B*P] and of the first of each instance [B]."""
    positions, tokens = batch["masked_lm_positions"], tf.shape(batch["input_ids"])[1]
    if "first_tokens" in batch:  # packed: they are such places
        return tf.reshape(positions, [-1]), batch["first_tokens"]
    first = tf.range(tf.shape(positions)[0]) * tokens
    return tf.reshape(first[:, None] + positions, [-1]), first


class Pretraining:
    """Masked words, and what is asked of pairs if anything is: each objective a mean over its predictions."""

    def __init__(self, config: ModelConfig, seed: int, pairs: str = "nsp") -> None:
        self.module = PretrainingModel(config, seed, pairs)
        self.pairs = pairs
        self.objectives: tuple[str, ...] = ("mlm",) if pairs == "none" else ("mlm", pairs)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Masked positions, and sequences."""
        sequences = tf.cast(tf.shape(batch["next_sentence_labels"])[0], tf.float32)
        found = {"mlm": tf.reduce_sum(batch["masked_lm_weights"]), self.pairs: sequences}
        return {name: found[name] for name in self.objectives}

    def measure(self, batch: Batch, noise: DropoutRng, dtype: tf.DType) -> dict[str, losses.Measure]:
        """Summed losses and right answers."""
        words, pair = self.module(batch, noise, dtype)
        bias, labels = self.module.masked_lm.biases(), batch["next_sentence_labels"][:, 0]
        found = {"mlm": losses.classification(words, bias, batch["masked_lm_ids"], batch["masked_lm_weights"])}
        if pair is not None:
            found[self.pairs] = losses.classification(pair, tf.zeros(2), labels, tf.ones_like(labels, tf.float32))
        return found


def resolve(config: PretrainConfig, recipe: str, data: loop.Data, device: Device, ranks: int) -> PretrainConfig:
    """Fills in what follows from the data, the recipe's name, the device and the ranks, and checks that they fit."""
    vocab_size, length = data.manifest.extra["vocab_size"], data.spec["input_ids"]["shape"][0]
    if config.model.vocab_size not in (0, vocab_size):
        raise UsageError(
            f"model.vocab_size is {config.model.vocab_size}, but {data.manifest.path} was made with {vocab_size} "
            "entries; leave it out, or make the data with that vocabulary"
        )
    if length > config.model.max_position_embeddings:
        raise UsageError(
            f"{data.manifest.path} has sequences of {length} tokens, more than model.max_position_embeddings "
            f"{config.model.max_position_embeddings}; raise that, or make shorter data"
        )
    run = resume.place(config.run, paths.workdir() / "pretrain" / recipe, steps=0)
    if run.steps == 0:
        raise UsageError("run.steps is 0; give the number of updates with --run.steps")
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocab_size=vocab_size),
        run=run,
        batch=config.batch.divided(ranks),
        precision=config.precision.resolved(device.is_gpu, device.has_bfloat16),
    )


def sources(config: PretrainConfig) -> tuple[loop.Data, loop.Data]:
    """The training and the held-out samples."""
    data = config.data
    train_split, heldout = (
        dynamic_masking.source(data.train, split, config.run.seed, data.skip_bad) for split in SPLITS
    )
    return train_split, heldout


def describe(config: PretrainConfig, recipe: str, ranks: int) -> str:
    """What the run would be on so many ranks, each with a GPU, as lines of text; nothing is computed."""
    data, _ = sources(config)
    config = resolve(config, recipe, data, Device(kind="GPU"), ranks)
    sequence, predictions = (data.spec[name]["shape"][0] for name in ("input_ids", "masked_lm_ids"))
    lines = plan.describe(config, ranks, sequence=sequence, predictions=predictions, available=len(data))
    return "\n".join(f"{name:<18} {value}" for name, value in lines.items())


def main(argv: list[str]) -> None:
    """Runs the command."""
    planned, argv = cli.take(argv, "--print")
    small = "--smoke" in argv
    argv = [argument for argument in argv if argument != "--smoke"]
    recipe, config = cli.choose(argv, SMOKE if small else RECIPES, prog="python -m bert.pretrain", description=__doc__)
    if config.data.train == Path():
        raise UsageError("no data: give --data.train, a folder made by python -m data.tfrecords")
    name = f"{recipe}_smoke" if small else recipe
    if planned:
        print(describe(config, name, planned))
        return
    if config.init.missing:
        raise UsageError(f"{recipe} goes on from trained weights; give --init.checkpoint RUN, or none for random ones")
    comm = connect(config.run)  # before the data and the model, whose tensors would take all GPUs
    data, heldout = sources(config)
    config = resolve(config, name, data, comm.device, comm.size)
    pairs = data.manifest.extra.get("instances", {}).get("pairs", "nsp")
    task = Pretraining(config.model, config.run.seed, pairs)
    loop.train(
        task,
        config,
        comm,
        data=data,
        heldout=heldout,
        vocab=config.data.train / "vocab.txt",
        start_from=config.init.checkpoint,
        recipe=f"{recipe} --smoke" if small else recipe,
    )


if __name__ == "__main__":
    cli.main(main)
