"""Byte-level BPE, the tokenizer of GPT-2 and RoBERTa: texts to token ids and back, without loss.

A text is cut into words by GPT-2's regular expression, each byte of a word becomes one of 256 characters, and pairs of
tokens are merged in the order of the list of merges (Radford et al. 2019, openai/gpt-2 `src/encoder.py`). There is no
unknown token. `<|endoftext|>` within a text is ordinary text and never becomes the special token; nor do RoBERTa's
special tokens, such as `<mask>`.

A tokenizer is a file `tokenizer.json`, in the format of Hugging Face's `tokenizers`.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from bert.core import checked_json, files
from bert.core.errors import InputError
from bert.text.post_processor import FIRST, SECOND, layout, rows
from bert.text.vocabulary import LARGEST, TOKENIZER
from extensions.tokenizers.json_fields import MAX_CHARACTERS

GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # the same under two names
END = "<|endoftext|>"
GPT2 = (END,)  # special tokens of GPT-2
ROBERTA = BEGIN, PAD, CLOSE, UNKNOWN, MASK = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # special tokens of RoBERTa
BYTES = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))  # the characters that stand for the 256 bytes
PADDING = ("[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<PAD>")  # that people add to GPT-2's tokens; no text has it
PIECE = 1 << 16  # characters from which a text is cut
TOGETHER = 1 << 20  # characters that are encoded at once: each token takes some hundred bytes for a moment
# No word of GPT-2's goes on before a space that follows something else, nor from a mark of Chinese or Japanese, whose
# texts have no spaces, to one of their letters. The marks: two commas, a full stop, "!", ":", ";" and "?".
MARKS, LETTERS = r"\u3001\u3002\uff0c\uff01\uff1a\uff1b\uff1f", r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5"
BORDER = re.compile(rf"(?<=\S)(?=[ \n])|(?<=[{MARKS}])(?=[{LETTERS}])")
BORDER_OF_PREFIXED = re.compile(r"(?<=\S)(?= )")  # what begins with a space gets none

Vocabulary = dict[str, int]
Merges = list[tuple[str, str]]


class Tables(NamedTuple):
    """What makes a tokenizer."""

    vocabulary: Vocabulary
    merges: Merges
    special: tuple[str, ...] = GPT2
    """its special tokens: GPT2 or ROBERTA, and one of PADDING that was added"""
    prefix: bool = False
    """whether a text gets a space before it, so that its first word has the token that it has within a text"""
    mask_strips: bool = True
    """whether <mask> stands for the spaces before it, too"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Added:
    id: int
    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Model:
    vocab: dict[str, int]
    merges: list[Any]  # "a b" in files of older versions of tokenizers, ["a", "b"] in newer ones
    type: str | None = None
    dropout: float | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    ignore_merges: Any = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    """The fields of a `tokenizer.json` on which the ids depend."""

    model: _Model
    pre_tokenizer: dict[str, Any]
    decoder: dict[str, Any]
    added_tokens: list[_Added]
    normalizer: Any = None
    post_processor: Any = None


class ByteBPE:
    """The tokenizer in a `tokenizer.json`.

    size: number of its tokens. vocabulary: their ids. made: ids of the tokens that merges make from bytes. added:
    tokens without merges that are special or parts of texts.

    Raise InputError if the file is not a byte-level BPE with GPT-2's rules and with these special tokens.
    """

    def __init__(self, path: Path, special: tuple[str, ...] = GPT2) -> None:
        self.path = path
        tables = read_tables(path, special)
        self._tokenizer = build(tables, path)
        self.size, self.vocabulary, self.prefix = len(tables.vocabulary), tables.vocabulary, tables.prefix
        self.special, self.mask_strips = tables.special, tables.mask_strips
        self.added, self.made = tables.special, made(tables.vocabulary, tables.merges)

    @property
    def end(self) -> int:
        """Id of `<|endoftext|>`, of GPT-2's tokenizer."""
        return self.vocabulary[END]

    def sizes(self) -> np.ndarray:
        """Return the number of bytes of text of each token of GPT-2's tokenizer [V]; special ones have none."""
        sizes = np.zeros(self.size, np.int64)
        for token, number in self.vocabulary.items():
            sizes[number] = len(token)  # each character of a token is a byte
        sizes[[self.vocabulary[token] for token in self.special]] = 0
        return sizes

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. A lone surrogate, which UTF-8 cannot hold, becomes "?"."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, as `encode` does."""
        ids: list[list[int]] = [[] for _ in texts]
        for owners, pieces in _groups(texts, self.prefix):
            for owner, encoding in zip(owners, self._tokenizer.encode_batch_fast(pieces), strict=True):
                ids[owner] += encoding.ids
        return ids

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text, and for each token the half-open range of characters that it has bytes from."""
        encoded: list[tuple[list[int], list[tuple[int, int]]]] = [([], []) for _ in texts]
        begin = [0] * len(texts)
        for owners, pieces in _groups(texts, self.prefix):
            for owner, piece, encoding in zip(owners, pieces, self._tokenizer.encode_batch(pieces), strict=True):
                ids, offsets = encoded[owner]
                ids += encoding.ids
                offsets += [(begin[owner] + first, begin[owner] + end) for first, end in encoding.offsets]
                begin[owner] += len(piece)
        return encoded

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids. Bytes that are not UTF-8, such as a part of a character, become U+FFFD.

        Raise InputError for an id outside the vocabulary.
        """
        numbers = [int(number) for number in ids]
        for number in numbers:
            if not 0 <= number < self.size:
                raise InputError(f"token id {number}: {self.path} has the ids 0 to {self.size - 1}; give ids of it")
        return str(self._tokenizer.decode(numbers, skip_special_tokens=False))


