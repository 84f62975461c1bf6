"""Folders as written by `save_pretrained` of transformers: config.json, model.safetensors, tokenizer files.

Files of safetensors are read, their header checked against the file first; without one, the `tf_model.h5` of earlier
versions. A `pytorch_model.bin` is a pickle, which can run arbitrary code, and is never opened.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from tokenizers import BertWordPieceTokenizer

from bert.config import ModelConfig
from bert.convert import architecture, card, gpt2, h5, names, roberta, run
from bert.convert.run import Model
from bert.errors import InputError
from bert.inputs import byte_bpe
from bert.inputs.vocabulary import SPECIAL, check_vocab, is_lower_case, load_vocab
from bert.labels import by_number
from bert.storage import files

CONFIG, VOCAB, WEIGHTS = "config.json", "vocab.txt", "model.safetensors"
INDEX, TOKENIZER, TOKENIZER_CONFIG = "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"
UNREAD = "(not read) "  # before the name of a tensor whose place another one has
SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")  # a name in the index
DTYPES = ("F32", "F16", "BF16")  # float32 holds every value of the other two
ENCODER = ("embeddings", "encoder", "pooler")  # first part of the names in a model without a head

# What "classifier" is in the classes of transformers: they use the name for three heads.
CLASSIFIERS = {
    "BertForSequenceClassification": "classifier",
    "BertForMultipleChoice": "choice",
    "BertForTokenClassification": "tags",
}
FAMILIES = {
    "bert": "Bert",
    "megatron-bert": "MegatronBert",
    "roberta": "Roberta",
}  # of classes, by model_type
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # of earlier versions
IGNORED = (*(f"{prefix}.{name}" for prefix in ("bert", "roberta") for name in BUFFERS), *gpt2.IGNORED)
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
    **gpt2.TIED,
}
CLASSES = {  # transformers class -> heads that it needs; an export takes the first that fits
    "BertForQuestionAnswering": {"answer_span"},
    "BertForSequenceClassification": {"pooler", "classifier"},
    "BertForMultipleChoice": {"pooler", "choice"},
    "BertForTokenClassification": {"tags"},
    "BertForPreTraining": {"masked_lm", "next_sentence"},
    "BertForMaskedLM": {"masked_lm"},
    "BertForNextSentencePrediction": {"next_sentence"},
    "BertModel": set[str](),
}
TOKENIZERS = {  # classes that divide texts as BERT's does, or that say nothing about it; with or without "Fast"
    "BertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "MobileBertTokenizer",
    "PreTrainedTokenizer",
    "TokenizersBackend",
}
ROLES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))


def input_files(folder: Path) -> list[Path]:
    """Return the files that an import reads. Raises InputError if the folder has no weights that are read."""
    optional = (VOCAB, TOKENIZER, TOKENIZER_CONFIG, gpt2.VOCAB, gpt2.MERGES)
    return [folder / CONFIG, *_shards(folder), *(folder / name for name in optional if (folder / name).exists())]


def _shards(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        file_of = architecture.read_object(folder / INDEX).get("weight_map")
        if not isinstance(file_of, dict) or not all(isinstance(name, str) for name in file_of.values()):
            raise InputError(f"{folder / INDEX}: weight_map does not name a file for each tensor; download it again")
        if foreign := [name for name in file_of.values() if not SHARD.fullmatch(name)]:
            raise InputError(f"{folder / INDEX}: {foreign[0]!a} is not a file of this folder; download it again")
        return sorted(folder / name for name in set(file_of.values()))
    if (folder / h5.NAME).exists():
        return [folder / h5.NAME]
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a folder with {CONFIG} and {WEIGHTS}")
    if pickles := sorted(path.name for path in folder.glob("*.bin")):
        raise InputError(
            f"{folder}: the weights are a pickle ({pickles[0]}), which could run code and is never loaded; "
            f"write {WEIGHTS} with save_pretrained of transformers"
        )
    raise InputError(f"{folder}: no {WEIGHTS}; write it with save_pretrained of transformers")


class Tensors:
    """The tensors of one or several files, by their full names (those in a model with heads).

    A tensor that holds several of ours side by side is as many tensors (`gpt2.part_of`).
    """

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        """prefixes: what precedes the names of a model without a head, by their first part."""
        self.prefixes = prefixes
        # full name -> file, name in the file, open file, shape, columns
        self._entries: dict[str, tuple[Path, str, Any, names.Shape, tuple[int, int]]] = {}

    def add(self, path: Path, opened: Any) -> None:
        """Add the tensors of an open file. Raises InputError if one of them is known already."""
        for name in opened.keys():  # noqa: SIM118 it is not a dict
            shape = tuple(opened.get_slice(name).get_shape())
            for full_name, columns in gpt2.part_of(self._full_name(name), shape).items():
                if full_name in self._entries:
                    first_path, first_name, *_ = self._entries[full_name]
                    raise InputError(f"{path}: {name} is also in {first_path.name}, as {first_name}; keep one of them")
                part = (*shape[:-1], columns[1] - columns[0]) if shape else shape
                self._entries[full_name] = path, name, opened, part, columns

    def put(self, prefix: str, others: str) -> None:
        """Put the tensors whose names begin with `prefix` in the place of those whose names begin with `others`."""
        for name in [name for name in self._entries if name.startswith(others)]:
            self._entries[f"{UNREAD}{name}"] = self._entries.pop(name)
        for name in [name for name in self._entries if name.startswith(prefix)]:
            self._entries[others + name.removeprefix(prefix)] = self._entries.pop(name)

    def shapes(self) -> dict[str, names.Shape]:
        """Return the shapes of all tensors, by full name."""
        return {full_name: shape for full_name, (_, _, _, shape, _) in self._entries.items()}

    def get(self, full_name: str) -> np.ndarray:
        """Return one tensor. Raises InputError for a type that float32 cannot represent exactly."""
        path, name, opened, shape, (first, end) = self._entries[full_name]
        dtype = opened.get_slice(name).get_dtype()
        if dtype not in DTYPES:
            raise InputError(f"{path}: {name} is stored as {dtype}; supported types: {', '.join(DTYPES)}")
        value: np.ndarray = opened.get_tensor(name)
        return value[..., first:end] if value.shape != shape else value

    def _full_name(self, name: str) -> str:
        name = name.replace(".LayerNorm.gamma", ".LayerNorm.weight").replace(".LayerNorm.beta", ".LayerNorm.bias")
        prefix = self.prefixes.get(name.split(".")[0])
        return f"{prefix}.{name}" if prefix else name


@contextlib.contextmanager
def _opened(folder: Path, model_type: str) -> Iterator[Tensors]:
    """Open all tensors of the folder. Raises InputError for a file that does not agree with its header."""
    prefixes = dict.fromkeys(ENCODER, "roberta" if model_type == "roberta" else "bert")
    with contextlib.ExitStack() as stack:
        tensors = Tensors(prefixes | dict.fromkeys(gpt2.UNPREFIXED, "transformer"))
        for path in _shards(folder):
            if not path.exists():
                raise InputError(f"{path}: no such file, but {INDEX} names it; download it again")
            files.check_regular(path)
            try:
                is_h5 = path.name == h5.NAME
                opened = stack.enter_context(h5.File(path) if is_h5 else safe_open(path, framework="numpy"))
            except (SafetensorError, OSError) as error:
                kind = "HDF5" if path.name == h5.NAME else "safetensors"
                raise InputError(f"{path}: not a complete {kind} file ({error}); download it again") from error
            tensors.add(path, opened)
        yield tensors


def read_model(folder: Path) -> Model:
    """Read a model's folder. Raises InputError if it is damaged, unsupported or has unknown tensors."""
    fields = architecture.read_object(folder / CONFIG)
    form: names.Form = "huggingface"
    vocab: list[str] = []
    tokenizer = ""
    if fields.get("model_type") == "gpt2":
        config, tokenizer = gpt2.read_config(fields, folder / CONFIG), gpt2.read_tokenizer(folder)
        run.check_vocab_size(config, json.loads(tokenizer)["model"]["vocab"], folder / TOKENIZER)
    elif fields.get("model_type") == "roberta":
        form, config = "roberta", architecture.read_architecture(folder / CONFIG)
        if _shards(folder) == [folder / h5.NAME]:
            raise InputError(f"{folder}: RoBERTa is not read from {h5.NAME}; write {WEIGHTS} with save_pretrained")
        tokenizer = _roberta_tokenizer(folder, config)
    else:
        config = architecture.read_architecture(folder / CONFIG)
        vocab = _read_vocab(folder, config)
    with _opened(folder, str(fields.get("model_type"))) as tensors:
        kind = _classifier(fields, tensors.shapes())
        if form == "roberta" and kind == "classifier":  # its dense layer is what a pooler is elsewhere
            tensors.put("classifier.dense.", "roberta.pooler.dense.")
        shapes = tensors.shapes()
        _check_tied(tensors, shapes, folder)
        unsupported = set() if kind else {name for name in shapes if name.startswith("classifier.")}
        copies = {name for name, original in TIED.items() if original in shapes}
        shapes = {name: shape for name, shape in shapes.items() if name not in {*unsupported, *copies}}
        absent = {name for name in names.SAME_NAME if name != kind}
        match = names.match(config, form, shapes, folder, (*IGNORED, f"{UNREAD}*"), absent)
        classes = names.class_count(form, shapes, absent)
        head = architecture.head(match.heads, fields, classes, folder / CONFIG)
        values = run.gather(match, form, tensors.get, folder)
    ignored = [name.removeprefix(UNREAD) for name in match.ignored]
    match = match._replace(ignored=[*ignored, *sorted(unsupported)])
    settings = run.import_settings(f"huggingface {folder.name}", match)
    return Model(
        config=config,
        vocab=vocab,
        match=match,
        values=values,
        settings=settings,
        head=head,
        tokenizer=tokenizer,
    )


