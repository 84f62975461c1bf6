"""The day on a GPU: order and budget, time limits, failures, kills in the middle, the page; and a day in miniature."""

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

from benchmarks.gpu_day import measurements, page
from benchmarks.gpu_day.__main__ import Options, main, place
from benchmarks.gpu_day.measurements import Measurement
from benchmarks.gpu_day.runner import ATTEMPTS, Day, State
from bert.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("first", "second", "third", "fourth")
ANSWER = "import json, pathlib; pathlib.Path({path!r}).write_text(json.dumps({found!r}))"
DAY = """
import sys
from pathlib import Path
from benchmarks.gpu_day.measurements import Measurement
from benchmarks.gpu_day.runner import Day, State, stoppable
output, code = Path(sys.argv[1]), sys.argv[2]
chosen = [Measurement(name=name, what=name, kind="x", least=0, limit=60) for name in ("first", "second", "third")]
with stoppable():
    Day(chosen, output, lambda one: [sys.executable, "-c", code, one.name, str(output)], 600).run(State.load(output))
"""
CHILD = """
import json, pathlib, subprocess, sys, time
name, output = sys.argv[1], pathlib.Path(sys.argv[2])
begun = output / f"begun-{name}"
if name == "second" and (output / "hang").exists():
    begun.write_text(str(subprocess.Popen(["sleep", "60"]).pid))
    time.sleep(60)
begun.write_text(begun.read_text() + "x" if begun.exists() and name != "second" else "x")
(output / "results" / f"{name}.json").write_text(json.dumps({"name": name}))
"""


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def listed(**changes: Any) -> list[Measurement]:
    given: dict[str, Any] = {"kind": "x", "least": 60.0, "limit": 300.0} | changes
    return [Measurement(name=name, what=f"the {name}", **given) for name in NAMES]


def day(output: Path, chosen: list[Measurement], codes: dict[str, str] | None = None, **changes: Any) -> Day:
    """A day whose measurements take 100 s each by its clock, and run `codes` or answer at once."""
    clock = Clock()

    def command(one: Measurement) -> list[str]:
        clock.now += 100
        path = str(output / "results" / f"{one.name}.json")
        return [sys.executable, "-S", "-c", (codes or {}).get(one.name, ANSWER.format(path=path, found={"took": 100}))]

    given: dict[str, Any] = {"budget": 1000.0, "clock": clock, "tell": lambda line: None} | changes
    return Day(chosen, output, command, **given)


def test_what_is_worth_most_is_taken_first_until_the_budget_is_spent(tmp_path: Path) -> None:
    state = State()
    assert day(tmp_path, listed(), budget=300).run(state) == ["fourth"]
    assert list(state.results) == list(NAMES[:3]) and all(one["status"] == "done" for one in state.results.values())


def test_nothing_is_begun_with_less_time_left_than_it_needs(tmp_path: Path) -> None:
    state = State()
    assert day(tmp_path, listed(), budget=250).run(state) == ["third", "fourth"]  # 50 s are left
    assert day(tmp_path, listed(), budget=260).run(state) == ["fourth"]  # the same command, with more time
    assert [state.results[name]["seconds"] for name in NAMES[:3]] == [100.0] * 3 and state.spent == 300.0
    assert State.load(tmp_path) == state


def test_what_is_short_is_taken_in_the_time_that_is_left(tmp_path: Path) -> None:
    chosen = listed()
    chosen[3] = Measurement(name="fourth", what="", kind="x", least=10.0)
    state = State()
    assert day(tmp_path, chosen, budget=250).run(state) == ["third"]
    assert "fourth" in state.results


def test_a_session_ends_before_the_budget_does(tmp_path: Path) -> None:
    state = State()
    assert day(tmp_path, listed(), session=170).run(state) == ["third", "fourth"]
    assert day(tmp_path, listed(), session=170).run(state) == []


def test_one_that_the_end_of_a_session_cuts_short_is_taken_in_the_next(tmp_path: Path) -> None:
    chosen, codes, state = listed(least=0.0), {"second": "import time; time.sleep(60)"}, State()
    assert day(tmp_path, chosen, codes, session=101).run(state) == ["second", "third", "fourth"]
    assert list(state.results) == ["first"] and state.attempts["second"] == 0
    assert day(tmp_path, chosen, codes, budget=201).run(state) == ["second", "third", "fourth"]  # nor by the budget's
    day(tmp_path, chosen, codes, session=1).run(state)  # a session of its own, and still too long
    assert state.results["second"]["why"].startswith("failed: longer than 1 s")
    assert day(tmp_path, chosen).run(state) == [] and state.results["fourth"]["status"] == "done"


