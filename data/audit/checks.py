"""Check the content of a finished folder: documents in JSON lines and records in TFRecord files.

`check_lines` checks the documents between the stages. `KINDS` has one check for each kind of TFRecord: it takes the
payloads of a batch and returns the wrong rows with the reasons. NumPy checks whole batches: N records, S tokens of a
sequence, P predictions.
"""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert.core.errors import UserError
from bert.core.manifest import Manifest
from bert.text import tokenization, vocabulary
from bert.text.vocabulary import SPECIAL

LIMIT = 1000  # problems reported for one file; then the rest of the file is not read
LONGEST = 1 << 24  # values of a feature
Rows = list[tuple[int, str]]  # (number in the batch, reason) of each wrong record


class Problem(NamedTuple):
    """One problem: the file, the place in it ("" for the whole file), and a description."""

    path: Path
    where: str
    what: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.path), self.where, self.what)))


class LineSummary(NamedTuple):
    """The documents of one part: a key of 8 bytes for each id and each text, and counts."""

    ids: np.ndarray  # [lines] uint64
    texts: np.ndarray  # [lines] uint64
    counts: Counter[str]


def check_lines(path: Path, problems: list[Problem]) -> LineSummary:
    """Read every line of a part as a document. Add what is wrong to `problems`; lines are numbered from 1."""
    ids, texts, counts, offset = array("Q"), array("Q"), Counter[str](), 0
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            document, what = parse_document(line)
            if what:
                problems.append(Problem(path, f"line {number} at byte {offset}", what))
                document = {"id": f"{path} {number}", "sentences": []}  # its keys are unique
            pieces = [document["text"]] if "text" in document else document["sentences"]
            ids.append(_key(document["id"]))
            texts.append(_key("\n".join(pieces) if pieces else document["id"]))
            counts["documents"] += 1
            if "sentences" in document:
                counts.update(sentences=len(pieces), characters=sum(map(len, pieces)))
            offset += len(line)
            if len(problems) >= LIMIT:
                break
    return LineSummary(np.frombuffer(ids, np.uint64), np.frombuffer(texts, np.uint64), counts)


def _key(text: str) -> int:
    """Return a 64-bit hash. The probability of a collision among ten million texts is about 1 in 400,000."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def parse_document(line: bytes) -> tuple[dict[str, Any], str]:
    """Return the document of a line, and what is wrong with it: "" if nothing."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON ({error})"
    if not line.endswith(b"\n"):
        return {}, "cut: no line end"
    if not isinstance(document, dict) or not isinstance(document.get("id"), str) or not document["id"]:
        return {}, "not a document: no id"
    pieces = [document["text"]] if "text" in document else document.get("sentences")
    if not isinstance(pieces, list) or not pieces or not all(isinstance(piece, str) and piece for piece in pieces):
        return {}, f"document {document['id']!r} has no text, or an empty sentence"
    return document, ""


class RecordFormat(NamedTuple):
    """What the manifest of a TFRecord folder says about every record."""

    features: dict[str, dict[str, Any]]  # name -> {"shape": [...], "dtype": ...}
    vocab_size: int
    special: dict[str, int]  # "[CLS]" -> id
    is_single: bool = False  # an instance has one segment, not two
    may_lack_predictions: bool = False  # as words, or runs of them, can all be longer than an instance may predict


class BatchResult(NamedTuple):
    """The result of checking a batch."""

    wrong: Rows
    counts: Counter[str]


def record_format(manifest: Manifest, problems: list[Problem]) -> tuple[str, RecordFormat] | None:
    """Return the kind and the format of a folder's records.

    If the vocabulary or the manifest is not usable, add this to `problems` and return None.
    """
    path, extra = vocabulary.path_in(manifest.path), manifest.extra
    kind = extra.get("kind", "instances")
    try:
        tokenizer = tokenization.read(path)
    except UserError as error:
        problems.append(Problem(path, "", str(error).removeprefix(f"{path}: ")))
        return None
    if not isinstance(kind, str) or kind not in KINDS:
        problems.append(Problem(manifest.path / "manifest.json", "", f"unknown kind of records {kind!r}"))
        return None
    size = len(tokenizer.vocab)
    if extra.get("vocab_size") != size:
        what = f"{size} tokens, but the records were made with {extra.get('vocab_size')}"
        problems.append(Problem(path, "", what))
    if hashlib.sha256(path.read_bytes()).hexdigest() != extra.get("vocab_sha256"):
        problems.append(Problem(path, "", "not the vocabulary that the records were made with (vocab_sha256 differs)"))
    expected = KINDS[kind].features(extra)
    sizes = [size for feature in expected.values() for size in feature["shape"]]
    if extra.get("features") != expected or not all(size is None or _is_size(size) for size in sizes):
        what = f"features are not those of {kind} with the given length and number of predictions"
        problems.append(Problem(manifest.path / "manifest.json", "", what))
        return None
    shape = extra.get("instances")
    is_single = isinstance(shape, dict) and True in (shape.get("single_sentences"), shape.get("one_segment"))
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    may_lack = not isinstance(shape, dict) or shape.get("whole_word_mask") is True or shape.get("max_ngram") != 1
    return kind, RecordFormat(expected, size, dict(zip(SPECIAL, ids, strict=True)), is_single, may_lack)