def _classifier(fields: dict[str, Any], shapes: dict[str, names.Shape]) -> str | None:
    """Return which head the tensors `classifier.*` are; None if there is no such head here.

    Classes of which several can be right, and several numbers, are other functions of the same weights.
    """
    classes = fields.get("architectures")
    if not isinstance(classes, list) or len(classes) != 1:
        return None
    family = FAMILIES.get(str(fields.get("model_type", "bert")), "Bert")
    kind = CLASSIFIERS.get(re.sub(f"^{family}", "Bert", str(classes[0])))
    if kind != "classifier":
        return kind
    bias = shapes.get("classifier.out_proj.bias" if family == "Roberta" else "classifier.bias")
    usual = "regression" if bias == (1,) else "single_label_classification"
    return kind if fields.get("problem_type") in (None, usual) else None


def _check_tied(tensors: Tensors, shapes: dict[str, names.Shape], folder: Path) -> None:
    """Check that an output layer in the file equals the word embeddings: ours are tied."""
    for copy, original in TIED.items():
        if copy not in shapes or original not in shapes:
            continue
        if shapes[copy] != shapes[original] or not np.array_equal(tensors.get(copy), tensors.get(original)):
            raise InputError(f"{folder}: {copy} differs from {original}; only tied output weights are supported")


