"""A plan is checked wholly, its runs go on after a stop to the same bits, and its page has the figures of the files."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.laboratory import __main__ as command
from benchmarks.laboratory import check, checks, page
from benchmarks.laboratory import plan as plans
from benchmarks.laboratory.children import Children
from benchmarks.laboratory.trials import Laboratory, Leg, Scored, Trial, trials
from bert.core import checked_json, files
from bert.core.errors import InputError, Stopped, UsageError
from tests.training import EVALUATED, ROOT, TINY, same_bits, weights, write_dataset

STEPS, FIRST = 19, 4
HEAD = f"""
title = "A title"
recipe = "demo_phase1"
seeds = [3, 1, 7]
first = {FIRST}
checkpoints = 3
flags = "--run.steps {STEPS}"
"""
VARIANTS = """
[variants.one]
[variants.two]
flags = "--optimizer.learning_rate 0.02"
"""
SCORES = """
[scores.pairs]
command = "minimal_pairs"
flags = "--data pairs"
[scores.late]
command = "tasks"
flags = "cola --data.folder cola"
at = "end"
"""
PLAN = HEAD + VARIANTS + SCORES
FLAGS = [*TINY, *EVALUATED]
MARKS = (4, 9, 19)  # 4 x (19 / 4) ** (1 / 2) is 8.7


def write_plan(folder: Path, text: str = PLAN) -> Path:
    path = folder / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("seeds", "seds", "seds: no such entry; there are title, recipe"),
        ("at = ", "when = ", r"scores\.late\.when: no such entry"),
        ("demo_phase1", "demo_phase7", "no recipe 'demo_phase7'; did you mean demo_phase"),
        ('"demo_phase1"', '""', "no recipe given"),
        ("demo_phase1", "demo", "demo has 2 phases; give demo_phase1 or demo_phase2"),
        ("--run.steps", "--run.step", "unknown argument '--run.step'; did you mean --run.steps"),
        (f"--run.steps {STEPS}", "--run.steps 3", "3 updates end before the first checkpoint, 4"),
        ("0.02", "fast", "invalid float value: 'fast'"),
        ("0.02", "0.02 --run.seed=4", "--run.seed is for the laboratory to give"),
        ("0.02", "0.02 --budget.hours 1", "a run of --budget.hours has no updates that are known"),
        ("0.02", "'0.02", "No closing quotation"),
        ("[3, 1, 7]", "[3, 1, 3]", "has one of them twice"),
        ("[3, 1, 7]", "[3, -1]", "--seeds -1: must be"),
        ("[3, 1, 7]", "[]", "at least one variant and one seed"),
        ("variants.two", "variants.'a/b'", "'a/b' is no name"),
        ("variants.two", "variants.One", "has one of them twice"),
        ('"minimal_pairs"', '"perplexity"', "scores.pairs.command is 'perplexity'"),
        ("title =", "title", "not TOML"),
        ("[variants.two]", "[variants.two]\npeer = true", r"two\.peer: no such entry; there are"),
    ],
)
def test_a_mistake_in_a_plan_is_named_in_one_line(was: str, now: str, said: str, tmp_path: Path) -> None:
    assert PLAN.count(was) >= 1
    with pytest.raises((UsageError, InputError), match=said) as caught:
        plans.read(write_plan(tmp_path, PLAN.replace(was, now)))
    assert str(caught.value).startswith(f"{tmp_path / 'plan.toml'}: ") and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "score", "said"),
    [
        ("--data.train nowhere", "--data pairs", "variant one: .*nowhere"),
        ("", "--data pairs", "variant one: no data: give --data.train"),
        ("--data.train {data} --batch.total 7", "--data pairs", "batch.total 7 is not a multiple of 3"),
        ("--data.train {data} --data.mask_shares 1 0 0", "--data pairs", "were masked with 0.8 0.1 0.1"),
        ("--data.train {data}", "--data pairs/none.txt", "score pairs: .*none.txt"),
        ("--data.train {data}", "--data pairs --scor masked", "score pairs: .*did you mean --score"),
        ("--data.train {data}", "--data pairs --score causal", "score pairs: --score causal is not for masked"),
    ],
)
def test_data_and_scores_are_checked_before_anything_is_trained(
    more: str, score: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "pairs")
    write_dataset(tmp_path / "data")
    flags = f"{' '.join(FLAGS)} --batch.per_device 3 {more.format(data='data')}"
    text = HEAD.replace('"--run.steps', f'"{flags} --run.steps') + VARIANTS + SCORES.split("[scores.late]")[0]
    with pytest.raises((UsageError, InputError), match=said):
        check.main([str(write_plan(tmp_path, text.replace("--data pairs", score)))])


def test_shares_of_masked_samples_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    score = plans.Score(command="evaluate", flags=f"--data {write_dataset(tmp_path / 'data')} --mask_shares 1 0 0")
    with pytest.raises(UsageError, match=r"--mask_shares: the samples in .*data are masked already"):
        checks.check_score(score, causal=False)


def test_the_process_that_checks_has_nothing_of_libraries_on_the_screen() -> None:
    code = "import sys; from benchmarks.laboratory import __main__, check; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)  # it is imported after cli.main has begun


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--text data", "score pairs: give --data, the folder of the samples"),
        ("--data nowhere", "score pairs: .*nowhere"),
        ("--data data --sequence 3", "score pairs: .*did you mean --sequences"),
    ],
)
def test_samples_to_score_on_are_checked_before_anything_is_trained(
    flags: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "data")
    text = HEAD.replace('"--run.steps', f'"--data.train data {" ".join(FLAGS)} --batch.per_device 3 --run.steps')
    text += VARIANTS + f"[scores.pairs]\ncommand = 'evaluate'\nflags = '{flags}'\n"
    with pytest.raises((UsageError, InputError), match=said):
        check.main([str(write_plan(tmp_path, text))])


@pytest.mark.thorough
def test_a_score_on_samples_is_what_the_trainer_measures_on_them(tmp_path: Path) -> None:
    """The second variant is trained on other samples and scored on those of the first."""
    data = [write_dataset(tmp_path / name, seed=seed) for name, seed in (("data", 5), ("other", 6))]
    flags = f"--data.train {data[0]} --batch.per_device 3 --run.steps {STEPS} {' '.join(FLAGS)}"
    text = HEAD.replace(f"--run.steps {STEPS}", flags).replace("[3, 1, 7]", "[3]")
    text = text.replace("checkpoints = 3", "checkpoints = 1") + "[variants.one]\n[variants.two]\n"
    text += f"flags = '--data.train {data[1]}'\n"
    text += f"[scores.common]\ncommand = 'evaluate'\nflags = '--data {data[0]}'\n"
    plan = write_plan(tmp_path, text)
    done = call(plan, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    made = plans.read(plan)
    one, two = (
        (leg, page.measures(trial, leg, made)) for trial in trials(made, tmp_path / "out") if (leg := trial.leg(19))
    )
    for name in ("loss", "accuracy"):
        assert one[1][f"common mlm {name}"] == pytest.approx(one[0].heldout[f"mlm_{name}"], rel=1e-5)
    assert two[1]["common mlm loss"] != pytest.approx(two[0].heldout["mlm_loss"], rel=1e-3)
    assert "| common mlm loss | 19 |" in (tmp_path / "out" / page.NAME).read_text()


def write_pairs(folder: Path) -> None:
    """Pairs of two paradigms, of words of `write_dataset`."""
    random = np.random.default_rng(11)
    folder.mkdir()
    for name, pairs in (("a-b", 7), ("a-c", 5)):
        sentences = [" ".join(f"w{word}" for word in random.integers(0, 90, 6)) for _ in range(2 * pairs)]
        (folder / f"{name}.txt").write_text("\n".join(sentences) + "\n")


class StandIn(Children):
    """Does for a command what the laboratory sees of it.

    Runs with `bad` in their path fail after the first checkpoint, those with `lost` have a loss that is not finite. A
    signal comes before command number `stop`.
    """

    def __init__(self, stop: int | None = None, bad: str = "", lost: str = "") -> None:
        super().__init__()
        self.commands: list[tuple[str, str]] = []  # what, and which folder or update
        self.scored: list[Path] = []  # the run directories that were
        self.stop, self.bad, self.lost = stop, bad, lost

    def run(self, words: Sequence[str], log: Path | None = None) -> int:
        assert log
        flags = dict(itertools.pairwise(words))
        self.stopped = self.stopped or len(self.commands) == self.stop
        self.check()
        self.commands.append((words[2], f"{log.parent.parent.name}/{log.parent.name} {flags.get('--run.stop_at', '')}"))
        if words[2] == "bert.pretrain":
            return self._train(log.parent / "run", flags)
        if words[2] == "bert.average":
            assert Path(words[3]) == log.parent / "run" and flags["--ema"] == "true"
            Path(flags["--output"]).mkdir()
            return 0
        random = np.random.default_rng(len(self.commands))
        self.scored.append(Path(flags.get("--init.checkpoint", words[3])))
        assert self.scored[-1].is_dir()
        if words[2] == "tasks.train":
            line = {"step": 1, "split": "heldout", "loss": 1.0, "matthews": float(random.random())}
            self._log(Path(flags["--run.directory"]), line)
        else:
            newest = max((log.parent / "run" / "checkpoints").iterdir())
            found = {name: {"accuracy": float(random.random())} for name in ("p", "q")}
            mean = sum(one["accuracy"] for one in found.values()) / 2
            written = {"checkpoint": str(newest), "mean_of_paradigms": mean, "paradigms": found}
            Path(flags["--output"]).write_text(json.dumps(written | {"all": {"low": 0.1, "high": 0.9}}))
        return 0

    def _train(self, run: Path, flags: dict[str, str]) -> int:
        step = int(flags["--run.stop_at"])
        if self.bad and self.bad in str(run) and step > FIRST:
            (run.parent / "log.txt").write_text("warning: x\nerror: the loss is nan\n")
            return 4
        (run / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
        (run / "config.json").write_text(json.dumps({"config": {"batch.total": 6}}))
        rates = {"tokens_per_second": 60.0, "padding": 0.25, "sequences_per_second": 5.0}
        self._log(run, {"step": step, "split": "train", **rates})
        loss = "nan" if self.lost and self.lost in str(run) else 5 / step
        self._log(run, {"step": step, "split": "heldout", "loss": loss, "mlm_accuracy": step / 100})
        return 0 if step == STEPS else 75

    @staticmethod
    def _log(run: Path, line: dict[str, Any]) -> None:
        run.mkdir(exist_ok=True)
        with open(run / "metrics.jsonl", "a") as stream:
            stream.write(json.dumps(line) + "\n")


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take most of the time of a page."""
    monkeypatch.setattr(page, "draw", lambda *_: None)


