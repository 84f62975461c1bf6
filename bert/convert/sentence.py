"""Folders of sentence-transformers: a folder of transformers, and how embeddings of texts are made of its states.

`modules.json` lists the modules: a Transformer, in this folder or in one below, a Pooling, and perhaps a Normalize.
A CrossEncoder is a Transformer with a head, whose logits an activation makes scores. What is not here would change the
embeddings or the scores, and is refused by name.

Source: sentence-transformers 6.2 (Transformer, Pooling, Normalize, SentenceTransformer and CrossEncoder), and what it
computes.
"""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.embedding import DOCUMENT, POOLS, QUERY, Embedding, Similarity
from bert.heads import MULTILABEL
from bert.labels import SIGMOID, Head

MODULES, POOLING, TRANSFORMER = "modules.json", "config.json", "sentence_bert_config.json"
EARLIER = tuple(  # names of the file in earlier versions: of several the first that says something is read
    f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
PROMPTS = "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"
FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
PREFIX, PACKAGE = "pooling_mode_", "sentence_transformers."
TYPE = f"{PACKAGE}models."
KNOWN = "Transformer, Pooling and Normalize"
SEVERAL = MULTILABEL.problem_type
TRAINING = "Dropout"  # a module that only training has
ALONE = "--head none imports the encoder alone"
SHORTEST = 3  # tokens of a text: [CLS], one of the text, and [SEP]
UNREACHED = ("passage", "corpus")  # prompts that its documentation puts before documents, and 6.2 does not
STATES = {  # of a Transformer in its own configuration: values that say what is done here
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"method": "forward", "method_output_name": "last_hidden_state"},  # of text
}
SCORES = {  # the same of a CrossEncoder
    "transformer_task": "sequence-classification",
    "module_output_name": "scores",
    "modality_config": {"method": "forward", "method_output_name": "logits"},
}
ACTIVATION, EARLIER_ACTIVATION = "activation_fn", "sbert_ce_default_activation_function"  # the second before 4.0
ACTIVATIONS = {"Identity": "", "Sigmoid": SIGMOID, "Softmax": "softmax"}  # of PyTorch -> here
CLASSES = {"": "torch.nn.modules.linear.Identity", SIGMOID: "torch.nn.modules.activation.Sigmoid"}
OF_SETFIT = ("config_setfit.json", "model_head.*")
OWN = ("max_seq_length", "do_lower_case", "unpad_inputs", *STATES)
ARGUMENTS = {  # names since 5.4 -> earlier ones
    "model_kwargs": "model_args",
    "processor_kwargs": "tokenizer_args",
    "config_kwargs": "config_args",
}
IDLE = {  # arguments that do not change what is computed, beyond its rounding
    "add_pooling_layer",
    "attn_implementation",
    "dtype",
    "torch_dtype",
    "trust_remote_code",
    "use_fast",
    "use_safetensors",
}


def transformer(folder: Path) -> Path:
    """Return the folder of the model of transformers: `folder` itself without a modules.json.

    Raise InputError if the first module in modules.json is no Transformer.
    """
    modules = _modules(folder)
    if not modules:
        return folder
    kind, place = modules[0]
    if kind != "Transformer":
        raise InputError(f"{folder / MODULES}: begins with {kind[:60]!a}; supported: {KNOWN}")
    return place


class CrossEncoder(NamedTuple):
    """What a folder says of a model with a head that scores texts or pairs."""

    activation: str
    """what makes a score of a logit: nothing, sigmoid, or softmax of several"""
    outputs: int
    """number of its logits"""
    length: int
    """tokens to which longer pairs are cut"""

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of config.json with the problem_type that sentence-transformers gives the scores."""
        if self.outputs == 1 and fields.get("problem_type") != SEVERAL:
            return {**fields, "problem_type": "regression"}
        return {**fields, "problem_type": SEVERAL} if self.activation == SIGMOID else dict(fields)

    def entries(self) -> dict[str, Any]:
        """Return how pairs are cut, for a run's config.json."""
        return {"inputs": {"length": self.length, "odd_to_longer": True}}

    def of(self, head: Head | None) -> Head | None:
        """Return the head with the activation of its number."""
        return dataclasses.replace(head, activation=self.activation) if head and head.regression else head


