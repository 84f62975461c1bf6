"""Fine-tunes BERT to mark the answer of a question in a passage.

    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint RUN [--section.field VALUE ...]
    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint none --data.vocab vocab.txt

RECIPE is a function of squad/recipes.py. RUN is the directory of a pretraining run, an import, or an earlier
fine-tuning; none starts from random weights. A head for questions that RUN has is trained further; where it has none,
which is said, that starts fresh. The same command resumes a stopped run. The run directory is all that squad.predict
needs.
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
from bert.model.dropout import DropoutRng
from bert.training import loop, resume
from bert.training.distributed import Communicator, connect
from squad import features
from squad.config import SquadConfig
from squad.model import QuestionAnswering
from squad.recipes import RECIPES


class AnswerSpans:
    """The one objective of SQuAD: the first and the last token of the answer, a mean over windows."""

    objectives: tuple[str, ...] = ("span",)

    def __init__(self, config: ModelConfig, seed: int) -> None:
        self.module = QuestionAnswering(config, seed)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Windows."""
        return {"span": tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)}

    def measure(self, batch: Batch, noise: DropoutRng, dtype: tf.DType) -> dict[str, losses.Measure]:
        """Summed loss and right answers."""
        start, end = self.module(batch, noise, dtype)
        return {"span": losses.span(start, end, batch["start_positions"][:, 0], batch["end_positions"][:, 0])}


def sources(config: SquadConfig, recipe: SquadConfig) -> tuple[Path, ModelConfig]:
    """The vocabulary and the architecture: the checkpoint's, or where there is none those of the command."""
    earlier = config.init.checkpoint
    if earlier is None:
        if config.data.vocab is None:
            raise UsageError("random weights bring no vocabulary; give --data.vocab")
        return config.data.vocab, config.model
    if earlier == Path():
        raise UsageError("no weights: give --init.checkpoint, a run directory, or none for random weights")
    if config.model != recipe.model:
        raise UsageError(f"model.* has no effect: the architecture is that of {earlier}; leave it out")
    model = ModelConfig.load(earlier / "bert_config.json")
    return config.data.vocab or earlier / "vocab.txt", replace(model, fused_attention=False)  # not part of it


def resolve(
    config: SquadConfig, name: str, model: ModelConfig, windows: int, impossible: int, comm: Communicator
) -> SquadConfig:
    """Fills in the architecture, the place and the length of the run over `windows` training windows, what depends on
    the device and the number of ranks, and whether any of its questions are `impossible`, which prediction is to know.
    """
    epoch = windows / config.batch.total
    run = resume.place(config.run, paths.workdir() / "squad" / name, steps=math.ceil(config.length.epochs * epoch))
    warmup = config.optimizer.warmup_steps or int(config.length.warmup * run.steps)
    data, optimizer = replace(config.data, impossible=impossible > 0), replace(config.optimizer, warmup_steps=warmup)
    precision = config.precision.resolved(comm.device.is_gpu, comm.device.has_bfloat16)
    batch = config.batch.divided(comm.size)
    return replace(config, model=model, run=run, data=data, optimizer=optimizer, precision=precision, batch=batch)


def training_set(config: SquadConfig, vocab: Path, model: ModelConfig, comm: Communicator) -> Path:
    """Folder of the training windows, made by rank 0; its failure is every rank's, so that none waits for it."""
    made: Path | Exception | None = None
    if comm.rank == 0:
        try:
            tokenizer = tokenizer_for(vocab, model)
            made = features.training_set(config.data, tokenizer, vocab, config.windows, paths.workdir())
        except (UserError, OSError) as error:
            made = error
    made = comm.broadcast_object(made)
    if isinstance(made, Exception):
        raise made
    assert made is not None
    return made


def main(argv: list[str]) -> None:
    """Runs the command."""
    name, config = cli.choose(argv, RECIPES, prog="python -m squad.train", description=__doc__)
    if config.data.train_file == Path():
        raise UsageError("no questions: give --data.train_file, a SQuAD training set")
    vocab, model = sources(config, RECIPES[name]())
    if config.windows.max_seq_length > model.max_position_embeddings:
        raise UsageError(
            f"windows.max_seq_length {config.windows.max_seq_length} is more than the model's "
            f"{model.max_position_embeddings} positions; lower it"
        )
    comm = connect(config.run)
    data = records.Dataset(training_set(config, vocab, model, comm), "train")
    model = replace(model, vocab_size=data.manifest.extra["vocab_size"])
    config = resolve(config, name, model, windows=len(data), impossible=data.manifest.counts["impossible"], comm=comm)
    task = AnswerSpans(model, config.run.seed)
    loop.train(
        task,
        config,
        comm,
        data=data,
        heldout=None,
        vocab=vocab,
        start_from=config.init.checkpoint,
        fresh=("answer_span",),
        recipe=name,
    )


if __name__ == "__main__":
    cli.main(main)
