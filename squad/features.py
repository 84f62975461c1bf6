"""Questions and passages as model input: overlapping windows of [CLS] question [SEP] passage [SEP].

For RoBERTa they are <s> question </s></s> passage </s>, all in one segment (`bert.text.tokenization`).

A passage that does not fit beside its question is cut into windows that start every `doc_stride` tokens (Devlin et al.
2018; github.com/google-research/bert, run_squad.py). Training windows are written once, as TFRecords.

B windows, S positions; all offsets are characters of the passage, half open.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert.core import outputs
from bert.core.errors import InputError, UsageError
from bert.model.heads import INPUTS
from bert.text import frames, tf_example
from bert.text.tokenization import Tokenizer
from bert.text.windows import best_window, cut
from squad import examples
from squad.answers import MAX_ANSWER_LENGTH
from squad.config import SquadData, Windowing
from squad.examples import Dataset, Example, Span

STAGE = "squad.features"
NO_ANSWER = (-1, -1)  # token span outside every window, so each window is labelled [CLS]
BATCH = 1024  # texts per call of the tokenizer
LABELS = ("start_positions", "end_positions")


@dataclass(frozen=True)
class Tokens:
    """Tokens of many texts, flat: text i has splits[i]:splits[i + 1]."""

    ids: np.ndarray
    splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def row(self, i: int) -> slice:
        """Return the slice of the tokens of text `i`."""
        return slice(int(self.splits[i]), int(self.splits[i + 1]))


@dataclass(frozen=True)
class Places:
    """Where all windows of some questions, in order, lie in their passages."""

    question: np.ndarray  # [B] index of the question
    offset: np.ndarray  # [B] position of the first passage token
    first: np.ndarray  # [B] index of that token in the passage
    length: np.ndarray  # [B] number of passage tokens
    max_context: np.ndarray  # [B, S] bool: of all windows this one gives the passage token the most context


class Windows(NamedTuple):
    """Windows as input of the model, and their places."""

    inputs: dict[str, np.ndarray]  # ids, mask and segments [B, S] by name
    places: Places
    cut: int = 0
    """questions of which tokens are cut off"""


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """Return the tokens of all `texts` with their character offsets."""
    parts = [tokenizer.encode_with_offsets(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]
    ids, splits, starts, ends = zip(*parts, strict=True)
    lengths = np.concatenate([np.diff(part) for part in splits])
    flat = [np.concatenate(part) for part in (ids, starts, ends)]
    return Tokens(flat[0], np.concatenate([[0], np.cumsum(lengths)]), flat[1], flat[2])


def room(tokenizer: Tokenizer, question: int, windowing: Windowing) -> int:
    """Return the number of passage tokens in a window; question: number of its tokens. Raise UsageError if it is 0."""
    of_question = min(question, windowing.max_query_length)
    left = windowing.max_seq_length - tokenizer.special_tokens(paired=True) - of_question
    if left < 1:
        raise UsageError(
            f"windows.max_seq_length {windowing.max_seq_length} has no room for a passage beside a question of "
            f"{of_question} tokens; give a larger value, or a smaller windows.max_query_length"
        )
    return left


def windows(
    tokenizer: Tokenizer, questions: Sequence[Example], passages: Tokens, windowing: Windowing, most: int = sys.maxsize
) -> Windows:
    """Return the windows of `questions`. passages: the tokens of their passages.

    Raise InputError if they are more than `most`.
    """
    size, stride = windowing.max_seq_length, windowing.doc_stride
    texts = {text: number for number, text in enumerate(dict.fromkeys(question.question for question in questions))}
    flat, splits = tokenizer.encode(list(texts))  # a question about many passages is encoded once
    ids_of_texts = [flat[splits[n] : splits[n + 1]][: windowing.max_query_length] for n in range(len(texts))]
    is_cut = (np.diff(splits) > windowing.max_query_length).tolist()
    cuts = []
    for q, question in enumerate(questions):
        left = room(tokenizer, len(ids_of_texts[texts[question.question]]), windowing)
        passage = passages.row(question.passage)
        tokens = passage.stop - passage.start
        cuts += [(q, left, tokens, w, *span) for w, span in enumerate(cut(tokens, left, stride))]
    count = len(cuts)
    if count > most:
        raise InputError(f"the text has {count} windows of the model; send one of at most {most}")
    input_ids = np.full((count, size), tokenizer.pad_id, np.int32)
    input_mask, segment_ids = np.zeros_like(input_ids), np.zeros_like(input_ids)
    best = np.zeros((count, size), bool)
    offsets = np.zeros(count, np.int32)
    for row, (q, left, tokens, w, first, length) in enumerate(cuts):
        question_ids = ids_of_texts[texts[questions[q].question]]
        passage_ids = passages.ids[passages.row(questions[q].passage)][first : first + length]
        ids, segments, offset = tokenizer.row(question_ids, passage_ids)
        offsets[row] = offset
        input_ids[row, : len(ids)] = ids
        input_mask[row, : len(ids)] = 1
        segment_ids[row, : len(ids)] = segments
        best[row, offset : offset + length] = best_window(tokens, left, stride)[first : first + length] == w
    table = np.array(cuts, np.int32).reshape(count, 6)
    inputs = dict(zip(INPUTS, (input_ids, input_mask, segment_ids), strict=True))
    places = Places(table[:, 0], offsets, table[:, 4], table[:, 5], best)
    return Windows(inputs, places, sum(is_cut[texts[question.question]] for question in questions))


def token_span(starts: np.ndarray, ends: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and last token that cover the characters start:end; None if there is no token."""
    first = int(np.searchsorted(ends, start, side="right"))
    last = int(np.searchsorted(starts, end, side="left")) - 1
    return (first, last) if first <= last else None


