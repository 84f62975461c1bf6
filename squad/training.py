"""What fine-tuning on questions trains on: the records of their windows, and the scores of a development set."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert.core import paths
from bert.text import records
from bert.text.tokenization import Tokenizer
from bert.training import loop
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from squad import features
from squad.config import SquadConfig
from squad.development import Questions
from squad.model import AnswerSpans
from tasks.training import Prepared, scored


def prepare(config: SquadConfig, tokenizer: Tokenizer, vocab: Path, comm: Communicator) -> Prepared[SquadConfig]:
    """Write the records of the windows; return what the run trains on.

    In the returned configuration, `data.impossible` says whether there are impossible questions, for prediction.
    """
    workdir, windowing, path = paths.workdir(), config.windows, config.data.dev_file
    folder = on_rank_zero(lambda: features.training_set(config.data, tokenizer, vocab, windowing, workdir), comm)
    data, dev = records.Dataset(folder, "train"), None
    impossible = data.manifest.count("impossible") > 0
    kind = AnswerSpans(windowing, impossible, config.data.language)
    questions: Questions | None = None  # on rank 0, which computes the scores

    def write(path: Path) -> Path:
        nonlocal questions
        questions = Questions(path, config.data.language)
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
    then = ("--question", "QUESTION", "--context", "TEXT")
    development = scored(kind, dev, score)
    return Prepared(
        config=config, kind=kind, data=data, development=development, entries=kind.described.entries(), then=then
    )
