"""Fine-tune BERT to find the answer to a question in a passage.

    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint RUN [--section.field VALUE ...]
    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint none --data.vocab vocab.txt

RECIPE is a function of squad/recipes.py. RUN is the directory of a pretraining run, an import, or an earlier
fine-tuning; none starts from random weights. If RUN has no head for questions, this is reported, and the head is
initialised randomly. The same command resumes a stopped run. squad.predict needs only the run directory.
"""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert.core import cli, paths
from bert.core.errors import UsageError
from bert.text import records
from bert.text.tokenization import Tokenizer
from bert.training import loop
from bert.training.distributed import Communicator, on_rank_zero
from squad import features
from squad.config import SquadConfig
from squad.development import Questions
from squad.model import AnswerSpans
from squad.recipes import RECIPES
from tasks.train import Prepared, fine_tune


def prepare(config: SquadConfig, tokenizer: Tokenizer, vocab: Path, comm: Communicator) -> Prepared[SquadConfig]:
    """Write the records of the windows; as `tasks.train.fine_tune` has it.

    `data.impossible` then says whether there are impossible questions, for prediction.
    """
    workdir, windowing, path = paths.workdir(), config.windows, config.data.dev_file
    folder = on_rank_zero(lambda: features.training_set(config.data, tokenizer, vocab, windowing, workdir), comm)
    data, dev = records.Dataset(folder, "train"), None
    impossible = data.manifest.count("impossible") > 0
    kind = AnswerSpans(windowing, impossible)
    questions: Questions | None = None  # on rank 0, which computes the scores

    def write(path: Path) -> Path:
        nonlocal questions
        questions = Questions(path)
        return questions.write(tokenizer, windowing, workdir)

    if path is not None:
        dev = records.Dataset(on_rank_zero(functools.partial(write, path), comm), "dev")

    def score(logits: dict[str, np.ndarray]) -> loop.Measures:
        def compute() -> loop.Measures:
            assert questions is not None, "rank 0 has them"
            start, end = (logits[name] for name in kind.head.logits)
            return questions.scores(start, end, 0.0 if impossible else None)

        return on_rank_zero(compute, comm)

    config = replace(config, data=replace(config.data, impossible=impossible))
    return Prepared(config=config, kind=kind, data=data, dev=dev, score=score, entries=kind.described.entries())


def main(argv: list[str]) -> None:
    """Run the command."""
    recipe, config = cli.choose(argv, RECIPES, prog="python -m squad.train", description=__doc__)
    if config.data.train_file is None:
        raise UsageError("no questions: give --data.train_file, a SQuAD training set")
    longest = ("windows.max_seq_length", config.windows.max_seq_length)
    flagged = cli.flags_in(argv, "model")
    fine_tune("squad", recipe, config, flagged, vocab=config.data.vocab, longest=longest, prepare=prepare)


if __name__ == "__main__":
    cli.main(main)