def label(places: Places, row: int, answer: tuple[int, int]) -> tuple[int, int]:
    """Return the positions of the answer's first and last token in a window; (0, 0), the [CLS], if it does not fit."""
    first, shift = places.first[row], places.offset[row] - places.first[row]
    inside = first <= answer[0] and answer[1] < first + places.length[row]
    return (int(answer[0] + shift), int(answer[1] + shift)) if inside else (0, 0)


def training_set(data: SquadData, tokenizer: Tokenizer, vocab: Path, windowing: Windowing, workdir: Path) -> Path:
    """Return the folder of TFRecords with the training windows of `data.train_file`; it is written once per setting."""
    settings = {"impossible": data.impossible, "strict": data.strict} | tokenizer.description()
    limit = {"limit": data.limit} if data.limit else {}  # runs without one go on with the records that they have
    parameters = asdict(windowing) | settings | limit
    assert data.train_file is not None, "the command checks that it is given"
    key = [examples.content_hash(data.train_file), tokenizer.vocab_sha256, parameters]
    folder = workdir / "squad" / "features" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]

    def make(partial: Path) -> outputs.StageResult:
        return _write(partial, data, tokenizer, windowing)

    outputs.build(folder, stage=STAGE, parameters=parameters, inputs=[data.train_file, vocab], make=make)
    return folder


def _write(partial: Path, data: SquadData, tokenizer: Tokenizer, windowing: Windowing) -> outputs.StageResult:
    assert data.train_file is not None, "the command checks that it is given"
    questions, impossible = 0, 0
    malformed: list[str] = []
    inferred: list[str] = []
    dropped: dict[str, str] = {}
    lost = Counter[str]()
    name = "train-00000-of-00001.tfrecord"
    with frames.RecordWriter(partial / name) as writer:
        for piece in _limited(examples.read_pieces(data.train_file, strict=data.strict), data.limit):
            learnable = examples.spans(piece, impossible=data.impossible)
            dropped |= learnable.dropped
            inferred += learnable.inferred
            malformed += [fault.reason for fault in piece.faults]
            questions += len(piece.examples) + len(piece.faults)
            impossible += sum(span.example.impossible for span in learnable.spans)
            lost["several"] += sum(len(span.example.answers) > 1 for span in learnable.spans)
            for serialized in _encoded(tokenizer, learnable.spans, piece.passages, windowing, dropped, lost):
                writer.write(serialized)
    if not writer.count:
        reasons = [*malformed, *(f"question {identity}: {reason}" for identity, reason in dropped.items())]
        why = f" ({reasons[0]})" if reasons else ""
        raise InputError(
            f"{data.train_file}: none of its {questions} questions has a usable answer{why}; check the file"
        )
    _report(data.train_file, malformed, dropped, inferred)
    _report_lost(data.train_file, lost, windowing)
    return outputs.StageResult(
        counts={
            "questions": questions,
            "windows": writer.count,
            "impossible": impossible,
            "inferred": len(inferred),
            "dropped": len(dropped),
            "malformed": len(malformed),
        },
        records={name: writer.count},
        extra=_described(tokenizer, windowing, LABELS) | {"dropped": dropped, "malformed": malformed},
    )