def test_one_that_fails_is_named_with_its_last_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    codes = {
        "first": "print('begins'); raise SystemExit('the last word')",
        "second": "print('error: no such GPU; remedy'); print('a line behind it'); raise SystemExit(5)",
        "third": f"import os, pathlib; pathlib.Path({str(tmp_path)!r}, 'results/third.json').write_text("
        '\'{"skipped": "no GPU"}\')',
        "fourth": "print('no answer is written')",
    }
    state = State()
    assert day(tmp_path, listed(), codes).run(state) == []
    assert [state.results[name]["status"] for name in NAMES] == ["failed", "failed", "skipped", "failed"]
    assert state.results["first"]["why"] == "failed: ended with code 1: the last word"
    assert state.results["second"]["why"] == "failed: ended with code 5: error: no such GPU; remedy"
    assert state.results["third"]["why"] == "skipped: no GPU"
    assert "ended with code 0" in state.results["fourth"]["why"]


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = (
        "import pathlib, subprocess, time\n"
        f"pathlib.Path({str(started)!r}).write_text(str(subprocess.Popen(['sleep', '60']).pid))\ntime.sleep(60)"
    )
    state, begun = State(), time.monotonic()
    day(tmp_path, listed(limit=2.0)[:2], {"first": code}).run(state)
    assert state.results["first"]["why"].startswith("failed: longer than 2 s")
    assert state.results["second"]["status"] == "done" and time.monotonic() - begun < 50
    assert not alive(int(started.read_text()))


def alive(number: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def begin(output: Path) -> "subprocess.Popen[str]":
    """A day in a process of its own, stopped nowhere but in the second measurement."""
    (output / "hang").touch()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", DAY, str(output), CHILD], env=environment, cwd=ROOT, text=True, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 60
    while not (output / "begun-second").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.2)
    return process


def go_on(output: Path) -> None:
    (output / "hang").unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", DAY, str(output), CHILD], env=environment, cwd=ROOT, check=True)


def test_a_day_killed_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    process = begin(tmp_path)
    process.kill()
    process.wait()
    state = State.load(tmp_path)
    assert list(state.results) == ["first"] and state.running == "second"
    os.kill(int((tmp_path / "begun-second").read_text()), signal.SIGKILL)  # the sleep that nobody waits for any more
    go_on(tmp_path)
    state = State.load(tmp_path)
    assert [one["status"] for one in state.results.values()] == ["done"] * 3
    assert (tmp_path / "begun-first").read_text() == "x"  # taken once
    assert state.attempts == {"first": 1, "second": 2, "third": 1}


def test_what_takes_the_machine_down_twice_is_not_begun_a_third_time(tmp_path: Path) -> None:
    state = State(running="first", attempts={"first": ATTEMPTS})
    day(tmp_path, listed()).run(state)
    assert state.results["first"]["why"] == "cut short 2 times together with this command"
    assert state.results["second"]["status"] == "done"


def test_a_signal_ends_the_measurement_too_and_it_is_taken_again(tmp_path: Path) -> None:
    process = begin(tmp_path)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert "Interrupted: SIGTERM" in said
    assert not alive(int((tmp_path / "begun-second").read_text()))
    state = State.load(tmp_path)
    assert state.attempts["second"] == 0 and state.running == ""
    go_on(tmp_path)
    assert len(State.load(tmp_path).results) == 3


def test_the_order_is_that_of_worth_and_every_measurement_can_be_taken() -> None:
    names = [one.name for one in measurements.order(measurements.FULL)]
    wanted = [
        "devices",
        "losses_float32",
        "phase1",
        "phase2",
        "phase2_fused",
        "phase1_no_dropout",
        "phase1_excess",
        "transformers_phase1",
        "bits_fixed_1",
        "finetune",
        "answers_1",
    ]
    places = [names.index(name) for name in wanted]
    assert places == sorted(places)
    assert names == [one.name for one in measurements.order(measurements.SMOKE)]
    assert sum(one.least for one in measurements.order(measurements.FULL)) < 60 * 60


def results(**more: Any) -> dict[str, dict[str, Any]]:
    """What a day on an H100 may have found; the figures are invented."""
    step = {
        "tokens": 128,
        "batch": 192,
        "compute": "bfloat16",
        "sequences_per_second": 1234.5,
        "teraflops": 247.25,
        "seconds": [0.6, 0.5, 0.7],
        "first_seconds": 99.0,
        "peak_bytes": 30 * 2**30,
        "planned_bytes": 31 * 2**30,
    }
    found: dict[str, dict[str, Any]] = {
        "devices": {
            "device": "GPU 0 of 1, NVIDIA H100 80GB HBM3",
            "gpu": "NVIDIA H100 80GB HBM3",
            "nvidia_smi": "x",
            "cores": 7,
            "product_teraflops": 600.0,
            "commit": "abc",
            "build": {"cuda_version": "12.5.1"},
            "versions": {"tensorflow": "2.21.0"},
        },
        "losses_cpu": {"losses": [11.0, 10.5], "compute": "float32"},
        "losses_float32": {
            "losses": [11.0, 10.5],
            "compute": "float32",
            "apart": 2e-5,
            "tolerance": 1e-3,
            "equal": True,
        },
        "phase1": step,
        "bits_fixed_1": {"sha256": "a"},
        "bits_fixed_2": {"sha256": "a"},
        "bits_free_1": {"sha256": "a"},
        "bits_free_2": {"sha256": "b"},
    }
    return {name: {"status": "done", "seconds": 1.0, "found": facts} for name, facts in (found | more).items()}


