"""Every stage on a disk that fills up: exit 5 in one line, nothing half-made, and the same bytes once there is room.

And every stage in another folder, locale, time zone and hash order: the same bytes.
"""

import contextlib
import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bert import pretrain
from bert.core.errors import UsageError
from tests import training
from tests.faults import stages
from tests.faults.killing import contents
from tests.faults.stages import STAGES

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

TINY = """
    --model.hidden_size 24 --model.num_attention_heads 3 --model.intermediate_size 40 --model.num_hidden_layers 1
    --batch.total 12 --batch.per_device 12 --run.save_every 2 --run.log_every 2 --run.evaluate_every 0 --run.steps 4
"""


def run(
    at: Path, command: str, limit: int | None = None, variables: dict[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run `python -m command` in `at`, where no file may have more than `limit` bytes: exit code, lines on stderr."""

    def tight() -> None:
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    # Without TF_XLA_FLAGS no compiled programs are written, which would meet the limit first.
    settings = {"PYTHONPATH": str(training.ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "TF_XLA_FLAGS": ""}
    environment = os.environ | settings | (variables or {})
    line = [sys.executable, "-m", *command.split()]
    done = subprocess.run(line, cwd=at, env=environment, capture_output=True, text=True, preexec_fn=tight)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_without_room_says_so_and_ends_well_when_there_is(name: str, whole: Path) -> None:
    command, limit = STAGES[name]
    output = whole / f"{name}-again"
    code, said = stages.run(whole, command, output.name, limit)
    assert code == 5, said
    assert said[-1].startswith("error: ") and output.name in said[-1] and "make room, then repeat" in said[-1]
    assert not output.exists()
    code, said = stages.run(whole, command, output.name)
    assert code == 0, said
    assert contents(output) == contents(whole / name)
    assert not [path for path in whole.iterdir() if path.name.startswith(f".{name}-again")]


@pytest.mark.parametrize("output", [".", "", "..", "/", "/proc", "/proc/below", "source/wiki.xml.bz2/below"])
def test_every_stage_refuses_an_output_that_cannot_be(
    output: str, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole)
    before = sorted(whole.rglob("*"))
    for command in [*(command for command, _ in STAGES.values()), "download squad1"]:
        name, *words = command.split()
        main = importlib.import_module(stages.module(name)).main
        with pytest.raises(UsageError, match=r"choose |is empty"):
            main([*words, "--output", output])
    assert sorted(whole.rglob("*")) == before


def test_bytes_do_not_depend_on_where_and_in_what_environment_they_are_made(whole: Path, tmp_path: Path) -> None:
    other = {"LC_ALL": "C", "LANG": "tr_TR.UTF-8", "TZ": "Pacific/Auckland", "PYTHONHASHSEED": "7"}
    other |= {"RAYON_NUM_THREADS": "3"}  # of what trains vocabularies
    for name, (command, _) in STAGES.items():
        code, said = run(tmp_path, f"data.{command} --output {name}", variables=other)
        assert code == 0, said
        assert contents(tmp_path / name) == contents(whole / name), name


def test_a_run_without_room_for_a_checkpoint_goes_on_when_there_is(whole: Path) -> None:
    words = f"demo_phase1 --data.train instances {TINY} --run.directory".split()
    with contextlib.chdir(whole):
        pretrain.main([*words, "enough"])
    code, said = run(whole, f"bert.pretrain {' '.join(words)} tight", 60_000)
    assert code == 5, said
    assert said[-1].startswith("error: ") and "tight" in said[-1] and "make room, then repeat" in said[-1]
    assert not any("Traceback" in line for line in said)
    assert not [path for path in (whole / "tight" / "checkpoints").iterdir() if path.name.startswith(("step", ".step"))]
    with contextlib.chdir(whole):
        pretrain.main([*words, "tight"])
    training.same_bits(training.weights(whole / "enough", 4), training.weights(whole / "tight", 4))
