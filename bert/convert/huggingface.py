"""Folders as `save_pretrained` of transformers writes them: config.json, model.safetensors, the tokenizer's files.

Only safetensors is read, whose header is checked against the file before anything else; a `pytorch_model.bin` is a
pickle, which runs what stands in it, and is never opened.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from tokenizers import BertWordPieceTokenizer

from bert.config import ModelConfig
from bert.convert import architecture, card, names, run
from bert.convert.run import Model
from bert.errors import InputError
from bert.inputs.vocabulary import SPECIAL, check, is_lower_case, load_vocab
from bert.storage import files

CONFIG, VOCAB, WEIGHTS = "config.json", "vocab.txt", "model.safetensors"
INDEX, TOKENIZER, TOKENIZER_CONFIG = "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"
TYPES = ("F32", "F16", "BF16")
BARE = ("embeddings", "encoder", "pooler")  # what the names of a model without a head begin with

SEQUENCES = "BertForSequenceClassification"  # other classes have a classifier, of tokens or of choices, that we lack
ASIDE = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")  # buffers of earlier versions
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
CLASSES = {  # of transformers, by the heads they need; the first that fits
    "BertForQuestionAnswering": {"answer_span"},
    SEQUENCES: {"pooler", "classifier"},
    "BertForPreTraining": {"masked_lm", "next_sentence"},
    "BertForMaskedLM": {"masked_lm"},
    "BertForNextSentencePrediction": {"next_sentence"},
    "BertModel": set[str](),
}
ROLES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))


def parts(folder: Path) -> list[Path]:
    """What an import reads. Raises InputError if the folder does not hold weights as safetensors."""
    optional = [folder / name for name in (VOCAB, TOKENIZER, TOKENIZER_CONFIG) if (folder / name).is_file()]
    return [folder / CONFIG, *_shards(folder), *optional]


def _shards(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        places = architecture.read_object(folder / INDEX).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise InputError(f"{folder / INDEX}: weight_map does not name a file for each tensor; fetch it again")
        if foreign := [name for name in places.values() if Path(name).name != name]:
            raise InputError(f"{folder / INDEX}: {foreign[0]!r} is not a file of this folder; fetch it again")
        return sorted(folder / name for name in set(places.values()))
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one with {CONFIG} and {WEIGHTS}")
    if pickles := sorted(path.name for path in folder.glob("*.bin")):
        raise InputError(
            f"{folder}: its weights are a pickle ({pickles[0]}), which could run code and is never loaded; "
            f"save_pretrained of transformers writes {WEIGHTS}"
        )
    raise InputError(f"{folder}: no {WEIGHTS}; save_pretrained of transformers writes it")


class Tensors:
    """The tensors of one or several safetensors files, by the names that a model with heads gives them."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Path, str, Any]] = {}  # file, the name in it, the open file

    def add(self, path: Path, opened: Any) -> None:
        """Raises InputError if a tensor is there already."""
        for name in opened.keys():  # noqa: SIM118 it is no dict
            called = _full_name(name)
            if called in self._found:
                raise InputError(f"{path}: {name} is {self._found[called][1]} of {self._found[called][0].name} again")
            self._found[called] = path, name, opened

    def shapes(self) -> dict[str, names.Shape]:
        """Of all tensors, by name."""
        return {called: tuple(of.get_slice(name).get_shape()) for called, (_, name, of) in self._found.items()}

    def get(self, called: str) -> np.ndarray:
        """One tensor. Raises InputError for a type whose values float32 does not hold."""
        path, name, opened = self._found[called]
        kind = opened.get_slice(name).get_dtype()
        if kind not in TYPES:
            raise InputError(f"{path}: {name} is stored as {kind}; {', '.join(TYPES)} are read")
        value: np.ndarray = opened.get_tensor(name)
        return value


def _full_name(name: str) -> str:
    name = name.replace(".LayerNorm.gamma", ".LayerNorm.weight").replace(".LayerNorm.beta", ".LayerNorm.bias")
    return f"bert.{name}" if name.split(".")[0] in BARE else name


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[Tensors]:
    """All tensors of the folder. Raises InputError for a file whose header does not describe the file."""
    with contextlib.ExitStack() as stack:
        tensors = Tensors()
        for path in _shards(folder):
            if not path.is_file():
                raise InputError(f"{path}: no such file, but {INDEX} names it; fetch it again")
            try:
                opened = stack.enter_context(safe_open(path, framework="numpy"))
            except (SafetensorError, OSError) as error:
                raise InputError(f"{path}: cut, damaged or no safetensors file ({error}); fetch it again") from error
            tensors.add(path, opened)
        yield tensors