def development_set(
    path: Path, inputs: dict[str, np.ndarray], tokenizer: Tokenizer, windowing: Windowing, workdir: Path
) -> Path:
    """Return the folder of TFRecords with the windows of the questions in `path`; it is written once per setting.

    inputs: of the windows.
    """
    parameters = asdict(windowing) | tokenizer.description()
    key = [examples.content_hash(path), tokenizer.vocab_sha256, parameters]
    folder = workdir / "squad" / "development" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]

    def make(partial: Path) -> outputs.StageResult:
        name, count = "dev-00000-of-00001.tfrecord", len(inputs["input_ids"])
        with frames.RecordWriter(partial / name) as writer:
            for begin in range(0, count, BATCH):
                rows = slice(begin, begin + BATCH)
                for serialized in tf_example.encode_batch({name: values[rows] for name, values in inputs.items()}):
                    writer.write(serialized)
        return outputs.StageResult(
            counts={"windows": count}, records={name: count}, extra=_described(tokenizer, windowing, ())
        )

    outputs.build(folder, stage="squad.development", parameters=parameters, inputs=[path], make=make)
    return folder


def _described(tokenizer: Tokenizer, windowing: Windowing, labels: Sequence[str]) -> dict[str, Any]:
    """Return the features of a record, and the tokenizer that they were made with."""
    return {
        "features": {
            **{name: {"shape": [windowing.max_seq_length], "dtype": "int64"} for name in INPUTS},
            **{name: {"shape": [1], "dtype": "int64"} for name in labels},
        },
        "vocab_sha256": tokenizer.vocab_sha256,
        "vocab_size": len(tokenizer.vocab),
        "lower_case": tokenizer.lower_case,
        "max_seq_length": windowing.max_seq_length,
    }


def _limited(pieces: Iterator[Dataset], limit: int) -> Iterator[Dataset]:
    """Yield the pieces up to question number `limit`; 0: all."""
    left = limit
    for piece in pieces:
        yield replace(piece, examples=piece.examples[:left]) if limit else piece
        left -= len(piece.examples)
        if limit and left <= 0:
            return


def _encoded(
    tokenizer: Tokenizer,
    spans: Sequence[Span],
    texts: Sequence[str],
    windowing: Windowing,
    dropped: dict[str, str],
    lost: Counter[str],
) -> Iterator[bytes]:
    """Yield the records of windows. Add questions without records to `dropped`; count in `lost` what is cut."""
    if not spans:
        return
    passages, answers = tokenize(tokenizer, texts), []
    for span in spans:
        place = passages.row(span.example.passage)
        tokens = token_span(passages.starts[place], passages.ends[place], span.start, span.end)
        answers.append(NO_ANSWER if span.example.impossible else tokens)
        if answers[-1] is None:
            dropped[span.example.id] = "the answer has no token"
    every, places, questions_cut = windows(tokenizer, [span.example for span in spans], passages, windowing)
    rows = [row for row, question in enumerate(places.question) if answers[question] is not None]
    labels = np.array([label(places, row, answers[places.question[row]]) for row in rows], np.int64).reshape(-1, 2)
    learned = set(places.question[rows][labels[:, 0] > 0].tolist())
    spans_of_tokens = {n: answer for n, answer in enumerate(answers) if answer not in (None, NO_ANSWER)}
    lost["question"] += questions_cut
    lost["answer"] += sum(last - first >= MAX_ANSWER_LENGTH for first, last in spans_of_tokens.values())
    lost["window"] += len(spans_of_tokens.keys() - learned)
    inputs = {name: values[rows] for name, values in every.items()}
    yield from tf_example.encode_batch(inputs | {"start_positions": labels[:, :1], "end_positions": labels[:, 1:]})


def _report(train_file: Path, malformed: list[str], dropped: dict[str, str], inferred: list[str]) -> None:
    if malformed:
        some = "; ".join(malformed[:3])
        print(f"note: {train_file}: {len(malformed)} malformed items are not used: {some} ...", file=sys.stderr)
    if inferred:
        print(
            f"note: {train_file}: {len(inferred)} answers are not at their offset; the nearest occurrence is used: "
            f"{', '.join(inferred[:3])} ...",
            file=sys.stderr,
        )
    if dropped:
        some = ", ".join(f"{identity} ({reason})" for identity, reason in list(dropped.items())[:3])
        print(f"note: {train_file}: {len(dropped)} questions are not used: {some} ...", file=sys.stderr)


def _report_lost(train_file: Path, lost: Counter[str], windowing: Windowing) -> None:
    """Print a line for each kind of loss. lost: the number of questions by kind."""
    lines = {
        "several": "have several answers; the first one is learned",
        "question": f"have more than {windowing.max_query_length} tokens and are cut (--windows.max_query_length)",
        "answer": f"have an answer of more than {MAX_ANSWER_LENGTH} tokens; squad.predict gives shorter ones unless it "
        "has --max_answer_length",
        "window": "have an answer that no window holds as a whole; the model learns that no window has it "
        "(--windows.max_seq_length, --windows.doc_stride)",
    }
    for name, line in lines.items():
        if lost[name]:
            print(f"note: {train_file}: {lost[name]:,} questions {line}", file=sys.stderr)
