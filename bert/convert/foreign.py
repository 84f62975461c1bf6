"""Folders that are given as another format than they have: one table, for messages that name the right command."""

from pathlib import Path
from typing import NamedTuple

from bert.core import files
from bert.core.errors import InputError


class _Kind(NamedTuple):
    """A kind of folder."""

    form: str
    """the format of `bert.convert` that it has; empty: none"""
    pattern: str
    """of the name of a file in it"""
    content: str
    """part of that file, which is text; empty: any content"""
    title: str
    remedy: str
    """what works; in it FOLDER and RUN are places to be filled in"""


COMMAND = "python -m bert.convert import"
KINDS = (  # the first that fits; their own files come before those that others have, too
    _Kind(
        "peft",
        "adapter_config.json",
        '"peft_type"',
        "an adapter of peft, without the model's weights",
        f"import its base first, then {COMMAND} peft FOLDER RUN --base BASE_RUN",
    ),
    _Kind(
        "",
        "adapter_config.json",
        "",
        "an adapter of AdapterHub, without the model's weights",
        "one of LoRA's kind can be merged there (merge_adapter, save_pretrained), others have layers that are not "
        "supported",
    ),
    _Kind(
        "",
        "config.json",
        '"keras_hub',
        "a preset of keras-hub",
        f"a GPT-2 can be written by its export_to_transformers; of a BERT give what the preset was made of, with "
        f"{COMMAND} google or huggingface",
    ),
    _Kind("", "config.json", '"keras_nlp', "a preset of keras-nlp", f"give what it was made of, with {COMMAND} google"),
    _Kind("", "saved_model.pb", "", "a SavedModel", "give the checkpoint that it was made of"),
    _Kind("google", "*.ckpt*.index", "", "a checkpoint of TensorFlow", f"{COMMAND} google FOLDER RUN"),
    _Kind("", "checkpoints/step-*", "", "a run directory of this program", "give it to the command itself"),
    _Kind("huggingface", "model*.safetensors", "", "a model of transformers", f"{COMMAND} huggingface FOLDER RUN"),
    _Kind(
        "",
        "tf_model.h5",
        "",
        "a model of transformers' TensorFlow classes, a file of Keras, which is not read",
        "save it with save_pretrained of a PyTorch class of transformers first, with from_tf=True of a version 4",
    ),
    _Kind("", "*.gguf", "", "a model of llama.cpp", "give the model that it was made of"),
    _Kind("", "*.onnx", "", "a graph of ONNX", "give the model that it was made of"),
    _Kind(
        "",
        "bert_model.ckpt",
        "",
        "a checkpoint of TensorFlow's format V1, one file without .index",
        "read it with tf.compat.v1.train.Saver of TensorFlow, and save it again",
    ),
    _Kind(
        "",
        "*.ckpt",
        "",
        "a checkpoint of PyTorch Lightning, a pickle, which is never loaded",
        "write the weights of its model with save_pretrained of transformers",
    ),
)
LONGEST = 1 << 24  # characters of a file whose content tells the kind


def check(folder: Path, form: str) -> None:
    """Raise InputError, naming what works, if a folder is of a known kind and does not have the format `form`."""
    for kind in KINDS:
        paths = sorted(folder.glob(kind.pattern)) if folder.is_dir() else []
        if not paths or (kind.content and not _has(paths[0], kind.content)):
            continue
        if kind.form != form:
            remedy = kind.remedy.replace("FOLDER", str(folder))
            raise InputError(f"{folder}: {kind.title} ({paths[0].name}); {remedy}")
        return


def _has(path: Path, content: str) -> bool:
    try:
        return content in files.read_text(path, LONGEST, "give its own file")
    except InputError:
        return False
