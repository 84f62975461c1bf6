"""The scores of a run's embeddings: of an embedding model, or of any pretrained one."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert import hidden_states
from bert.core import checked_json
from bert.core.errors import InputError
from bert.core.progress import Progress
from bert.engines.engine import Computes
from bert.runs import Run
from tasks import metrics, similarity
from tasks.config import EMBED, SCORED, TaskData
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


def evaluate(run: Run, encoder: Computes, chosen: Chosen, skipped: Skipped, batch: int) -> dict[str, Any]:
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
    """Return the settings of the data that the run was trained on; the usual ones if it was not trained to embed."""
    usual = TaskData(task=EMBED, text=("text", "text"), label="score")
    inputs = run.settings.get("inputs")
    if not isinstance(inputs, dict) or inputs.get("task") != EMBED:
        return usual
    try:
        data: TaskData = checked_json.take(TaskData, inputs)
        return data
    except ValueError as error:
        raise InputError(f"{run.settings_path}: inputs: {error}; give a run of this program") from error
