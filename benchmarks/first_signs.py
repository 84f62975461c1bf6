"""Time the commands of the pages on small data, at a terminal: seconds to the first byte, and to the end.

    python -m benchmarks.first_signs --output DIR [--page docs/results/YEAR-MONTH-first-signs.md]

The commands run one after the other, since each reads what earlier ones made. Each has a terminal of its own. The first
byte is a line, or the bar that shows that it works. For the service, the end is that it listens. DIR must not exist.
"""

import dataclasses
import json
import os
import platform
import pty
import shlex
import signal
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contender import ROOT
from bert.core import cli
from bert.core.errors import UsageError

PASSAGE = "Dalworks was led by Borna. Dalworks was founded by Kalmo."
QUESTIONS = [
    {
        "id": "1",
        "question": "Who founded Dalworks?",
        "answers": [{"text": "Kalmo", "answer_start": PASSAGE.index("Kalmo")}],
    },
    {"id": "2", "question": "Who sold Dalworks?", "answers": [], "is_impossible": True},
]
FILES = {
    "version2.json": json.dumps({"data": [{"title": "", "paragraphs": [{"context": PASSAGE, "qas": QUESTIONS}]}]}),
    "classes.tsv": "text\tlabel\n" + "a fine film\tgood\na dull film\tbad\nfine acting\tgood\ndull songs\tbad\n" * 8,
    "labels.jsonl": '{"text": "a fine film", "labels": ["good"]}\n{"text": "dull", "labels": ["bad", "short"]}\n' * 8,
    "pairs.jsonl": '{"sentence_good": "It was led by Borna.", "sentence_bad": "It were led by Borna."}\n' * 8,
    "texts.txt": "Dalworks was founded by Kalmo.\nThe Dorwing was loaded with oil.\n" * 4,
}
"""what some commands read, beside what data.synthetic makes"""
COMMANDS = f"""
data.synthetic --output example --articles 120 --books 20 --train_questions 200 --dev_questions 20
data.wikipedia --source example/wiki.xml.bz2 --output wikipedia
data.books --source example/books --output books
data.text --source example/books --output text
data.documents --source wikipedia books --output documents
data.shards --source documents --output shards --shards 2 --held_out_fraction 0.1
data.vocab --source shards --output vocab --size 400
data.tfrecords --source shards --vocab vocab/vocab.txt --output records --max_seq_length 48
data.bpe --source wikipedia --output bpe --size 300
data.tokens --source wikipedia --tokenizer bpe --output tokens
data.verify documents shards records
data.stats documents shards records
bert.doctor
bert.plan bert_base --gpu h100-sxm
bert.pretrain demo_phase1 --data.train records --run.directory run --print 2
bert.pretrain demo_phase1 --data.train records --run.directory run --run.steps 40
bert.report run
bert.evaluate run --data records
bert.evaluate run --text texts.txt
bert.fill_mask run "Dalworks was [MASK] by Kalmo."
bert.encode --model run --input texts.txt --output features.jsonl
bert.search index texts.txt index --model run
bert.search query index "Who founded Dalworks?"
bert.minimal_pairs run --data pairs.jsonl --output pairs.json
data.words --source shards --vocab run/vocab.txt --new 20 --minimum 5 --output words
bert.adapt run --words words/words.txt --output adapted
bert.convert export huggingface run exported
bert.convert import huggingface exported imported
bert.pretrain gpt2_smoke --data.train tokens --run.directory causal --run.steps 10
bert.evaluate_lm causal heldout tokens
bert.generate causal "The Dorwing" --max_tokens 10
squad.train squad_tiny --init.checkpoint run --data.train example/train.json --run.directory answers --run.steps 40
squad.predict --model answers --dataset example/dev.json --output answers.json
squad.predict --model answers --question "Who founded Dalworks?" --context "{PASSAGE}"
squad.metric example/dev.json answers.json
squad.threshold --model answers --dataset version2.json
squad.export --model answers --output served
tasks.train classify --data.train classes.tsv --data.dev classes.tsv --init.checkpoint run --run.directory classes
tasks.predict --model classes "a fine film"
tasks.evaluate --model classes --input classes.tsv
tasks.train multilabel --data.train labels.jsonl --data.dev labels.jsonl --init.checkpoint run --run.directory labels
tasks.thresholds --model labels --input labels.jsonl
bert.export savedmodel classes classes_served
bert.export onnx classes classes_onnx
serve --model answers --port 0
"""
LISTENS = b"listening on"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.first_signs`."""

    output: Path
    """folder to make, with all that the commands write"""
    page: Path | None = None
    """page to write, in Markdown; without it the table is printed"""


@dataclasses.dataclass(frozen=True)
class Timed:
    """A command and its seconds."""

    command: str
    first: float
    """to the first byte at the terminal"""
    end: float
    processor: float
    """processor seconds, of the command and its children"""
    code: int
    load: float
    """processes that ran or waited for a core, a mean over the last minute"""


def timed(words: Sequence[str], folder: Path) -> tuple[Timed, bytes]:
    """Run a command of Python at a terminal; return its seconds and what it printed."""
    begun, first, printed, listens = time.monotonic(), 0.0, b"", False
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"PYTHONPATH": str(ROOT), "BERT_WORKDIR": str(folder)}
        os.execv(sys.executable, [sys.executable, "-m", *words])
    try:
        while piece := os.read(terminal, 1 << 16):
            first = first or time.monotonic() - begun
            printed += piece
            if listens := words[0] == "serve" and LISTENS in printed:
                break
    except OSError:  # how a terminal ends
        pass
    end = time.monotonic() - begun
    if listens:
        os.kill(process, signal.SIGTERM)
    _, status, used = os.wait4(process, 0)
    os.close(terminal)
    code = 0 if listens else os.waitstatus_to_exitcode(status)
    spent = used.ru_utime + used.ru_stime
    return Timed(shlex.join(words), first, end, spent, code, os.getloadavg()[0]), printed


def table(rows: Sequence[Timed]) -> str:
    """Return the page."""
    loads = [row.load for row in rows]
    about = (
        f"{time.strftime('%B %Y')}, {os.cpu_count()} cores with a load of {min(loads):.0f} to {max(loads):.0f} "
        f"(processes that run or wait for a core), Python {platform.python_version()}. {len(rows)} commands on small "
        "data, one after the other, each at a terminal. The first sign is the first byte there: a line, or the bar "
        "that shows that the command works."
    )
    lines = [
        "# Seconds to the first sign, and to the end",
        "",
        "```\npython -m benchmarks.first_signs --output DIR\n```",
        "",
        textwrap.fill(about, 120),
        "",
        "| command | first sign, s | end, s | processor, s | load |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        code = f" (exit code {row.code})" if row.code else ""
        lines.append(
            f"| `{row.command}`{code} | {row.first:.1f} | {row.end:.1f} | {row.processor:.1f} | {row.load:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.first_signs", description=__doc__)
    folder = options.output.absolute()
    if folder.exists():
        raise UsageError(f"{folder}: exists; give another --output, since finished commands are not repeated")
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    rows = []
    for line in COMMANDS.strip().splitlines():
        row, printed = timed(shlex.split(line), folder)
        rows.append(row)
        with (folder / "printed.log").open("ab") as log:
            log.write(f"\n$ {line}\n".encode() + printed)
        with (folder / "times.jsonl").open("a") as stored:
            stored.write(json.dumps(dataclasses.asdict(row)) + "\n")
        print(f"{row.first:7.1f} s {row.end:7.1f} s  {row.command}", file=sys.stderr, flush=True)
    if options.page:
        options.page.write_text(table(rows), encoding="utf-8")
    else:
        print(table(rows), end="")


if __name__ == "__main__":
    cli.main(main)
