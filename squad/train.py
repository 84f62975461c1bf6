"""Fine-tune BERT to find the answer to a question in a passage.

    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint RUN [--section.field VALUE ...]
    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint none --data.vocab vocab.txt

RECIPE is a function of squad/recipes.py. RUN is the directory of a pretraining run, an import, or an earlier
fine-tuning; none starts from random weights. If RUN has no head for questions, this is reported, and the head is
initialised randomly. The same command resumes a stopped run. squad.predict needs only the run directory.
"""

import math
from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from bert import cli, paths
from bert.config import ModelConfig
from bert.errors import UsageError, UserError
from bert.inputs import records
from bert.inputs.sampler import Batch
from bert.inputs.tokenization import tokenizer_for
from bert.model import losses
from bert.model.encoder import Mode
from bert.model.parts import WHOLE, Parts
from bert.training import checkpoint, loop, preflight, resume
from bert.training.distributed import Communicator, connect
from squad import features
from squad.config import SquadConfig
from squad.model import QuestionAnswering
from squad.recipes import RECIPES


class AnswerSpans:
    """The objective of SQuAD: the first and the last token of the answer; the loss is a mean over windows."""

    objectives: tuple[str, ...] = ("span",)

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = WHOLE) -> None:
        self.module = QuestionAnswering(config, seed, parts)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the number of windows."""
        return {"span": tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, losses.Measure]:
        """Return the summed loss and the number of correct answers."""
        start, end = self.module(batch, mode)
        return {"span": losses.span(start, end, batch["start_positions"][:, 0], batch["end_positions"][:, 0])}


def sources(config: SquadConfig, recipe: SquadConfig) -> tuple[Path, ModelConfig]:
    """Return the vocabulary and the architecture: those of the checkpoint, or with random weights of the command."""
    if config.init.checkpoint is None:
        raise UsageError("no weights: give --init.checkpoint, a run directory, or none for random weights")
    start_from = config.init.source
    if start_from is None:
        if config.data.vocab is None:
            raise UsageError("random weights come without a vocabulary; give --data.vocab")
        return config.data.vocab, config.model
    if config.model != recipe.model:
        raise UsageError(f"model.* has no effect: the architecture is that of {start_from}; leave it out")
    checkpoint.check_description(start_from)
    model = replace(ModelConfig.load(start_from / "bert_config.json"), fused_attention=False)  # a choice of that run
    return config.data.vocab or start_from / "vocab.txt", model


def resolve(
    config: SquadConfig, name: str, model: ModelConfig, windows: int, impossible: int, comm: Communicator
) -> SquadConfig:
    """Return the configuration with everything derived filled in.

    windows: number of training windows, which gives the length of the run. impossible: number of impossible questions;
    `data.impossible` then says whether there are any, for prediction.
    """
    batch = config.batch.divided(comm.replicas.size)
    updates_per_epoch = windows / batch.total
    steps = math.ceil(config.length.epochs * updates_per_epoch)
    run = resume.place(config.run, paths.workdir() / "squad" / name, steps=steps)
    warmup = config.optimizer.warmup_steps or int(config.length.warmup * run.steps)
    data, optimizer = replace(config.data, impossible=impossible > 0), replace(config.optimizer, warmup_steps=warmup)
    precision = config.precision.resolved(comm.device.is_gpu, comm.device.has_bfloat16)
    return replace(config, model=model, run=run, data=data, optimizer=optimizer, precision=precision, batch=batch)


def training_set(config: SquadConfig, vocab: Path, model: ModelConfig, comm: Communicator) -> Path:
    """Return the folder of the training windows, which rank 0 makes; if that fails, every rank raises its error."""
    result: Path | Exception | None = None
    if comm.rank == 0:
        try:
            tokenizer = tokenizer_for(vocab, model)
            result = features.training_set(config.data, tokenizer, vocab, config.windows, paths.workdir())
        except (UserError, OSError) as error:
            result = error
    result = comm.broadcast_object(result)
    if isinstance(result, Exception):
        raise result
    assert result is not None
    return result


def main(argv: list[str]) -> None:
    """Run the command."""
    name, config = cli.choose(argv, RECIPES, prog="python -m squad.train", description=__doc__)
    if config.data.train_file is None:
        raise UsageError("no questions: give --data.train_file, a SQuAD training set")
    vocab, model = sources(config, RECIPES[name]())
    if config.windows.max_seq_length > model.max_position_embeddings:
        raise UsageError(
            f"windows.max_seq_length {config.windows.max_seq_length} is more than the model's "
            f"{model.max_position_embeddings} positions; lower it"
        )
    comm = connect(config.run, config.parallel)
    data = records.Dataset(training_set(config, vocab, model, comm), "train")
    model = replace(model, vocab_size=data.description.vocab_size)
    wanted = config.batch
    config = resolve(config, name, model, windows=len(data), impossible=data.manifest.count("impossible"), comm=comm)
    loop.tell(config.batch.change(wanted), comm)
    preflight.parts(model, config.run, comm)
    preflight.memory(model, config.parallel, comm)
    task = AnswerSpans(model, config.run.seed, comm.parts)
    loop.train(
        task,
        config,
        comm,
        data=data,
        heldout=None,
        vocab=vocab,
        start_from=config.init.source,
        new_heads=("answer_span",),
        recipe=name,
    )


if __name__ == "__main__":
    cli.main(main)
