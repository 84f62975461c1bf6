"""Search texts by meaning: index the passages of a file, and find those nearest to a query.

    python -m bert.search index TEXTS OUT --model RUN
    python -m bert.search query OUT "who wrote the notes?" [--top 10] [--answer SQUAD_RUN]

TEXTS is a .txt with a text in each line (or --document blank_line), a .jsonl with objects that have `text`, `_id` or
`id`, and `title` (BEIR's corpus.jsonl), or a .tsv whose first line has these names; plain or compressed. A text that is
longer than the model reads is cut into overlapping passages. RUN is any run directory of a BERT model, such as an
import of a model of sentence-transformers.

OUT is a folder with the vectors of the passages, which is there when it is complete. `index` again with a changed file
encodes only passages that are new, and leaves out those that are gone. After a stop or a kill the same command goes on.
The search is exact: the query is compared with all vectors. --answer reads the passages that were found with a run of
squad.train, and prints the best answer in them.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bert.core import cli, ending, ranges
from bert.core.errors import UsageError
from bert.core.ranges import BatchSize, Range
from bert.hardware.choices import Compute, DeviceName, EngineName

if TYPE_CHECKING:
    from bert.api import Answer, Hit
    from extensions.search.index import Products

PROG = "python -m bert.search"
COMMANDS = {"index": "make an index of texts, or bring one up to date", "query": "find the passages nearest to a query"}


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Arguments of `python -m bert.search index`."""

    texts: cli.Positional[Path]
    """.txt, .jsonl or .tsv file, plain or compressed (.gz, .bz2, .xz)"""
    output: cli.Positional[Path]
    """folder of the index"""
    model: Path
    """run directory of the model that encodes"""
    document: Literal["line", "blank_line"] = "line"
    """what a text is in a .txt: each line, or what blank lines separate"""
    length: Annotated[int, Range(8, 65_536)] | None = None
    """tokens of a passage, with its title, [CLS] and [SEP]; none: as many as the model reads, or as an import from
    sentence-transformers says"""
    stride: Annotated[int, Range(1, 65_536)] | None = None
    """tokens between the beginnings of two passages of a text; none: three quarters of a passage"""
    pool: Literal["auto", "mean", "cls", "max"] = "auto"
    """how the states of the tokens become one vector; auto: as the model says, or mean"""
    score: Literal["auto", "cosine", "dot", "euclidean", "manhattan"] = "auto"
    """what is compared: the cosine (vectors are scaled to length 1), the scalar product, or a distance (the nearest is
    best); auto: as the model says, or the cosine"""
    dtype: Literal["float32", "float16"] = "float32"
    """data type of the vectors on the disk"""
    batch: BatchSize = 32
    """passages that are encoded at once"""
    compute: Compute = "float32"
    """data type of matrix products"""
    engine: EngineName = "tensorflow"
    """what computes the encoder: tensorflow; openvino or openvino_int8, on CPUs; auto: openvino if it can"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """Arguments of `python -m bert.search query`."""

    index: cli.Positional[Path]
    """folder of the index"""
    query: cli.Positional[tuple[str, ...]]
    """the query; several words are joined by spaces"""
    top: Annotated[int, Range(1, 100_000)] = 10
    """number of passages"""
    model: Path | None = None
    """run directory of the model that made the index; none: where it was then"""
    answer: Path | None = None
    """run directory of squad.train, which answers the query from the passages"""
    json: cli.Switch = False
    """print one JSON object"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if not " ".join(self.query).strip():
            raise UsageError("the query is empty; give some words")


def index(options: IndexOptions) -> None:
    """Make an index, or bring it up to date."""
    from bert.hardware import devices
    from bert.hidden_states import Reader
    from bert.runs import Run
    from extensions.search.building import Builder, Sizes
    from extensions.search.index import Vectors

    devices.choose(options.device)
    run = Run.open(options.model)
    encoder = run.encoder(options.compute, options.engine)
    reader = Reader(run, encoder, pool=options.pool, batch=options.batch, length=options.length)
    vectors = Vectors(
        model=run.identity,
        pool=options.pool,
        score=reader.says.similarity if options.score == "auto" else options.score,
        dtype=options.dtype,
        compute=_products(options.compute, options.engine),
    )
    sizes = Sizes(document=options.document, length=reader.length, stride=options.stride)
    builder = Builder(options.texts, options.output, reader, vectors, sizes)
    made, counts = builder.build(options), builder.counts
    what = f"{made.count('texts'):,} texts, {made.count('passages'):,} passages"
    if counts.passages:  # it was not up to date
        what += f", {counts.encoded:,} encoded, {counts.kept:,} kept"
    if empty := made.count("texts_without_words"):
        what += f"; {empty:,} texts without a word are left out"
    ending.print_next_command(options.output, what, *PROG.split(), "query", options.output, "QUERY")


def _products(compute: Compute, engine: EngineName) -> Products:
    """Return the types of the matrix products of an engine."""
    if engine != "openvino_int8":
        return compute
    return "8 bits and bfloat16" if compute == "bfloat16" else "8 bits and float32"  # it refuses float16


def query(options: QueryOptions) -> None:
    """Print the passages that are nearest to a query, and the answer in them."""
    from bert import api
    from extensions.search.index import Index

    opened, words = Index.open(options.index), " ".join(options.query)
    hits = api.load(options.model or opened.model(), device=options.device).search(opened, words, options.top)
    answer = None
    if options.answer is not None:
        answer = api.load(options.answer, device=options.device).answer_among(words, [hit.text for hit in hits])
    print(as_json(hits, answer) if options.json else as_text(hits, answer))


def as_json(hits: list[Hit], answer: Answer | None) -> str:
    """Return the passages and the answer as one JSON object."""
    found: dict[str, Any] = {"passages": [dataclasses.asdict(hit) for hit in hits]}
    return json.dumps(found | ({"answer": dataclasses.asdict(answer)} if answer else {}), ensure_ascii=False)


def as_text(hits: list[Hit], answer: Answer | None) -> str:
    """Return the passages for the terminal, and before them the answer, which stands between >>> and <<<."""
    lines = []
    if answer:
        place = f", in passage {answer.passage + 1}" if answer.text else ""
        lines += [f"{answer.text or 'no answer'}  (probability {answer.probability:.2f}{place})", ""]
    for number, hit in enumerate(hits):
        text = hit.text
        if answer and answer.text and answer.passage == number:
            text = f"{text[: answer.start]}>>>{answer.text}<<<{text[answer.end :]}"
        named = f"{hit.id}: {hit.title}" if hit.title else hit.id
        lines += [f"{number + 1:>3}  {hit.score:.3f}  {named}", "     " + " ".join(text.split())]
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """Run the command."""
    name = cli.named(argv, COMMANDS, prog=PROG, description=__doc__, what="command")
    if name == "index":
        index(cli.parse(IndexOptions, argv[1:], prog=f"{PROG} index", description=__doc__))
    else:
        query(cli.parse(QueryOptions, argv[1:], prog=f"{PROG} query", description=__doc__))
