"""The scores of a run's embeddings: of an embedding model, or of any pretrained one."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert import hidden_states
from bert.core import checked_json
from bert.core.errors import InputError, UsageError
from bert.core.progress import Progress
from bert.engines.engine import Engine
from bert.runs import Run
from extensions.embeddings import similarity
from tasks import metrics
from tasks.config import EMBED, SCORED, TaskData
from tasks.evaluate import Options
from tasks.examples import Skipped
from tasks.scoring import report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """What is scored."""

    path: Path
    """scored pairs, or a folder in BEIR's layout"""
    split: str
    """of the folder"""
    text: Sequence[str] | None
    """both columns of the pairs; None: those of training"""
    label: str | None
    """column of their score; None: that of training"""
    limit: int
    """number of pairs or of queries, from the first on; 0: all"""


def of_options(run: Run, options: Options) -> dict[str, Any]:
    """Return the scores of a run without a head, whose embeddings are compared."""
    others = ("predictions", "label_columns", "threshold", "windows", "stride")
    if given := [name for name in others if getattr(options, name) is not None]:
        raise UsageError(f"--{given[0]} is for a fine-tuned model with a head; {options.model} has none")
    if options.text and len(options.text) != 2:
        raise UsageError(f"--text names {len(options.text)} columns; give the two of a pair of texts")
    path = options.input or options.folder
    assert path is not None, "one of both is given"
    if path.is_dir() != (options.folder is not None):
        raise UsageError(f"{path}: --input takes a file of scored pairs, --folder one in BEIR's layout or of STS sets")
    chosen = Chosen(path=path, split=options.split, text=options.text, label=options.label, limit=options.limit)
    encoder = run.encoder(options.compute, options.engine)
    return evaluate(run, encoder, chosen, Skipped(options.strict), options.batch)


def evaluate(run: Run, encoder: Engine, chosen: Chosen, skipped: Skipped, batch: int) -> dict[str, Any]:
    """Return the number of pairs or queries and the scores. Raise InputError for data of another layout."""
    ranked = _ranked(run, chosen, skipped)
    return report(_compared(ranked, hidden_states.Reader(run, encoder, batch=batch)), len(ranked))


def scores(run: Run, path: Path, outputs: Callable[..., Sequence[Any]]) -> dict[str, float]:
    """Return the scores of the embeddings that `outputs` computes last, as `bert.heads.Kind` has it."""
    chosen = Chosen(path=path, split="dev", text=None, label=None, limit=0)
    ranked = _ranked(run, chosen, Skipped(strict=False))
    reader = hidden_states.Reader(run, features=lambda *rows: outputs(*rows)[-1][:, None])  # one layer
    values = _compared(ranked, reader).values
    return {name: values[name] for name in ranked.names}


def _ranked(run: Run, chosen: Chosen, skipped: Skipped) -> similarity.Ranked:
    data = _settings(run)
    trained = data.text if data.loss in SCORED else data.dev_text
    text, label = chosen.text or trained, chosen.label or data.label
    return similarity.of(chosen.path, chosen.split, text, label, skipped, chosen.limit)


def _compared(ranked: similarity.Ranked, reader: hidden_states.Reader) -> metrics.Scores:
    reader.progress = Progress("evaluate", "texts", ranked.texts)

    def encode(texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        return np.stack([encoded.features[0] for encoded in reader.encode_all(texts, prompt)])

    with reader.progress:
        return ranked.scores(encode, reader.says.similarity)


def _settings(run: Run) -> TaskData:
    """Return the settings of the data that the run was trained on; the defaults if it was not trained to embed."""
    usual = TaskData(task=EMBED, text=("text", "text"), label="score")
    inputs = run.settings.get("inputs")
    if not isinstance(inputs, dict) or inputs.get("task") != EMBED:
        return usual
    try:
        data: TaskData = checked_json.take(TaskData, inputs)
        return data
    except ValueError as error:
        raise InputError(f"{run.settings_path}: inputs: {error}; give a run of this program") from error