def cross_encoder(
    folder: Path, fields: Mapping[str, Any], lower_case: bool, config: ModelConfig
) -> CrossEncoder | None:
    """Return what a folder says of a CrossEncoder; None if it is none, or does not say so.

    fields: content of config.json. lower_case: as in `read`. Raise InputError, naming the setting, for what is not
    supported.
    """
    modules = _modules(folder)
    place = modules[0][1] if modules else folder
    settings, path = _settings(place)
    is_one = len(modules) == 1 and settings.get("transformer_task") == SCORES["transformer_task"]
    said = files.read_object(folder / PROMPTS) if is_one and (folder / PROMPTS).exists() else {}
    own = fields.get("sentence_transformers")
    names = said.get(ACTIVATION), own.get(ACTIVATION) if isinstance(own, dict) else None, fields.get(EARLIER_ACTIVATION)
    name = next((name for name in names if name is not None), None)
    if not is_one and (modules or name is None):
        return None
    check(settings, path, SCORES, lower_case)
    prompts, default = _texts_before(said, folder / PROMPTS)
    if default in prompts:
        raise InputError(f"{folder / PROMPTS}: default_prompt_name puts words before each pair; {ALONE}")
    if prompts:
        print(f"note: {folder / PROMPTS}: the prompts {', '.join(prompts)} are left aside", file=sys.stderr)
    classes = fields.get("id2label")
    outputs = len(classes) if isinstance(classes, dict) else fields.get("num_labels", 2)
    name = ("Sigmoid" if outputs == 1 else "Identity") if name is None else str(name)
    activation = ACTIVATIONS.get(name.removeprefix("torch.nn.").rpartition(".")[2])
    trusted = name.startswith("torch.nn.") or name in ("Sigmoid", "Identity")
    if activation is None or not trusted or (outputs == 1 and activation == "softmax"):
        raise InputError(
            f"{folder}: the activation of its scores is {name[:80]!a}; supported: {', '.join(ACTIVATIONS)} of "
            f"torch.nn; {ALONE}"
        )
    if not activation and (outputs != 1 or fields.get("problem_type") == SEVERAL):
        print(f"note: {folder}: its scores are logits there; here they are probabilities", file=sys.stderr)
    if activation == "softmax":
        print(
            f"note: {folder}: its scores are probabilities; CrossEncoder gives the logits of an export", file=sys.stderr
        )
    positions = config.max_position_embeddings
    return CrossEncoder(activation, outputs, longest(place, settings, path, positions) or positions)


def has_setfit(folder: Path, alone: bool) -> bool:
    """Return whether a folder has a head of SetFit; print a note that the head is not imported.

    alone: whether only the encoder is imported. Otherwise raise InputError, since the head is a pickle.
    """
    found = [path for pattern in OF_SETFIT for path in sorted(folder.glob(pattern))]
    if not found:
        return False
    if not alone:
        raise InputError(
            f"{found[-1]}: the head of SetFit is a pickle, which could run code and is never loaded; --head none "
            "imports the encoder with its pooling, without the head and its labels"
        )
    labels = files.read_object(found[0]).get("labels") if found[0].suffix == ".json" else None
    named = f" and the labels {', '.join(map(str, labels))}" if isinstance(labels, list) and labels else ""
    print(f"note: {folder}: left aside: the head of SetFit{named}", file=sys.stderr)
    return True


def described_in(folder: Path, inner: Path) -> list[Path]:
    """Return the files beside its modules that can describe a model. inner: folder of its Transformer."""
    return [folder / PROMPTS, *(inner / name for name in (TRANSFORMER, *EARLIER))]


