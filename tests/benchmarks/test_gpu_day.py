"""The day on a GPU: order and time, limits, failures, kills in the middle, checks, the page; and a rehearsal."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import invented, steps
from benchmarks.gpu_day import page
from benchmarks.gpu_day.__main__ import main, plan
from benchmarks.gpu_day.items import Day, Item
from benchmarks.gpu_day.runner import Runner, State, reason
from bert import pretrain
from bert.core import cli
from bert.core.errors import UsageError, UserError
from tests.waiting import runs, wait_for

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("first", "second", "third", "fourth")
CALL = """
import signal, sys
from pathlib import Path
from benchmarks.gpu_day.items import Item
from benchmarks.gpu_day.runner import Runner, State
output, code = Path(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGTERM, signal.default_int_handler)
items = [Item(name=name, what=name, words=("x",), least=0, limit=60) for name in ("first", "second", "third")]
runner = Runner(output, State.load(output), 600, lambda item: [sys.executable, "-c", code, item.name, str(output)])
list(runner.run(items))
"""
CHILD = """
import pathlib, subprocess, sys, time
name, output = sys.argv[1], pathlib.Path(sys.argv[2])
with open(output / f"begun-{name}", "a") as stream:
    print("x", file=stream, flush=True)
    if name == "second" and (output / "hang").exists():
        (output / "sleeper").write_text(str(subprocess.Popen(["sleep", "60"]).pid))
        time.sleep(60)
