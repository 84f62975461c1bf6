"""A model in memory, and the run directory that a conversion reads it from or writes it to."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert import embedding, labels
from bert.convert import architecture, families, names
from bert.convert.families import CAUSAL, FAMILIES, TOKENIZERS, Family
from bert.convert.names import Form, Match
from bert.core import files, journal, manifest, outputs
from bert.core.config import ModelConfig, flatten
from bert.core.errors import InputError, UserError
from bert.core.manifest import Manifest
from bert.heads import EMBEDDING, GENERATOR
from bert.labels import Head
from bert.model.added import tunes
from bert.text import tokenizer_kind, vocabulary
from bert.text.normalization import UNCASED, TokenizerConfig
from bert.text.vocabulary import TOKENIZER, load_vocab, rules_of
from bert.training import checkpoint, description, length, selection
from bert.training.selection import Best

DESCRIPTION = (*description.FILES, "metrics.jsonl")  # files beside the checkpoints
STATE = (*checkpoint.STATE, EMBEDDING.name, GENERATOR)  # of training; of embeddings also the projection
IGNORED = [*checkpoint.STATE, *(f"{part}/*" for part in STATE)]  # as patterns of names


NOTHING = Match([], [], [], [])  # without weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """The float32 weights of a model by our names, with its vocabulary, settings and scores."""

    config: ModelConfig
    vocab: list[str]
    """empty if the tokenizer is not one of word pieces"""
    rules: TokenizerConfig = UNCASED
    """by which texts become words of the vocabulary"""
    match: Match = NOTHING
    values: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    updates: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """variables of low-rank updates: of a run, which are in `values` already, or to be written beside those"""
    settings: dict[str, Any]
    """config.json of the run"""
    head: Head | None = None
    """what the outputs of a fine-tuned model mean"""
    tokenizer: str = ""
    """content of the tokenizer.json, if the tokenizer is not one of word pieces"""
    tokens: tokenizer_kind.TokenizerType = "word pieces"
    """kind of the tokenizer"""
    scores: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """the last line of metrics.jsonl for each split, up to the step of the weights"""
    best: Best | None = None
    """why these weights were chosen among those of the run; None if they are the last ones"""
    records: Manifest | None = None
    """of the folder that training read; None if it is not there any more"""

    @property
    def family(self) -> Family:
        """Its family in Hugging Face's format."""
        path = Path("bert_config.json")
        return FAMILIES[CAUSAL] if self.config.causal else families.of(self.config, self.tokens, path)


class Format(NamedTuple):
    """What reads and writes the folders of another format."""

    input_files: Callable[[Path], list[Path]]
    read_model: Callable[..., Model]
    write_model: Callable[[Model, Path], None]


def gather(match: Match, form: Form, get: Callable[[str], np.ndarray], where: object) -> dict[str, np.ndarray]:
    """Return the matched tensors by our names, as float32, which represents float16 and bfloat16 exactly.

    Raises InputError, naming the tensor, if a value is not finite.
    """
    values = {}
    for weight in match.weights:
        value = weight.read(form, get(weight.name(form)).astype(np.float32, copy=False))
        if not np.isfinite(value).all():
            raise InputError(f"{where}: {weight.name(form)} has a value that is not finite; its training failed")
        values[weight.ours] = value
    return values


def check_vocab_size(config: ModelConfig, vocab: Sized, path: Path) -> None:
    """Raise InputError if the vocabulary has more entries than the model has rows.

    Report on stderr how many rows have no entry: they are parts of sums over the vocabulary, but no text has them.
    """
    rows, entries = config.vocab_size, len(vocab)
    if entries > rows:
        raise InputError(f"{path}: {entries} entries, but vocab_size is {rows}; use the model's vocabulary")
    if entries < rows:
        print(
            f"note: {path}: {entries:,} entries for {rows:,} rows of embeddings; the last {rows - entries:,} rows are "
            "kept, but no text has their tokens",
            file=sys.stderr,
        )


def input_files(run: Path) -> list[Path]:
    """Return the files that an export reads. Raises InputError if the run has no undamaged checkpoint."""
    newest = checkpoint.to_use(run)  # first, because it checks the configuration
    records = _records(labels.settings(run))
    described = [run / name for name in (*DESCRIPTION, selection.BEST) if (run / name).exists()]
    return [newest, *described, *([records.path] if records else [])]


def check_form(run: Path) -> None:
    """Raise InputError if no other format has a model of this architecture."""
    path = run / "bert_config.json"
    check_model(ModelConfig.load(path), vocabulary.path_in(run), path)


def check_model(config: ModelConfig, vocab: Path, path: Path) -> None:
    """Raise InputError, naming `path`, if no other format has a model of this configuration and tokenizer.

    vocab: the tokenizer's file.
    """
    if not config.causal:
        families.of(config, tokenizer_kind.of(vocab), path)
    for key, value in FAMILIES[CAUSAL].fixed.items() if config.causal else ():
        if (ours := getattr(config, key)) != value:
            raise InputError(f"{path}: {key} is {ours!r}; the other formats have only {value!r}")


