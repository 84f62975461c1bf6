"""A run of `tasks.train` as it is loaded: the kind of its task, its labels and its model."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from bert import embedding, heads, labels
from bert.core import checked_json
from bert.core.errors import InputError, UsageError
from bert.hardware.choices import Compute, EngineName
from bert.runs import Run
from tasks import datasets
from tasks.config import TaskData
from tasks.labels import Labels
from tasks.model import FineTuned, with_weights
from tasks.multilabel import MultiLabel
from tasks.stored import ExampleKind
from tasks.texts import OfTexts

OF_THE_RUN = ("folder", "train", "dev", "vocab", "limit", "class_weights", "strict")  # settings of training alone
CHOICES = 4  # of imported models, which do not say


def entries(kind: ExampleKind) -> dict[str, Any]:
    """Return what `load` needs to know, for the run's `config.json`."""
    settings = {name: value for name, value in asdict(kind.data).items() if name not in OF_THE_RUN}
    return {"inputs": settings, "choices": kind.labels.outputs} | kind.described.entries()


def load(
    run: Path | Run, compute: Compute = "float32", threshold: float | None = None, engine: EngineName = "tensorflow"
) -> FineTuned[ExampleKind]:
    """Load the best checkpoint of a `tasks.train` run, or an imported model, whose inputs get default settings.

    compute: data type of the encoder's matrix products. threshold: probability from which a model of several labels
    gives a label, instead of the stored thresholds. engine: computes the encoder. Raise InputError if `run` is no such
    directory, IntegrityError if the checkpoint or a file beside it is damaged, UsageError for a threshold of another
    kind of model, or for an engine that cannot compute the model.
    """
    opened = run if isinstance(run, Run) else Run.open(run, "the run directory of python -m tasks.train")
    made = with_weights(opened, _kind(opened), compute, engine)
    if isinstance(made.kind, MultiLabel):
        outputs = made.kind.labels.outputs
        made.kind.thresholds = opened.thresholds() if threshold is None else (threshold,) * outputs
    elif threshold is not None:
        raise UsageError(f"{opened.path}: gives one label for each text; a threshold is for several")
    return made


def _kind(run: Run) -> ExampleKind:
    """Return the kind of task of a run, from its `config.json`."""
    if run.head is None and embedding.of(run.settings, run.settings_path):
        raise InputError(f"{run.path}: gives embeddings, not predictions; use python -m bert.encode")
    head, described = labels.read(run.path), run.settings
    layout = datasets.layout_of(head)
    if layout is None:
        raise InputError(f"{run.path}: has the head {head.kind!r}; give the run directory of python -m tasks.train")
    try:
        length = min(512, run.config.max_position_embeddings)
        usual = {"task": layout, "label": datasets.KNOWN[layout].label, "length": length}
        read = described.get("inputs", usual)
        stated = usual | read if "imported" in described else read  # of an import it may be the length alone
        data: TaskData = checked_json.take(TaskData, stated)
        names = head.labels
        if not heads.KINDS[head.kind].has_classes:
            names = tuple(str(number) for number in range(int(described.get("choices", CHOICES))))
        kind = datasets.kind(data, Labels(names=names, regression=head.regression, activation=head.activation))
        if isinstance(kind, OfTexts):
            kind.odd_to_longer = read.get("odd_to_longer") is True
        return kind
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{run.settings_path}: not the configuration of a tasks.train run ({error}); give its run directory"
        ) from error