def test_the_page_has_tables_pictures_and_what_is_missing(tmp_path: Path) -> None:
    state = State(results=results(), scale="full", spent=600.0)
    state.results["phase2"] = {"status": "failed", "seconds": 360.0, "why": "failed: longer than 360 s: compiling | it"}
    page.write(measurements.order(measurements.FULL), state, tmp_path / "new" / "day.md", "the command")
    text = (tmp_path / "new" / "day.md").read_text()
    assert "| phase 1 | bfloat16 | 128 / 192 | 1,234.5 | 600 (500 - 700) | 247 | 25% | 99 | 30.0 | 31.0 |" in text
    assert "| float32 | 2e-05 | 0.001 | yes |" in text
    assert "| yes | the same bits |" in text and "| no | other bits |" in text
    assert "longer than 360 s: compiling \\| it |" in text
    assert "| `phase1_fused` | the same, cuDNN's attention | not reached |" in text
    assert "10.0 minutes of measuring" in text and "CUDA 12.5.1" in text
    for name in ("speed", "losses"):
        assert (tmp_path / "new" / f"day-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"(day-{name}.png)" in text


def test_the_page_can_be_written_again_elsewhere_and_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    State(results=results(), scale="smoke").save(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    main(["page", "--smoke", "--output", str(tmp_path)])
    assert capsys.readouterr().out.strip() == str(tmp_path / "page.md")
    assert "1,234.5" in (tmp_path / "page.md").read_text() and not list(tmp_path.glob("*.png"))


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    page.write(measurements.order(measurements.FULL), State(), tmp_path / "day.md", "the command")
    text = (tmp_path / "day.md").read_text()
    assert "no device was seen" in text and text.count("not reached") == len(measurements.order(measurements.FULL))


def test_where_the_page_goes(tmp_path: Path) -> None:
    options = Options(command="run", output=tmp_path)
    full = place(options, State(results=results(), scale="full"))
    assert full.parent == ROOT / "docs/results" and full.name.endswith("-gpu-h100-80gb-hbm3.md")
    assert place(options, State(results=results(), scale="smoke")) == tmp_path / "page.md"
    assert place(options, State()) == tmp_path / "page.md"


def test_what_is_asked_for_wrongly_is_refused(tmp_path: Path) -> None:
    commands = "{prepare,run,page,list}"
    for argv, said in (
        (["mend"], commands),
        ([], commands),
        (["run", "--only", "no"], "--only no"),
        (["run", "--budget_minutes", "0"], "must be above 0"),
    ):
        with pytest.raises(UsageError, match=said):
            main([*argv, "--output", str(tmp_path)] if argv else [])
    State(scale="full").save(tmp_path)
    with pytest.raises(UsageError, match="has results of scale full"):
        main(["run", "--smoke", "--output", str(tmp_path)])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_day_in_miniature_on_this_cpu(tmp_path: Path, run_module: Callable[..., Any]) -> None:
    module, to = "benchmarks.gpu_day", ("--smoke", "--output", tmp_path)
    prepared = run_module(module, "prepare", *to, timeout=300)
    assert prepared.returncode == 0, prepared.stderr[-2000:]
    names = [
        "devices",
        "losses_cpu",
        "losses_float32",
        "pretrain",
        "phase1",
        "phase2_fused",
        "bits_fixed_1",
        "bits_fixed_2",
        "answers_1",
    ]
    first = run_module(module, "run", *to, "--only", *names, "--session_minutes", 0.02, timeout=500)
    assert first.returncode == 75 and "run the same command to continue" in first.stderr, first.stderr[-2000:]
    done = run_module(module, "run", *to, "--only", *names, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    state = json.loads((tmp_path / "state.json").read_text())["results"]
    status = {name: state[name]["status"] for name in names}
    assert status == dict.fromkeys(names, "done") | {"phase2_fused": "skipped"}, state
    assert state["losses_float32"]["found"]["equal"]
    assert state["bits_fixed_1"]["found"]["sha256"] == state["bits_fixed_2"]["found"]["sha256"]
    text = (tmp_path / "page.md").read_text()
    assert "tiny models" in text and "| phase 1 | bfloat16 |" in text and (tmp_path / "page-speed.png").exists()
