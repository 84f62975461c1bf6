"""Run stages of the recipe, each after the stages that it needs: what `make STAGE` does.

    python -m scripts.stages [--dry_run] STAGE...

The settings are environment variables, which `make help` describes. All are checked before the first command starts.
A data stage that is finished and unchanged returns at once. A finished training is not repeated, and a stopped one
resumes. A command that fails ends the stages with its own exit code, of which make makes 2. After a stop on request
make ends with 130, as after Ctrl-C, without an error.
"""

import dataclasses
import difflib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert import recipes
from bert.core import cli
from bert.core.cli import Positional, Switch
from bert.core.errors import Stopped, UsageError
from bert.core.manifest import is_finished
from bert.text import vocabulary
from data.pipeline import workers
from scripts import variables
from scripts.variables import Variables

Command = list[str]
Commands = Callable[[Variables], Iterator[Command]]
Needs = Callable[[Variables], Sequence[str]]
Check = Callable[[Variables], object]
LAUNCH = str(Path(__file__).parent / "launch.sh")
SOURCES = ("wikipedia", "books", "text", "pubmed")
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """Arguments of `python -m scripts.stages`."""

    stages: Positional[tuple[str, ...]]
    """the stages to run"""
    dry_run: Switch = False
    """print the commands instead of running them"""


@dataclass(frozen=True)
class Stage:
    """A target of the Makefile."""

    commands: Commands
    """yields commands; each is run before the next is asked for"""
    needs: Needs
    """stages to run before"""
    check: Check
    """raises UsageError for settings with which the stage cannot run"""


STAGES: dict[str, Stage] = {}


def stage(needs: Needs = lambda _: (), check: Check = lambda _: None) -> Callable[[Commands], Commands]:
    """Return a decorator that adds a stage under the name of its function, in which _ stands for -."""

    def add(commands: Commands) -> Commands:
        STAGES[commands.__name__.replace("_", "-")] = Stage(commands, needs, check)
        return commands

    return add


def python(module: str, *arguments: object) -> Command:
    """Return the command that runs a module of the virtual environment."""
    return ["python", "-m", module, *map(str, arguments)]


def flags_of(**flags: object) -> list[object]:
    """Return the flags that have a value, as words."""
    return [word for name, value in flags.items() if value not in ("", None) for word in (f"--{name}", value)]


# Data: from a source to records


def _is_name(value: str, names: str) -> bool:
    """Return whether a value names a download. If there is a file or folder of that name, it is a path instead."""
    return re.fullmatch(names, value) is not None and not Path(value).exists()


def _downloaded(v: Variables) -> dict[str, Path]:
    """Return the sources that are to be downloaded, with their folders."""
    folders = {
        "wikipedia": (v.wikipedia, "simple|[a-z]{2,3}", f"dump-{v.wikipedia}"),
        "books": (v.books, "pg19", "pg19"),
        "pubmed": (v.pubmed, "20[0-9]{2}", f"pubmed-{v.pubmed}"),
    }
    return {name: v.corpus / folder for name, (value, names, folder) in folders.items() if _is_name(value, names)}


def _texts(v: Variables) -> list[Path]:
    """Return the folders with the texts of all sources that are set."""
    return [v.corpus / name for name in SOURCES if getattr(v, name)]


def _has_source(*later: str) -> Check:
    """Return the check that a source is set, or that one of the later folders is finished and is used as it is."""

    def check(v: Variables) -> None:
        folders = [v.work / name.format(v.phase1_seq) for name in later]
        if not _texts(v) and not any(map(is_finished, folders)):
            raise UsageError("no source is set; repeat with WIKIPEDIA=dump.xml.bz2, or BOOKS, TEXT or PUBMED=folder")

    return check


CORPUS = ("corpus/documents", "corpus/shards", "tfrecords/seq{}")
TOKENS = ("corpus/bpe", "tokens")


@stage()
def download(v: Variables) -> Iterator[Command]:
    words = {
        "wikipedia": ["wikipedia", "--wiki", v.wikipedia],
        "books": ["pg19"],
        "pubmed": ["pubmed", "--year", v.pubmed],
    }
    for name, folder in _downloaded(v).items():
        yield python("data.download", *words[name], "--output", folder)
    for name in ("squad1", "squad2"):
        if name in (v.squad_train, v.squad_dev) and not Path(name).exists():
            yield python("data.download", name, "--output", v.work / "download" / name)


