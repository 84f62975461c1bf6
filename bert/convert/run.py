"""A model at rest, and our side of a conversion: the run directory that it comes from or becomes."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert.config import ModelConfig, flatten
from bert.convert import architecture, names
from bert.convert.names import Form, Match
from bert.errors import InputError
from bert.inputs.vocabulary import load_vocab
from bert.storage import files, manifest
from bert.training import checkpoint

DESCRIPTION = ("bert_config.json", "vocab.txt", "config.json", "metrics.jsonl")  # of a run, beside its checkpoints


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """Weights by our names, float32, and what is known of them."""

    config: ModelConfig
    vocab: list[str]
    found: Match
    values: dict[str, np.ndarray]
    settings: dict[str, Any]
    """config.json of the run"""
    labels: list[str] = dataclasses.field(default_factory=list)
    """names of the classes, of a model that has a head for them"""
    scores: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """last lines of its metrics.jsonl, one a split"""


def gather(found: Match, form: Form, get: Callable[[str], np.ndarray], where: object) -> dict[str, np.ndarray]:
    """The matched tensors by our names, as float32, which holds all values of float16 and bfloat16.

    Raises InputError, naming the tensor, if a value is not finite.
    """
    values = {}
    for weight in found.weights:
        value = weight.exchange(form, get(weight.name(form)).astype(np.float32, copy=False))
        if not np.isfinite(value).all():
            raise InputError(f"{where}: {weight.name(form)} holds a value that is not finite; its training failed")
        values[weight.ours] = value
    return values


def check_vocab(config: ModelConfig, vocab: Sequence[str], path: Path) -> None:
    """Raises InputError if the vocabulary is not of the model's size."""
    if len(vocab) != config.vocab_size:
        raise InputError(f"{path}: {len(vocab)} entries, but vocab_size is {config.vocab_size}; give the model's own")


def parts(run: Path) -> list[Path]:
    """What an export reads of a run directory. Raises InputError if it has no undamaged checkpoint."""
    return [checkpoint.newest(run), *(run / name for name in DESCRIPTION if (run / name).exists())]


def read(run: Path) -> Model:
    """The newest checkpoint of a run directory, less the optimizer's state. InputError: something else stands there."""
    folder, config, vocab = checkpoint.newest(run), ModelConfig.load(run / "bert_config.json"), run / "vocab.txt"
    if config.norm_placement != "post":
        path = run / "bert_config.json"
        raise InputError(f"{path}: norm_placement is 'pre'; only 'post' can be expressed in the formats of others")
    reader = tf.train.load_checkpoint(str(folder / checkpoint.BUNDLE))
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    found = names.match(config, "ours", shapes, folder, aside=["*"])
    tokens = load_vocab(vocab)
    check_vocab(config, tokens, vocab)
    values = gather(found, "ours", reader.get_tensor, folder)
    settings = architecture.read_object(run / "config.json") if (run / "config.json").exists() else {}
    labels = architecture.labels(settings, names.classes("ours", shapes), run / "config.json")
    return Model(
        config=config,
        vocab=tokens,
        found=found,
        values=values,
        settings=settings,
        labels=labels,
        scores=_last(run / "metrics.jsonl"),
    )


def _last(path: Path) -> list[dict[str, Any]]:
    last: dict[str, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError, TypeError, KeyError):  # a line cut by a kill
            line = json.loads(text)
            last[line["split"]] = line
    return list(last.values())


def imported(origin: str, found: Match) -> dict[str, Any]:
    """The `settings` of a model that comes from elsewhere; what it lacks may start fresh where training goes on."""
    return {"imported": {"origin": origin, "left_aside": found.aside, "missing_heads": found.missing_heads}}


def write(model: Model, folder: Path) -> None:
    """A run directory to start from, in which nothing was trained: every weight is in its checkpoint of step 0."""
    about = {"config": flatten(model.config, "model."), "versions": manifest.versions()} | named_classes(model)
    files.write_json(folder / "config.json", model.settings | about)
    model.config.save(folder / "bert_config.json")
    write_vocab(model, folder)
    checkpoint.save(folder, 0, model.values, keep=1)


def named_classes(model: Model) -> dict[str, Any]:
    """The names of the classes, if there are any, as transformers and our run directories keep them."""
    return {"id2label": {str(number): label for number, label in enumerate(model.labels)}} if model.labels else {}


def write_vocab(model: Model, folder: Path) -> None:
    """`vocab.txt`, one token a line."""
    with files.atomic_write(folder / "vocab.txt") as stream:
        stream.write("\n".join(model.vocab) + "\n")
