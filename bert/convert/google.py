"""The original checkpoints of google-research/bert: `bert_model.ckpt.*`, `bert_config.json`, `vocab.txt`.

They are TensorFlow tensor bundles, which need no graph: what is read is names, shapes and values. The published models
say "gelu" of what was computed exactly when they were trained, and by a tangent in the code's later versions; here, as
in transformers, it is exact.
"""

import math
from pathlib import Path

import tensorflow as tf

from bert.convert import architecture, names, run
from bert.convert.run import Model
from bert.errors import InputError
from bert.inputs.vocabulary import load_vocab
from bert.storage import files
from bert.training import checkpoint

CONFIG, VOCAB, CHECKPOINT = "bert_config.json", "vocab.txt", "bert_model.ckpt"
TYPES = (tf.float32, tf.float16, tf.bfloat16)
READ = ", ".join(kind.name for kind in TYPES)

# Optimizers' state and counters.
ASIDE = (
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
    "good_steps",
)


def parts(folder: Path) -> list[Path]:
    """What an import reads. Raises InputError if the folder does not hold one checkpoint."""
    found = sorted(folder.glob("*.index"))
    chosen = [path for path in found if path.stem == CHECKPOINT] or found
    if len(chosen) != 1:
        having = names.listed([path.name for path in found]) or "none"
        raise InputError(f"{folder}: one checkpoint is needed ({CHECKPOINT}.index, .data-*), and there is {having}")
    return [chosen[0], *sorted(folder.glob(f"{chosen[0].stem}.data-*")), folder / CONFIG, folder / VOCAB]


def read(folder: Path) -> Model:
    """The model of a checkpoint's folder. InputError: it is damaged, another architecture, or has unknown tensors."""
    index, *data = parts(folder)[:-2]
    config, vocab = architecture.read(folder / CONFIG), load_vocab(folder / VOCAB)
    run.check_vocab(config, vocab, folder / VOCAB)
    prefix = index.with_suffix("")
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
        found = names.match(config, "google", shapes, prefix, ASIDE)
        _check_size(found.weights, reader.get_variable_to_dtype_map(), data, prefix)
        values = run.gather(found, "google", reader.get_tensor, prefix)
    except (tf.errors.OpError, IndexError) as error:  # IndexError: what is cut
        raise InputError(f"{prefix}: the checkpoint is cut or damaged ({error}); fetch it again") from error
    settings = run.imported(f"google {folder.name}", found)
    labels = architecture.labels({}, names.classes("google", shapes), prefix)
    return Model(config=config, vocab=vocab, found=found, values=values, settings=settings, labels=labels)


def _check_size(weights: list[names.Weight], types: dict[str, tf.DType], data: list[Path], prefix: Path) -> None:
    """Before anything is read: types of which float32 holds all values, and no more of them than there are bytes."""
    claimed, there = 0, sum(path.stat().st_size for path in data)
    for name, shape in ((weight.google, weight.shape) for weight in weights):
        if types[name] not in TYPES:
            raise InputError(f"{prefix}: {name} is stored as {types[name].name}; {READ} are read")
        claimed += types[name].size * math.prod(shape)
    if claimed > there:
        raise InputError(f"{prefix}: its tensors take {claimed:,} bytes, its data has {there:,}; fetch it again")


def write(model: Model, folder: Path) -> None:
    """The three files, under the names of the published models."""
    files.write_json(folder / CONFIG, architecture.keys(model.config))
    run.write_vocab(model, folder)
    values = {weight.google: weight.exchange("google", model.values[weight.ours]) for weight in model.found.weights}
    checkpoint.write_bundle(folder / CHECKPOINT, values)
