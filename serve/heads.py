"""What a model can be asked: each head turns an item into rows of tokens, and the results of the rows into an answer.

The rows of many items are computed together (serve/batching.py); `prepare` and the `finish` that it returns run in
threads of their own. n rows, S positions, D width of the model.
"""

import abc
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from bert import embedding, fill_mask, heads
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.rows import Rows
from bert.embedding import POOLS
from bert.engines.engine import Engine
from bert.hardware.choices import Compute, EngineName
from bert.heads import ANSWER_SPAN, CHOICE, CLASSIFIER, MASKED_LM, MULTILABEL, TAGS
from bert.masked_words import MaskedWords
from bert.model.heads import pooled
from bert.runs import Run
from bert.text.batches import Batches, padded
from bert.text.windows import cut
from serve.items import MOST_ANSWERS, MOST_WORDS, Choices, Masked, Passage, Question, RequestError, Sentence, Text
from squad import features, predict
from squad import model as squad_model
from squad.answers import MAX_ANSWER_LENGTH, Answers, among, n_best_answers
from squad.examples import Example
from squad.model import AnswerSpans
from squad.reader import Reader
from tasks import loading
from tasks import model as tasks_model
from tasks.examples import ChoiceExample, TextExample, sentence
from tasks.inputs import NAMES, EncodingCounts
from tasks.model import FineTuned
from tasks.stored import ExampleKind

TRUNCATED = "`truncated` says whether tokens were cut off"
MOST_MASKS = 32  # in a text: each is a row of probabilities of all words
Inputs = dict[str, np.ndarray]  # ids, mask and segments of one row, [S] or for choices [choices, S]


@dataclass(frozen=True)
class Prepared:
    """An item as rows, and what makes its answer of their results, in the same order."""

    rows: Sequence[Any]
    lengths: Sequence[int]
    """of the rows, in tokens"""
    finish: Callable[[list[Any]], dict[str, Any]]
    head: "Head | None" = None
    """computes the rows; None: the one that prepared them"""
    then: "Callable[[list[Any]], Prepared] | None" = None
    """returns further rows, of which the answer is made, instead of `finish`"""


class Head(abc.ABC):
    """One kind of question to one model."""

    kind: ClassVar[heads.HeadSpec | None] = None
    """the kind of head of a fine-tuned model that answers it; None: other models do, too"""
    route: ClassVar[str]
    """the last part of its address"""
    item: ClassVar[type]
    """what a client sends"""
    title: ClassVar[str]
    """what it does, in the description of the service"""
    answer: ClassVar[str]
    """what an answer has"""
    run: Run
    """the run, whose weights are loaded"""
    encoder: Engine

    @classmethod
    @abc.abstractmethod
    def load(cls, run: Run, compute: Compute, batch: int, engine: EngineName) -> Self:
        """Load the model of a run. batch: most rows computed at once. engine: of the encoder. Raise as commands do."""

    def details(self) -> dict[str, Any]:
        """Return what clients are told of the model, besides what all have."""
        return {}

    @abc.abstractmethod
    def prepare(self, item: Any, most: int) -> Prepared:
        """Divide an item into at most `most` rows. Raise RequestError if it cannot be answered."""

    @abc.abstractmethod
    def compute(self, rows: Sequence[Any]) -> list[Any]:
        """Return the results of rows, which may be those of several items."""

    @abc.abstractmethod
    def example(self) -> Any:
        """Return an item, to compute before the first client comes."""


Reads = Callable[[], Head | None]
"""returns the head that answers questions now, None if there is none"""