def _roberta_tokenizer(folder: Path, config: ModelConfig) -> str:
    """Return the content of a run's tokenizer.json."""
    settings = architecture.read_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    tables, path = roberta.read_tokenizer(folder, settings.get("add_prefix_space", False))
    run.check_vocab_size(config, tables.vocabulary, path)
    return byte_bpe.text_of_tables(tables, path)


def _read_vocab(folder: Path, config: ModelConfig) -> list[str]:
    """Read vocab.txt or, if there is none, tokenizer.json.

    Warn if texts will not be lower-cased or divided as in training. Raise InputError if their accents or Chinese
    characters will not be treated as there.
    """
    path = folder / VOCAB
    if path.exists():
        vocab = load_vocab(path)
    else:
        path = folder / TOKENIZER
        vocab = _wordpiece_vocab(path)
    run.check_vocab_size(config, vocab, path)
    settings = architecture.read_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    lower, stated = is_lower_case(vocab), settings.get("do_lower_case")
    if stated not in (None, lower):
        print(
            f"warning: {folder / TOKENIZER_CONFIG}: do_lower_case is {stated}, but texts will "
            f"{'' if lower else 'not '}be lower-cased, since the vocabulary has {'no ' if lower else ''}capitals",
            file=sys.stderr,
        )
    for key, ours in (("strip_accents", lower), ("tokenize_chinese_chars", True)):
        if settings.get(key) not in (None, ours):
            raise InputError(f"{folder / TOKENIZER_CONFIG}: {key} is {settings[key]!r}; only {ours!r} is supported")
    name = settings.get("tokenizer_class")
    if name and str(name).removesuffix("Fast") not in TOKENIZERS:
        print(
            f"warning: {folder / TOKENIZER_CONFIG}: tokenizer_class is {name!a}, but texts will be divided as by "
            "BertTokenizer; compare the tokens of some texts",
            file=sys.stderr,
        )
    return vocab


