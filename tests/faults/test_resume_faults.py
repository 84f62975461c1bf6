"""A run resumes only from undamaged checkpoints of its own and in any environment."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from bert import pretrain
from bert.core import checked_json, cli, files, manifest
from bert.training import checkpoint
from tests import training
from tests.training import LENGTH, STEPS, checkpoints, command, errors, measured, same_bits, weights

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
DATA, INDEX = "variables.data-00000-of-00001", "variables.index"
Refused = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    """`refused(code, dataset, run, flags...)` runs the command in this process; returns the line that it ended in."""

    def run(code: int, *arguments: object) -> str:
        line = command(Path(str(arguments[0])), Path(str(arguments[1])), *map(str, arguments[2:]))
        monkeypatch.setattr(sys, "argv", line[line.index("bert.pretrain") :])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.main(pretrain.main)
        said = capfd.readouterr().err
        assert ending.value.code == code and len(errors(said)) == 1, said
        return errors(said)[0]

    return run


def copied(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap(one: Path, two: Path) -> None:
    held = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(held)


DAMAGES: list[tuple[Callable[[Path], object], str]] = [  # and the warning for each, newest checkpoint first
    (lambda folder: flip(folder / DATA), f"/{DATA}: the content has changed"),
    (lambda folder: os.truncate(folder / DATA, (folder / DATA).stat().st_size // 2), f"/{DATA}: the file has "),
    (lambda folder: (folder / INDEX).unlink(), f"/{INDEX}: the file is missing"),
    (lambda folder: (folder / "manifest.json").write_bytes(b""), "/manifest.json: not a manifest of ours"),
    (lambda folder: swap(folder / DATA, folder.with_name("step-00000038") / DATA), f"/{DATA}: the content has changed"),
]


def test_damaged_checkpoints_are_reported_and_the_newest_intact_one_is_restored(
    straight: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(straight, tmp_path / "run")
    folders = list(reversed(checkpoint.steps(run)))
    for folder, (harm, _) in zip(folders, DAMAGES, strict=False):
        harm(folder)
    training.train_here(dataset, run, *LENGTH)
    said = capsys.readouterr().err
    warnings = [line for line in said.splitlines() if line.startswith("warning: ")]
    for folder, (_, reason), line in zip(folders, [*DAMAGES, DAMAGES[-1]], warnings, strict=False):
        assert line.startswith(f"warning: {folder}{reason}") and line.endswith("; trying another checkpoint")
    assert len(warnings) == len(DAMAGES) + 1 and "after step 36\n" in said  # two, of the files exchanged
    assert checkpoints(run) == checkpoints(straight)
    same_bits(weights(straight, STEPS), weights(run, STEPS))
    assert measured(straight) == measured(run)


def test_without_an_intact_checkpoint_a_run_does_not_start_again(
    straight: Path, dataset: Path, tmp_path: Path, refused: Refused
) -> None:
    run = copied(straight, tmp_path / "run")
    for folder in checkpoint.steps(run):
        flip(folder / INDEX)
    before = (run / "metrics.jsonl").read_bytes()
    assert "checkpoints: all 9 checkpoints are damaged; start a new run" in refused(4, dataset, run, *LENGTH)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_flipped_bit_in_a_manifest_is_detected_or_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for saved in (3, 5):
        checkpoint.save(tmp_path, saved, {"a": tf.constant([2.0, saved])}, keep=9)
    path = tmp_path / "checkpoints" / "step-00000005" / "manifest.json"
    whole, variable, detected = path.read_bytes(), tf.Variable([0.0, 0.0]), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        step = checkpoint.restore(tmp_path, {"a": variable})
        assert variable.numpy().tolist() == [2.0, step]
        said = capsys.readouterr().err
        assert (step == 5 and said == "") or (step == 3 and said.startswith("warning: ") and said.count("\n") == 1)
        detected += step == 3
    assert detected > len(whole) / 3  # other bits are in values such as versions


def test_a_renamed_checkpoint_is_not_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint.save(tmp_path, 3, {"a": tf.constant(3.0)}, keep=9)
    shutil.copytree(folder, folder.with_name("step-00000003.mine"))
    shutil.copytree(folder, folder.with_name("step-00000009"))
    assert checkpoint.restore(tmp_path, {"a": tf.Variable(0.0)}) == 3
    assert "step-00000009: holds the checkpoint of step 3" in capsys.readouterr().err


def test_a_checkpoint_written_after_a_return_to_an_earlier_one_is_kept(tmp_path: Path) -> None:
    for step in (3, 5, 7):
        checkpoint.save(tmp_path, step, {"a": tf.constant(float(step))}, keep=9)
    flip(tmp_path / "checkpoints" / "step-00000005" / DATA)
    flip(tmp_path / "checkpoints" / "step-00000007" / DATA)
    variable = tf.Variable(0.0)
    assert checkpoint.restore(tmp_path, {"a": variable}) == 3
    checkpoint.save(tmp_path, 4, {"a": tf.constant(4.0)}, keep=1)
    assert checkpoint.restore(tmp_path, {"a": variable}) == 4 and float(variable) == 4


@pytest.mark.parametrize(
    ("flags", "difference", "old"),
    [
        (
            ["--optimizer.learning_rate", "0.03"],
            "optimizer.learning_rate was 0.01, now 0.03",
            "--optimizer.learning_rate 0.01",
        ),
        (["--model.num_hidden_layers", "3"], "model.num_hidden_layers was 1, now 3", "--model.num_hidden_layers 1"),
        (["--run.seed", "6"], "run.seed was 12345, now 6", "--run.seed 12345"),
        (["--batch.total", "12"], "batch.total was 6, now 12", "--batch.total 6"),
        (
            ["--init.checkpoint", "some run", "--optimizer.continuous", "true"],
            "init.checkpoint was None, now some run, optimizer.continuous was False, now True",
            "--init.checkpoint none --optimizer.continuous false",
        ),
    ],
)
def test_another_configuration_is_refused_by_its_keys(
    flags: list[str], difference: str, old: str, straight: Path, dataset: Path, refused: Refused
) -> None:
    before = {path: path.read_bytes() for path in straight.rglob("*") if path.is_file()}
    said = refused(2, dataset, straight, *LENGTH, *flags)
    remedy = f"give {old} to go on with it, or another --run.directory"
    assert said.endswith(f"holds a run of another configuration ({difference}); {remedy}")
    assert before == {path: path.read_bytes() for path in straight.rglob("*") if path.is_file()}


def test_a_run_from_before_an_option_goes_on_with_the_flag_that_the_refusal_names(
    straight: Path, dataset: Path, tmp_path: Path, refused: Refused
) -> None:
    run = copied(straight, tmp_path / "run")
    facts = json.loads((run / "config.json").read_text())
    del facts["config"]["optimizer.first_step"], facts["config"]["optimizer.warmup_start"]
    files.write_json(run / "config.json", facts)
    training.sign(run)
    said = refused(2, dataset, run, *LENGTH, "--optimizer.first_step", "9")
    flags = said.split("; give ")[1].split(" to go on")[0].split()
    assert flags == ["--optimizer.first_step", "0"]
    pretrain.main(command(dataset, run, *LENGTH, *flags)[3:])
    same_bits(weights(straight, STEPS), weights(run, STEPS))


def rebuilt(folder: Path) -> None:
    """Other samples under the same path."""
    training.write_dataset(folder, seed=4)


def reworded(folder: Path) -> None:
    """Another vocabulary of the same size, in a folder that is whole."""
    words = (folder / "vocab.txt").read_text().replace("w17\n", "x17\n")
    (folder / "vocab.txt").write_text(words)
    facts = json.loads((folder / "manifest.json").read_text())
    facts["files"]["vocab.txt"]["sha256"] = files.sha256(folder / "vocab.txt")
    del facts[checked_json.KEY]
    checked_json.write(folder / "manifest.json", facts)


@pytest.mark.parametrize("change", [rebuilt, reworded])
def test_other_data_under_the_same_path_are_refused(
    change: Callable[[Path], None], straight: Path, dataset: Path, tmp_path: Path, refused: Refused
) -> None:
    data, run = copied(dataset, tmp_path / "dataset"), copied(straight, tmp_path / "run")
    facts = json.loads((run / "config.json").read_text())
    facts["config"]["data.train"] = str(data)
    files.write_json(run / "config.json", facts)
    training.sign(run)
    before = manifest.content_hash(data)
    change(data)
    after = manifest.content_hash(data)
    changed = f"(the hash of the data was {before}, now {after}); give another --run.directory"
    assert refused(2, data, run, *LENGTH).endswith(changed)


STOP = """
    import os, signal
    from bert.training import step
    update = step.Step.update
    def stopped(self, number, *arguments, **named):
        if number == {}:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, number, *arguments, **named)
    step.Step.update = stopped
