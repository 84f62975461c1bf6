"""Compare the speed of data preparation, in MB/s of text on one core, with other projects on the same text.

    python -m benchmarks.data_prep --text workdir/corpus/wikipedia --vocab vocab.txt --output workdir/benchmarks \\
        --google checkout_of_google-research_bert --lddl checkout_of_NVIDIA_LDDL --lddl_python venv/bin/python

Every contender is a separate process, pinned to one core, that reports the seconds of its work without imports. They
run in turns, `--repeats` times, since the speed of machines drifts. Peers are optional; their code is not in this
repository.
"""

import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from bert.core import cli, files, outputs, ranges
from bert.core.errors import InputError
from bert.core.ranges import Range
from data.documents import PUNKT_SAMPLE
from data.pipeline import parts
from data.splitting import sentences
from data.splitting.punkt import Splitter

HERE = Path(__file__).parent
CONTENDERS = {  # name -> description
    "documents": "ours: raw text to tokenised documents (TFRecords)",
    "instances_1": "ours: raw text to masked instances (TFRecords), once",
    "instances_5": "ours: raw text to masked instances (TFRecords), duplicate factor 5",
    "lddl_1": "LDDL's core: raw text to masked instances in memory, once",
    "lddl_5": "LDDL's core: raw text to masked instances in memory, duplicate factor 5",
    "google_1": "google-research/bert: sentences to masked instances (TFRecords), once",
    "google_5": "google-research/bert: sentences to masked instances (TFRecords), duplicate factor 5",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.data_prep`."""

    text: Path
    """output folder of data.wikipedia, data.books or data.text"""
    vocab: Path
    """vocab.txt, uncased"""
    output: Path
    """output folder"""
    google: Path | None = None
    """checkout of google-research/bert"""
    lddl: Path | None = None
    """checkout of NVIDIA/LDDL"""
    lddl_python: Path = Path(sys.executable)
    """interpreter with transformers and nltk, for LDDL"""
    megabytes: Annotated[float, Range(0, 1e6, above=True)] = 8.0
    """megabytes of text for each contender; google-research/bert gets a quarter"""
    repeats: Annotated[int, Range(1, 10**9)] = 3
    """number of rounds"""
    core: Annotated[int, Range(0, 65_535)] = 0
    """CPU core to run on"""

    def __post_init__(self) -> None:
        ranges.check(self)


def write_inputs(options: Options, peers: bool = True) -> None:
    """Write the text in each contender's format, and the parameters of the sentence splitter; this is not timed."""
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    sources = parts.find(options.text, "part")
    learnt = sentences.train([str(document["text"]) for document in parts.sample(sources, PUNKT_SAMPLE, "text")])
    sentences.save(learnt, folder / "punkt")
    splitter = Splitter(learnt)
    with (
        open(folder / "raw.jsonl", "wb") as raw,
        open(folder / "lddl.txt", "w", encoding="utf-8") as lines,
        open(folder / "google.txt", "w", encoding="utf-8") as split,
    ):
        left = options.megabytes * 1e6
        for document in documents(sources, left):
            text = str(document["text"])
            raw.write(parts.encode(document))
            left -= len(text.encode())
            if not peers:
                continue
            lines.write(f"{str(document['id']).replace(' ', '_')} {' '.join(text.split())}\n")
            if left > options.megabytes * 1e6 * 3 / 4:
                split.write("\n".join(sentences.split(splitter, text)) + "\n\n")


def documents(sources: list[parts.Part], limit: float) -> Iterator[dict[str, object]]:
    """Yield documents of about `limit` bytes in all, spread over the sources, repeating them if there are too few."""
    left = limit
    for _ in itertools.count():
        for document in parts.sample(sources, int(limit), "text"):
            yield document
            left -= len(str(document["text"]))
            if left <= 0:
                return


def command(name: str, options: Options) -> list[str] | None:
    """Return the command of a contender; None if its path was not given."""
    kind, _, times = name.partition("_")
    where = str(options.output), str(options.vocab)
    if kind == "google":
        arguments = [sys.executable, str(HERE / "peers/google_bert.py"), *where, times, str(options.google)]
        return arguments if options.google else None
    if kind == "lddl":
        arguments = [str(options.lddl_python), str(HERE / "peers/lddl_core.py"), *where, times, str(options.lddl)]
        return arguments if options.lddl else None
    return [sys.executable, "-m", "benchmarks.ours", *where, times or "0"]


def measure(line: list[str], cores: Sequence[int]) -> list[dict[str, float]]:
    """Run a command once on each core, all at the same time; return what each process reports."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    running = [
        subprocess.Popen(
            ["taskset", "-c", str(core), *line],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for core in cores
    ]
    reports = []
    for process in running:
        stdout, stderr = process.communicate()
        if process.returncode:
            raise InputError(f"the contender failed: {stderr.strip().splitlines()[-1:]}; run {line}")
        reports.append(json.loads(stdout.splitlines()[-1]))
    return reports


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.data_prep", description=__doc__)
    write_inputs(options)
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    memory: dict[str, float] = {}
    for number in range(options.repeats):
        for name, values in rates.items():
            if line := command(name, options):
                run = measure(line, [options.core])[0]
                values.append(run["bytes"] / 1e6 / run["seconds"])
                memory[name] = max(memory.get(name, 0), run["peak_mb"])
                print(f"round {number + 1}: {name} {values[-1]:.2f} MB/s", file=sys.stderr)
    base = {times: statistics.median(rates[f"lddl_{times}"] or [0]) for times in "15"}
    print("| | MB/s, median (min - max) | x LDDL's core | peak memory |\n|---|---|---|---|")
    for name, values in rates.items():
        if values:
            middle, reference = statistics.median(values), base.get(name[-1], 0)
            ratio = f"{middle / reference:.2f}" if reference else ""
            spread = f"{middle:.2f} ({min(values):.2f} - {max(values):.2f})"
            print(f"| {CONTENDERS[name]} | {spread} | {ratio} | {memory[name]:,.0f} MB |")
    record = {"rates": rates, "peak_mb": memory, "megabytes": options.megabytes, "versions": outputs.versions()}
    files.write_json(options.output / "data_prep.json", record)


if __name__ == "__main__":
    cli.main(main)
