"""Pretrain BERT: masked language model and, if the data have it, next-sentence or sentence-order prediction.

The recipes gpt2_* pretrain a causal model, as GPT-2 is: each token is predicted from those before it.

    python -m bert.pretrain RECIPE --data.train DIR [--init.checkpoint RUN] [--section.field VALUE ...]
    scripts/launch.sh -np N -- python -m bert.pretrain RECIPE ...

RECIPE is a function of bert/recipes.py. RUN is the run directory of an earlier phase, or an import; heads that an
import lacks are reported and initialised randomly. The same command resumes a stopped run.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

import tensorflow as tf

from bert import cli, paths, ranges
from bert.causal.task import CausalLM
from bert.config import ModelConfig, PretrainConfig, RunConfig
from bert.errors import InputError, UsageError
from bert.hardware.devices import Device
from bert.inputs import byte_bpe, dynamic_masking, records
from bert.inputs.rules import RULES
from bert.inputs.sampler import Batch
from bert.inputs.token_stream import TokenStream
from bert.model import heads, losses
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.parts import WHOLE, Parts
from bert.plan import model_cost
from bert.ranges import Range
from bert.recipes import RECIPES, SMOKE
from bert.training import loop, preflight, resume
from bert.training.distributed import connect
from bert.training.step import Task

SPLITS = ("train", "heldout")


class PretrainingModel(tf.Module):
    """Encoder, masked-LM head and, unless `pairs` is "none", pooler and the head for the pair objective."""

    def __init__(self, config: ModelConfig, seed: int, pairs: str = "nsp", parts: Parts = WHOLE) -> None:
        super().__init__()
        self.encoder = Encoder(config, seed, parts)
        self.masked_lm = heads.MaskedLM(config, seed, parts)
        self.pooler = heads.Pooler(config, seed) if pairs != "none" else None
        self.next_sentence = heads.NextSentence(config, seed) if pairs != "none" else None

    def __call__(self, batch: Batch, mode: Mode) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the logits of the masked positions [B, P, U], in the compute dtype and without bias, and of the pairs.

        For a packed batch (`packing.pack`) they are the same, in the same order.
        """
        masked, first = _read_indices(batch)
        tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"], batch.get("position_ids"))
        read = masked if self.pooler is None else tf.concat([masked, first], axis=0)
        hidden = self.encoder(tokens, mode, read)
        scores = self.masked_lm(hidden[: tf.size(masked)], self.encoder.embeddings.word, mode.dtype)
        words = tf.reshape(scores, [-1, tf.shape(batch["masked_lm_positions"])[1], scores.shape[1]])
        if self.pooler is None or self.next_sentence is None:
            return words, None
        return words, self.next_sentence(self.pooler(hidden[tf.size(masked) :, None]))


def _read_indices(batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the indices, in the flattened batch, of the masked tokens [B*P] and of each instance's first token [B]."""
    positions, tokens = batch["masked_lm_positions"], tf.shape(batch["input_ids"])[1]
    if "first_tokens" in batch:  # packed: they are such indices already
        return tf.reshape(positions, [-1]), batch["first_tokens"]
    first = tf.range(tf.shape(positions)[0]) * tokens
    return tf.reshape(first[:, None] + positions, [-1]), first


class Pretraining:
    """The objectives: masked words ("mlm"), and "nsp" or "sop" unless `pairs` is "none"."""

    def __init__(self, config: ModelConfig, seed: int, pairs: str = "nsp", parts: Parts = WHOLE) -> None:
        self.module = PretrainingModel(config, seed, pairs, parts)
        self.pairs = pairs
        self.objectives: tuple[str, ...] = ("mlm",) if pairs == "none" else ("mlm", pairs)
        self.two_classes = {name: "next_sentence_labels" for name in self.objectives[1:]}

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the number of masked positions, and of sequences."""
        sequences = tf.cast(tf.shape(batch["next_sentence_labels"])[0], tf.float32)
        weights = {"mlm": tf.reduce_sum(batch["masked_lm_weights"]), self.pairs: sequences}
        return {name: weights[name] for name in self.objectives}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, losses.Measure]:
        """Return the summed losses and the numbers of correct predictions."""
        words, pair = self.module(batch, mode)
        labels = batch["next_sentence_labels"][:, 0]
        measures = {"mlm": self.module.masked_lm.measure(words, batch["masked_lm_ids"], batch["masked_lm_weights"])}
        if pair is not None:
            measures[self.pairs] = losses.classification(pair, tf.zeros(2), labels, tf.ones_like(labels, tf.float32))
        return measures


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command beside those of the recipe."""

    print: Annotated[int, Range(1, 1_000_000)] | None = None
    """print what the run would be on this number of ranks (tokens, micro-batches, memory, traffic), and do not train"""
    smoke: cli.Switch = False
    """train a miniature of the recipe, in a run directory of its own, to check that it runs"""

    def __post_init__(self) -> None:
        ranges.check(self)


def resolve(config: PretrainConfig, name: str, data: loop.Data, device: Device, replicas: int) -> PretrainConfig:
    """Return the configuration with everything derived from the data, the device and the ranks filled in.

    name: of the default run directory. replicas: of the model, one per rank unless several ranks hold it together.
    Raise UsageError if the configuration does not fit the data or the ranks.
    """
    vocab_size, length = data.description.vocab_size, loop.sequence_length(config.model, data)
    if config.model.vocab_size not in (0, vocab_size):
        raise UsageError(
            f"model.vocab_size is {config.model.vocab_size}, but {data.manifest.path} was made with {vocab_size} "
            "entries; leave it out, or make the data with that vocabulary"
        )
    if length > config.model.max_position_embeddings:
        raise UsageError(
            f"{data.manifest.path} has sequences of {length} tokens, more than model.max_position_embeddings "
            f"{config.model.max_position_embeddings}; raise that, or make the data with shorter sequences"
        )
    if config.model.causal and config.batch.pack:
        raise UsageError("batch.pack has no effect: the sequences of a causal model have no padding; leave it out")
    run = _placed(config.run, name)
    if run.steps == 0:
        raise UsageError("run.steps is 0; give the number of updates with --run.steps")
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocab_size=vocab_size),
        run=run,
        batch=config.batch.divided(replicas),
        precision=config.precision.resolved(device.is_gpu, device.has_bfloat16),
    )


