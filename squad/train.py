"""Fine-tune BERT to find the answer to a question in a passage.

    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint RUN [--section.field VALUE ...]
    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint none --data.vocab vocab.txt

RECIPE is a function of squad/recipes.py. RUN is the directory of a pretraining run, an import, or an earlier
fine-tuning; none starts from random weights. If RUN has no head for questions, this is reported, and the head is
initialised randomly. The same command resumes a stopped run. squad.predict needs only the run directory.
"""

from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from bert import cli, paths
from bert.config import ModelConfig
from bert.errors import UsageError
from bert.inputs import records
from bert.inputs.sampler import Batch
from bert.inputs.tokenization import Tokenizer, tokenizer_for
from bert.labels import Head
from bert.model import losses
from bert.model.encoder import Mode
from bert.model.parts import WHOLE, Parts
from bert.training import fine_tuning, loop, preflight
from bert.training.distributed import Communicator, connect
from squad import features
from squad.config import SquadConfig
from squad.development import DevelopmentSet, Questions
from squad.model import QuestionAnswering
from squad.recipes import RECIPES

HEAD = Head(kind="answer_span")


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

    def predict(self, batch: Batch, mode: Mode) -> dict[str, tf.Tensor]:
        """Return start and end logits [B, S]."""
        start, end = self.module(batch, mode)
        return {"start": start, "end": end}


def resolve(
    config: SquadConfig, name: str, model: ModelConfig, data: records.Dataset, comm: Communicator
) -> SquadConfig:
    """Return the configuration with everything derived filled in.

    `data.impossible` then says whether there are impossible questions, for prediction.
    """
    model = replace(model, vocab_size=data.description.vocab_size)
    config = replace(config, data=replace(config.data, impossible=data.manifest.count("impossible") > 0))
    return fine_tuning.resolve(config, paths.workdir() / "squad" / name, model, len(data), comm)


def development_set(run: SquadConfig, tokenizer: Tokenizer, comm: Communicator) -> DevelopmentSet | None:
    """Return the evaluation on the development set of the run, if it has one."""
    path = run.data.dev_file
    if path is None:
        return None
    questions: Questions | None = None

    def make() -> Path:
        nonlocal questions
        questions = Questions(path, tokenizer, run.windows)
        return features.development_set(path, questions.windows, tokenizer, run.windows, paths.workdir())

    data = records.Dataset(fine_tuning.on_rank_zero(make, comm), "dev")
    return DevelopmentSet(questions, data, run.batch, comm, threshold=0.0 if run.data.impossible else None)


def main(argv: list[str]) -> None:
    """Run the command."""
    name, config = cli.choose(argv, RECIPES, prog="python -m squad.train", description=__doc__)
    if config.data.train_file is None:
        raise UsageError("no questions: give --data.train_file, a SQuAD training set")
    vocab, model = fine_tuning.sources(config, RECIPES[name](), config.data.vocab)
    if config.windows.max_seq_length > model.max_position_embeddings:
        raise UsageError(
            f"windows.max_seq_length {config.windows.max_seq_length} is more than the model's "
            f"{model.max_position_embeddings} positions; lower it"
        )
    comm = connect(config.run, config.parallel)
    tokenizer = tokenizer_for(vocab, model)

    def make() -> Path:
        return features.training_set(config.data, tokenizer, vocab, config.windows, paths.workdir())

    data = records.Dataset(fine_tuning.on_rank_zero(make, comm), "train")
    run = resolve(config, name, model, data, comm)
    heldout = development_set(run, tokenizer, comm)
    loop.tell(run.batch.change(config.batch), comm)
    preflight.parts(run.model, run.run, comm)
    preflight.memory(run.model, run.parallel, comm)
    task = AnswerSpans(run.model, run.run.seed, comm.parts)
    loop.train(
        task,
        run,
        comm,
        data=data,
        heldout=heldout,
        vocab=vocab,
        start_from=run.init.source,
        new_heads=("answer_span",),
        facts={"recipe": name} | HEAD.facts(),
    )


if __name__ == "__main__":
    cli.main(main)
