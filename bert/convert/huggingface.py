"""Folders as written by `save_pretrained` of transformers: config.json, model.safetensors, tokenizer files.

Files of safetensors are read, their header checked against the file first. The `tf_model.h5` of earlier versions is
refused by name. A `pytorch_model.bin` is a pickle, which can run arbitrary code, and is never opened.
"""

import contextlib
import glob
import itertools
import re
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from tokenizers import BertWordPieceTokenizer
from tokenizers.models import WordPiece

from bert.convert import architecture, card, fast_tokenizer, foreign, names, run, sentence, stacked_tensors
from bert.convert.families import FAMILIES, Family
from bert.convert.run import Model
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.embedding import of as of_settings
from bert.heads import CLASSIFIER, KINDS, REPLACED_TOKEN, TAGS, HeadSpec
from bert.labels import SIGMOID, Head, by_number
from bert.text import post_processor, tokenizer_kind
from bert.text.normalization import UNCASED, TokenizerConfig
from bert.text.vocabulary import (
    FAST,
    LONGEST_OF_TRANSFORMERS,
    SPECIAL,
    check_vocab,
    is_lower_case,
    load_vocab,
    rules_from,
    settings_of,
)

CONFIG, VOCAB, WEIGHTS = "config.json", "vocab.txt", "model.safetensors"
INDEX, TOKENIZER, TOKENIZER_CONFIG = "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"
ADDED_TOKENS, PAIRS = "added_tokens.json", ("vocab.json", "merges.txt")
UNKNOWN = "remove them if the model does not need them, or give --head none to import the encoder alone"
UNREAD = "(not read) "  # before the name of a tensor whose place another one has
SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")  # a name in the index
DTYPES = ("F32", "F16", "BF16")  # float32 holds every value of the other two

# What "classifier" is in the classes of transformers: they use the name for four heads.
CLASSIFIERS = [kind for kind in KINDS.values() if kind.huggingface == "classifier"]
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # of earlier versions
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")  # that PyTorch puts within names
NONE = "none"  # only the encoder is taken
NORMALIZER = {  # names in tokenizer_config.json -> in the normalizer of tokenizer.json
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
STEPS = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}  # of a tokenizer.json
CLASSES = (  # transformers class, heads that it needs; an export takes the first that fits
    *((kind.transformers, {kind.name, *(["pooler"] if kind.pooled else [])}) for kind in KINDS.values()),
    ("BertForPreTraining", {"masked_lm", "next_sentence"}),
    ("BertForPreTraining", {REPLACED_TOKEN}),  # of ELECTRA
    ("BertForMaskedLM", {"masked_lm"}),
    ("BertForNextSentencePrediction", {"next_sentence"}),
    ("BertModel", set[str]()),
)
TOKENIZERS = {  # classes that divide texts as BERT's does, or that say nothing about it; with or without "Fast"
    "BertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "MobileBertTokenizer",
    "PreTrainedTokenizer",
    "TokenizersBackend",
    "LayoutLMTokenizer",
    "ConvBertTokenizer",
    "SqueezeBertTokenizer",
    "LxmertTokenizer",
    "RetriBertTokenizer",
    "DPRQuestionEncoderTokenizer",
    "DPRContextEncoderTokenizer",
}
ROLES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))


def input_files(folder: Path) -> list[Path]:
    """Return the files that an import reads. Raises InputError if the folder has no weights that are read."""
    if (outer := folder / sentence.MODULES).exists():
        inner, pooling = sentence.transformer(folder), [path for path in folder.glob(f"*/{sentence.POOLING}")]
        optional = [path for path in sentence.described_in(folder, inner) if path.exists()]
        return list(dict.fromkeys([outer, *sorted(pooling), *optional, *_input_files(inner)]))
    return _input_files(folder)


def _input_files(folder: Path) -> list[Path]:
    """Return the files that an import reads of a folder of transformers."""
    optional = (VOCAB, TOKENIZER, TOKENIZER_CONFIG, *PAIRS)
    return [folder / CONFIG, *_shards(folder), *(folder / name for name in optional if (folder / name).exists())]


