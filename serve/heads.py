"""What a model can be asked: each head turns an item into rows of tokens, and the results of the rows into an answer.

The rows of many items are computed together (serve/batching.py); `prepare` and the `finish` that it returns run in
threads of their own. n rows, S positions, D width of the model.
"""

import abc
import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from bert import api, embedding, fill_mask, hidden_states
from bert.core.errors import InputError, UsageError
from bert.core.rows import Rows, load
from bert.embedding import POOLS
from bert.engines.engine import Engine
from bert.hardware.choices import Compute, EngineName
from bert.heads import KINDS, MASKED_LM
from bert.model.heads import pooled
from bert.runs import Run
from serve.items import MOST_WORDS, Choices, Masked, Passage, Question, RequestError, Sentence, Text
from squad import api as squad_api
from squad.answers import RankedAnswers
from tasks import api as tasks_api
from tasks.inputs import NAMES, EncodingCounts

TRUNCATED = "`truncated` says whether tokens were cut off"
MOST_MASKS = 32  # in a text: each is a row of probabilities of all words
Inputs = dict[str, np.ndarray]  # ids, mask and segments of one row, [S] or for choices [choices, S]


@dataclass(frozen=True)
class Prepared:
    """An item as rows, and the function that makes the answer from the rows' results, in the same order."""

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

    def __init__(self, model: Any) -> None:
        """model: a model of `bert.load` that has this use."""
        self.model, self.run, self.encoder = model, model.run, model.encoder

    def details(self) -> dict[str, Any]:
        """Return the fields about the model that clients get, besides the fields of all models."""
        return {}

    @abc.abstractmethod
    def prepare(self, item: Any, most: int) -> Prepared:
        """Divide an item into at most `most` rows. Raise RequestError if it cannot be answered."""

    @abc.abstractmethod
    def compute(self, rows: Sequence[Any]) -> list[Any]:
        """Return a result for each row. The rows may belong to several items."""

    def example(self) -> Any:
        """Return an item to compute before the first request."""
        return self.item(text="Nobody here.")


Reads = Callable[[], Head | None]
"""returns the head that answers questions now, None if there is none"""