def read(folder: Path) -> Model:
    """The model of a folder. InputError: it is damaged, another architecture, or has unknown tensors."""
    config = architecture.read(folder / CONFIG)
    vocab = _read_vocab(folder, config)
    with _opened(folder) as tensors:
        shapes = tensors.shapes()
        _check_tied(tensors, shapes, folder)
        fields = architecture.read_object(folder / CONFIG)
        sequences = fields.get("architectures") == [SEQUENCES]
        other = set() if sequences else {name for name in shapes if name.startswith("classifier.")}
        copies = {name for name, original in TIED.items() if original in shapes}
        own = {name: shape for name, shape in shapes.items() if name not in {*other, *copies}}
        found = names.match(config, "huggingface", own, folder, ASIDE)
        labels = architecture.labels(fields, names.classes("huggingface", own), folder / CONFIG)
        values = run.gather(found, "huggingface", tensors.get, folder)
    found = found._replace(aside=[*found.aside, *sorted(other)])
    settings = run.imported(f"huggingface {folder.name}", found)
    return Model(config=config, vocab=vocab, found=found, values=values, settings=settings, labels=labels)


def _check_tied(tensors: Tensors, shapes: dict[str, names.Shape], folder: Path) -> None:
    """The output layer is the word embeddings: a copy of them in the file must be one."""
    for copy, original in TIED.items():
        if copy in shapes and original in shapes:
            same = shapes[copy] == shapes[original] and np.array_equal(tensors.get(copy), tensors.get(original))
            if not same:
                raise InputError(f"{folder}: {copy} is not {original}; weights of its own cannot be expressed here")


def _read_vocab(folder: Path, config: ModelConfig) -> list[str]:
    """From vocab.txt, or tokenizer.json where that is all there is. Says so if it is not used as it was trained."""
    path = folder / VOCAB
    if path.is_file():
        vocab = load_vocab(path)
    else:
        path = folder / TOKENIZER
        vocab = _word_pieces(path)
    run.check_vocab(config, vocab, path)
    settings = architecture.read_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
    lower, stated = is_lower_case(vocab), settings.get("do_lower_case")
    if stated not in (None, lower):
        print(
            f"warning: {folder / TOKENIZER_CONFIG}: do_lower_case is {stated}, but texts will "
            f"{'' if lower else 'not '}be lower-cased, since the vocabulary has {'no ' if lower else ''}capitals",
            file=sys.stderr,
        )
    return vocab


def _word_pieces(path: Path) -> list[str]:
    model = architecture.read_object(path).get("model")
    ids = model.get("vocab") if isinstance(model, dict) and model.get("type") == "WordPiece" else None
    numbers = [number for number in ids.values() if type(number) is int] if isinstance(ids, dict) else []
    if not ids or sorted(numbers) != list(range(len(ids))):
        raise InputError(f"{path}: no WordPiece vocabulary in it; a BERT model's folder has one, or a {VOCAB}")
    tokens = sorted(ids, key=ids.__getitem__)
    check(tokens, path)
    return tokens


def write(model: Model, folder: Path) -> None:
    """The folder that `from_pretrained` of transformers reads, with a model card."""
    kind = next(name for name, needed in CLASSES.items() if needed <= set(model.found.heads))
    tensors = {}
    for weight in model.found.weights:
        name = weight.huggingface.removeprefix("bert.") if kind == "BertModel" else weight.huggingface
        tensors[name] = weight.exchange("huggingface", model.values[weight.ours])
    with files.atomic_write(folder / WEIGHTS, "wb") as stream:
        stream.write(save(tensors, metadata={"format": "pt"}))
    _write_config(model, folder, kind)
    run.write_vocab(model, folder)
    _write_tokenizer(model, folder)
    with files.atomic_write(folder / "README.md") as stream:
        stream.write(card.text(model, kind))


def _write_config(model: Model, folder: Path, kind: str) -> None:
    more = {"architectures": [kind], "pad_token_id": model.vocab.index("[PAD]"), "tie_word_embeddings": True}
    fixed = {key: value for key, value in architecture.ONLY.items() if value is not None}
    if kind == SEQUENCES:
        more |= run.named_classes(model) | {"label2id": {label: n for n, label in enumerate(model.labels)}}
    files.write_json(folder / CONFIG, fixed | architecture.keys(model.config) | more)


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