def _wordpiece_vocab(path: Path) -> list[str]:
    model = architecture.read_object(path).get("model")
    stored = model.get("vocab") if isinstance(model, dict) and model.get("type") == "WordPiece" else None
    ids = stored if isinstance(stored, dict) else {}
    numbers = [number for number in ids.values() if type(number) is int]
    if not ids or sorted(numbers) != list(range(len(ids))):
        raise InputError(f"{path}: no WordPiece vocabulary; give a BERT model's folder or add its {VOCAB}")
    tokens = sorted(ids, key=ids.__getitem__)
    check_vocab(tokens, path)
    return tokens


def write_model(model: Model, folder: Path) -> None:
    """Write a folder for `from_pretrained` of transformers, with a model card.

    Raise InputError if the model has two heads that transformers calls the same.
    """
    causal, heads = model.config.causal, set(model.match.heads)
    if len(same := [name for name in names.SAME_NAME if name in heads]) > 1:
        raise InputError(f"transformers calls the heads {' and '.join(same)} the same; export a model with one of them")
    kind = gpt2.KIND if causal else next(name for name, needed in CLASSES.items() if needed <= heads)
    tensors = {}
    for weight in model.match.weights:
        name = weight.name(model.form)
        name = name.removeprefix("roberta.").removeprefix("bert.") if kind == "BertModel" else name
        tensors[name] = weight.write(model.form, model.values[weight.ours])
    if model.form == "roberta" and "classifier" in heads:
        tensors = {name.replace("roberta.pooler.", "classifier."): value for name, value in tensors.items()}
    with files.atomic_write(folder / WEIGHTS, "wb") as stream:
        stream.write(save(gpt2.joined(tensors), metadata={"format": "pt"}))
    if causal:
        gpt2.write_tokenizer(model.tokenizer, model.config.max_position_embeddings, folder)
        end = byte_bpe.ByteBPE(folder / TOKENIZER).end
        files.write_json(folder / CONFIG, gpt2.config_fields(model.config, end))
    elif model.form == "roberta":
        ids = roberta.write_tokenizer(model.tokenizer, model.config.max_position_embeddings, folder)
        _write_config(model, folder, "roberta", kind, architecture.roberta_keys(model.config) | ids)
    else:
        model_type = "megatron-bert" if model.config.norm_placement == "pre" else "bert"
        _write_config(model, folder, model_type, kind, {"pad_token_id": model.vocab.index("[PAD]")})
        run.write_vocab(model, folder)
        _write_tokenizer(model, folder)
    with files.atomic_write(folder / "README.md") as stream:
        stream.write(card.text(model, kind))


def _write_config(model: Model, folder: Path, model_type: str, kind: str, more: dict[str, Any]) -> None:
    """Write config.json. kind: the class of BERT. more: entries of this model_type."""
    specific: dict[str, Any] = {
        "architectures": [FAMILIES[model_type] + kind.removeprefix("Bert")],
        "model_type": model_type,
    }
    specific |= more | {"tie_word_embeddings": True}
    fixed = {key: value for key, value in architecture.supported(model_type).items() if value is not None}
    if model.head and CLASSIFIERS.get(kind) in ("classifier", "tags"):
        labels = model.head.labels or ("LABEL_0",)  # of a number; without names transformers expects two classes
        specific |= {"id2label": by_number(labels), "label2id": {label: n for n, label in enumerate(labels)}}
        specific |= {"problem_type": "regression"} if model.head.regression else {}
    files.write_json(folder / CONFIG, fixed | architecture.keys(model.config) | specific)


def _write_tokenizer(model: Model, folder: Path) -> None:
    lower = is_lower_case(model.vocab)
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lower,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": model.config.max_position_embeddings,
    }
    files.write_json(folder / TOKENIZER_CONFIG, settings | ROLES)
    files.write_json(folder / "special_tokens_map.json", ROLES)
    ids = {token: number for number, token in enumerate(model.vocab)}
    BertWordPieceTokenizer(vocab=ids, lowercase=lower).save(str(folder / TOKENIZER))