class Answering(Head):
    """Questions about passages, answered as by squad.predict."""

    route, item = "answer", Question
    title = "Answer a question from a text"
    answer = (
        "`answer` (null if there is none) and `candidates`, each with text, start and end (characters of its passage), "
        "passage (number) and probability; with null_odds where the model knows impossible questions"
    )
    model: squad_api.Answering

    def details(self) -> dict[str, Any]:
        """Return whether the model was trained on impossible questions."""
        return {"impossible": self.model.fine_tuned.kind.impossible}

    def prepare(self, item: Question, most: int) -> Prepared:
        """Cut the passages into windows."""
        passages = [item.context] if isinstance(item.context, str) else item.context
        if len(passages) > most:  # each has a window
            raise RequestError(f"the text has {len(passages)} passages; send at most {most}")
        with _refused(InputError):
            read = self.model.reader.prepare(squad_api.asked([item.question] * len(passages), passages), most)

        def finish(results: list[Any]) -> dict[str, Any]:
            start, end = (np.stack(part) for part in zip(*results, strict=True))
            return self._answer(self.model.among(self.model.reader.finish(read, (start, end))), item.n_best)

        return Prepared(*_rows(read.windows.inputs), finish)

    def _answer(self, found: RankedAnswers, count: int) -> dict[str, Any]:
        candidates = [
            {"text": one.text, "start": one.start, "end": one.end, "passage": number, "probability": one.probability}
            for number, one in found.candidates
        ]
        has_answer = found.best(self.model.limit)[1].text != ""
        answer: dict[str, Any] = {"answer": candidates[0] if has_answer else None, "candidates": candidates[:count]}
        if found.null_odds is not None:
            none = {"null_threshold": self.model.limit, "no_answer_probability": found.null_probability}
            answer |= {"null_odds": found.null_odds} | none
        return answer

    def compute(self, rows: Sequence[Inputs]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return start and end logits [S] of each window."""
        return list(zip(*self.model.reader.outputs(_stacked(rows)), strict=True))

    def example(self) -> Question:
        """Return a question about a text of two words."""
        return Question(question="Who?", context="Nobody here.")


class _OfTask(Head):
    """A head of a `tasks.train` run: what it predicts is what tasks.predict writes."""

    model: tasks_api.OfTask
    identity = "text"
    """of an example, in messages"""

    def given(self, item: Any) -> Sequence[Any]:
        """Return the arguments of the model's method."""
        return tuple(vars(item).values())

    def details(self) -> dict[str, Any]:
        """Return the names of the classes."""
        labels = self.model.fine_tuned.kind.described.labels
        return {"labels": list(labels)} if labels else {}

    def prepare(self, item: Any, most: int) -> Prepared:
        """Encode the item, in several windows if the model reads windows."""
        kind = copy.copy(self.model.fine_tuned.kind)  # two threads encode, and each counts what it cuts
        kind.seen = EncodingCounts()
        with _refused(InputError, UsageError):  # the latter: a pair, of a model that reads windows of single texts
            example = self.model.example(self.identity, *self.given(item))
            arrays = kind.encode([example], self.run.tokenizer)
        if len(arrays["input_ids"]) > most:
            raise RequestError(f"the text has {len(arrays['input_ids'])} windows of the model; send at most {most}")

        def finish(results: list[Any]) -> dict[str, Any]:
            (prediction,) = kind.predictions([example], arrays, np.stack(results))
            told = {"truncated": kind.seen.lost > 0} if kind.head.pooled else {}
            return {name: value for name, value in prediction.items() if name != "id"} | told

        return Prepared(*_rows(arrays), finish)

    def compute(self, rows: Sequence[Inputs]) -> list[np.ndarray]:
        """Return the logits of each row."""
        return list(self.model.reader.logits(_stacked(rows)))


class Classifying(_OfTask):
    """Texts and pairs of texts: a class, or a number."""

    route, item = "classify", Text
    title = "Classify a text or a pair of texts"
    answer = f"`label` and `probabilities` by label, or `value` for a model of numbers; {TRUNCATED}"


class Labelling(_OfTask):
    """Texts and pairs of texts: any number of labels."""

    route, item = "label", Text
    title = "Give a text or a pair of texts its labels"
    answer = f"`labels`, those that the text is given, and `probabilities` of all labels; {TRUNCATED}"


class Choosing(_OfTask):
    """Multiple choice."""

    route, item, identity = "choose", Choices, "of the request"
    title = "Choose the right continuation"
    answer = f"`label`, the number of the choice from 0, and `probabilities`; {TRUNCATED}"

    def details(self) -> dict[str, Any]:
        """Return the number of choices."""
        return {"choices": self.model.fine_tuned.kind.labels.outputs}

    def example(self) -> Choices:
        """Return as many choices as the model takes."""
        return Choices(text="Who?", choices=["Nobody."] * self.model.fine_tuned.kind.labels.outputs)


class Tagging(_OfTask):
    """A tag for each word of a sentence."""

    route, item, identity = "tag", Sentence, "of the request"
    title = "Tag the words of a sentence"
    answer = "`words`, `tags` and `probabilities`, one of each per word"

    def given(self, item: Sentence) -> Sequence[Any]:
        """Return the words, or the text."""
        return [item.words if item.words is not None else item.text]


class Filling(Head):
    """The likeliest words for masks, as by bert.fill_mask."""

    route, item = "fill", Masked
    title = "Fill masked words"
    answer = "`masks`: for each mask the likeliest words with their probabilities"

    def __init__(self, model: api.Pretrained) -> None:
        super().__init__(model)
        assert model.words is not None, "it is one of its uses"
        self.words = model.words

    def details(self) -> dict[str, Any]:
        """Return how a text marks a word to fill in."""
        return {"mask": self.run.tokenizer.mask}

    def prepare(self, item: Masked, most: int) -> Prepared:
        """Encode the text."""
        with _refused(InputError):
            row = fill_mask.encode(self.words, item.text, "text")
        masks = int((row == self.run.tokenizer.mask_id).sum())
        if masks > MOST_MASKS:
            raise RequestError(f"the text has {masks} masks; send at most {MOST_MASKS}")

        def finish(results: list[Any]) -> dict[str, Any]:
            best, scores = results[0]
            return {"masks": fill_mask.described(self.words, best[:, : item.top], scores[:, : item.top])}

        return Prepared([row], [len(row)], finish)

    def compute(self, rows: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return for each text the best words of each mask and their log probabilities, both [masks, MOST_WORDS]."""
        order = np.argsort([len(ids) for ids in rows], kind="stable")  # the model takes them in batches, as they come
        found = fill_mask.likeliest(self.words, [rows[row] for row in order], MOST_WORDS)
        by_row = dict(zip(order.tolist(), found, strict=True))
        return [by_row[row] for row in range(len(rows))]

    def example(self) -> Masked:
        """Return a text with one mask."""
        return Masked(text=f"Nobody {self.run.tokenizer.mask} here.")


class Embedding(Head):
    """Features of texts, as by bert.encode."""

    route, item = "embed", Passage
    title = "Compute the features of a text"
    answer = "`features`, `tokens` (their number) and whether the text was `truncated`"

    def __init__(self, model: api.Model) -> None:
        super().__init__(model)
        every = self.encoder.function(_pooled, compiled=False)
        self.reader = hidden_states.Reader(self.run, self.encoder, batch=model.settings.batch, features=every)

    def details(self) -> dict[str, Any]:
        """Return how an embedding is made, if the model says it."""
        made = self.reader.says
        if made is embedding.PLAIN:
            return {}
        told = {"pool": made.pool, "normalize": made.normalize}
        return told | ({"prompt": prompt} if (prompt := made.prompt()) else {})

    def prepare(self, item: Passage, most: int) -> Prepared:
        """Encode the text, behind the default prompt if the model has one."""
        (row,), is_cut = self.reader.prepare([self.reader.before + item.text])

        def finish(results: list[Any]) -> dict[str, Any]:
            made = self.reader.says if item.pool == "auto" else embedding.Embedding(pool=item.pool)
            features = results[0][POOLS.index(made.pool)]
            features = embedding.unit_length(features) if made.normalize else features
            return {
                "features": features[: made.dimensions].tolist(),
                "tokens": len(row),
                "truncated": bool(is_cut[0]),
            }

        return Prepared([row], [len(row)], finish)

    def compute(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the features of each text by each pooling [POOLS, D]."""
        return self.reader.features(rows)


def _pooled(states: list[tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
    """Return the last hidden states pooled in each way, [n, POOLS, D]."""
    return tf.stack([pooled(states[0], mask, pool) for pool in POOLS], axis=1)


OTHERS: Rows[type[Head]] = Rows({"search": "extensions.search.serving:Searching"})
"""kinds of requests that no run directory answers by itself, as /docs lists them behind those of models"""


def of_models() -> list[type[Head]]:
    """Return the kinds of requests that run directories answer, as /docs lists them."""
    return [*dict.fromkeys(load(kind.served) for kind in KINDS.values()), Filling, Embedding]


def routes() -> list[type[Head]]:
    """Return all kinds of requests, as /docs lists them."""
    return [*of_models(), *OTHERS.values()]


def of_run(run: Run, compute: Compute, batch: int, engine: EngineName = "tensorflow") -> list[Head]:
    """Load a run; return its heads. Raise InputError if the run is of a kind that is not served."""
    run.config.refuse_causal(run.path, ", which is not served; see python -m bert.generate")
    model = api.of_run(run, api.Settings(compute=compute, batch=batch, engine=engine))
    served: list[type[Head]] = [Embedding]
    if run.head or run.has(MASKED_LM):
        served.insert(0, load(KINDS[run.head.kind].served) if run.head else Filling)
    return [head(model) for head in served]


@contextlib.contextmanager
def _refused(*errors: type[Exception]) -> Iterator[None]:
    """Replace errors that say what is wrong with an item by RequestError."""
    try:
        yield
    except errors as error:
        raise RequestError(str(error)) from error


def _rows(arrays: Inputs) -> tuple[list[Inputs], list[int]]:
    """Return ids, mask and segments of each row, and the length of each row; for choices, of the longest choice."""
    rows = [{name: arrays[name][row] for name in NAMES} for row in range(len(arrays["input_ids"]))]
    return rows, [int(row["input_mask"].sum(axis=-1).max()) for row in rows]


def _stacked(rows: Sequence[Inputs]) -> Inputs:
    return {name: np.stack([row[name] for row in rows]) for name in NAMES}