class Answering(Head):
    """Questions about passages, answered as by squad.predict."""

    kind, route, item = ANSWER_SPAN, "answer", Question
    title = "Answer a question from a text"
    answer = (
        "`answer` (null if there is none) and `candidates`, each with text, start and end (characters of its passage), "
        "passage (number) and probability; with null_odds where the model knows impossible questions"
    )

    def __init__(self, model: FineTuned[AnswerSpans], batch: int) -> None:
        """batch: maximum windows that are computed at once."""
        self.model, self.run, self.encoder = model, model.run, model.encoder
        self.limit = predict.null_threshold(model, model.run.path, None)
        self.reader = Reader(
            model,
            batch=batch,
            n_best=MOST_ANSWERS,
            max_answer_length=MAX_ANSWER_LENGTH,
            null=self.limit is not None,
            compiled=False,
        )

    @classmethod
    def load(cls, run: Run, compute: Compute, batch: int, engine: EngineName) -> Self:
        """As Head has it."""
        return cls(squad_model.load(run, compute, engine), batch)

    def details(self) -> dict[str, Any]:
        """Return whether the model was trained on impossible questions."""
        return {"impossible": self.model.kind.impossible}

    def prepare(self, item: Question, most: int) -> Prepared:
        """Cut the passages into windows."""
        passages = [item.context] if isinstance(item.context, str) else item.context
        if len(passages) > most:  # each has a window
            raise RequestError(f"the text has {len(passages)} passages; send at most {most}")
        examples = [
            Example(id="", question=item.question, passage=number, answers=()) for number in range(len(passages))
        ]
        tokenizer, windowing = self.model.tokenizer, self.model.kind.windowing
        tokens = features.tokenize(tokenizer, passages)
        room = features.room(tokenizer, len(tokenizer.encode([item.question])[0]), windowing)
        count = sum(len(cut(int(length), room, windowing.doc_stride)) for length in np.diff(tokens.splits))
        if count > most:
            raise RequestError(f"the text has {count} windows of the model; send one of at most {most}")
        inputs, places, _ = features.windows(tokenizer, examples, tokens, windowing)

        def finish(results: list[Any]) -> dict[str, Any]:
            logits = np.stack([start for start, _ in results]), np.stack([end for _, end in results])
            answers = n_best_answers(examples, passages, tokens, places, logits, *self.reader.limits, self.reader.null)
            return _best_of(answers, self.limit, item.n_best)

        return Prepared(*_rows(inputs), finish)

    def compute(self, rows: Sequence[Inputs]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return start and end logits [S] of each window."""
        return list(zip(*self.reader.outputs(_stacked(rows)), strict=True))

    def example(self) -> Question:
        """Return a question about a text of two words."""
        return Question(question="Who?", context="Nobody here.")


def _best_of(of_passages: Sequence[Answers], limit: float | None, count: int) -> dict[str, Any]:
    """Return the best answers of one question in several passages."""
    found = among(of_passages, limit is not None, MOST_ANSWERS)
    candidates = [
        {
            "text": one.text,
            "start": one.start,
            "end": one.start + len(one.text),
            "passage": number,
            "probability": one.probability,
        }
        for number, one in found.candidates
    ]
    has_answer = found.best(limit)[1].text != ""
    answer: dict[str, Any] = {"answer": candidates[0] if has_answer else None, "candidates": candidates[:count]}
    if found.null_odds is not None:
        none = {"null_threshold": limit, "no_answer_probability": found.null_probability}
        answer |= {"null_odds": found.null_odds} | none
    return answer


class _OfTask(Head):
    """A head of a `tasks.train` run: what it predicts is what tasks.predict writes."""

    def __init__(self, model: FineTuned[ExampleKind], batch: int) -> None:
        self.model, self.run, self.encoder = model, model.run, model.encoder
        self.reader = tasks_model.Reader(model, batch, compiled=False)

    @classmethod
    def load(cls, run: Run, compute: Compute, batch: int, engine: EngineName) -> Self:
        """As Head has it."""
        return cls(loading.load(run, compute, engine=engine), batch)

    def details(self) -> dict[str, Any]:
        """Return the names of the classes."""
        labels = self.model.kind.described.labels
        return {"labels": list(labels)} if labels else {}

    def _prepared(self, example: Any, most: int) -> Prepared:
        kind = copy.copy(self.model.kind)  # two threads encode, and each counts what it cuts
        kind.seen = EncodingCounts()
        try:
            arrays = kind.encode([example], self.model.tokenizer)
        except (InputError, UsageError) as error:  # the latter: a pair, of a model that reads windows of single texts
            raise RequestError(str(error)) from error
        if len(arrays["input_ids"]) > most:
            raise RequestError(f"the text has {len(arrays['input_ids'])} windows of the model; send at most {most}")

        def finish(results: list[Any]) -> dict[str, Any]:
            (prediction,) = kind.predictions([example], arrays, np.stack(results))
            told = {"truncated": kind.seen.lost > 0} if kind.head.pooled else {}
            return {name: value for name, value in prediction.items() if name != "id"} | told

        return Prepared(*_rows(arrays), finish)

    def compute(self, rows: Sequence[Inputs]) -> list[np.ndarray]:
        """Return the logits of each row."""
        return list(self.reader.logits(_stacked(rows)))


class Classifying(_OfTask):
    """Texts and pairs of texts: a class, or a number."""

    kind, route, item = CLASSIFIER, "classify", Text
    title = "Classify a text or a pair of texts"
    answer = f"`label` and `probabilities` by label, or `value` for a model of numbers; {TRUNCATED}"

    def prepare(self, item: Text, most: int) -> Prepared:
        """Encode the text or the pair."""
        return self._prepared(TextExample(id="text", first=item.text, second=item.second), most)

    def example(self) -> Text:
        """Return a text of two words."""
        return Text(text="Nobody here.")


class Labelling(Classifying):
    """Texts and pairs of texts: any number of labels."""

    kind, route = MULTILABEL, "label"
    title = "Give a text or a pair of texts its labels"
    answer = f"`labels`, those that the text is given, and `probabilities` of all labels; {TRUNCATED}"


class Choosing(_OfTask):
    """Multiple choice."""

    kind, route, item = CHOICE, "choose", Choices
    title = "Choose the right continuation"
    answer = f"`label`, the number of the choice from 0, and `probabilities`; {TRUNCATED}"

    def details(self) -> dict[str, Any]:
        """Return the number of choices."""
        return {"choices": self.model.kind.labels.outputs}

    def prepare(self, item: Choices, most: int) -> Prepared:
        """Encode a pair of texts for each choice."""
        pairs = tuple((item.text, choice) for choice in item.choices)
        return self._prepared(ChoiceExample(id="of the request", pairs=pairs), most)

    def example(self) -> Choices:
        """Return as many choices as the model takes."""
        return Choices(text="Who?", choices=["Nobody."] * self.model.kind.labels.outputs)


class Tagging(_OfTask):
    """A tag for each word of a sentence."""

    kind, route, item = TAGS, "tag", Sentence
    title = "Tag the words of a sentence"
    answer = "`words`, `tags` and `probabilities`, one of each per word"

    def prepare(self, item: Sentence, most: int) -> Prepared:
        """Encode the words, in several windows if there are many."""
        try:
            given = sentence("of the request", item.words if item.words is not None else item.text or "")
        except InputError as error:
            raise RequestError(str(error)) from error
        return self._prepared(given, most)

    def example(self) -> Sentence:
        """Return a sentence of two words."""
        return Sentence(text="Nobody here.")


class Filling(Head):
    """The likeliest words for masks, as by bert.fill_mask."""

    route, item = "fill", Masked
    title = "Fill masked words"
    answer = "`masks`: for each mask the likeliest words with their probabilities"

    def __init__(self, run: Run, model: MaskedWords) -> None:
        self.model, self.run, self.encoder = model, run, model.encoder

    @classmethod
    def load(cls, run: Run, compute: Compute, batch: int, engine: EngineName) -> Self:
        """As Head has it."""
        return cls(run, MaskedWords(run, compute, batch, engine, compiled=False))

    def details(self) -> dict[str, Any]:
        """Return how a text marks a word to fill in."""
        return {"mask": self.model.tokenizer.mask}

    def prepare(self, item: Masked, most: int) -> Prepared:
        """Encode the text."""
        try:
            row = fill_mask.encode(self.model, item.text, "text")
        except InputError as error:
            raise RequestError(str(error)) from error
        places = np.flatnonzero(row == self.model.tokenizer.mask_id).tolist()
        if len(places) > MOST_MASKS:
            raise RequestError(f"the text has {len(places)} masks; send at most {MOST_MASKS}")

        def finish(results: list[Any]) -> dict[str, Any]:
            words, scores = results[0]
            return {
                "masks": [
                    [
                        {"word": self.model.tokenizer.word(word), "probability": float(np.exp(score))}
                        for word, score in zip(row[: item.top], best[: item.top], strict=True)
                    ]
                    for row, best in zip(words, scores, strict=True)
                ]
            }

        return Prepared([(row, places)], [len(row)], finish)

    def compute(self, rows: Sequence[tuple[np.ndarray, list[int]]]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return for each text the best words of each mask and their log probabilities, both [masks, MOST_WORDS]."""
        order = np.argsort(
            [len(ids) for ids, _ in rows], kind="stable"
        )  # the model takes them in batches, as they come
        words: list[Any] = [None] * len(rows)
        scores = self.model.log_probabilities([rows[row][0] for row in order], [rows[row][1] for row in order])
        for row, log_probabilities in zip(order, scores, strict=True):
            best = self.model.likeliest(log_probabilities, MOST_WORDS)
            words[row] = best, np.take_along_axis(log_probabilities, best, axis=1)
        return words

    def example(self) -> Masked:
        """Return a text with one mask."""
        return Masked(text=f"Nobody {self.model.tokenizer.mask} here.")


class Embedding(Head):
    """Features of texts, as by bert.encode."""

    route, item = "embed", Passage
    title = "Compute the features of a text"
    answer = "`features`, `tokens` (their number) and whether the text was `truncated`"

    def __init__(self, run: Run, encoder: Engine, batch: int) -> None:
        """encoder: of the run. batch: maximum texts that are computed at once."""
        self.run, self.encoder = run, encoder
        self.tokenizer, self.made = run.tokenizer, embedding.of(run.settings, run.settings_path)
        positions = run.config.max_position_embeddings
        self.longest = min(positions, (self.made and self.made.length) or positions)
        self._batches = Batches(batch, self.longest)
        self._encode = encoder.function(self._pooled, compiled=False)

    @classmethod
    def load(cls, run: Run, compute: Compute, batch: int, engine: EngineName) -> Self:
        """As Head has it."""
        return cls(run, run.encoder(compute, engine), batch)

    def details(self) -> dict[str, Any]:
        """Return how an embedding is made, if the model says it."""
        if self.made is None:
            return {}
        told = {"pool": self.made.pool, "normalize": self.made.normalize}
        return told | ({"prompt": prompt} if (prompt := self.made.prompt()) else {})

    def _pooled(self, states: list[tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        """Return the last hidden states pooled in each way, [n, POOLS, D]."""
        return tf.stack([pooled(states[0], mask, pool) for pool in POOLS], axis=1)

    def prepare(self, item: Passage, most: int) -> Prepared:
        """Encode the text, behind the default prompt if the model has one."""
        ids = self.tokenizer.encode([(self.made.prompt() if self.made else "") + item.text])[0]
        first = ids[: self.longest - 2]
        row = self.tokenizer.row(first).ids

        def finish(results: list[Any]) -> dict[str, Any]:
            made = self.made if item.pool == "auto" else embedding.Embedding(pool=item.pool)
            features = results[0][POOLS.index(made.pool if made else "mean")]
            if made and made.normalize:
                features = embedding.unit_length(features)
            if made:
                features = features[: made.dimensions]
            return {"features": features.tolist(), "tokens": len(row), "truncated": len(first) < len(ids)}

        return Prepared([row], [len(row)], finish)

    def compute(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the features of each text by each pooling [POOLS, D]."""
        features = np.zeros((len(rows), len(POOLS), self.encoder.width), np.float32)
        for chosen, width in self._batches(np.array([len(row) for row in rows])):
            ids, mask = padded([rows[row] for row in chosen], width, self.tokenizer.pad_id)
            features[chosen] = self._encode(
                *(tf.constant(array, tf.int32) for array in (ids, mask, np.zeros_like(ids)))
            ).numpy()
        if not np.isfinite(features).all():
            raise IntegrityError("the model's features are not finite: its training failed; use another checkpoint")
        return list(features)

    def example(self) -> Passage:
        """Return a text of two words."""
        return Passage(text="Nobody here.")


HEADS: list[type[Head]] = [
    Answering,
    Classifying,
    Labelling,
    Choosing,
    Tagging,
    Filling,
    Embedding,
]  # as /docs lists them
OTHERS: Rows[type[Head]] = Rows({"search": "extensions.search.serving:Searching"})
"""kinds of requests that no run directory answers by itself, as /docs lists them behind `HEADS`"""


def routes() -> list[type[Head]]:
    """Return all kinds of requests, as /docs lists them."""
    return [*HEADS, *OTHERS.values()]


def of_run(run: Run, compute: Compute, batch: int, engine: EngineName = "tensorflow") -> list[Head]:
    """Load a run; return what it can be asked. Raise InputError if it is of a kind that is not served."""
    run.config.refuse_causal(run.path, ", which is not served; see python -m bert.generate")
    if run.head is None and not run.has(MASKED_LM):
        return [Embedding.load(run, compute, batch, engine)]
    of_kind = {head.kind.name: head for head in HEADS if head.kind}
    own = (of_kind[run.head.kind] if run.head else Filling).load(run, compute, batch, engine)
    return [own, Embedding(run, own.encoder, batch)]


def _rows(arrays: Inputs) -> tuple[list[Inputs], list[int]]:
    """Return ids, mask and segments of each row of stacked ones, and the length of each, for choices of the longest."""
    rows = [{name: arrays[name][row] for name in NAMES} for row in range(len(arrays["input_ids"]))]
    return rows, [int(row["input_mask"].sum(axis=-1).max()) for row in rows]


def _stacked(rows: Sequence[Inputs]) -> Inputs:
    return {name: np.stack([row[name] for row in rows]) for name in NAMES}