def read_model(run: Path) -> Model:
    """Read the newest checkpoint of a run, without optimizer state. Raises InputError if it is not a run directory."""
    folder, config = checkpoint.to_use(run), ModelConfig.load(run / "bert_config.json")
    stored = checkpoint.Stored(folder)
    shapes = {name: tuple(shape) for name, shape in stored.shapes.items()}
    checkpoint.check_depth(folder, config.num_hidden_layers, shapes)
    match = names.match(config, "ours", shapes, folder, IGNORED)
    values = gather(match, "ours", stored.get, folder)
    longer = [dataclasses.asdict(change) for change in length.changes(run)]
    settings = labels.settings(run) | ({"longer": longer} if longer else {})
    head = architecture.head(match.heads, settings, names.class_count("ours", shapes), run / "config.json")
    if head and head.regression and (said := labels.of(settings, run / "config.json")):
        head = dataclasses.replace(head, activation=said.activation)
    return dataclasses.replace(
        without_weights(run, config, settings, head),
        match=match,
        values=values,
        updates=checkpoint.Stored(folder, apart=tunes).beside(),
        scores=_last_lines(run / "metrics.jsonl", int(folder.name.removeprefix("step-"))),
        best=selection.read(run),
        records=_records(settings),
    )


def without_weights(run: Path, config: ModelConfig, settings: dict[str, Any], head: Head | None) -> Model:
    """Return the model of a run without its weights: what it is, and its tokenizer.

    settings: content of the run's `config.json`. Raise InputError if the vocabulary is damaged or too large.
    """
    tokens, tokenizer = _read_vocabulary(run, config)
    rules = rules_of(vocabulary.path_in(run), tokens) if tokens else UNCASED
    return Model(
        config=config,
        vocab=tokens,
        rules=rules,
        settings=settings,
        head=head,
        tokenizer=tokenizer,
        tokens="byte pairs" if config.causal else tokenizer_kind.of(vocabulary.path_in(run)),
    )


def _records(settings: dict[str, Any]) -> Manifest | None:
    """Return the manifest of the folder that training read; None if it is not there, or is not as it was written."""
    config = settings.get("config")
    folder = config.get("data.train") if isinstance(config, dict) else None
    if not isinstance(folder, str) or not folder:
        return None
    try:
        return manifest.load(Path(folder))
    except (UserError, OSError, ValueError):
        return None


def _read_vocabulary(run: Path, config: ModelConfig) -> tuple[list[str], str]:
    """Return the vocabulary, or the content of a tokenizer.json; one of the two is empty."""
    path = run / TOKENIZER if config.causal else vocabulary.path_in(run)
    if path.name == vocabulary.NAME:
        tokens = load_vocab(path)
        check_vocab_size(config, tokens, path)
        return tokens, ""
    stored = FAMILIES[CAUSAL].tokenizers["byte pairs"] if config.causal else TOKENIZERS.get(tokenizer_kind.of(path))
    return [], stored.of_run(path, config) if stored else path.read_text("utf-8")


def _last_lines(path: Path, step: int) -> list[dict[str, Any]]:
    lines = journal.intact(path) if path.exists() else ()
    return list({line["split"]: line for line in lines if line["step"] <= step and line["split"] != "fed"}.values())


def import_settings(origin: str, match: Match) -> dict[str, Any]:
    """Return the `settings` of an imported model. Further training may initialise its missing heads randomly."""
    return {"imported": {"origin": origin, "ignored": match.ignored, "missing_heads": match.missing_heads}}


def of_texts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the `settings` of a run say of its texts: how they are cut, and how embeddings are made."""
    return {key: settings[key] for key in (embedding.KEY, "inputs") if key in settings}


def write_model(model: Model, folder: Path) -> None:
    """Write a run directory whose only checkpoint, of step 0, has all weights."""
    config = model.settings.get("config", {}) | flatten(model.config, "model.")
    about = {"config": config, "versions": outputs.versions()}
    files.write_json(folder / "config.json", model.settings | about | (model.head.entries() if model.head else {}))
    model.config.save(folder / "bert_config.json")
    write_vocab(model, folder)
    checkpoint.save(folder, 0, model.values | model.updates, keep=1)


def named(model: Model, labels: tuple[str, ...]) -> Model:
    """Return the model with new names of its classes. Raise InputError if a name repeats or their number differs."""
    classes = len(model.head.labels) if model.head else 0
    if len(set(labels)) != len(labels):
        raise InputError(f"--labels names {len(labels) - len(set(labels))} classes twice; give each its own name")
    if model.head is None or classes != len(labels):
        raise InputError(f"--labels gives {len(labels)} names, but the model has {classes} classes; give one for each")
    return dataclasses.replace(model, head=dataclasses.replace(model.head, labels=labels))


def write_vocab(model: Model, folder: Path) -> None:
    """Write `vocab.txt`, one token per line, or `tokenizer.json`."""
    if model.tokenizer:
        with files.atomic_write(folder / TOKENIZER) as stream:
            stream.write(model.tokenizer)
        return
    vocabulary.write(model.vocab, model.rules, folder)