def _read(name: str) -> Commands:
    def read(v: Variables) -> Iterator[Command]:
        if source := getattr(v, name):
            language = "" if name == "pubmed" else v.language  # whose articles in each language have another code
            words = flags_of(source=_downloaded(v).get(name, source), output=v.corpus / name, language=language)
            yield python(f"data.{name}", *words, *v.words(f"{name}_flags"))

    return read


for source in SOURCES:
    STAGES[source] = Stage(_read(source), lambda _: ["download"], _has_source(*CORPUS, *TOKENS))


@stage(needs=lambda _: SOURCES, check=_has_source(*CORPUS))
def documents(v: Variables) -> Iterator[Command]:
    if texts := _texts(v):
        words = flags_of(output=v.corpus / "documents", language=v.language)
        yield python("data.documents", "--source", *texts, *words)


@stage(needs=lambda _: ["documents"])
def shards(v: Variables) -> Iterator[Command]:
    source, output = v.corpus / "documents", v.corpus / "shards"
    if _texts(v) or (is_finished(source) and not is_finished(output)):
        number = flags_of(shards=v.shards) if v.shards else flags_of(max_shards=_max_shards(source, output))
        words = flags_of(source=source, output=output, held_out_fraction=v.heldout)
        yield python("data.shards", *words, *number)


