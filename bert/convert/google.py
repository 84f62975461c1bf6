"""The original checkpoints of google-research/bert: `bert_model.ckpt.*`, `bert_config.json`, `vocab.txt`.

Those of TensorFlow 2's model garden, which come under the same names, are refused by name.

A checkpoint is a TensorFlow tensor bundle: names, shapes and values can be read without a graph. "gelu" in the
configuration means the exact function with erf, as in transformers: the published models were trained with it. (Later
versions of Google's code compute a tanh approximation under the same name.)
"""

import dataclasses
import glob
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from bert.convert import architecture, foreign, names, run
from bert.convert.bundle import Bundle, Damaged
from bert.convert.run import Model
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text.normalization import TokenizerConfig
from bert.text.vocabulary import is_lower_case, load_vocab, rules_of
from bert.training import checkpoint

WORDS, MOST_PADDED = "bert/embeddings/word_embeddings", 1024  # rows
CONFIG, VOCAB, CHECKPOINT = "bert_config.json", "vocab.txt", "bert_model.ckpt"
STATE, MAX_STATE = "checkpoint", 1 << 20  # TensorFlow's list of checkpoints, and characters of it
NEWEST = re.compile(r'^\s*model_checkpoint_path:\s*"([^"\n]+)"', re.MULTILINE)
GARDEN = re.compile(r"(.*/)?(layer_with_weights-\d+|_transformer_layers)/.+/\.ATTRIBUTES/VARIABLE_VALUE")
DTYPES = (tf.float32, tf.float16, tf.bfloat16)  # float32 holds every value of the other two

# Name patterns of optimizer state and counters.
IGNORED = (
    "*/adam_m",
    "*/adam_v",
    "*/Adam",
    "*/Adam_1",
    "*/lamb_m",
    "*/lamb_v",
    "global_step",
    "beta1_power",
    "beta2_power",
    "loss_scale",
    "current_loss_scale",
    "good_steps",
    "bad_steps",
    "*/accum",  # these four of NVIDIA's recipe for TensorFlow 1
    "*/shadow",
    "local_step",
    "batch_finite",
)


def input_files(folder: Path) -> list[Path]:
    """Return the files that an import reads.

    Of several checkpoints it reads bert_model.ckpt or else the one that the file `checkpoint` names. Raise InputError
    if there is no checkpoint, or if nothing chooses one.
    """
    indices = sorted(folder.glob("*.index"))
    if not indices:
        foreign.check(folder, "google")
    candidates = [path for path in indices if path.stem == CHECKPOINT] or indices
    if len(candidates) > 1 and (newest := _newest(folder)):
        candidates = [path for path in indices if path.stem == newest]
        if not candidates:
            raise InputError(f"{folder / STATE}: names {newest!a}, which is not there; download it, or remove the file")
    if len(candidates) != 1:
        present = names.shortened([path.name for path in indices]) or "none"
        raise InputError(
            f"{folder}: one checkpoint is needed ({CHECKPOINT}.index, .data-*), or a file {STATE!r} that names one of "
            f"several; found: {present}"
        )
    index = candidates[0]
    return [index, *sorted(folder.glob(f"{glob.escape(index.stem)}.data-*")), folder / CONFIG, folder / VOCAB]


def _newest(folder: Path) -> str:
    """Return the name that TensorFlow's file `checkpoint` gives the newest checkpoint of a folder; "" without one."""
    path = folder / STATE
    if not path.exists():
        return ""
    match = NEWEST.search(files.read_text(path, MAX_STATE, "write it again, or remove all checkpoints but one"))
    if not match:
        raise InputError(f"{path}: names no newest checkpoint; remove all checkpoints but one")
    return match[1].replace("\\", "/").rpartition("/")[2]  # the folder may have been elsewhere