"""


READER = """
    from bert.core import random_access
    from bert.text import sampler
    sampler.PREFETCH, random_access.has_room = 7, lambda count: False
"""


def test_bits_do_not_depend_on_the_environment_nor_on_how_data_are_read(
    straight: Path, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = training.pretrain(
        dataset,
        run,
        *LENGTH,
        "--data.skip_bad",
        "3",
        patch=READER,
        cwd=tmp_path,
        PYTHONHASHSEED="7",
        LC_ALL="C",
        LANG="tr_TR.UTF-8",
        TZ="Pacific/Auckland",
    )
    assert done.returncode == 0, done.stderr
    same_bits(weights(straight, STEPS), weights(run, STEPS))
    assert measured(straight) == measured(run)


BACK = """
    import time
    now = time.time
    time.time = lambda: now() - 86400
"""


@pytest.mark.thorough  # test_clock_faults.py has clocks that jump during a run
def test_a_clock_set_back_between_two_sessions_has_no_effect(dataset: Path, tmp_path: Path) -> None:
    run, options, seconds = tmp_path / "run", ["--run.steps", "100000", "--budget.hours", "1"], [0.0]
    for patch, last in (("", 13), (BACK, 29)):
        done = training.pretrain(dataset, run, *options, patch=patch + STOP.format(last))
        assert done.returncode == 75, done.stderr
        seconds.append(float(weights(run, last + 1)["run/seconds"]))
        for path in run.rglob("*"):
            os.utime(path, (2**33, 2**33))  # long after the clock of the next session
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert 0 < seconds[1] < seconds[2]
    assert [line["step"] for line in lines if line["split"] == "train"] == [*range(1, 31)]
    assert all(value >= 0 for line in lines for value in line.values() if isinstance(value, (int, float)))