def _max_shards(documents: Path, made: Path) -> int | str:
    """Return two shards for each core as far as each has 16 MiB, at least 8, and none above 512 MiB.

    `data.shards` makes fewer of few documents. Unchanged documents keep the number of their shards.
    """
    if not is_finished(documents):
        return "BY_SIZE"  # when the commands are only shown
    if is_finished(made) and (made / "manifest.json").stat().st_mtime > (documents / "manifest.json").stat().st_mtime:
        return int(json.loads((made / "manifest.json").read_text("utf-8"))["parameters"]["shards"])
    size = sum(path.stat().st_size for path in documents.rglob("*") if path.is_file()) // MIB
    return max(8, min(size // 16, 2 * workers.available()), size // 512)


@stage(needs=lambda _: ["shards"])
def vocab(v: Variables) -> Iterator[Command]:
    source, output = v.corpus / "shards", v.corpus / "vocab"
    if _texts(v) or (is_finished(source) and not is_finished(output)):
        made = flags_of(size=v.vocab_size) if v.vocab == "train" else flags_of(vocab=v.vocab)
        rules = flags_of(lower_case=v.lower_case, strip_accents=v.strip_accents)
        special = ["--special", *v.words("SPECIAL")] if v.special else []
        yield python("data.vocab", "--source", source, "--output", output, *made, *rules, *special)


@stage(needs=lambda _: ["vocab"])
def corpus(v: Variables) -> Iterator[Command]:
    yield from ()


@stage(needs=lambda _: ["vocab"])
def tfrecords(v: Variables) -> Iterator[Command]:
    source, made = v.corpus / "shards", v.corpus / "vocab"
    vocab = vocabulary.path_in(made) if v.vocab == "train" else made / vocabulary.name_for(Path(v.vocab))
    flags = flags_of(lower_case=v.lower_case, kind=v.records, pairs=v.pairs)
    flags += flags_of(dupe_factor=v.dupe_factor, masked_lm_prob=v.masked_lm_prob) + v.words("records_flags")
    for length in (v.phase1_seq, v.phase2_seq):
        output = v.work / f"tfrecords/seq{length}"
        if is_finished(source) or not is_finished(output):  # else the records were copied here without their corpus
            words = flags_of(source=source, vocab=vocab, output=output, max_seq_length=length)
            yield python("data.tfrecords", *words, *flags)


@stage(needs=lambda _: SOURCES, check=_has_source(*TOKENS))
def bpe(v: Variables) -> Iterator[Command]:
    if texts := _texts(v):
        trained = ["--source", *texts, *flags_of(size=v.bpe_size, heldout=v.heldout)]
        made = trained if v.bpe == "train" else ["--import", v.bpe]
        yield python("data.bpe", "--output", v.corpus / "bpe", *made)


@stage(needs=lambda _: ["bpe"], check=_has_source("tokens"))
def tokens(v: Variables) -> Iterator[Command]:
    if texts := _texts(v):
        flags = flags_of(tokenizer=v.corpus / "bpe", output=v.work / "tokens", heldout=v.heldout)
        yield python("data.tokens", "--source", *texts, *flags)


def _has_finished(folder: Path) -> bool:
    """Return whether a folder, or one in it, is finished."""
    return any(map(is_finished, (folder, *folder.glob("*"))))


def _samples(v: Variables) -> list[str]:
    """Return the stage that makes samples, if there are none.

    Existing samples may have been made with other settings than `v`. A look at them must not replace them.
    """
    return [] if _has_finished(v.work / "tfrecords") or _has_finished(v.work / "tokens") else ["tfrecords"]


def _made(v: Variables) -> list[Path]:
    """Return the folders of texts, samples and tokens that are there, or that `tfrecords` makes."""
    if _samples(v):
        return [v.corpus, v.work / "tfrecords"]
    return [folder for folder in (v.corpus, v.work / "tfrecords", v.work / "tokens") if _has_finished(folder)]


@stage(needs=_samples)
def verify(v: Variables) -> Iterator[Command]:
    yield python("data.verify", *_made(v))


@stage(needs=_samples)
def stats(v: Variables) -> Iterator[Command]:
    yield python("data.stats", *_made(v))


# Training: from records to scores


def _launch(v: Variables, flags: Sequence[str], module: str, *arguments: object) -> Command:
    """Return the command that runs a module on all ranks, with the flags behind."""
    return [LAUNCH, "-np", str(v.np), "--", *python(module, *arguments), *flags]


def _start(v: Variables) -> Path | str:
    """Return the run to fine-tune."""
    return v.pretrained or v.work / "pretrain" / v.pretraining.phases[-1].name


def _is_trained(run: Path) -> bool:
    """Return whether a run has its last checkpoint. After a run was made longer, this is the one of its new end."""
    try:
        steps = json.loads((run / "config.json").read_text("utf-8"))["config"]["run.steps"]
        longer = run / "longer.json"
        if longer.exists():
            steps = json.loads(longer.read_text("utf-8"))["growth"][-1]["steps"]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return False
    return isinstance(steps, int) and (run / f"checkpoints/step-{steps:08d}").is_dir()


def _pretraining(v: Variables) -> list[str]:
    """Return the stage that makes the run to fine-tune, if it is not given or finished, whatever its flags were."""
    return [] if v.pretrained or _is_trained(Path(_start(v))) else ["pretrain"]


def _need(v: Variables, goal: str, name: str, example: str) -> None:
    if not getattr(v, name.lower()):
        raise UsageError(f"{name} is not set; repeat as: make {goal} {name}={example}")


def _can_be_fine_tuned(v: Variables) -> None:
    if v.pretraining.causal and not v.pretrained:
        raise UsageError(
            f"RECIPE is {v.recipe}, a causal model, which cannot be fine-tuned; set a BERT recipe or PRETRAINED"
        )


def _tuning(goal: str, *variables: tuple[str, str]) -> Check:
    """Return the check of fine-tuning: variables that must be set, each with an example, and a model to fine-tune."""

    def check(v: Variables) -> None:
        for name, example in variables:
            _need(v, goal, name, example)
        _can_be_fine_tuned(v)

    return check


def _pretraining_flags(v: Variables) -> list[list[str]]:
    return recipes.flags_of_phases(v.words("PRETRAIN_FLAGS"), v.pretraining)


@stage(needs=lambda v: ["tokens" if v.pretraining.causal else "tfrecords"], check=_pretraining_flags)
def pretrain(v: Variables) -> Iterator[Command]:
    runs = v.work / "pretrain"
    for phase, flags in zip(v.pretraining.phases, _pretraining_flags(v), strict=True):  # a process for each
        # A recipe of one phase may be of long sequences: bert_1b3, bert_large_mlperf.
        long = phase.after or phase.sequence == v.phase2_seq
        records = f"tfrecords/seq{v.phase2_seq if long else v.phase1_seq}"
        words = {
            "init.checkpoint": runs / phase.after if phase.after else None,
            "data.train": v.work / ("tokens" if v.pretraining.causal else records),
            "run.directory": runs / phase.name,
        }
        yield _launch(v, flags, "bert.pretrain", phase.name, *flags_of(**words))


def _squad_run(v: Variables) -> Path | str:
    return v.squad_run or v.work / "squad" / v.recipe


def _question_set(v: Variables, value: str, split: str) -> Path | str:
    """Return the path of a question set; `download` has fetched those that have names."""
    version = {"squad1": "1.1", "squad2": "2.0"}.get(value)
    return v.work / f"download/{value}/{split}-v{version}.json" if version and not Path(value).exists() else value


@stage(needs=lambda v: ["download", *_pretraining(v)], check=_tuning("squad", ("SQUAD_TRAIN", "FILE")))
def squad(v: Variables) -> Iterator[Command]:
    size = next((size for size in ("base", "large") if size in v.recipe.split("_")), "mini")
    words = flags_of(
        **{
            "data.train_file": _question_set(v, v.squad_train, "train"),
            "init.checkpoint": _start(v),
            "run.directory": _squad_run(v),
        }
    )
    yield _launch(v, v.words("SQUAD_FLAGS"), "squad.train", v.squad_recipe or f"squad_{size}", *words)


def _check_squad_eval(v: Variables) -> None:
    _need(v, "squad-eval", "SQUAD_DEV", "FILE")
    run = Path(_squad_run(v))
    if not v.squad_train and not (run / "config.json").is_file():
        raise UsageError(f"{run}: no fine-tuned model; repeat with SQUAD_TRAIN=train.json, or SQUAD_RUN=its folder")


@stage(needs=lambda v: ["download", *(["squad"] if v.squad_train else [])], check=_check_squad_eval)
def squad_eval(v: Variables) -> Iterator[Command]:
    run, dev = _squad_run(v), _question_set(v, v.squad_dev, "dev")
    answers = Path(run) / "predictions.json"
    yield python("squad.predict", "--model", run, "--dataset", dev, "--output", answers)
    yield python("squad.metric", dev, answers)


def _task(v: Variables, recipe: str, folder: str) -> Iterator[Command]:
    run = v.task_run or v.work / "tasks" / recipe
    words = flags_of(**{"data.folder": folder, "init.checkpoint": _start(v), "run.directory": run})
    yield _launch(v, v.words("TASK_FLAGS"), "tasks.train", recipe, *words)
    yield python("tasks.evaluate", "--model", run, "--folder", folder)


@stage(needs=_pretraining, check=_tuning("glue", ("GLUE", "FOLDER"), ("TASK", "mrpc")))
def glue(v: Variables) -> Iterator[Command]:
    yield from _task(v, v.task, v.glue)


@stage(needs=_pretraining, check=_tuning("race", ("RACE", "FOLDER")))
def race(v: Variables) -> Iterator[Command]:
    yield from _task(v, "race", v.race)


@stage(needs=_pretraining, check=_tuning("ner", ("NER", "FOLDER")))
def ner(v: Variables) -> Iterator[Command]:
    yield from _task(v, "conll2003", v.ner)


def _served(v: Variables) -> Path | str:
    """Return the model to serve. Raise UsageError if there is none."""
    for run in (v.work / "squad" / v.recipe, v.work / "demo" / "squad" / "pretrained"):
        if v.model or v.squad_run or (run / "config.json").is_file():
            return v.model or v.squad_run or run
    raise UsageError("no model to serve; repeat as: make serve MODEL=RUN, or run make demo first")


@stage()  # not checked before: a goal in front of it may make the model
def serve(v: Variables) -> Iterator[Command]:
    yield [*python("serve", "--model", _served(v)), *v.words("FLAGS")]


# The order, and the commands


def plan(goals: Sequence[str], v: Variables) -> list[str]:
    """Return the stages to run for the goals: each once, after those that it needs."""
    order: list[str] = []

    def add(name: str) -> None:
        for needed in STAGES[name].needs(v):
            add(needed)
        if name not in order:
            order.append(name)

    for goal in goals:
        add(goal)
    return order


# What usually follows a target, as the last line says it.
NEXT = {
    **dict.fromkeys((*SOURCES, "download"), "make corpus"),
    "documents": "make shards",
    "shards": "make vocab",
    **dict.fromkeys(("vocab", "corpus"), "make tfrecords"),
    **dict.fromkeys(("tfrecords", "tokens"), "make pretrain"),
    "bpe": "make tokens",
    "pretrain": "make squad SQUAD_TRAIN=squad2 SQUAD_DEV=squad2",
    "squad": "make squad-eval",
    "squad-eval": "make serve",
}

TAKE_FLAGS = {
    "pretrain_flags": {"pretrain"},
    "squad_flags": {"squad", "squad-eval"},
    "task_flags": {"glue", "race", "ner"},
    "flags": {"serve"},
}


def _with_flags(v: Variables, goals: Sequence[str]) -> Variables:
    """Return the variables with FLAGS handed to the goals that are named, not to stages that they imply.

    Raise UsageError if it would have no effect.
    """
    trains = {*goals} if v.squad_train else {*goals} - {"squad-eval"}  # which then only answers
    takers = {name: goals_of & trains for name, goals_of in TAKE_FLAGS.items()}
    if v.flags and {*goals} <= {*STAGES} and not any(takers.values()):
        raise UsageError(f"FLAGS: {' '.join(goals)} takes none; run the command of --dry_run with them")
    own: dict[str, Any] = {name: v.flags for name in takers if takers[name] and not getattr(v, name)}
    return dataclasses.replace(v, **own)


def run(command: Command) -> None:
    """Run a command to its end, with signals passed on to it. If it fails, exit as it did."""
    early = list[int]()  # signals that came while the command was started
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: Any) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    handlers = dict.fromkeys(PASSED_ON, pass_on)
    handlers[signal.SIGINT] = lambda *_: None  # Ctrl-C reaches the command from the terminal
    before = {kind: signal.signal(kind, handler) for kind, handler in handlers.items()}
    process = subprocess.Popen(command, env=os.environ | {"BERT_NEXT": "none"})
    for number in early:
        process.send_signal(number)
    code = process.wait()
    for kind, handler in before.items():
        signal.signal(kind, handler)
    if code:
        is_told = code == Stopped.exit_code and _end_make()
        sys.exit(0 if is_told else 128 - code if code < 0 else code)


def _end_make() -> bool:
    """End the make that runs this process as Ctrl-C does, and return whether that is possible.

    A stop on request is no error, but make reports each status other than 0 as one. So it is interrupted, which it does
    not report: its status is 130. It is not possible where make was started to ignore the signal.
    """
    parent = Path(f"/proc/{os.getppid()}")
    try:
        is_make = (parent / "comm").read_text().strip() in ("make", "gmake")
        ignored = re.search(r"^SigIgn:\s*(\w+)$", (parent / "status").read_text(), re.MULTILINE)
    except OSError:  # no /proc
        return False
    if not is_make or not ignored or int(ignored[1], 16) >> (signal.SIGINT - 1) & 1:
        return False
    os.kill(os.getppid(), signal.SIGINT)
    return True


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m scripts.stages", description=__doc__)
    for name in options.stages:
        if name not in STAGES:
            near = difflib.get_close_matches(name, STAGES, n=1) or sorted(STAGES)
            raise UsageError(f"no stage {name!r}; did you mean {' or '.join(near)}?")
    # make runs one target after the other; all that it was asked for is checked before the first.
    goals = os.environ.get("GOALS", "").split() or list(options.stages)
    v = _with_flags(variables.read(os.environ, os.environ.get("GIVEN", "").split()), goals)
    for name in plan([*(goal for goal in goals if goal in STAGES), *options.stages], v):
        STAGES[name].check(v)
    os.environ["BERT_WORKDIR"] = v.bert_workdir
    for name in plan(options.stages, v):
        for command in STAGES[name].commands(v):
            if options.dry_run:
                print(shlex.join(command))
            else:
                run(command)
    is_last = goals[-1:] == list(options.stages)[-1:]
    if is_last and not options.dry_run and (then := NEXT.get(goals[-1])):
        print(f"next: {then}", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