def read_model(folder: Path) -> Model:
    """Read a checkpoint's folder. Raises InputError if it is damaged, unsupported or has unknown tensors."""
    checkpoint.check_name(folder)
    index, *data = input_files(folder)[:-2]
    config, vocab = architecture.read_architecture(folder / CONFIG, ("bert",)), load_vocab(folder / VOCAB)
    prefix = index.with_suffix("")
    try:
        tensors = Bundle(prefix)
        shapes = tensors.shapes()
        if any(map(GARDEN.fullmatch, shapes)):
            raise InputError(
                f"{prefix}: a checkpoint of TensorFlow 2's model garden is not read; save it with save_pretrained of "
                "transformers 4 first, whose convert_bert_original_tf2_checkpoint_to_pytorch reads its encoder, and "
                f"give that folder to {foreign.COMMAND} huggingface"
            )
        config = _padded(config, shapes)
        run.check_vocab_size(config, vocab, folder / VOCAB)
        match = names.match(config, "google", shapes, prefix, IGNORED, absent=names.NOT_GOOGLE)
        _check_size(match.weights, tensors, data, prefix)
        values = run.gather(match, "google", tensors.get, prefix)
    except (Damaged, FileNotFoundError) as error:
        raise InputError(f"{prefix}: the checkpoint is truncated or damaged ({error}); download it again") from error
    settings = run.import_settings(f"google {folder.name}", match)
    head = architecture.head(match.heads, {}, names.class_count("google", shapes, names.NOT_GOOGLE), prefix)
    rules = rules_of(folder / VOCAB, vocab)
    return Model(config=config, vocab=vocab, rules=rules, match=match, values=values, settings=settings, head=head)


def _padded(config: ModelConfig, shapes: Mapping[str, names.Shape]) -> ModelConfig:
    """Return the configuration with the padded vocab_size of the checkpoint, if the table of words is padded.

    NVIDIA's programs pad vocab_size to a multiple of 8 when they start, and leave it unchanged in the file.
    """
    rows = next(iter(shapes.get(WORDS, ())), 0)
    fits = rows % 8 == 0 and 0 < rows - config.vocab_size < MOST_PADDED
    return dataclasses.replace(config, vocab_size=rows) if fits else config


def _check_size(weights: list[names.Weight], tensors: Bundle, data: list[Path], prefix: Path) -> None:
    """Check types and sizes before any value is read: a damaged file may claim more bytes than memory has."""
    claimed, available = 0, sum(path.stat().st_size for path in data)
    for name, shape in ((weight.google, weight.shape) for weight in weights):
        if (dtype := tensors.dtype(name)) not in DTYPES:
            supported = ", ".join(supported.name for supported in DTYPES)
            raise InputError(f"{prefix}: {name} is stored as {dtype.name}; supported types: {supported}")
        claimed += dtype.size * math.prod(shape)
    if claimed > available:
        raise InputError(f"{prefix}: tensors of {claimed:,} bytes in {available:,} bytes of data; download it again")


def write_model(model: Model, folder: Path) -> None:
    """Write checkpoint, configuration and vocabulary under the file names of the published models.

    Raise InputError for models and heads that this format cannot hold: causal ones, other families than BERT, other
    activations and epsilons, choices and tags. Names of classes, which it cannot hold either, are reported on stderr.
    """
    if model.config.causal:
        raise InputError("a causal model has no form in Google's format; export it with huggingface instead of google")
    if model.family.names:
        title = model.family.title
        raise InputError(f"{title} has no form in Google's format; export it with huggingface instead of google")
    if model.config.norm_placement == "pre":
        raise InputError(
            "a model whose norms precede the sub-layers has no form in Google's format; "
            "export it with huggingface instead of google"
        )
    if lacking := [name for name in model.match.heads if name in names.NOT_GOOGLE]:
        raise InputError(
            f"the head {lacking[0]} has no form in Google's format, whose only classifier is of texts; "
            "export it with huggingface instead of google"
        )
    lower = is_lower_case(model.vocab)
    if not model.rules.agrees(TokenizerConfig(lower_case=lower, strip_accents=lower)):
        print(
            f"note: {folder}: the model's tokenizer has other rules than Google's, which makes other tokens of some "
            "texts",
            file=sys.stderr,
        )
    if model.head and model.head.labels:
        listed = model.head.listed()
        print(f"note: {folder}: the format has no names of classes; give them to an import: {listed}", file=sys.stderr)
    files.write_json(folder / CONFIG, architecture.google_keys(model.config))
    run.write_vocab(model, folder)
    values = {weight.google: weight.write("google", model.values[weight.ours]) for weight in model.match.weights}
    checkpoint.write_bundle(folder / CHECKPOINT, values)