def laboratory(folder: Path, children: Children, text: str = PLAN) -> Laboratory:
    (folder / "out").mkdir(exist_ok=True)
    return Laboratory(plan=plans.read(write_plan(folder, text)), output=folder / "out", children=children)


@pytest.mark.slow
def test_variants_of_a_seed_reach_a_checkpoint_together_and_a_stop_repeats_nothing(
    without_pictures: None, tmp_path: Path
) -> None:
    straight = StandIn()
    assert command.work(laboratory(tmp_path, straight), "command") == {}
    trained = [where for what, where in straight.commands if what == "bert.pretrain"]
    assert trained == [
        f"{variant}/seed-{seed} {step}" for seed in (3, 1, 7) for step in MARKS for variant in ("one", "two")
    ]
    assert len(straight.commands) == 6 * (3 + 3 + 1)  # legs, pairs at each, the task at the end
    assert laboratory(tmp_path, StandIn()).left() == []
    shutil.rmtree(tmp_path / "out")

    done: list[tuple[str, str]] = []
    for stop in (1, 2, 9, 5, 1):  # commands of each call
        children = StandIn(stop)
        with pytest.raises(Stopped):
            command.work(laboratory(tmp_path, children), "command")
        done += children.commands
    rest = StandIn()
    command.work(laboratory(tmp_path, rest), "command")
    assert done + rest.commands == straight.commands
    leg = laboratory(tmp_path, rest).plan and trials(plans.read(tmp_path / "plan.toml"), tmp_path / "out")[0].leg(9)
    assert leg and (leg.tokens, leg.tokens_per_second) == (9 * 6 * 12 * 0.75, 45)  # 12 tokens a sequence