def _groups(texts: Sequence[str], prefix: bool) -> Iterator[tuple[list[int], list[str]]]:
    """Yield the pieces of all texts in order, some at a time, with the numbers of their texts.

    prefix: whether the tokenizer puts a space before a text.
    """
    owners: list[int] = []
    pieces: list[str] = []
    size = 0
    for owner, text in enumerate(texts):
        for piece in _pieces(files.SURROGATE.sub("?", text), BORDER_OF_PREFIXED if prefix else BORDER):
            owners.append(owner)
            pieces.append(piece)
            size += len(piece)
            if size > TOGETHER:
                yield owners, pieces
                owners, pieces, size = [], [], 0
    if pieces:
        yield owners, pieces


def _pieces(text: str, border: re.Pattern[str] = BORDER) -> list[str]:
    """Cut a long text into pieces that have the same ids together: no word has a border within."""
    pieces, begin = [], 0
    while len(text) - begin > PIECE and (found := border.search(text, begin + PIECE)):
        pieces.append(text[begin : found.start()])
        begin = found.start()
    return [*pieces, text[begin:]]


def build(tables: Tables, where: Path) -> Tokenizer:
    """Return the tokenizer of a vocabulary and its merges, which came from `where`.

    Raise InputError unless they form a byte-level BPE: the ids 0, 1, 2, ..., all 256 bytes, the special tokens, and the
    parts and the result of every merge.
    """
    _check(tables, where)
    tokenizer = Tokenizer(models.BPE(vocab=tables.vocabulary, merges=tables.merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=tables.prefix, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False, lstrip=token == MASK and tables.mask_strips)
            for token in tables.special
        ]
    )
    tokenizer.encode_special_tokens = True  # as ordinary text
    return tokenizer


def _check(tables: Tables, where: Path) -> None:
    vocabulary = tables.vocabulary
    if not 0 < len(vocabulary) <= LARGEST or set(vocabulary.values()) != set(range(len(vocabulary))):
        raise InputError(f"{where}: the ids of the tokens are not 0, 1, 2, ...; give the files of GPT-2 or data.bpe")
    if missing := [token for token in (*BYTES, *tables.special) if token not in vocabulary]:
        needed = ", ".join(tables.special)
        raise InputError(f"{where}: no token {missing[0]!a} in it; give the files of a byte-level BPE with {needed}")
    for left, right in tables.merges:
        if unknown := [token for token in (left, right, left + right) if token not in vocabulary]:
            raise InputError(f"{where}: {unknown[0]!a} is in the merges, but is no token; give files that fit")


def made(vocabulary: Vocabulary, merges: Iterable[Sequence[str]]) -> np.ndarray:
    """Return the ids, in order, of the bytes and of the tokens that merges make. Others may occur in no text."""
    return np.unique([vocabulary[token] for token in (*BYTES, *map("".join, merges))])


def read(path: Path) -> tuple[Vocabulary, Merges]:
    """Return the vocabulary and the merges in GPT-2's `tokenizer.json`. Raise InputError if it is of another kind."""
    vocabulary, merges, *_ = read_tables(path, GPT2)
    return vocabulary, merges


def read_tables(path: Path, special: tuple[str, ...]) -> Tables:
    """Return what is in the `tokenizer.json` with these special tokens. Raise InputError if it is of another kind."""
    remedy = "give the tokenizer.json of a byte-level BPE, as data.bpe writes it"
    if special != GPT2:
        remedy = "give the tokenizer.json of the model"
    text = files.read_text(path, MAX_CHARACTERS, remedy)
    try:
        content = checked_json.take(_File, checked_json.parse(text.encode("utf-8")))
        prefix = _check_rules(content, special)
        vocabulary, added = dict(content.model.vocab), [token.content for token in content.added_tokens]
        vocabulary |= {token.content: token.id for token in content.added_tokens}
        more = tuple(token for token in added if token not in special)
        strips = all(token.lstrip for token in content.added_tokens if token.content == MASK)
        return Tables(vocabulary, [_pair(merge) for merge in content.model.merges], special + more, prefix, strips)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a byte-level BPE ({error}); {remedy}") from error