"""


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def listed(**changes: Any) -> list[Item]:
    given: dict[str, Any] = {"words": ("x",), "least": 60.0, "limit": 300.0} | changes
    return [Item(name=name, what=f"the {name}", **given) for name in NAMES]


def call(output: Path, items: list[Item], seconds: float, codes: dict[str, str] | None = None) -> State:
    """Run items that take 100 s each by a clock of their own, and run `codes`; return the state after it."""
    clock, state = Clock(), State.load(output)

    def command(item: Item) -> list[str]:
        clock.now += 100
        return [sys.executable, "-S", "-c", (codes or {}).get(item.name, "print('an answer')")]

    list(Runner(output, state, seconds, command, clock, lambda line: None).run(items))
    assert vars(State.load(output)) == vars(state)
    return state


def test_items_run_in_order_while_there_is_time_and_the_next_call_goes_on(tmp_path: Path) -> None:
    state = call(tmp_path, listed(), 250)
    assert list(state.results) == list(NAMES[:2])  # 50 s were left, fewer than an item needs
    assert all(one["status"] == "done" and one["seconds"] == 100 for one in state.results.values())
    assert state.results["first"]["output"] == "an answer" and state.results["first"]["commit"]
    short = [*listed()[:3], Item(name="fourth", what="", words=("x",), least=10.0)]
    assert list(call(tmp_path, short, 50).results) == [*NAMES[:2], "fourth"]  # what is short fits in
    assert len(call(tmp_path, listed(), 100).results) == 4
    assert call(tmp_path, listed(), 1000).attempts == dict.fromkeys(NAMES, 1)  # nothing is run again


def test_one_that_fails_is_named_with_its_last_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    codes = {
        "first": "print('begins', flush=True); raise SystemExit('the last word')",
        "second": "print('error: no such GPU; remedy\\nmore\\nmost bytes of the GPU: 7'); raise SystemExit(5)",
        "third": "raise SystemExit(3)",
        "fourth": "import a_package_that_is_not_there",
    }
    state = call(tmp_path, listed(), 1000, codes)
    assert [state.results[name]["status"] for name in NAMES] == ["failed", "failed", "failed", "skipped"]
    assert state.results["fourth"]["why"].startswith("skipped: ModuleNotFoundError: No module named 'a_package")
    assert state.results["first"]["why"] == "failed: ended with code 1: the last word"
    assert state.results["second"]["why"] == "failed: ended with code 5: error: no such GPU; remedy"
    assert state.results["third"]["why"] == "failed: ended with code 3: it printed nothing"
    crashed = ["begins", "F0000 00:00 heap_simulator.cc:7] Check failed: a == b", "    @ 0x7f main"]
    assert reason(crashed) == crashed[1]


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = (
        "import pathlib, subprocess, time\n"
        f"pathlib.Path({str(started)!r}).write_text(str(subprocess.Popen(['sleep', '60']).pid))\ntime.sleep(60)"
    )
    begun = time.monotonic()
    state = call(tmp_path, [*listed(limit=5.0)[:1], listed()[1]], 1000, {"first": code})
    assert state.results["first"]["why"].startswith("failed: longer than 5 s")
    assert state.results["second"]["status"] == "done" and time.monotonic() - begun < 50
    wait_for(lambda: not runs(int(started.read_text())), "end of what it started", seconds=20)


def begin(output: Path) -> "subprocess.Popen[bytes]":
    """A call in a process of its own, which hangs in the second item."""
    (output / "hang").touch()
    process = subprocess.Popen([sys.executable, "-c", CALL, str(output), CHILD], cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_for(lambda: (output / "sleeper").exists() and (output / "sleeper").read_text(), "second item", process)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(("number", "attempts"), [(signal.SIGKILL, 2), (signal.SIGTERM, 1)])
def test_a_day_stopped_in_the_middle_goes_on_where_it_was(tmp_path: Path, number: int, attempts: int) -> None:
    process = begin(tmp_path)
    process.send_signal(number)
    process.wait(timeout=30)
    sleeper = int((tmp_path / "sleeper").read_text())
    if number == signal.SIGTERM:
        wait_for(lambda: not runs(sleeper), "end of what it started", seconds=20)
    else:
        os.kill(sleeper, signal.SIGKILL)  # what nobody waits for any more
    assert list(State.load(tmp_path).results) == ["first"]
    (tmp_path / "hang").unlink()
    subprocess.run([sys.executable, "-c", CALL, str(tmp_path), CHILD], cwd=ROOT, check=True)
    state = State.load(tmp_path)
    assert [one["status"] for one in state.results.values()] == ["done"] * 3
    assert (tmp_path / "begun-first").read_text() == "x\n"  # run once
    assert state.attempts == {"first": 1, "second": attempts, "third": 1}  # asked to stop: that was no attempt


def test_a_command_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    module = tmp_path / "sleeper.py"
    module.write_text(f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    words = [sys.executable, "-m", "benchmarks.gpu_day.child", "sleeper"]
    code = f"import subprocess, time\nsubprocess.Popen({words!r})\ntime.sleep(60)"
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as parent:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "command", parent)
        parent.kill()
    wait_for(lambda: not runs(int((tmp_path / "pid").read_text())), "end of the command")


def test_the_list_has_what_is_worth_most_first_and_fits_in_an_hour(tmp_path: Path) -> None:
    items = Day(tmp_path).items()
    names = [item.name for item in items]
    wanted = ["doctor", "losses_float32", "phase2_fused", "phase1", "phase2", "phase1_no_dropout", "phase1_excess"]
    wanted += ["transformers_phase1", "bits_fixed_1", "finetune", "answers"]
    places = [names.index(name) for name in wanted]
    assert places == sorted(places) and len(set(names)) == len(names)
    assert names == [item.name for item in Day(tmp_path, rehearse=True).items()]
    assert sum(item.least for item in items) < 60 * 60
    assert all(item.least <= item.limit and item.like in ("", *names[: names.index(item.name)]) for item in items)


@pytest.mark.slow
@pytest.mark.parametrize("rehearse", [False, True])
def test_every_command_of_the_list_can_be_read(
    tmp_path: Path, rehearse: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    day = Day(tmp_path, rehearse)
    invented.write(tmp_path / "data", 7, 13, 3)
    monkeypatch.setattr(Day, "data", lambda self, phase: tmp_path / "data")
    for item in day.items():
        module, *words = item.words
        if item.is_run:
            pretrain.main([*words, "--print", "1"])
            assert "memory per rank" in capsys.readouterr().out
        elif module == "benchmarks.steps":
            options = cli.parse(steps.Options, words, prog="", description=None)
            assert options.alone or options.peers == ("gathered_compile",)
        else:
            assert item.words == ("bert.doctor",)


def test_a_command_that_cannot_run_is_found_before_the_day(tmp_path: Path) -> None:
    state, item = State(), Item(name="wrong", what="", words=("bert.pretrain", "bert_mini_phase1", "--run.steps", "x"))
    with pytest.raises(UserError, match=r"wrong cannot run: error: .*--run\.steps"):
        plan([item], state)


def facts(**changes: Any) -> dict[str, Any]:
    """What a run on an H100 may have found; the figures are invented. Two updates compile."""
    return {
        "losses": [11.0, 10.5],
        "sequences_per_second": [8.0, 9.0, 1280.0, 1536.0, 1097.142857],
        "teraflops": [1.0, 1.0, 200.0, 247.25, 300.0],
        "total": 768,
        "sequences": 192,
        "tokens": 128,
        "compute": "bfloat16",
        "versions": {"tensorflow": "2.21.0"},
        "weights": {"a": "1"},
        "peak_bytes": 30 * 2**30,
    } | changes


def known(**found: dict[str, Any]) -> State:
    results = {name: {"status": "done", "seconds": 300.0, "commit": "abc", **result} for name, result in found.items()}
    gpu = "NVIDIA H100 80GB HBM3, 580.65.06, 81559 MiB"
    return State(rehearse=False, gpu=gpu, results=results, planned={"phase1": "31.0"})


def test_the_page_has_tables_and_what_is_missing(tmp_path: Path) -> None:
    state = known(phase1={"facts": facts()}, doctor={"output": "ok  driver"}, answers={"text": "| a | table |\n"})
    state.results["phase2"] = {"status": "failed", "seconds": 0, "commit": "abc", "why": "failed: compiling | it"}
    page.write(Day(tmp_path).items(), state, tmp_path / "new" / "day.md", "the command")
    text = (tmp_path / "new" / "day.md").read_text()
    row = "| phase 1 | bfloat16 | 128 / 192 | 1,280.0 | 600 (500 - 700) | 247 | 25% | 96 | 30.0 | 31.0 |"
    assert row in text and "# One GPU: NVIDIA H100 80GB HBM3\n" in text and "580.65.06" in text
    assert "Commit abc; tensorflow 2.21.0. 15.0 minutes" in text and "the command" in text
    assert "## The machine\n\n```\nok  driver\n```" in text and "## Answers\n\n| a | table |" in text
    assert "| `phase2` | phase 2 | failed: compiling \\| it |" in text
    assert "| `phase1_fused` | phase 1, cuDNN's attention, no dropout on attention | not reached |" in text


def test_equal_losses_and_bits_are_checked(tmp_path: Path) -> None:
    near, far = [11.0, 10.5 * (1 + 2e-5)], [11.0, 10.5 * (1 + 2e-4)]
    state = known(
        losses_cpu={"facts": facts()},
        losses_float32={"facts": facts(losses=near)},
        losses_bfloat16={"facts": facts(losses=[11.0, float("nan")])},
        bits_fixed_1={"facts": facts()},
        bits_fixed_2={"facts": facts(weights={"a": "1"})},
        bits_free_1={"facts": facts()},
        bits_free_2={"facts": facts(weights={"a": "2"})},
    )
    items = Day(tmp_path).items()
    found = {check.item.name: check for check in page.checks(items, state)}
    assert {name: check.equal for name, check in found.items()} == {
        "losses_float32": True,
        "losses_bfloat16": False,
        "bits_fixed_2": True,
        "bits_free_2": False,
    }
    assert found["losses_float32"].difference == "2e-05" and not found["bits_free_2"].item.required
    state.results["losses_float32"]["facts"] = facts(losses=far)
    assert not next(page.checks(items, state)).equal
    page.write(items, state, tmp_path / "day.md", "")
    text = (tmp_path / "day.md").read_text()
    assert "| `losses_float32` | `losses_cpu` | 0.0002 | 0.0001 | **no** |" in text
    assert "| `bits_fixed_2` | `bits_fixed_1` | the same bits | the same bits | yes |" in text
    assert "| `bits_free_2` | `bits_free_1` | other bits |  | no |" in text


@pytest.mark.slow
def test_a_finished_list_whose_results_differ_ends_with_code_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_module: Callable[..., Any]
) -> None:
    names = ["losses_cpu", "losses_float32"]
    state = known(losses_cpu={"facts": facts()}, losses_float32={"facts": facts(losses=[12.0, 10.5])})
    for item in Day(tmp_path, rehearse=True).items():
        state.results.setdefault(item.name, {"status": "failed", "seconds": 0.0, "commit": "abc", "why": "no"})
    state.rehearse = True
    state.save(tmp_path)
    to = ("--rehearse", "--output", tmp_path, "--only", *names)
    done = run_module("benchmarks.gpu_day", "run", *to)
    assert done.returncode == 4 and "not the same as they should be: losses_float32 (0.091)" in done.stderr
    state.results["losses_float32"]["facts"] = facts()
    state.save(tmp_path)
    done = run_module("benchmarks.gpu_day", "run", *to)
    assert done.returncode == 0 and "2 of 2 measured; " in done.stdout
    state.results["losses_float32"] = {"status": "skipped", "seconds": 0.0, "commit": "abc", "why": "skipped: no"}
    state.save(tmp_path)
    assert "1 of 2 measured, 1 skipped; " in run_module("benchmarks.gpu_day", "run", *to).stdout


def test_what_is_asked_for_wrongly_is_refused(tmp_path: Path) -> None:
    commands = "{prepare,run,page,list}"
    for argv, said in (
        (["mend"], commands),
        ([], commands),
        (["list", "--only", "no"], "--only no"),
        (["run", "--minutes", "0"], "must be above 0"),
    ):
        with pytest.raises(UsageError, match=said):
            main([*argv, "--output", str(tmp_path)] if argv else [])
    State(rehearse=False).save(tmp_path)
    with pytest.raises(UsageError, match="has results of a real day"):
        main(["page", "--rehearse", "--output", str(tmp_path)])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.thorough
def test_a_rehearsal_on_this_cpu(tmp_path: Path, run_module: Callable[..., Any]) -> None:
    module = "benchmarks.gpu_day"
    names = ["doctor", "losses_cpu", "losses_float32", "phase1", "phase2_fused", "bits_fixed_1", "bits_fixed_2"]
    to = ("--rehearse", "--output", tmp_path, "--only", *names, "answers")
    prepared = run_module(module, "prepare", *to, timeout=500)
    assert prepared.returncode == 0, prepared.stderr[-2000:]
    first = run_module(module, "run", *to, "--minutes", 0.03, timeout=500)
    assert first.returncode == 75 and "the same command continues" in first.stderr, first.stderr[-2000:]
    done = run_module(module, "run", *to, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    state = json.loads((tmp_path / "state.json").read_text())["results"]
    status = {name: state[name]["status"] for name in (*names, "answers")}
    assert status == dict.fromkeys((*names, "answers"), "done") | {"phase2_fused": "failed"}, state
    assert "leave out --model.fused_attention" in state["phase2_fused"]["why"]  # cuDNN needs a GPU
    text = (tmp_path / "page.md").read_text()
    assert text.count("| yes |") == 2 and "| phase 1 | bfloat16 | 16 / 3 |" in text and "answer logits, 1 x 384" in text
    assert not list(tmp_path.glob("*/run"))  # gigabytes, of real models