def test_a_run_that_keeps_a_moving_average_of_its_weights_is_scored_by_that(
    without_pictures: None, tmp_path: Path
) -> None:
    children, text = StandIn(), PLAN.replace("0.02", "0.02 --optimizer.ema 0.9").replace("[3, 1, 7]", "[3]")
    command.work(laboratory(tmp_path, children, text), "command")
    done = [what.split(".")[1] for what, where in children.commands if where.startswith("two")]
    leg = ["pretrain", "average", "minimal_pairs"]
    assert done == [*leg, *leg, *leg, "train"]
    for variant, name in (("one", "run"), ("two", ".average")):
        models = [path for path in children.scored if path.parent.parent.name == variant]
        assert models == [tmp_path / "out" / variant / "seed-3" / name] * 4
    assert not list((tmp_path / "out").rglob(".average"))


@pytest.mark.slow
def test_a_run_that_fails_is_a_line_and_the_others_go_on(without_pictures: None, tmp_path: Path) -> None:
    children = StandIn(bad="two/seed-1")
    failures = command.work(laboratory(tmp_path, children), "command")
    assert list(failures) == ["two, seed 1"]
    said = failures["two, seed 1"]
    assert "training up to update 9 ended with code 4: the loss is nan; see " in said
    assert f"## Failed\n\n- {said}" in (tmp_path / "out" / page.NAME).read_text()
    assert [where for what, where in children.commands if "two/seed-1" in where and what == "bert.pretrain"] == [
        "two/seed-1 4",
        "two/seed-1 9",
    ]
    assert {(trial.name, step) for trial, step in laboratory(tmp_path, StandIn()).left()} == {
        ("two, seed 1", 9),
        ("two, seed 1", 19),
    }
    rows = table((tmp_path / "out" / page.NAME).read_text(), "## Runs")
    assert [row[:3] + row[5:7] for row in rows if row[:2] == ["two", "1"]] == [["two", "1", "4 of 19", "2", "0"]]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_told_and_not_scored(without_pictures: None, tmp_path: Path) -> None:
    children = StandIn(lost="one/seed-7")
    command.work(laboratory(tmp_path, children), "command")
    assert {what for what, where in children.commands if where.startswith("one/seed-7")} == {"bert.pretrain"}
    text = (tmp_path / "out" / page.NAME).read_text()
    assert {(row[0], row[1]): row[8] for row in table(text, "## Runs")}["one", "7"] == "not finite"
    assert table(text, "### held-out loss")[-1] == ["19", "0.263 +- 0.000", "2", "0.263 +- 0.000", "3"]
    assert laboratory(tmp_path, StandIn()).left() == []