def read_roberta(path: Path) -> Tables:
    """Do as `read_tables`, with RoBERTa's special tokens."""
    return read_tables(path, ROBERTA)


def read_gpt2(path: Path) -> Tables:
    """Do as `read_tables`, with GPT-2's special token."""
    return read_tables(path, GPT2)


def _check_rules(content: _File, special: tuple[str, ...]) -> bool:
    """Return whether a text gets a space before it, which is for RoBERTa only.

    Raise ValueError for a file whose tokenizer cuts or merges otherwise than GPT-2's.
    """
    model, cut = content.model, content.pre_tokenizer
    if (
        cut.get("type") == "Sequence"
        and len(parts := cut.get("pretokenizers") or []) == 1
        and isinstance(parts[0], dict)
    ):
        cut = parts[0]
    prefix = cut.get("add_prefix_space")
    if model.type not in (None, "BPE"):
        raise ValueError(f"the model is of the type {model.type[:40]!a}")
    if model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix or model.ignore_merges:
        raise ValueError("the model has settings that GPT-2's does not have")
    if cut.get("type") != "ByteLevel" or cut.get("use_regex") is False:
        raise ValueError("the pre_tokenizer is not that of GPT-2")
    if prefix is not False and (prefix is not True or special == GPT2):
        raise ValueError("the pre_tokenizer is not that of GPT-2")
    if content.decoder.get("type") != "ByteLevel":
        raise ValueError("the decoder is not that of GPT-2")
    if content.normalizer is not None:
        raise ValueError("the normalizer changes texts")
    for added in content.added_tokens:
        allowed = (*special, *PADDING) if special == GPT2 else special
        if added.content not in allowed or model.vocab.get(added.content, added.id) != added.id:
            raise ValueError(f"the special token {added.content[:40]!a} with the id {added.id}")
        plain = added.special and not added.rstrip and not added.single_word
        if not plain or (added.lstrip and added.content != MASK):
            raise ValueError(f"the added token {added.content!a} has lstrip, rstrip, single_word or special of its own")
    _check_post_processor(content, special)
    return prefix


def _check_post_processor(content: _File, special: tuple[str, ...]) -> None:
    """Raise ValueError if special tokens stand elsewhere around texts: none for GPT-2, <s> A </s></s> B </s>."""
    if content.post_processor is None:
        return
    expected = [[FIRST], [FIRST, SECOND]]
    if special == ROBERTA:
        begin, close = (content.model.vocab.get(token, -1) for token in (BEGIN, CLOSE))
        expected = rows(begin, close, separators=2)
    if layout(content.post_processor) != expected:
        raise ValueError("the post_processor puts other special tokens around texts")


def _pair(merge: Any) -> tuple[str, str]:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"the merge {str(merge)[:40]!a} does not have two parts")
    return parts[0], parts[1]


def find(folder: Path) -> tuple[Path, Path]:
    """Return the paths of GPT-2's vocabulary and merges in a folder. Raise InputError if they are not there."""
    for vocabulary, merges in GPT2_FILES:
        if (folder / vocabulary).is_file() and (folder / merges).is_file():
            return folder / vocabulary, folder / merges
    raise InputError(
        f"{folder}: no vocab.json and merges.txt, nor {TOKENIZER}; give a folder with these files of GPT-2"
    )


def tables_of(folder: Path) -> tuple[Tables, list[Path]]:
    """Return the tokenizer of a folder's `tokenizer.json`, or else of GPT-2's two files; and the files.

    Raise InputError if it has none of them, if they are not a byte-level BPE, or if other files contradict them.
    """
    check_settings(folder, False, ("GPT2",))
    if (path := folder / TOKENIZER).is_file():
        return read_tables(path, GPT2), [path]
    paths = find(folder)
    return Tables(*load(*paths)), list(paths)