def _placed(run: RunConfig, name: str) -> RunConfig:
    return resume.place(run, paths.workdir() / "pretrain" / name, steps=0)


def datasets(folder: Path, config: PretrainConfig, rules: int = RULES) -> tuple[loop.Data, loop.Data]:
    """Return the training and the held-out samples in `folder`; rules: by which pairs are drawn.

    Raise InputError if all training pairs for next-sentence prediction have the same label.
    """
    length = config.data.length
    if config.model.causal:
        if config.data.skip_bad:
            raise UsageError("data.skip_bad has no effect: a stream of tokens has no records; leave it out")
        train_tokens, heldout_tokens = (
            TokenStream(folder, split, length or config.model.max_position_embeddings) for split in SPLITS
        )
        return train_tokens, heldout_tokens
    if length:
        raise UsageError("data.length is for causal models; the data of other models have their length; leave it out")
    train_split, heldout = (
        dynamic_masking.source(folder, split, config.run.seed, config.data.skip_bad, rules) for split in SPLITS
    )
    if pairs_of(train_split) == "nsp" and (label := train_split.only_label()) is not None:
        raise InputError(
            f"{folder}: all training pairs have label {label}, from which next-sentence prediction learns nothing; "
            "make the data with --pairs sop or none, or from more documents"
        )
    return train_split, heldout


def pairs_of(data: loop.Data) -> str:
    """Return the objective on pairs for which samples were made; other programs' are for "nsp"."""
    made = data.description.instances
    return made.pairs if made else "nsp"


def task_for(config: PretrainConfig, data: loop.Data, parts: Parts) -> Task:
    """Return the task of the model on these data; `parts` says which part of the model this device holds."""
    if config.model.causal:
        return CausalLM(config.model, config.run.seed, parts)
    return Pretraining(config.model, config.run.seed, pairs_of(data), parts)


def describe(config: PretrainConfig, name: str, data: loop.Data, ranks: int) -> str:
    """Return what the run would be on so many ranks, each with a GPU, as lines of text; nothing is computed."""
    if ranks % (parts := config.parallel.tensor):
        raise UsageError(f"--parallel.tensor {parts} does not divide --print {ranks}; give a multiple of it")
    wanted, config = config, resolve(config, name, data, Device(kind="GPU"), ranks // parts)
    sequence = loop.sequence_length(config.model, data)
    predictions = sequence if config.model.causal else data.spec["masked_lm_ids"]["shape"][0]
    lines = model_cost.describe(config, ranks, sequence=sequence, predictions=predictions, available=len(data))
    if change := config.batch.change(wanted.batch):
        lines["note"] = change
    return "\n".join(f"{label:<18} {value}" for label, value in lines.items())


def main(argv: list[str]) -> None:
    """Run the command."""
    prog = "python -m bert.pretrain"
    options, argv, more_help = cli.extract(Options, argv, prog=prog)
    recipes = SMOKE if options.smoke else RECIPES
    recipe, config = cli.choose(argv, recipes, prog=prog, description=f"{__doc__}\n{more_help}\n")
    name = f"{recipe}_smoke" if options.smoke else recipe
    folder = config.data.train
    if folder is None:
        stage = "tokens" if config.model.causal else "tfrecords"
        raise UsageError(f"no data: give --data.train, a folder made by python -m data.{stage}")
    if options.print is not None:
        data, _ = datasets(folder, config)
        print(describe(config, name, data, options.print))
        return
    if config.init.checkpoint is None:
        raise UsageError(f"{recipe} needs trained weights; give --init.checkpoint RUN, or none for random weights")
    comm = connect(config.run, config.parallel)  # before any tensor, which would allocate memory on all GPUs
    data, heldout = datasets(folder, config, resume.sample_rules(_placed(config.run, name).path, comm))
    wanted, config = config, resolve(config, name, data, comm.device, comm.replicas.size)
    loop.tell(config.batch.change(wanted.batch), comm)
    preflight.parts(config.model, config.run, comm)
    preflight.memory(config.model, config.parallel, comm)
    loop.train(
        task_for(config, data, comm.parts),
        config,
        comm,
        data=data,
        heldout=heldout,
        vocab=folder / (byte_bpe.NAME if config.model.causal else records.VOCABULARY),
        start_from=config.init.source,
        facts={"recipe": f"{recipe} --smoke" if options.smoke else recipe},
    )


if __name__ == "__main__":
    cli.main(main)