@pytest.mark.slow
def test_results_of_other_flags_are_refused(without_pictures: None, tmp_path: Path) -> None:
    command.work(laboratory(tmp_path, StandIn()), "command")
    for was, now, said in [
        ("0.02", "0.03", "two, seed 3 is there with other flags .optimizer.learning_rate was 0.02, now 0.03"),
        ("--data pairs", "--data pairs --score unmasked", "score pairs was computed by minimal_pairs --data pairs;"),
    ]:
        with pytest.raises(UsageError, match=said):
            laboratory(tmp_path, StandIn(), PLAN.replace(was, now)).left()
    assert laboratory(tmp_path, StandIn(), PLAN.replace("0.02", "0.02 --run.save_every 5")).left() == []


def table(text: str, heading: str) -> list[list[str]]:
    """The rows, as cells, of the first table behind a heading."""
    lines = itertools.dropwhile(lambda line: not line.startswith("|"), text.split(f"{heading}\n", 1)[1].splitlines())
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), lines))
    return [[cell.strip() for cell in row[1:-1].split(" | ")] for row in rows[2:]]


@pytest.mark.slow
def test_the_figures_of_the_page_are_those_of_the_files(tmp_path: Path) -> None:
    """The oracle is NumPy; Student's quantile for two degrees of freedom has a closed form."""
    plan, random = plans.read(write_plan(tmp_path)), np.random.default_rng(2)
    losses, pairs, tokens, speeds = (random.random((2, 3, 3)) for _ in range(4))  # of variant, seed, mark
    pairs *= 100
    tokens = 1000 * np.cumsum(1 + tokens, axis=2)
    for trial in trials(plan, tmp_path):
        at = list(plan.variants).index(trial.run.name), plan.seeds.index(trial.seed)
        for number, step in enumerate(MARKS):
            folder = trial.folder / f"step-{step:08d}"
            folder.mkdir(parents=True)
            place = (*at, number)
            figures = {"mean_of_paradigms": float(pairs[place]), "paradigms": {"p": {"accuracy": float(pairs[place])}}}
            figures["all"] = {"low": 25.0, "high": 75.0}
            leg = Leg(
                step=step,
                tokens=float(tokens[place]),
                tokens_per_second=float(100 * (1 + speeds[place])),
                heldout={"loss": float(losses[place]), "mlm_accuracy": 50.0, "mlm_accuracy/books": 25.0},
                settings=trial.run.settings(),
                scale=100,
            )
            scored = Scored(command="minimal_pairs --data pairs", seconds=1.0, figures=figures, scale=100)
            checked_json.write(folder / "training.json", dataclasses.asdict(leg))
            checked_json.write(folder / "pairs.json", dataclasses.asdict(scored))
    page.write(plan, tmp_path, "command", {})
    text = (tmp_path / page.NAME).read_text()

    curve = table(text, "### pairs")
    for number, step in enumerate(MARKS):
        found = pairs[:, :, number]
        cells = [f"{values.mean():.2f} +- {values.std(ddof=1):.2f}" for values in found]
        assert curve[number] == [str(step), cells[0], "3", cells[1], "3"]
    assert table(text, "### pairs: paradigms at the end") == [["p", *curve[-1][1::2]]]

    quantile = 0.95 * np.sqrt(2 / (4 * 0.975 * 0.025))
    seconds = tokens / np.median(100 * (1 + speeds[:, :, -1]), axis=1)[:, None, None]
    places = {"updates": np.broadcast_to(np.array(MARKS, float), (2, 3, 3)), "tokens": tokens, "seconds": seconds}
    for axis, places_of in places.items():
        rows = {row[0]: row[1:] for row in table(text, f"At equal {axis}:")}
        assert list(rows) == ["held-out loss", "held-out mlm accuracy", "pairs"]
        for name, values, digits in (("held-out loss", losses, 3), ("pairs", pairs, 2)):
            end = places_of[:, :, -1].min()
            at_end = np.array(
                [
                    [np.interp(np.log(end), np.log(x), y) for x, y in zip(*of, strict=True)]
                    for of in zip(places_of, values, strict=True)
                ]
            )
            differences = at_end[1] - at_end[0]
            half = quantile * differences.std(ddof=1) / np.sqrt(3)
            ends = differences.mean() - half, differences.mean() + half
            assert rows[name] == [
                f"{end:,.0f}",
                "3",
                *(f"{of.mean():.{digits}f} +- {of.std(ddof=1):.{digits}f}" for of in at_end),
                f"{differences.mean():+.{digits}f} ({ends[0]:+.{digits}f} to {ends[1]:+.{digits}f})",
            ]
    single = {(row[0], row[1]): row[-1] for row in table(text, "## Runs")}
    assert single["two", "7"] == f"{pairs[1, 2, 2]:.2f} (25.0 to 75.0)"

    older = trials(plan, tmp_path)[0].folder / f"step-{MARKS[0]:08d}" / "training.json"
    checked_json.write(
        older, {key: value for key, value in files.read_json(older).items() if key not in ("checksum", "scale")}
    )
    with pytest.raises(UsageError, match=r"training\.json: its scores are from 0 to 1, .*; give another --output"):
        page.write(plan, tmp_path, "command", {})
    for name in re.findall(r"\((curve-\d\.png)\)", text):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_measure_is_told_where_all_runs_of_equal_seeds_have_it() -> None:
    """Of variant `b`, seed 1 is at update 9. Seed 2 is behind, and only `b` has seed 3; both are left out."""

    def point(step: float, **measures: float) -> page.Point:
        return page.Point({"updates": step, "tokens": 10 * step, "seconds": 3 * step}, measures)

    found = {
        "a": {1: [point(4, x=1), point(19, x=3)], 2: [point(4, x=7), point(19)]},
        "b": {1: [point(4, x=2), point(9, x=5)], 2: [point(4, x=0)], 3: [point(4, x=0), point(19, x=9)]},
    }
    (row,) = [line for part in page._equal(found, ["x"]) for line in part.splitlines() if line.startswith("| x | 9 |")]
    middle = 1 + 2 * np.log(9 / 4) / np.log(19 / 4)
    assert row == f"| x | 9 | 1 | {middle:.2f} | 5.00 | {5 - middle:+.2f} |"


