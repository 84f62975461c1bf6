"""Scores of retrieval: which documents a query finds, in the layout of BEIR (Thakur et al. 2021).

    corpus.jsonl         {"_id": "d1", "title": "...", "text": "..."}    the title stands before the text
    queries.jsonl        {"_id": "q1", "text": "..."}
    qrels/SPLIT.tsv      query-id, corpus-id, score, with a header; above 0 is relevant

Queries and documents count as in trec_eval: a judged document that the corpus lacks is never found; a query of which no
judged document is relevant has the score 0; one that queries.jsonl lacks is left out; of documents with equal scores
the one with the greater id stands first. The first three are told.

A query can find the document of its own id, as in sentence-transformers; BEIR leaves that one out.

The search is exact. Documents are encoded and compared in blocks, so only the embeddings of the queries and the nearest
documents of each are held in memory.
"""

import itertools
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from bert.core.errors import InputError
from bert.embedding import DOCUMENT, QUERY, Similarity, unit_length
from extensions.search import nearest, passages
from tasks import metrics, tables

AT = (1, 3, 5, 10)  # of accuracy
NEAREST = 100
BLOCK = 4096  # documents that are encoded and compared at once
NAMES = ("ndcg@10", "mrr@10", "map@100", *(f"accuracy@{k}" for k in AT))
CORPUS = "corpus.jsonl"
_Grades = dict[str, dict[str, float]]  # of the relevant documents of each query
REMEDY = "give a folder with corpus.jsonl, queries.jsonl and qrels/, as BEIR has, or one of STS sets"


