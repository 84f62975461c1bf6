"""How well and how fast `bert.search` finds the paragraph that a question was asked about, and answers from it.

    python -m benchmarks.search --dataset dev-v1.1.json --model RUN --output workdir/benchmarks/search \\
        [--answer SQUAD_RUN] [--questions 2000]
    python -m benchmarks.search --vectors 1000000 --output workdir/benchmarks/search

All paragraphs of a file in SQuAD's format are indexed, and each question is a query. Prints one line of JSON: the share
of questions whose paragraph is among the first 1, 5 and 20 (accuracy@k), and the mean reciprocal rank of it among the
first 20 (MRR@20); seconds and processor time to index, and of a query alone, with its encoding (median); with --answer
the F1 and exact match of the answers from the first 1, 5 and 20 passages, and from the right paragraph. --questions
takes the first of each paragraph in turn.

With --vectors the time of the search alone, over random vectors of 384 numbers in a memory map, float32 and float16,
for one query at a time and for 64 together. The load of the machine stands beside each.
"""

import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import bert
from bert.core import cli, files, ranges
from bert.core.ranges import Range
from extensions.search import nearest, search
from extensions.search.index import Hit, Index
from squad import examples, metric
from squad.examples import Example

FIRST = (1, 5, 20)  # passages
WIDTH = 384
TURNS = 5
ALONE = 200  # queries that are timed one by one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.search`."""

    output: Path
    """folder for the index"""
    dataset: Path | None = None
    """questions in SQuAD format"""
    model: Path | None = None
    """run directory that encodes"""
    answer: Path | None = None
    """run directory of squad.train"""
    questions: Annotated[int, Range(0, 10**7)] = 0
    """number of questions; 0: all"""
    vectors: Annotated[int, Range(0, 10**8)] = 0
    """number of random vectors to search"""

    def __post_init__(self) -> None:
        ranges.check(self)


def chosen(questions: Sequence[Example], count: int) -> list[Example]:
    """Return the first question of each paragraph, then the second ones, up to a number of them; 0: all."""
    earlier, turns = Counter[int](), list[int]()
    for one in questions:
        turns.append(earlier[one.passage])
        earlier[one.passage] += 1
    order = np.argsort(turns, kind="stable")[: count or None]
    return [questions[place] for place in sorted(order)]


def ranks(found: Sequence[Sequence[Hit]], questions: Sequence[Example]) -> np.ndarray:
    """Return the rank of each question's paragraph from 1, infinite if it is not there."""
    ids = ([int(hit.id) for hit in hits] for hits in found)
    return np.array(
        [1 + one.index(q.passage) if q.passage in one else np.inf for one, q in zip(ids, questions, strict=True)]
    )


def quality(options: Options) -> dict[str, Any]:
    """Index the paragraphs, ask the questions."""
    assert options.dataset is not None and options.model is not None, "the command checks that both are given"
    dataset = examples.read_dataset(options.dataset)
    corpus = options.output / "corpus.jsonl"
    with files.atomic_write(corpus) as stream:
        for number, text in enumerate(dataset.passages):
            stream.write(json.dumps({"_id": number, "text": text}) + "\n")
    indexing = _timed(
        lambda: search.main(["index", str(corpus), str(options.output / "index"), "--model", str(options.model)])
    )
    questions, index = chosen(dataset.examples, options.questions), Index.open(options.output / "index")
    model = bert.load(options.model)
    model.search(index, "warm up")
    found = model.search(index, [one.question for one in questions], max(FIRST))
    one_by_one = [_timed(lambda: model.search(index, one.question)) for one in questions[:ALONE]]  # noqa: B023
    rank = ranks(found, questions)
    line: dict[str, Any] = {"passages": len(index), "questions": len(questions)}
    line |= {f"accuracy@{k}": round(100 * float((rank <= k).mean()), 1) for k in FIRST}
    line |= {"mrr@20": round(100 * float((1 / rank).mean()), 1)}
    line |= dict(zip(("seconds_to_index", "cpu_seconds_to_index"), np.round(indexing, 1).tolist(), strict=True))
    per_query = np.median(one_by_one, axis=0).round(4).tolist()
    line |= dict(zip(("seconds_per_query", "cpu_seconds_per_query"), per_query, strict=True))
    return line | (answered(options.answer, found, questions, dataset.passages) if options.answer else {})


def answered(
    run: Path, found: Sequence[Sequence[Hit]], questions: Sequence[Example], passages: Sequence[str]
) -> dict[str, Any]:
    """Return the scores of the answers from the first passages of each question, and from its own one."""
    reader, line = bert.load(run), dict[str, Any]()
    given = reader.answer([one.question for one in questions], [passages[one.passage] for one in questions])
    score = metric.score(questions, {one.id: answer.text for one, answer in zip(questions, given, strict=True)})
    line["from the right one"] = {"f1": round(score.f1, 1), "em": round(score.exact_match, 1)}
    for count in FIRST:
        told = {
            one.id: reader.answer_among(one.question, [hit.text for hit in hits[:count]]).text
            for one, hits in zip(questions, found, strict=True)
        }
        score = metric.score(questions, told)
        line[f"from {count}"] = {"f1": round(score.f1, 1), "em": round(score.exact_match, 1)}
    return line


def speed(count: int, folder: Path) -> list[dict[str, Any]]:
    """Time the search over random vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for kind in (np.float32, np.float16):
        path = folder / f"random.{np.dtype(kind).name}.npy"
        written = np.lib.format.open_memmap(path, "w+", kind, (count, WIDTH))
        generator = np.random.default_rng(3)
        for begin in range(0, count, nearest.ROWS):
            part = generator.standard_normal((min(nearest.ROWS, count - begin), WIDTH), np.float32)
            written[begin : begin + nearest.ROWS] = part / np.linalg.norm(part, axis=1, keepdims=True)
        written.flush()
        del written
        vectors = np.load(path, mmap_mode="r")
        for queries in (1, 64):
            asked = generator.standard_normal((queries, WIDTH), np.float32)
            taken = [_timed(lambda: nearest.top(vectors, asked, 10)) for _ in range(TURNS)]  # noqa: B023
            wall, cpu = np.median(taken, axis=0) / queries
            line = {"vectors": count, "dtype": np.dtype(kind).name, "queries": queries}
            lines.append(line | {"seconds_per_query": round(wall, 5), "cpu_seconds_per_query": round(cpu, 5)})
        path.unlink()
    return lines


def _timed(call: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.search", description=__doc__)
    if options.dataset is not None and options.model is not None:
        lines = [quality(options)]
    else:
        lines = speed(options.vectors, options.output)
    for line in lines:
        print(json.dumps(line | {"load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    cli.main(main)