def check_settings(folder: Path, prefix: bool, classes: Sequence[str]) -> None:
    """Raise InputError if files beside a tokenizer make other tokens of a text than it does alone.

    prefix: whether the tokenizer puts a space before a text. classes: of transformers, without "Tokenizer", that make
    these tokens; they take add_prefix_space from tokenizer_config.json, also where that does not have it.
    """
    path, pairs = folder / "tokenizer_config.json", folder / TOKENIZER
    settings = files.read_object(path) if path.exists() else {}
    name = str(settings.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    if name not in ("", "PreTrained", "TokenizersBackend", *classes):
        raise InputError(f"{path}: tokenizer_class is {name}Tokenizer; supported: {', '.join(classes)}")
    check_prefix(settings, prefix, path)
    for key in ("add_bos_token", "add_eos_token"):
        if settings.get(key) and not pairs.exists():
            raise InputError(f"{path}: {key} is {settings[key]!a}; only tokenizers without it are supported")
    mask = settings.get("mask_token")
    if isinstance(mask, dict) and not pairs.exists() and not mask.get("lstrip", False):
        raise InputError(f"{path}: {MASK} has lstrip false; only one with lstrip is supported")
    if (more := folder / "added_tokens.json").exists():
        listed = files.read_object(pairs).get("added_tokens", []) if pairs.exists() else []
        contents = {token.get("content") for token in listed} | {*GPT2, *ROBERTA}
        if other := [token for token in files.read_object(more) if token not in contents]:
            raise InputError(
                f"{more}: the added token {other[0]!a} is not in a {TOKENIZER}; save one with transformers"
            )


def check_prefix(settings: Mapping[str, Any], prefix: bool, path: Path) -> None:
    """Raise InputError if a tokenizer_config.json says something else of the space before a text than the tokenizer.

    prefix: what the tokenizer says. If they contradict each other, transformers 4 follows the settings, where a missing
    one is false. transformers 5 follows the tokenizer, but the settings for RobertaTokenizer. It writes the class
    TokenizersBackend, which earlier versions do not know.
    """
    stated = settings.get("add_prefix_space", False)
    if stated is not prefix and settings.get("tokenizer_class") != "TokenizersBackend":
        raise InputError(
            f"{path}: add_prefix_space is {stated!a}, but {prefix} in {TOKENIZER}, and versions of transformers differ "
            "in which they take; give both the one of the training"
        )


def has_prefix(text: str) -> bool:
    """Return whether the tokenizer in the content of a `tokenizer.json` puts a space before a text."""
    return bool(json.loads(text)["pre_tokenizer"]["add_prefix_space"])


def with_prefix(text: str) -> str:
    """Return the content of a `tokenizer.json` with a space before each text."""
    fields = json.loads(text)
    for step in (fields["pre_tokenizer"], fields["post_processor"]):
        if "add_prefix_space" in step:
            step["add_prefix_space"] = True
    return json.dumps(fields, ensure_ascii=False, indent=2) + "\n"


def load(vocabulary: Path, merges: Path) -> tuple[Vocabulary, Merges]:
    """Read GPT-2's files: tokens with their ids as JSON, and one merge per line after a line with the version."""
    remedy = "get GPT-2's files again"
    text = files.read_text(vocabulary, MAX_CHARACTERS, remedy)
    try:
        ids: Vocabulary = checked_json.take(dict[str, int], checked_json.parse(text.encode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{vocabulary}: not a vocabulary of tokens with their ids ({error}); {remedy}") from error
    lines = files.read_text(merges, MAX_CHARACTERS, remedy).split("\n")
    pairs: Merges = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        words = line.removesuffix("\r").split(" ")
        if len(words) != 2:
            raise InputError(f"{merges}: line {number}: {line[:40]!a} is not two tokens with a space between; {remedy}")
        pairs.append((words[0], words[1]))
    return ids, pairs


def save(vocabulary: Vocabulary, merges: Merges, folder: Path) -> None:
    """Write GPT-2's files, which `load` reads."""
    names = GPT2_FILES[0]
    with files.atomic_write(folder / names[0]) as stream:
        stream.write(json.dumps(vocabulary, ensure_ascii=False) + "\n")
    with files.atomic_write(folder / names[1]) as stream:
        stream.writelines(["#version: 0.2\n", *(f"{left} {right}\n" for left, right in merges)])


def text_of(vocabulary: Vocabulary, merges: Merges, where: Path) -> str:
    """Return the content of the `tokenizer.json` of GPT-2's vocabulary and merges. Raises as `build` does."""
    return text_of_tables(Tables(vocabulary, merges), where)


def text_of_tables(tables: Tables, where: Path) -> str:
    """Return the content of a `tokenizer.json`, with what other programs need to know. Raises as `build` does."""
    tokenizer = build(tables, where)
    if tables.special == ROBERTA:
        begin, close = ((token, tables.vocabulary[token]) for token in (BEGIN, CLOSE))
        tokenizer.post_processor = processors.RobertaProcessing(
            sep=close, cls_token=begin, trim_offsets=True, add_prefix_space=tables.prefix
        )
    return str(tokenizer.to_str(pretty=True)) + "\n"
