"""Folders of sentence-transformers: a folder of transformers, and how embeddings of texts are made of its states.

`modules.json` lists the modules: a Transformer, in this folder or in one below, a Pooling, and perhaps a Normalize.

Source: sentence-transformers (models/Transformer.py, Pooling.py, Normalize.py; SentenceTransformer.py).
"""

from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.embedding import POOLS, Embedding

MODULES, POOLING, TRANSFORMER = "modules.json", "config.json", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
PREFIX, TYPE = "pooling_mode_", "sentence_transformers.models."
KNOWN = "Transformer, Pooling and Normalize"
ALONE = "--head none imports the encoder alone"


def transformer(folder: Path) -> Path:
    """Return the folder of the model of transformers: `folder` itself without a modules.json.

    Raise InputError for a modules.json whose first module is none.
    """
    modules = _modules(folder)
    if not modules:
        return folder
    kind, place = modules[0]
    if kind != "Transformer":
        raise InputError(f"{folder / MODULES}: begins with {kind[:60]!a}; supported: {KNOWN}")
    return place


def read(folder: Path, lower_case: bool) -> Embedding | None:
    """Return how embeddings are made; None for a folder that is not one of sentence-transformers.

    lower_case: whether the tokenizer lower-cases texts. Raise InputError, naming the module or the setting, for what
    is not supported.
    """
    modules = _modules(folder)
    if not modules:
        return None
    for kind, place in modules[1:]:
        if kind not in ("Pooling", "Normalize"):
            raise InputError(f"{folder / MODULES}: {kind[:60]!a} ({place.name}) is not supported; {ALONE}")
    if [kind for kind, _ in modules[1:]] not in (["Pooling"], ["Pooling", "Normalize"]):
        raise InputError(f"{folder / MODULES}: one Pooling and perhaps a Normalize are supported; {ALONE}")
    settings = {}
    if (path := modules[0][1] / TRANSFORMER).exists():
        settings = files.read_object(path)
        if settings.get("do_lower_case") and not lower_case:
            raise InputError(f"{path}: do_lower_case is true, but the tokenizer keeps capitals; {ALONE}")
    if (prompts := folder / PROMPTS).exists() and files.read_object(prompts).get("default_prompt_name"):
        raise InputError(f"{prompts}: default_prompt_name puts words before each text, which is not supported; {ALONE}")
    length = settings.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 3):
        raise InputError(f"{path}: max_seq_length is {length!r}, not a number of tokens; download it again")
    return Embedding(pool=_pool(modules[1][1] / POOLING), normalize=len(modules) > 2, length=length)


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the class and the folder of each module; none without a modules.json."""
    path = folder / MODULES
    if not path.exists():
        return []
    listed = files.read_model_json(path)
    modules = []
    for module in listed if isinstance(listed, list) else [None]:
        kind, place = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(place, str) or Path(place).is_absolute() or ".." in place:
            raise InputError(f"{path}: not a list of modules with type and path; download it again")
        modules.append((kind.rpartition(".")[2], folder / place))
    return modules


def _pool(path: Path) -> str:
    """Return the pooling in its configuration, one of `POOLS`."""
    fields = files.read_object(path)
    chosen = [key for key, value in fields.items() if key.startswith(PREFIX) and value is True]
    names = [name for name, key in FLAGS.items() if key in chosen]
    if isinstance(stated := fields.get("pooling_mode"), str):
        chosen, names = [stated], [stated] if stated in POOLS else []
    if len(chosen) != 1 or len(names) != 1:
        raise InputError(f"{path}: pools by {', '.join(chosen) or 'nothing'}; supported: one of {', '.join(POOLS)}")
    return names[0]


def write(embedding: Embedding, config: ModelConfig, folder: Path) -> None:
    """Write what sentence-transformers reads beside a folder of transformers."""
    modules = ["Transformer", "Pooling", *(["Normalize"] if embedding.normalize else [])]
    places = [f"{number}_{kind}" if number else "" for number, kind in enumerate(modules)]
    rows: list[dict[str, Any]] = [
        {"idx": number, "name": str(number), "path": place, "type": f"{TYPE}{kind}"}
        for number, (kind, place) in enumerate(zip(modules, places, strict=True))
    ]
    files.write_json(folder / MODULES, rows)
    length = embedding.length or config.max_position_embeddings
    files.write_json(folder / TRANSFORMER, {"max_seq_length": length, "do_lower_case": False})
    for place in places[1:]:
        (folder / place).mkdir()
    flags = {key: name == embedding.pool for name, key in FLAGS.items()}
    files.write_json(folder / places[1] / POOLING, {"word_embedding_dimension": config.hidden_size} | flags)