def call(plan: Path, output: Path, stop_in: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the laboratory. stop_in: a run directory; at its checkpoint of update 41 the laboratory is asked to stop."""
    words = [sys.executable, "-m", "benchmarks.laboratory", str(plan), "--output", str(output)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if stop_in is not None:
            wait_for(stop_in / "checkpoints" / "step-00000041")
            process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=1000)
    finally:
        process.kill()
    return subprocess.CompletedProcess(words, process.returncode, *said)


def wait_for(path: Path) -> None:
    for _ in range(3000):
        if path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} did not come")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_laboratory_that_is_stopped_in_training_gives_the_bits_and_scores_of_one_that_is_not(
    tmp_path: Path,
) -> None:
    """The other one has no legs either: all of its runs are trained at once."""
    data, steps = write_dataset(tmp_path / "data"), 400
    write_pairs(tmp_path / "pairs")
    shown = [f"--data.train {data} --batch.per_device 3 --run.steps {steps} --run.save_every 41", *FLAGS]
    text = HEAD.replace(f"--run.steps {STEPS}", " ".join(shown)).replace("[3, 1, 7]", "[3, 1]") + VARIANTS
    text += f"[scores.pairs]\ncommand = 'minimal_pairs'\nat = 'end'\nflags = '--pairs 3 --data {tmp_path / 'pairs'}'\n"
    plan = write_plan(tmp_path, text.replace("checkpoints = 3", "checkpoints = 2"))
    stopped = call(plan, tmp_path / "stopped", stop_in=tmp_path / "stopped" / "one" / "seed-3" / "run")
    assert stopped.returncode == 75 and stopped.stderr.splitlines()[-1].startswith("stopped"), stopped.stderr
    found, expected = (trials(plans.read(plan), tmp_path / name) for name in ("stopped", "straight"))
    assert 41 <= found[0].newest() < steps  # in the middle of a leg
    resumed = call(plan, tmp_path / "stopped")
    assert resumed.returncode == 0, resumed.stderr
    before = sorted((path, os.stat(path).st_mtime_ns) for path in (tmp_path / "stopped").rglob("step-*/*"))
    again = call(plan, tmp_path / "stopped")
    assert again.returncode == 0 and again.stdout == f"{tmp_path / 'stopped' / page.NAME}\n"
    assert before == sorted((path, os.stat(path).st_mtime_ns) for path in (tmp_path / "stopped").rglob("step-*/*"))

    straight = call(write_plan(tmp_path, text.replace("checkpoints = 3", "checkpoints = 1")), tmp_path / "straight")
    assert straight.returncode == 0, straight.stderr
    for trial, other in zip(found, expected, strict=True):
        same_bits(weights(trial.directory, steps), weights(other.directory, steps))
        assert of(trial, steps) == of(other, steps)


def of(trial: Trial, step: int) -> tuple[Any, ...]:
    """What does not depend on time, of a run at a scored checkpoint."""
    leg, scored = trial.leg(step), trial.scored(step, "pairs")
    assert leg and scored
    return leg.heldout, {key: value for key, value in scored.figures.items() if key != "checkpoint"}