def read(folder: Path, lower_case: bool, config: ModelConfig) -> Embedding | None:
    """Return how embeddings are made; None for a folder that is not one of sentence-transformers.

    lower_case: whether the tokenizer lower-cases texts. Raise InputError, naming the module or the setting, for what
    is not supported.
    """
    modules = [(kind, place) for kind, place in _modules(folder) if kind != TRAINING]
    if not modules:
        return None
    for kind, place in modules[1:]:
        if kind not in ("Pooling", "Normalize"):
            raise InputError(f"{folder / MODULES}: {kind[:60]!a} ({place.name}) is not supported; {ALONE}")
    if [kind for kind, _ in modules[1:]] not in (["Pooling"], ["Pooling", "Normalize"]):
        raise InputError(f"{folder / MODULES}: one Pooling and perhaps a Normalize are supported; {ALONE}")
    if len(modules) > 2 and (path := modules[2][1] / POOLING).exists():
        what = files.read_object(path).get("module_input_name", "sentence_embedding")
        if what != "sentence_embedding":
            raise InputError(f"{path}: normalises {what!a:.60}, which is not supported; {ALONE}")
    place = modules[0][1]
    settings, path = _settings(place)
    check(settings, path, STATES, lower_case)
    said = _prompts(folder / PROMPTS, config)
    pooling = modules[1][1] / POOLING
    if files.read_object(pooling).get("include_prompt", True) is not True and any(said.get("prompts", {}).values()):
        raise InputError(f"{pooling}: include_prompt is false: prompts are not pooled, which is not supported; {ALONE}")
    length = longest(place, settings, path, config.max_position_embeddings)
    return Embedding(pool=_pool(pooling), normalize=len(modules) > 2, length=length, **said)


def _settings(place: Path) -> tuple[dict[str, Any], Path]:
    """Return the configuration of a Transformer, which can be empty, and its path."""
    for path in (place / TRANSFORMER, *(place / name for name in EARLIER)):
        if path.exists() and (settings := files.read_object(path)):
            return settings, path
    return {}, place / TRANSFORMER


def check(settings: Mapping[str, Any], path: Path, expected: Mapping[str, Any], lower_case: bool) -> None:
    """Raise InputError, naming the setting of a Transformer, if it computes something else than is expected.

    lower_case: whether the tokenizer lower-cases texts.
    """
    if settings.get("do_lower_case") and not lower_case:
        raise InputError(f"{path}: do_lower_case is true, but the tokenizer keeps capitals; {ALONE}")
    of_text = settings.get("modality_config")
    flat = dict(settings) | ({"modality_config": of_text.get("text")} if isinstance(of_text, dict) else {})
    for key, value in expected.items():
        if flat.get(key) not in (None, value):
            raise InputError(f"{path}: {key} is {flat[key]!a:.100}; only {value!a} is supported; {ALONE}")
    for key in flat.keys() - {*OWN, *ARGUMENTS, *ARGUMENTS.values()}:
        if flat[key]:
            raise InputError(f"{path}: {key} is {flat[key]!a:.100}, which is not supported; {ALONE}")
    for key in ARGUMENTS:
        known = IDLE | ({"model_max_length"} if key == "processor_kwargs" else set())
        for name, value in _arguments(settings, key, path).items():
            if name not in known:
                raise InputError(f"{path}: {key} has {name[:60]!a}: {value!a:.60}, which is not supported; {ALONE}")