def _is_size(size: object) -> bool:
    return type(size) is int and 0 < size <= LONGEST


def parse(payloads: Sequence[bytes], expected: RecordFormat) -> tuple[np.ndarray, dict[str, Any], Rows]:
    """Parse a batch. Return the numbers of the rows that parse, their features as tensors, and the rows that do not."""
    import tensorflow as tf  # takes seconds to load and is needed only for records

    from bert.hardware import devices

    devices.hide_gpus()
    spec = {
        name: tf.io.RaggedFeature(tf.int64)
        if feature["shape"] == [None]
        else tf.io.FixedLenFeature(feature["shape"], tf.as_dtype(feature["dtype"]))
        for name, feature in expected.features.items()
    }

    unparsed = (tf.errors.InvalidArgumentError, UnicodeDecodeError)  # the latter if its message has a record's bytes

    def wrong_rows(first: int, last: int) -> Iterator[tuple[int, str]]:
        try:
            tf.io.parse_example(payloads[first:last], spec)
        except unparsed as error:
            if last - first == 1:
                yield first, "does not parse: " + " ".join(ascii(str(error)).split())[:200]
            else:
                yield from wrong_rows(first, (first + last) // 2)
                yield from wrong_rows((first + last) // 2, last)

    rows = np.arange(len(payloads))
    try:
        return rows, tf.io.parse_example(payloads, spec), []
    except unparsed:
        wrong = list(wrong_rows(0, len(payloads)))
    rows = np.delete(rows, [row for row, _ in wrong])
    return rows, tf.io.parse_example([payloads[row] for row in rows.tolist()], spec) if len(rows) else {}, wrong


def instance_features(extra: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the features of masked instances, from the length and the number of predictions in the manifest."""
    shape = extra["instances"] if isinstance(extra.get("instances"), dict) else extra
    sequence, predictions = ({"shape": [shape.get(name, 0)]} for name in ("max_seq_length", "max_predictions_per_seq"))
    whole, real = {"dtype": "int64"}, {"dtype": "float32"}
    return {
        "input_ids": sequence | whole,
        "input_mask": sequence | whole,
        "segment_ids": sequence | whole,
        "masked_lm_positions": predictions | whole,
        "masked_lm_ids": predictions | whole,
        "masked_lm_weights": predictions | real,
        "next_sentence_labels": {"shape": [1]} | whole,
    }


def check_instances(payloads: Sequence[bytes], expected: RecordFormat) -> BatchResult:
    """Check masked instances, [CLS] a [SEP] b [SEP] or [CLS] a [SEP], as `bert.text.instances` makes them."""
    rows, parsed, wrong = parse(payloads, expected)
    features = {name: tensor.numpy() for name, tensor in parsed.items()}
    if len(rows):
        for bad, what in _instance_faults(features, expected):
            wrong.extend((row, what) for row in rows[bad.any(1)].tolist())
    counts = Counter(
        instances=len(payloads),
        pairs_of_label_1=int(np.count_nonzero(features.get("next_sentence_labels", 0))),
        predictions=int(np.count_nonzero(features.get("masked_lm_weights", 0))),
    )
    return BatchResult(sorted(wrong), counts)


def restore(features: dict[str, np.ndarray]) -> np.ndarray:
    """Return the sequences [N, S] as they were before masking."""
    ids = features["input_ids"].copy()
    row, slot = np.nonzero(features["masked_lm_weights"])
    position = np.clip(features["masked_lm_positions"][row, slot], 0, ids.shape[1] - 1)
    ids[row, position] = features["masked_lm_ids"][row, slot]
    return ids


def _instance_faults(features: dict[str, np.ndarray], expected: RecordFormat) -> Iterator[tuple[np.ndarray, str]]:
    """Yield for each rule a bool array [N, any] that is true where an instance breaks the rule, and a description."""
    pad, _, cls, sep, mask = (expected.special[token] for token in SPECIAL)
    ids, input_mask, segments = features["input_ids"], features["input_mask"], features["segment_ids"]
    positions, labels = features["masked_lm_positions"], features["masked_lm_ids"]
    weights, next_sentence = features["masked_lm_weights"], features["next_sentence_labels"]
    at, length, last = np.arange(ids.shape[1]), input_mask.sum(1, keepdims=True), input_mask.sum(1) - 1
    inside, used = at < length, weights == 1
    leading = np.arange(used.shape[1]) < used.sum(1, keepdims=True)
    restored = restore(features)
    at_sep = restored == sep
    first = at_sep.argmax(1)
    separators, form = (1, "[CLS] a [SEP]") if expected.is_single else (2, "[CLS] a [SEP] b [SEP]")
    built = (restored[:, 0] == cls) & ((restored == cls).sum(1) == 1) & (at_sep.sum(1) == separators)
    built &= (at_sep & (at == last[:, None])).any(1) & (first >= 2) & (expected.is_single | (first <= last - 2))

    yield _outside(ids, expected.vocab_size), "input_ids: an id outside the vocabulary"
    yield input_mask != inside, "input_mask: not ones, then zeros"
    # As it was before masking: google-research/bert replaces a word by any entry of the vocabulary, [PAD] among them.
    yield (restored == pad) == inside, "input_ids: [PAD] inside input_mask, or another token after it"
    yield ~built[:, None], f"input_ids: not {form}"
    yield (
        built[:, None] & (segments != ((at > first[:, None]) & inside)),
        "segment_ids: do not agree with [SEP]",
    )
    yield restored == mask, "input_ids: a [MASK] that is not predicted"
    yield weights != leading, "masked_lm_weights: not ones, then zeros"
    yield ~(used.any(1, keepdims=True) | expected.may_lack_predictions), "masked_lm_weights: no prediction"
    yield used & ((positions < 1) | (positions >= length - 1)), "masked_lm_positions: one outside the text"
    yield used[:, 1:] & (np.diff(positions) <= 0), "masked_lm_positions: not ascending"
    yield used & np.isin(labels, (pad, cls, sep, mask)), "masked_lm_ids: a special token is predicted"
    yield _outside(labels, expected.vocab_size), "masked_lm_ids: an id outside the vocabulary"
    yield ~used & ((positions != 0) | (labels != 0)), "masked_lm_ids: an unused position is not zero"
    yield _outside(next_sentence, 2), "next_sentence_labels: not 0 or 1"


def _outside(ids: np.ndarray, size: int) -> np.ndarray:
    return (ids < 0) | (ids >= size)


def chunk_features(_: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the features of chunks: token ids, the lengths of their sentences, the number of the document."""
    whole = {"dtype": "int64"}
    return {
        "ids": {"shape": [None]} | whole,
        "sentences": {"shape": [None]} | whole,
        "document": {"shape": [1]} | whole,
    }


def check_chunks(payloads: Sequence[bytes], expected: RecordFormat) -> BatchResult:
    """Check chunks of tokenised documents, from which `bert.text.dynamic_masking` makes instances."""
    rows, parsed, wrong = parse(payloads, expected)
    if len(rows):
        ids, lengths, document = parsed["ids"], parsed["sentences"], parsed["document"].numpy()[:, 0]
        token, of_token = ids.flat_values.numpy(), ids.value_rowids().numpy()
        length, of_length = lengths.flat_values.numpy(), lengths.value_rowids().numpy()
        claimed = np.bincount(of_length, length, len(rows))  # number of tokens by the sentence lengths
        special = [expected.special[name] for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")]
        for bad, what in (
            (of_token[_outside(token, expected.vocab_size)], "ids: an id outside the vocabulary"),
            (of_token[np.isin(token, special)], "ids: a special token in the text"),
            (of_length[length < 1], "sentences: one is empty"),
            (
                np.flatnonzero(claimed != np.bincount(of_token, minlength=len(rows))),
                "sentences: their lengths do not add up to the number of ids",
            ),
            (np.flatnonzero(np.bincount(of_token, minlength=len(rows)) == 0), "ids: empty"),
            (np.flatnonzero(np.diff(document, prepend=0) < 0), "document: lower than that of the previous record"),
        ):
            wrong.extend((row, what) for row in rows[np.unique(bad)].tolist())
    return BatchResult(sorted(wrong), Counter(chunks=len(payloads)))


class FolderType(NamedTuple):
    """A kind of TFRecord: its features, from manifest.extra, and the check of a batch of payloads."""

    features: Callable[[dict[str, Any]], dict[str, dict[str, Any]]]
    check: Callable[[Sequence[bytes], RecordFormat], BatchResult]


KINDS = {  # by manifest.extra["kind"], which older folders of instances do not have
    "instances": FolderType(instance_features, check_instances),
    "documents": FolderType(chunk_features, check_chunks),
}