class Encode(Protocol):
    """What gives embeddings."""

    def __call__(self, texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        """Return the embeddings of texts [n, D]. prompt: name of the one before each; None: the model's default."""


class Retrieval:
    """Queries, documents, and which of them are relevant for which query."""

    names: tuple[str, ...] = NAMES

    def __init__(self, folder: Path, split: str, limit: int = 0) -> None:
        """limit: number of queries, from the first on; 0: all. Raise InputError for what is missing or damaged."""
        self.folder = folder
        grades = _grades(folder / "qrels" / f"{split}.tsv")
        queries = {name: text for name, text in _texts(folder / "queries.jsonl") if name in grades}
        chosen = dict(itertools.islice(queries.items(), limit or None))
        self.queries, self.grades = list(chosen.values()), [grades[name] for name in chosen]
        self.ids = [name for name, _ in _texts(folder / CORPUS)]
        self._tell(f"qrels/{split}.tsv", grades, queries, chosen)

    def _tell(self, qrels: str, grades: _Grades, queries: Collection[str], chosen: Collection[str]) -> None:
        """Print which queries and documents are missing. Raise InputError if all are: they belong to another set."""
        relevant = {name for of_query in self.grades for name in of_query}
        no_query, no_document = [name for name in grades if name not in queries], sorted(relevant - {*self.ids})
        for file, lost, named in (("queries.jsonl", no_query, grades), (CORPUS, no_document, relevant)):
            if lost and len(lost) == len(named):
                raise InputError(f"{self.folder}: {file} has none of the ids in {qrels}, such as {lost[0]!r}; {REMEDY}")
        for names, what in (
            (no_query, "queries that queries.jsonl lacks; they are left out"),
            (no_document, f"relevant documents that {CORPUS} lacks; they count as not found"),
            ([name for name in chosen if not grades[name]], "queries without a relevant document; they count 0"),
        ):
            if names:
                print(
                    f"note: {self.folder}: {qrels} has {len(names):,} {what}, the first {names[0]!r}", file=sys.stderr
                )

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def texts(self) -> int:
        """Number of texts that are encoded."""
        return len(self.queries) + len(self.ids)

    def scores(self, encode: Encode, score: Similarity = "cosine") -> metrics.Scores:
        """Return the scores of the embeddings that `encode` gives, compared by `score`."""

        def made(texts: Sequence[str], prompt: str) -> np.ndarray:
            return unit_length(encode(texts, prompt)) if score == "cosine" else encode(texts, prompt)

        documents = (text for _, text in _texts(self.folder / CORPUS))
        blocks = iter(lambda: list(itertools.islice(documents, BLOCK)), [])
        order = np.empty(len(self.ids), np.int64)  # of documents with equal scores
        order[sorted(range(len(self.ids)), key=self.ids.__getitem__, reverse=True)] = np.arange(len(self.ids))
        queries, vectors = made(self.queries, QUERY), (made(block, DOCUMENT) for block in blocks)
        _, found = nearest.in_blocks(vectors, queries, NEAREST, score, order)
        ranked = [[self.ids[place] for place in row] for row in found]
        return metrics.Scores.of_fractions(scores(ranked, self.grades), {})


def scores(ranked: Sequence[Sequence[str]], grades: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the scores that BEIR and sentence-transformers report: means over the queries, as fractions.

    ranked: the documents that each query found, the best first. grades: of the relevant documents of each query, each
    above 0; all scores of a query without relevant documents are 0.

    accuracy@k: whether one of the first k documents is relevant. mrr@10: 1 / rank of the first relevant document, if it
    is among the first ten. ndcg@10: sum of grade / log2(rank + 1), divided by the same sum for the best order
    (trec_eval; all grades count 1 in sentence-transformers). map@100: mean of the precision at each relevant document,
    divided by min(100, relevant documents).
    """
    rows = [_of_query(found, of_query) for found, of_query in zip(ranked, grades, strict=True)]
    return {name: float(np.mean([row[name] for row in rows])) for name in NAMES}


def _of_query(found: Sequence[str], grades: Mapping[str, float]) -> dict[str, float]:
    if not grades:
        return dict.fromkeys(NAMES, 0.0)
    gains = np.array([grades.get(name, 0.0) for name in found[:NEAREST]])
    ranks, hits = np.arange(1, len(gains) + 1), gains > 0
    ideal = np.sort(np.array([*grades.values()]))[::-1][:10]
    first = int(ranks[hits][0]) if hits.any() else 0
    precisions = np.cumsum(hits)[hits] / ranks[hits]
    values = {
        "ndcg@10": (gains[:10] / np.log2(ranks[:10] + 1)).sum() / (ideal / np.log2(np.arange(2, len(ideal) + 2))).sum(),
        "mrr@10": 1 / first if 0 < first <= 10 else 0.0,
        "map@100": precisions.sum() / min(NEAREST, len(grades)),
    }
    return values | {f"accuracy@{k}": float(hits[:k].any()) for k in AT}


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield ids and texts, each behind its title if it has one. Raise InputError if something is missing."""
    if not path.exists():
        raise InputError(f"{path}: no such file; {REMEDY}")
    for text in passages.read(path, "line"):
        yield text.id, f"{text.title} {text.text}".strip()


def _grades(path: Path) -> _Grades:
    """Return the grades of the relevant documents of each query that has a judged document, relevant or not."""
    if not path.exists():
        there = ", ".join(sorted(one.stem for one in path.parent.glob("*.tsv"))) or "none"
        raise InputError(f"{path}: no such file (splits there: {there}); {REMEDY}")
    grades: _Grades = {}
    columns = ("query-id", "corpus-id", "score")
    for line, row in tables.rows(path, columns):
        try:
            query, document, grade = (row or {})["query-id"], (row or {})["corpus-id"], float((row or {})["score"])
        except (KeyError, ValueError) as error:
            raise InputError(f"{path}: line {line}: not query-id, corpus-id and a number; {REMEDY}") from error
        if not math.isfinite(grade):
            raise InputError(f"{path}: line {line}: the grade {grade} is no number; {REMEDY}")
        relevant = grades.setdefault(query, {})
        relevant.pop(document, None)
        if grade > 0:
            relevant[document] = grade
    if not any(grades.values()):
        raise InputError(f"{path}: no document is relevant for any query; {REMEDY}")
    return grades