def _arguments(settings: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    given = settings.get(ARGUMENTS[key], settings.get(key)) or {}
    if not isinstance(given, dict):
        raise InputError(f"{path}: {key} is {given!a:.60}, not an object; download it again")
    return given


def longest(place: Path, settings: Mapping[str, Any], path: Path, positions: int) -> int | None:
    """Return the number of tokens to which longer texts are cut; None: the model's own limit.

    The first of these settings counts: an argument of the tokenizer; max_seq_length, which versions before 5.4 write;
    the tokenizer's model_max_length; its earlier name max_len. settings: of the Transformer, read from `path`.
    """
    tokenizer = files.read_object(place / TOKENIZER) if (place / TOKENIZER).exists() else {}
    if tokenizer.get("truncation_side", "right") != "right":
        raise InputError(f"{place / TOKENIZER}: truncation_side cuts off the beginning of long texts; {ALONE}")
    if tokenizer.get("padding_side", "right") != "right":
        print(
            f"note: {place / TOKENIZER}: padding_side moves texts by the length of the longest one of their batch in "
            "sentence-transformers; here each is read as it is alone",
            file=sys.stderr,
        )
    arguments = _arguments(settings, "processor_kwargs", path)
    for where, given, key in (
        (path, arguments, "model_max_length"),
        (path, settings, "max_seq_length"),
        (place / TOKENIZER, tokenizer, "model_max_length"),
        (place / TOKENIZER, tokenizer, "max_len"),
    ):
        if (length := given.get(key)) is None:
            continue
        beyond = isinstance(length, int | float) and length >= positions  # 1e30 says that there is no limit
        if not beyond and (type(length) is not int or length < SHORTEST):
            raise InputError(f"{where}: {key} is {length!a:.60}, not a number of tokens; correct it")
        if where == path and length > positions:
            print(
                f"note: {where}: {key} is {length}, but the model reads {positions} tokens: cut there", file=sys.stderr
            )
        return None if beyond else int(length)
    return None


def _texts_before(said: Mapping[str, Any], path: Path) -> tuple[dict[str, str], str | None]:
    """Return the prompts that are not empty, and the name of the default one. said: read from `path`."""
    prompts, default = said.get("prompts") or {}, said.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise InputError(f"{path}: prompts is {prompts!a:.100}, not texts by name; correct it")
    if default not in (None, QUERY, DOCUMENT, *prompts):
        raise InputError(f"{path}: default_prompt_name is {default!a:.60}, which is none of its prompts; correct it")
    return {name: text for name, text in prompts.items() if text}, default


def _prompts(path: Path, config: ModelConfig) -> dict[str, Any]:
    """Return prompts, dimensions and similarity in the configuration of the whole model, as fields of Embedding."""
    said = files.read_object(path) if path.exists() else {}
    prompts, default = _texts_before(said, path)
    if DOCUMENT not in prompts and (other := [name for name in UNREACHED if name in prompts]):
        print(
            f"note: {path}: no prompt stands before documents: sentence-transformers 6.2 reads {DOCUMENT!r} for them, "
            f"not {other[0]!r}",
            file=sys.stderr,
        )
    similarity, dimensions = said.get("similarity_fn_name") or "cosine", said.get("truncate_dim")
    if similarity not in get_args(Similarity):
        raise InputError(
            f"{path}: similarity_fn_name is {similarity!a:.60}; supported: {', '.join(get_args(Similarity))}"
        )
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise InputError(f"{path}: truncate_dim is {dimensions!a:.60}, not a number of dimensions; correct it")
    return {
        "prompts": prompts,
        "default_prompt": default if default in prompts else None,
        "similarity": similarity,
        "dimensions": dimensions if dimensions and dimensions < config.hidden_size else None,
    }


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
        own = kind.startswith(PACKAGE)  # another class of the same name computes something else
        modules.append((kind.rpartition(".")[2] if own else kind, folder / place))
    return modules


def _pool(path: Path) -> str:
    """Return the pooling in its configuration, one of `POOLS`."""
    fields = files.read_object(path)
    chosen = [key for key, value in fields.items() if key.startswith(PREFIX) and value is True]
    names = [name for name, key in FLAGS.items() if key in chosen]
    if stated := fields.get("pooling_mode"):
        chosen = [str(mode) for mode in stated] if isinstance(stated, list) else [str(stated)]
        names = [mode for mode in chosen if mode in POOLS]
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
    said: dict[str, Any] = {"similarity_fn_name": embedding.similarity, "default_prompt_name": embedding.default_prompt}
    said |= {"truncate_dim": embedding.dimensions} if embedding.dimensions else {}
    prompts = {QUERY: "", DOCUMENT: ""} | embedding.prompts
    files.write_json(folder / PROMPTS, {"model_type": "SentenceTransformer", "prompts": prompts} | said)
    length = embedding.length or config.max_position_embeddings
    files.write_json(folder / TRANSFORMER, {"max_seq_length": length, "do_lower_case": False})
    for place in places[1:]:
        (folder / place).mkdir()
    flags = {key: name == embedding.pool for name, key in FLAGS.items()}
    files.write_json(folder / places[1] / POOLING, {"word_embedding_dimension": config.hidden_size} | flags)
