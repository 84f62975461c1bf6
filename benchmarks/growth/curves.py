"""The table of curves: what grows, the command at size N, its input, and the bounds that the project promises."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.growth.fit import Bound

CALLS = "benchmarks.growth.calls"
LINEAR = 1.2  # an exponent of 1, and the noise of two cores


class Sizes(NamedTuple):
    """The sizes at which a curve is measured."""

    full: tuple[int, int, int]
    small: tuple[int, int]  # of --small
    base: int | None  # the size whose cost is subtracted; None: nothing is


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One row."""

    name: str
    what: str
    """what is measured, and over what"""
    sizes: Sizes
    input: str
    """function of benchmarks/growth/inputs.py that writes {input}, a folder, for a size"""
    words: Sequence[str]
    """the command after `python -m`, with {input}, {output} and {size}; it begins with a path if it is a script"""
    bounds: tuple[Bound, ...]
    trace: str = ""
    """kind of system calls that strace counts; none: strace is not needed"""


def _linear(most_seconds: float | None = None, each: float | None = None) -> Bound:
    return Bound(measure="seconds", exponent=LINEAR, each=each, most=most_seconds)


FLAT = Bound(measure="megabytes", exponent=0.3)
MEMORY = Bound(measure="megabytes", exponent=LINEAR)
PARTS = Sizes((20, 200, 2000), (2, 3), 1)
A_PART = (_linear(each=0.005), Bound(measure="megabytes", exponent=LINEAR, each=0.05))
LONG = Sizes((1000, 5000, 25_000), (30, 60), 10)
TRAINING = (
    *("bert.pretrain", "demo_phase1", "--data.train", "{input}/records", "--run.directory", "{output}/run"),
    *("--batch.total", "8", "--batch.per_device", "8", "--run.steps", "1"),
)
SERIAL = ("--workers", "1")

CURVES = (
    Curve(
        name="tokenize",
        what="one call with N questions, with the places of their tokens",
        sizes=Sizes((1, 16, 256), (1, 2), None),
        input="vocabulary",
        words=(CALLS, "tokenize", "{input}/vocab.txt", "{size}"),
        bounds=(Bound(measure="milliseconds", exponent=LINEAR, first=0.5, most=3.0),),
    ),
    Curve(
        name="stats-records",
        what="the same records in N files",
        input="record_shards",
        words=("data.stats", "{input}/records", "--output", "{output}/stats", *SERIAL),
        bounds=A_PART,
        sizes=PARTS,
    ),
    Curve(
        name="verify-records",
        what="the same records in N files",
        input="record_shards",
        words=("data.verify", "{input}/records", *SERIAL),
        bounds=A_PART,
        sizes=PARTS,
    ),
    Curve(
        name="documents-parts",
        what="the same text in N parts",
        input="text_parts",
        words=("data.documents", "--source", "{input}/text", "--output", "{output}/documents", *SERIAL),
        bounds=A_PART,
        sizes=PARTS,
    ),
    Curve(
        name="tokens-parts",
        what="the same text in N parts",
        input="text_parts",
        words=(
            *("data.tokens", "--source", "{input}/text", "--tokenizer", "{input}/bpe"),
            *("--output", "{output}/tokens", *SERIAL),
        ),
        bounds=A_PART,
        sizes=PARTS,
    ),
    Curve(
        name="report",
        what="a run with N lines of metrics",
        sizes=Sizes((10_000, 100_000, 1_000_000), (100, 200), 100),
        input="metrics",
        words=("bert.report", "{input}/run", "--output", "{output}/report"),
        bounds=(_linear(most_seconds=10), Bound(measure="megabytes", exponent=0.6, most=300)),
    ),
    Curve(
        name="text-long",
        what="one document of N KB",
        input="long_file",
        words=("data.text", "--source", "{input}/files", "--output", "{output}/text", *SERIAL),
        sizes=LONG,
        bounds=(_linear(), MEMORY),
    ),
    Curve(
        name="documents-long",
        what="one document of N KB",
        input="long_text",
        words=("data.documents", "--source", "{input}/text", "--output", "{output}/documents", *SERIAL),
        sizes=LONG,
        bounds=(_linear(), MEMORY),
    ),
    Curve(
        name="tfrecords-long",
        what="one document of N KB",
        input="long_shard",
        words=(
            *("data.tfrecords", "--source", "{input}/shards", "--vocab", "{input}/vocab.txt"),
            *("--output", "{output}/records", "--dupe_factor", "1", *SERIAL),
        ),
        sizes=LONG,
        bounds=(_linear(), MEMORY),
    ),
    Curve(
        name="vocab",
        what="N KB of documents",
        sizes=Sizes((5000, 25_000, 100_000), (50, 100), 10),
        input="shards",
        words=("data.vocab", "--source", "{input}/shards", "--output", "{output}/vocab", "--size", "30522"),
        bounds=(_linear(), Bound(measure="megabytes", exponent=0.8)),
    ),
    Curve(
        name="shards-start",
        what="one update of a run on the same records in N files: calls that name a file",
        input="record_shards",
        words=TRAINING,
        trace="%file",
        bounds=(Bound(measure="calls", exponent=LINEAR, each=10), _linear()),
        sizes=PARTS,
    ),
    Curve(
        name="shards-read",
        what="8,000 records read at random from N files: files opened",
        input="record_shards",
        words=(CALLS, "read", "{input}/records", "8000"),
        bounds=(Bound(measure="calls", exponent=LINEAR, each=2.2), _linear()),
        sizes=PARTS,
    ),
    Curve(
        name="checkpoint-save",
        what="a save of N MB of state, with the state itself",
        sizes=Sizes((100, 400, 1300), (4, 8), 1),
        input="nothing",
        words=(CALLS, "save", "{output}/run", "{size}"),
        bounds=(_linear(), Bound(measure="megabytes", exponent=LINEAR, each=2.1)),
    ),
    Curve(
        name="checkpoint-restore",
        what="a restore of N MB of state, with the state itself",
        sizes=Sizes((100, 400, 1300), (4, 8), 1),
        input="checkpoint",
        words=(CALLS, "restore", "{input}/run", "{size}"),
        bounds=(_linear(), Bound(measure="megabytes", exponent=LINEAR, each=2.1)),
    ),
    Curve(
        name="predict",
        what="N texts, a tiny model",
        sizes=Sizes((1000, 10_000, 100_000), (20, 30), 10),
        input="classifier",
        words=("tasks.predict", "--model", "{input}/run", "--input", "{input}/texts.tsv", "--output", "{output}/o.tsv"),
        bounds=(_linear(), FLAT),
    ),
    Curve(
        name="training-start",
        what="one update of a run on N records",
        sizes=Sizes((10_000, 100_000, 1_000_000), (200, 400), 100),
        input="records",
        words=TRAINING,
        bounds=(Bound(measure="seconds", exponent=0.5), FLAT),
    ),
    Curve(
        name="service",
        what="N requests one after the other, a tiny model; of the service alone",
        sizes=Sizes((100, 1000, 5000), (5, 10), 10),
        input="classifier",
        words=(CALLS, "serve", "{input}/run", "{size}"),
        bounds=(_linear(), FLAT),
    ),
    Curve(
        name="gloo-start",
        what="the start of Horovod by Gloo on N ranks; calls are connections",
        sizes=Sizes((2, 4, 8), (2, 3), 1),
        input="nothing",
        words=("scripts/launch.sh", "-np", "{size}", "--", "{python}", "-m", CALLS, "init"),
        trace="connect",
        bounds=(Bound(measure="seconds", exponent=1.3), Bound(measure="calls", exponent=2.2)),
    ),
)