def _shards(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        file_of = files.read_object(folder / INDEX).get("weight_map")
        if not (isinstance(file_of, dict) and file_of and all(isinstance(name, str) for name in file_of.values())):
            raise InputError(f"{folder / INDEX}: weight_map does not name a file for each tensor; download it again")
        if others := [name for name in file_of.values() if not SHARD.fullmatch(name)]:
            raise InputError(f"{folder / INDEX}: {others[0]!a} is not a file of this folder; download it again")
        return sorted(folder / name for name in set(file_of.values()))
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a folder with {CONFIG} and {WEIGHTS}")
    if not (folder / "pytorch_model.bin").exists() and not any(folder.glob("pytorch_model-*.bin")):
        foreign.check(folder, "huggingface")
    if pickles := sorted(path.name for path in folder.glob("*.bin")):
        raise InputError(
            f"{folder}: the weights are a pickle ({pickles[0]}), which could run code and is never loaded; "
            f"write {WEIGHTS} with save_pretrained of transformers"
        )
    raise InputError(f"{folder}: no {WEIGHTS}; write it with save_pretrained of transformers")


class Tensors:
    """The tensors of one or several files, by their full names (those in a model with heads).

    A stored tensor that joins several of ours counts as several tensors (stacked_tensors.py).
    """

    def __init__(self, prefixes: Mapping[str, str], heads: int, surplus: str) -> None:
        """prefixes: first part of a name in a model without a head: the prefix that it lacks. heads: of the attention.

        surplus: prefix to remove from names. Unless it is empty, PyTorch's wrappers within names are removed, too.
        """
        self.prefixes, self.heads, self.surplus = prefixes, heads, surplus
        # full name -> file, name in the file, open file, shape, place in what is stored
        self._entries: dict[str, tuple[Path, str, Any, names.Shape, stacked_tensors.Place]] = {}

    def add(self, path: Path, opened: Any) -> None:
        """Add the tensors of an open file. Raises InputError if one of them is known already."""
        for name in opened.keys():  # noqa: SIM118 it is not a dict
            shape = tuple(opened.get_slice(name).get_shape())
            for full_name, (part, place) in stacked_tensors.part_of(self._full_name(name), shape, self.heads).items():
                if full_name in self._entries:
                    first_path, first_name, *_ = self._entries[full_name]
                    raise InputError(f"{path}: {name} is also in {first_path.name}, as {first_name}; keep one of them")
                self._entries[full_name] = path, name, opened, part, place

    def put(self, prefix: str, others: str) -> None:
        """Replace the tensors whose names begin with `others` by the tensors whose names begin with `prefix`."""
        for name in [name for name in self._entries if name.startswith(others)]:
            self._entries[f"{UNREAD}{name}"] = self._entries.pop(name)
        for name in [name for name in self._entries if name.startswith(prefix)]:
            self._entries[others + name.removeprefix(prefix)] = self._entries.pop(name)

    def complete(self, copies: Mapping[str, str]) -> None:
        """Rename a copy to its original if only the copy is there. copies: original name by name of a copy."""
        for copy, original in copies.items():
            if copy in self._entries and original not in self._entries:
                self._entries[original] = self._entries.pop(copy)

    def stored(self) -> list[str]:
        """Return the names of the tensors in their files."""
        return [name for _, name, *_ in self._entries.values()]

    def shapes(self) -> dict[str, names.Shape]:
        """Return the shapes of all tensors, by full name."""
        return {full_name: shape for full_name, (_, _, _, shape, _) in self._entries.items()}

    def get(self, full_name: str) -> np.ndarray:
        """Return one tensor. Raises InputError for a type that float32 cannot represent exactly."""
        path, name, opened, _, place = self._entries[full_name]
        dtype = opened.get_slice(name).get_dtype()
        if dtype not in DTYPES:
            raise InputError(f"{path}: {name} is stored as {dtype}; supported types: {', '.join(DTYPES)}")
        value: np.ndarray = opened.get_tensor(name)
        return value[place]

    def _full_name(self, name: str) -> str:
        name = name.removeprefix(self.surplus)
        for piece in WRAPPERS if self.surplus else ():
            name = name.replace(piece, "")
        name = name.replace(".LayerNorm.gamma", ".LayerNorm.weight").replace(".LayerNorm.beta", ".LayerNorm.bias")
        prefix = self.prefixes.get(name.split(".")[0])
        return f"{prefix}.{name}" if prefix else name


@contextlib.contextmanager
def _opened(folder: Path, family: Family, heads: int, surplus: str) -> Iterator[Tensors]:
    """Open all tensors of the folder. Raises InputError for a file that does not agree with its header.

    surplus: as in `Tensors`.
    """
    prefixes = dict.fromkeys(family.unprefixed, family.prefix)
    with contextlib.ExitStack() as stack:
        tensors = Tensors(prefixes, heads, surplus)
        for path in _shards(folder):
            if not path.exists():
                raise InputError(f"{path}: no such file, but {INDEX} names it; download it again")
            files.check_regular(path)
            try:
                opened = stack.enter_context(safe_open(path, framework="numpy"))
            except (SafetensorError, OSError) as error:
                raise InputError(
                    f"{path}: not a complete safetensors file ({error!s:.200}); download it again"
                ) from error
            tensors.add(path, opened)
        yield tensors


def read_model(folder: Path, head_name: str = names.AUTO, prefix: str = "") -> Model:
    """Read a model's folder, of transformers or of sentence-transformers.

    head_name: which head the tensors `classifier.*` are, if `architectures` does not say it; NONE reads the encoder
    only. prefix: removed from the names of tensors. Raises InputError if the folder is damaged, unsupported or has
    unknown tensors.
    """
    outer, folder = folder, sentence.transformer(folder)
    fields = files.read_object(folder / CONFIG)
    family = FAMILIES.get(str(fields.get("model_type", "bert")), FAMILIES["bert"])
    vocab: list[str] = []
    rules = UNCASED
    read_config, path = family.read_config, folder / CONFIG
    config = read_config(fields, path) if read_config else architecture.read_architecture(path)
    tokens, tokenizer = _read_tokenizer(folder, family, config)
    if tokens == "word pieces":
        vocab, rules = _read_vocab(folder, config)
    has_setfit = sentence.has_setfit(outer, head_name == NONE)
    fields, scored = _cross_encoder(outer, fields, rules, config, head_name)
    tied = family.tied
    with _opened(folder, family, config.num_attention_heads, prefix) as tensors:
        _check_prefix(config, family, tensors, prefix, folder)
        kind = _classifier(fields, tensors.shapes(), family, head_name, folder / CONFIG)
        if kind and (pooler := family.poolers.get(kind.name)):  # the dense layer that is the pooler here
            tensors.put(f"{pooler}.", f"{family.prefix}.pooler.dense.")
        if fields.get("tie_word_embeddings", True) is True:
            tensors.complete(tied)
        shapes = tensors.shapes()
        _check_tied(tied, tensors, shapes, folder)
        unsupported = set() if kind else _of_classifiers(shapes, family)
        words = family.names.get("masked_lm/bias") in shapes
        copies = {name for name, original in tied.items() if original in shapes}
        shapes = {name: shape for name, shape in shapes.items() if name not in {*unsupported, *copies}}
        absent = {*KINDS} - {*family.tasks} | {name.name for name in _classifiers(family) if name != kind}
        if family.one_head:
            absent |= {"pooler"} if kind is None else {"masked_lm"} if not words else set()
        ignored = [*(f"{family.prefix}.{name}" for name in BUFFERS), *family.ignored, f"{UNREAD}*"]
        if head_name == NONE:
            absent |= {*KINDS}
            ignored += [glob.escape(name) for name in shapes if not name.startswith(f"{family.prefix}.")]
        match = names.match(config, family, shapes, folder, ignored, absent, remedy=UNKNOWN)
        classes = names.class_count(family, shapes, absent)
        head = architecture.head(match.heads, fields, classes, folder / CONFIG)
        head = scored.of(head) if scored else head
        has_prefix = family.tokenizers[tokens].has_prefix if tokenizer else None
        if head and head.kind == TAGS.name and has_prefix:
            head = replace(head, spaced=has_prefix(tokenizer))  # as it is with is_split_into_words
        values = run.gather(match, family, tensors.get, folder)
    left = [name.removeprefix(UNREAD) for name in match.ignored]
    match = match._replace(ignored=[*left, *sorted(unsupported)])
    settings = run.import_settings(f"huggingface {outer.name}", match)
    settings |= _of_scores(outer, head, fields, scored)
    if not scored and (has_setfit or head_name != NONE):
        settings |= _embedding(outer, rules, config, alone=has_setfit)
    return Model(
        config=config,
        vocab=vocab,
        rules=rules,
        match=match,
        values=values,
        settings=settings,
        head=head,
        tokenizer=tokenizer,
        tokens=tokens,
    )


def _cross_encoder(
    folder: Path, fields: dict[str, Any], rules: TokenizerConfig, config: ModelConfig, head_name: str
) -> tuple[dict[str, Any], sentence.CrossEncoder | None]:
    """Return the content of config.json, completed for a CrossEncoder, and the CrossEncoder; None if it is none."""
    scored = None if head_name == NONE else sentence.cross_encoder(folder, fields, rules.lower_case, config)
    return (scored.fields(fields), scored) if scored else (fields, None)


def _of_scores(
    folder: Path, head: Head | None, fields: dict[str, Any], scored: sentence.CrossEncoder | None
) -> dict[str, Any]:
    """Return how pairs are cut, for a run's config.json.

    Print a note if the head gives a number and the configuration does not say so.
    """
    if head and head.regression and fields.get("problem_type") is None:
        print(f"note: {folder}: its output is taken as a number; CrossEncoder takes the sigmoid of it", file=sys.stderr)
    return scored.entries() if scored else {}


def _embedding(folder: Path, rules: TokenizerConfig, config: ModelConfig, alone: bool) -> dict[str, Any]:
    """Return how embeddings are made, for a run's config.json.

    alone: whether unsupported settings are accepted, so that the encoder is imported alone.
    """
    try:
        embedding = sentence.read(folder, rules.lower_case, config)
    except InputError:
        if not alone:
            raise
        return {}
    return embedding.entries() if embedding else {}


def _check_prefix(config: ModelConfig, family: Family, tensors: Tensors, prefix: str, folder: Path) -> None:
    """Raise InputError if the names of the tensors have a prefix, or a wrapper within, that transformers does not use.

    The name of the table of words shows the prefix. Raise UsageError if no name begins with the given `prefix`.
    """
    stored = tensors.stored()
    wrapped = [name for name in stored if any(f".{wrapper}" in f".{name}" for wrapper in WRAPPERS)]
    if prefix:
        if not any(name.startswith(prefix) for name in stored) and not (prefix in WRAPPERS and wrapped):
            raise UsageError(f"--prefix {prefix!a}: no tensor of {folder} begins with it; leave it out")
        return
    outer = f"{family.prefix}."
    words = next(names.encoder(config)).name(family)
    inner = words.removeprefix(outer)
    others = [name for name in stored if name.endswith(f".{inner}")] if words not in tensors.shapes() else []
    for name in others[:1] or wrapped[:1]:
        more = name.removesuffix(inner).removesuffix(outer)
        more = more if others else next(wrapper for wrapper in WRAPPERS if wrapper in name)
        raise InputError(
            f"{folder}: the names of its tensors begin with {more!a}, or have it within, such as {name!a:.200}, as "
            f"programs write them that wrap a model (torch.compile, DistributedDataParallel, Lightning); --prefix "
            f"{more!a} takes that off"
        )


def _of_classifiers(shapes: Mapping[str, names.Shape], family: Family) -> set[str]:
    """Return the names of the tensors that only a classifier reads.

    If a family has one head only (ModernBERT) and it is not the head of masked words, these include its dense layer and
    norm.
    """
    places = ("classifier.", *(f"{place}." for place in family.poolers.values()))
    if family.one_head and family.names["masked_lm/bias"] not in shapes:
        places += tuple(f"{family.names[part]}." for part in ("pooler", "pooler/layer_norm"))
    return {name for name in shapes if name.startswith(places)}


def _classifier(
    fields: dict[str, Any], shapes: dict[str, names.Shape], family: Family, head_name: str, path: Path
) -> HeadSpec | None:
    """Return which head the tensors `classifier.*` are; None if it is none, or one that is not supported here.

    The configuration's problem_type says whether several classes of a text can be right. A head of several numbers is
    not supported. head_name: as in `read_model`. path: of the configuration. Raise InputError if nothing says which
    head it is, and UsageError if `head_name` contradicts the configuration.
    """
    classes = fields.get("architectures")
    if head_name == NONE or not any(name.startswith("classifier.") for name in _of_classifiers(shapes, family)):
        if head_name not in (names.AUTO, NONE):
            raise UsageError(f"--head {head_name}: {path.parent} has no tensors classifier.*; leave it out")
        return None
    problem = fields.get("problem_type")
    if not classes:
        kind = _undeclared(shapes, family, problem) if head_name == names.AUTO else KINDS[head_name]
        if kind is None:
            raise InputError(
                f"{path}: has no architectures, so that classifier.* can be of texts, choices or words; give --head "
                "classifier, multilabel, choice or tags, or none to leave it aside"
            )
    elif not isinstance(classes, list) or len(classes) != 1:
        return None
    else:
        name = re.sub(f"^{family.classes}", "Bert", str(classes[0]))
        kinds = [kind for kind in _classifiers(family) if kind.transformers == name]
        kind = next((kind for kind in kinds if problem and kind.problem_type == problem), next(iter(kinds), None))
        if not problem:  # with one label or with several: the class is the same
            kind = next((kind for kind in kinds if kind.name == head_name), kind)
        if head_name not in (names.AUTO, kind and kind.name):
            raise UsageError(f"--head {head_name} contradicts {path}, whose class is {classes[0]}; leave it out")
    if kind is None or not kind.number:
        return kind
    bias = shapes.get(f"{family.names.get(kind.name, kind.huggingface)}.bias")
    usual = "regression" if bias == (1,) else "single_label_classification"
    return kind if problem in (None, usual) else None


def _classifiers(family: Family) -> list[HeadSpec]:
    """Return the kinds of heads whose tensors are `classifier.*` in a family."""
    named = {kind.name: family.names.get(kind.name, kind.huggingface) for kind in KINDS.values()}
    return [KINDS[name] for name in family.tasks if named[name].split(".")[0] == "classifier"]


def _undeclared(shapes: Mapping[str, names.Shape], family: Family, problem: str | None) -> HeadSpec | None:
    """Return the only head that the tensors `classifier.*` can be; None if several heads are possible.

    A head of texts or choices has a pooler, and a head of words needs none.
    """
    own = family.names.get(CLASSIFIER.name)
    if own and f"{own}.bias" in shapes:
        return next((kind for kind in CLASSIFIERS if problem and kind.problem_type == problem), CLASSIFIER)
    pooler = family.name("pooler", "bert.pooler.dense")
    places = (pooler, *family.poolers.values())
    return None if any(f"{place}.weight" in shapes for place in places) else TAGS


def _check_tied(tied: Mapping[str, str], tensors: Tensors, shapes: dict[str, names.Shape], folder: Path) -> None:
    """Check that an output layer in the file equals the word embeddings: ours are tied."""
    for copy, original in tied.items():
        if copy not in shapes or original not in shapes:
            continue
        if shapes[copy] != shapes[original] or not np.array_equal(tensors.get(copy), tensors.get(original)):
            raise InputError(f"{folder}: {copy} differs from {original}; only tied output weights are supported")


def _read_tokenizer(folder: Path, family: Family, config: ModelConfig) -> tuple[tokenizer_kind.TokenizerType, str]:
    """Return the kind of a folder's tokenizer, and the content of a run's tokenizer.json, empty for word pieces."""
    for kind, stored in family.tokenizers.items():
        if (text := stored.read(folder, config)) is not None:
            return kind, text
    return "word pieces", ""


def _read_vocab(folder: Path, config: ModelConfig) -> tuple[list[str], TokenizerConfig]:
    """Read vocab.txt or, if there is none, tokenizer.json; and the rules by which texts become words.

    Raise InputError for a tokenizer of another class, for rules that are not supported, and if two files contradict
    each other.
    """
    path = folder / VOCAB
    if path.exists():
        vocab = load_vocab(path)
    else:
        path = folder / TOKENIZER
        vocab = _wordpiece_vocab(path)
    settings = files.read_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    vocab = [*vocab, *_appended(folder, settings, len(vocab))]
    _check_class(settings, folder)
    if (folder / TOKENIZER).exists():
        settings = _with_pipeline(settings, folder / TOKENIZER, vocab)
        if path.name == VOCAB and (other := _wordpiece_vocab(folder / TOKENIZER)) != vocab[: len(other)]:
            raise InputError(f"{folder / TOKENIZER}: another vocabulary than {VOCAB}; remove the one that is wrong")
    else:
        settings = _with_added(settings, folder, vocab)
    settings.setdefault(FAST, True)
    rules = rules_from(settings, folder / TOKENIZER_CONFIG, vocab)
    run.check_vocab_size(config, vocab, path)  # after the checks of added tokens, whose errors are more precise
    if rules.lower_case != is_lower_case(vocab):
        what = ("lower-cases texts", "capitals") if rules.lower_case else ("does not lower-case texts", "no capitals")
        print(f"warning: {folder}: its tokenizer {what[0]}, but its vocabulary has {what[1]}", file=sys.stderr)
    return vocab, rules


def _appended(folder: Path, settings: Mapping[str, Any], entries: int) -> list[str]:
    """Return the special tokens that transformers added after a vocabulary, in order. entries: its size.

    Stop at the first token without a punctuation mark: it could be a word, or a piece of a word, of the same tokenizer.
    """
    decoder = settings.get("added_tokens_decoder")
    listed: Any = [(key, one) for key, one in decoder.items()] if isinstance(decoder, dict) else []
    if (folder / TOKENIZER).exists():
        added = files.read_object(folder / TOKENIZER).get("added_tokens")
        listed = [(one.get("id"), one) for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    special = {str(key): one.get("content") for key, one in listed if isinstance(one, dict) and one.get("special")}
    tokens = (str(special.get(str(number), "")) for number in itertools.count(entries))
    return list(itertools.takewhile(lambda token: {*string.punctuation} & {*token} and token[:2] != "##", tokens))


def _check_class(settings: dict[str, Any], folder: Path) -> None:
    """Raise InputError if the tokenizer's class divides texts otherwise than BERT's."""
    words = settings.get("word_tokenizer_type") or "basic"
    name = settings.get("tokenizer_class") or files.read_object(folder / CONFIG).get("tokenizer_class")
    if words != "basic" or str(name).startswith("BertJapanese"):
        raise InputError(
            f"{folder / TOKENIZER_CONFIG}: the words of its texts are those of {words} (BertJapaneseTokenizer), which "
            "is not supported; use the model with transformers"
        )
    if name and str(name).removesuffix("Fast") not in TOKENIZERS:
        raise InputError(
            f"{folder / TOKENIZER_CONFIG}: tokenizer_class is {name!a}, which may divide texts otherwise than "
            "BertTokenizer; use the model with transformers"
        )


def _with_pipeline(settings: dict[str, Any], path: Path, vocab: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a tokenizer, completed with the settings in its `tokenizer.json`.

    Raise InputError if the two contradict each other, or for steps that BERT's tokenizer does not have.
    """
    pipeline = files.read_object(path)
    steps = {key: one if isinstance(one := pipeline.get(key), dict) else {} for key in (*STEPS, "model")}
    is_own = steps["normalizer"].get("type") == "Sequence" and _is_own(pipeline, settings, path, vocab)
    for key, kind in () if is_own else STEPS.items():
        if steps[key].get("type") != kind or not steps[key].get("clean_text", True):
            raise InputError(f"{path}: {key} is {str(pipeline.get(key))[:200]}; only a {kind} is supported")
    stated = {name: steps["normalizer"].get(key) for name, key in NORMALIZER.items()}
    for name, value in stated.items():
        if None not in (value, settings.get(name)) and value != settings[name]:
            raise InputError(
                f"{path}: {name} is {value!a:.100}, but {settings[name]!a:.100} in {TOKENIZER_CONFIG}; keep the one of "
                "training"
            )
    added = pipeline.get("added_tokens") or []
    if not isinstance(added, list):
        raise InputError(f"{path}: added_tokens is {added!a:.100}, not a list; save the tokenizer again")
    _check_layout(pipeline.get("post_processor"), str(settings.get("tokenizer_class")), vocab, path)
    # transformers reads and writes this setting only in this file.
    stated["max_input_chars_per_word"] = steps["model"].get("max_input_chars_per_word")
    return (
        settings
        | {name: value for name, value in stated.items() if value is not None}
        | {FAST: not is_own}
        | {"additional_special_tokens": _special(added, vocab, path)}
    )


def _is_own(pipeline: Mapping[str, Any], settings: dict[str, Any], path: Path, vocab: Sequence[str]) -> bool:
    """Return whether a `tokenizer.json` has the steps that an export of ours writes for Google's rules."""
    stated = settings | {"additional_special_tokens": None, FAST: False}
    rules = rules_from(stated, path.parent / TOKENIZER_CONFIG, vocab)
    return all(pipeline.get(key) == one for key, one in fast_tokenizer.fields(rules, vocab).items())


def _with_added(settings: dict[str, Any], folder: Path, vocab: Sequence[str]) -> dict[str, Any]:
    """Return the settings with the tokens that were added to a `vocab.txt`, where there is no `tokenizer.json`."""
    path, decoder = folder / ADDED_TOKENS, settings.get("added_tokens_decoder")
    added = [*decoder.values()] if isinstance(decoder, dict) else []
    listed = files.read_object(path) if path.exists() else {}
    special = _special(added, vocab, folder / TOKENIZER_CONFIG)
    special += _special([{"content": content} for content in listed], vocab, path)
    stated = settings.get("additional_special_tokens") or []
    if not special or not isinstance(stated, list):
        return settings
    return settings | {"additional_special_tokens": list(dict.fromkeys([*stated, *special]))}


def _special(added: Sequence[Any], vocab: Sequence[str], path: Path) -> list[str]:
    """Return the texts of added tokens, without BERT's special tokens.

    Raise InputError for a token that is not in the vocabulary, or that is matched with other options than our tokens.
    """
    special: list[str] = []
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if content in SPECIAL:
            continue
        if content not in vocab or any(token.get(flag) for flag in ("single_word", "lstrip", "rstrip", "normalized")):
            raise InputError(
                f"{path}: the added token {content!a:.100} is not a special one of the vocabulary; remove it"
            )
        special.append(str(content))
    return special


def _check_layout(stated: Any, name: str, vocab: Sequence[str], path: Path) -> None:
    """Raise InputError unless rows are [CLS] A [SEP] and [CLS] A [SEP] B [SEP]. name: class of the tokenizer.

    BERT's class makes these rows also where there is no post_processor.
    """
    if stated is None and not name.startswith(("PreTrained", "TokenizersBackend")):
        return
    cls, sep = vocab.index("[CLS]"), vocab.index("[SEP]")
    try:
        layout = post_processor.layout(stated)
    except ValueError as error:
        raise InputError(f"{path}: {error}; save it again with transformers") from error
    if layout != post_processor.rows(cls, sep, separators=1):
        raise InputError(
            f"{path}: the post_processor makes other rows than [CLS] A [SEP] and [CLS] A [SEP] B [SEP], which is not "
            "supported; use the model with transformers"
        )


def _wordpiece_vocab(path: Path) -> list[str]:
    model = files.read_object(path).get("model")
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

    Raise InputError for heads that the family does not have in transformers, and for two heads of one name there.
    """
    family, heads = model.family, set(model.match.heads)
    if len(same := [name for name in names.SAME_NAME if name in heads]) > 1:
        raise InputError(f"transformers calls the heads {' and '.join(same)} the same; export a model with one of them")
    if family.names and "next_sentence" in heads:
        raise InputError(f"{family.title} has no head next_sentence in transformers; pretrain without pairs")
    if not family.replaced_tokens and REPLACED_TOKEN in heads:
        raise InputError(
            f"{family.title} has no head {REPLACED_TOKEN} in transformers; ELECTRA has, whose settings differ: "
            "pretrain with --model.pooler_act gelu"
        )
    if lacking := heads & KINDS.keys() - set(family.tasks):
        raise InputError(f"{family.title} has no head {sorted(lacking)[0]} on the Hub; use bert.export onnx")
    if family.one_head:
        _check_one_head(model, heads)
    kind = next(name for name, needed in CLASSES if needed <= heads)
    tensors = {}
    for weight in model.match.weights:
        name = weight.name(family)
        name = name.removeprefix(f"{family.prefix}.") if kind == "BertModel" and not model.config.causal else name
        tensors[name] = weight.write(family, model.values[weight.ours])
    if places := [place for head, place in family.poolers.items() if head in heads]:
        pooler = f"{family.prefix}.pooler.dense."
        tensors = {name.replace(pooler, f"{places[0]}."): value for name, value in tensors.items()}
    with files.atomic_write(folder / WEIGHTS, "wb") as stream:
        stream.write(save(stacked_tensors.joined(tensors, model.config.num_attention_heads), metadata={"format": "pt"}))
    write_config(model, folder, kind, write_tokenizer(model, folder))
    if embedding := of_settings(model.settings, folder / CONFIG):
        sentence.write(embedding, model.config, folder)
    with files.atomic_write(folder / "README.md") as stream:
        stream.write(card.text(model, kind))


def _check_one_head(model: Model, heads: set[str]) -> None:
    """Raise InputError unless the model has no head, the masked-word head alone, or one task head.

    A task head needs a pooler and `head_transform`.
    """
    of_task = heads & KINDS.keys()
    fits = len(of_task) == 1 and heads == of_task | {"pooler"} and model.config.head_transform
    if not fits and not heads <= {"masked_lm"}:
        raise InputError(
            f"{model.family.title} has other heads in transformers than {', '.join(sorted(heads))}; use bert.export "
            "onnx"
        )


def write_config(model: Model, folder: Path, kind: str, more: dict[str, Any]) -> None:
    """Write config.json. kind: the class of BERT. more: entries of the tokenizer."""
    family = model.family
    specific: dict[str, Any] = {"architectures": [family.class_of(kind)], "model_type": family.model_type}
    specific |= more | {"tie_word_embeddings": model.config.masked_lm_head == "tied"}
    ours = KINDS[model.head.kind] if model.head else None
    if model.head and ours in CLASSIFIERS and ours.transformers == kind and ours.has_classes:
        labels = model.head.labels or ("LABEL_0",)  # of a number; without names transformers expects two classes
        specific |= {"id2label": by_number(labels), "label2id": {label: n for n, label in enumerate(labels)}}
        problem = "regression" if model.head.regression else ours.problem_type
        specific |= {"problem_type": problem} if problem else {}
        if model.head.regression or ours.several:  # by default CrossEncoder has the sigmoid of one output alone
            activation = SIGMOID if ours.several else model.head.activation
            specific["sentence_transformers"] = {sentence.ACTIVATION: sentence.CLASSES[activation]}
    files.write_json(folder / CONFIG, architecture.keys(model.config, family) | specific)


def write_tokenizer(model: Model, folder: Path) -> dict[str, int]:
    """Write the files of the tokenizer; return the ids of special tokens for config.json.

    Print a note if it makes other words than the run's tokenizer.
    """
    read = model.settings.get("inputs") if "imported" in model.settings else None  # of a CrossEncoder
    longest = read["length"] if isinstance(read, dict) else model.config.max_position_embeddings
    if text := model.tokenizer:
        stored = model.family.tokenizers[model.tokens]
        if stored.with_prefix and model.head and model.head.kind == TAGS.name and model.head.spaced:
            text = stored.with_prefix(text)  # what is_split_into_words makes of a word follows from the tokenizer
        return stored.write(text, longest, folder)
    run.write_vocab(model, folder)
    rules = model.rules
    if differing := fast_tokenizer.differing(rules, model.vocab):
        print(
            f"note: {folder}: entries of the vocabulary that become other words in transformers: {len(differing):,}, "
            f"such as {differing[0]!a} (docs/models.md)",
            file=sys.stderr,
        )
    special = {"additional_special_tokens": list(rules.special)} if rules.special else {}
    segments = ["token_type_ids"] if model.config.type_vocab_size else []
    settings = settings_of(rules) | {"model_max_length": longest}
    settings |= {"model_input_names": ["input_ids", *segments, "attention_mask"]}
    own = not rules.fast
    if own or rules.longest_word != LONGEST_OF_TRANSFORMERS:  # the class BertTokenizer of transformers 5 has its own
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    files.write_json(folder / TOKENIZER_CONFIG, settings | ROLES)
    files.write_json(folder / "special_tokens_map.json", ROLES | special)
    ids = {token: number for number, token in enumerate(model.vocab)}
    tokenizer = BertWordPieceTokenizer(vocab=ids)
    tokenizer.add_special_tokens(list(rules.special))
    tokenizer._tokenizer.normalizer = fast_tokenizer.normalizer(rules, model.vocab)
    tokenizer._tokenizer.pre_tokenizer = fast_tokenizer.pre_tokenizer(rules)
    tokenizer._tokenizer.model = WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=rules.longest_word)
    tokenizer.save(str(folder / TOKENIZER))
    return {"pad_token_id": model.vocab.index("[PAD]")}
