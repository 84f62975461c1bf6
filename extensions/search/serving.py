"""Search in the service: the passages of an index, or of documents in the request, and the answer in them.

A request has two steps. The query, and the passages of documents if there are any, are encoded as rows of the queue. If
an answer is wanted, the passages that are found become rows of the model that answers questions.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert import hidden_states
from bert.embedding import DOCUMENT, QUERY, Pool
from bert.engines.engine import Engine
from bert.hardware.choices import Compute, EngineName
from bert.runs import Run
from extensions.search import nearest, passages
from extensions.search.index import Hit, Index, Vectors, hit
from extensions.search.passages import Cutter, Passage
from serve.heads import Head, Prepared, Reads
from serve.items import Question, RequestError, has_text, within

MOST_PASSAGES = 100


@dataclass(frozen=True, kw_only=True)
class Search:
    """A query to an index, or to documents that are sent with it."""

    query: str
    """a question, or a few words"""
    top: int = 5
    """number of passages to return, 1 to 100"""
    answer: bool = False
    """whether the query is answered from these passages, by a model of questions"""
    documents: list[str] | None = None
    """texts to search, instead of the index; they are indexed for this request only"""

    def __post_init__(self) -> None:
        within("top", self.top, MOST_PASSAGES)
        has_text("query", self.query)
        if self.documents == []:
            raise ValueError("documents is empty; send texts, or leave it out to search the index")


class Searching(Head):
    """Passages that are nearest to a query, as by bert.search; and the answer in them, of another head."""

    route, item = "search", Search
    title = "Search texts by meaning, and answer a question from the passages that are found"
    answer = (
        "`passages`, best first, each with score, id and title of its text (of `documents`: its number), start and end "
        "(characters of the text) and text; with `answer: true` also what `/v1/answer` has for these passages"
    )

    def __init__(self, run: Run, encoder: Engine, batch: int, reads: Reads, index: Index | None) -> None:
        """run: its encoder made the index. reads: returns the head that answers questions now, None if there is none.

        index: None if only documents are searched that are sent with a request.
        """
        self.run, self.encoder, self.index, self.reads = run, encoder, index, reads
        pool: Pool = index.made.pool if index else "auto"
        self.reader = hidden_states.Reader(run, encoder, pool=pool, batch=batch, compiled=False)
        says = self.reader.says
        usual = Vectors(model=run.identity, pool=pool, score=says.similarity, dtype="float32")
        self.made = index.made if index else usual
        self.before = {name: says.prompt(name) for name in (QUERY, DOCUMENT)}
        self.cutter = Cutter(run.tokenizer, self.reader.length, before=self.before[DOCUMENT])

    def details(self) -> dict[str, Any]:
        """Return the number of passages of the index, 0 without one."""
        return {"passages": len(self.index) if self.index else 0}

    def prepare(self, item: Search, most: int) -> Prepared:
        """Take the query and the passages of the documents as texts."""
        if item.answer and self.reads() is None:
            raise RequestError("no model here answers questions; leave answer out, or serve a run of squad.train, too")
        sent = list[Passage]()
        for passage in self._passages(item):
            sent.append(passage)
            if len(sent) > most:
                raise RequestError(f"the documents have more than {most} passages; send less")
        documents = (self.before[DOCUMENT] + self.cutter.embedded(passage) for passage in sent)
        rows, _ = self.reader.prepare([self.before[QUERY] + item.query, *documents])

        def found(results: list[Any]) -> list[Hit]:
            features = np.stack(results)
            if item.documents is None:
                assert self.index is not None, "without one there are documents"
                return self.index.search(features[:1], item.top)[0]
            vectors = self.made.made(features)
            (scores,), (rows,) = nearest.top(vectors[1:], vectors[:1], item.top, self.made.score)
            return [hit(sent[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

        def finish(results: list[Any]) -> dict[str, Any]:
            return {"passages": [dataclasses.asdict(one) for one in found(results)]}

        def then(results: list[Any]) -> Prepared:
            hits, head = found(results), self.reads()
            if head is None:
                raise RequestError("the model that answers questions is gone; try again")
            read = head.prepare(Question(question=item.query, context=[one.text for one in hits]), most)
            listed = {"passages": [dataclasses.asdict(one) for one in hits]}
            return dataclasses.replace(read, head=head, finish=lambda results: listed | read.finish(results))

        return Prepared(rows, [len(row) for row in rows], finish, then=then if item.answer else None)

    def _passages(self, item: Search) -> Iterator[Passage]:
        """Yield the passages of the documents. Raise RequestError if there is nothing to search."""
        if item.documents is None:
            if self.index is None:
                raise RequestError("no index here; send documents")
            return
        texts = (passages.Text(str(number), "", text) for number, text in enumerate(item.documents))
        count = 0
        for count, passage in enumerate(self.cutter.cut(texts), start=1):  # noqa: B007
            yield passage
        if not count:
            raise RequestError("the documents have no words")

    def compute(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the features of each text [D]."""
        return [features[0] for features in self.reader.features(rows)]

    def example(self) -> Search:
        """Return a query of one word, to a text of two."""
        return Search(query="Who?", documents=["Nobody here."])


def load(
    index: Path | None, encoder: Path | None, compute: Compute, batch: int, engine: EngineName, reads: Reads
) -> Searching:
    """Load an index with the model that made it, or a model for documents that are sent.

    encoder: its run directory; None: where it was when the index was made. Raise InputError if the index was made by
    another model, and as `Index.open` and `Run.open` do.
    """
    opened = None if index is None else Index.open(index)
    assert opened is not None or encoder is not None, "the command checks that one is given"
    run = Run.open(encoder or opened.model())  # type: ignore[union-attr]
    network = run.encoder(compute, engine)
    if opened is not None:
        opened.check(run)
    return Searching(run, network, batch, reads, opened)
