"""One of two ranks hangs, or its gradients are not finite: all ranks act alike, and checkpoints stay intact."""

import json
import time
from pathlib import Path

import pytest

from bert.core import manifest
from bert.training import loss_scale
from tests.training import SPECIAL_NAME, checkpoints, errors, measured, pretrain

pytestmark = [pytest.mark.faults, pytest.mark.multiprocess, pytest.mark.timeout(1800)]

HANGING = """
    import time
    from bert.training import distributed
    sums, real = [], distributed.HorovodCommunicator.all_reduce
    def hang(self, tensors, num_fp16=0):
        sums.append(len(tensors) > 9)
        if self.rank == 1 and sum(sums) == 18:
            time.sleep(1000)
        return real(self, tensors, num_fp16)
    distributed.HorovodCommunicator.all_reduce = hang
"""


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_and_ends_the_run(dataset: Path, tmp_path: Path) -> None:
    # That a run goes on from its checkpoints to the bits of an undisturbed one is shown by test_soak.py.
    length, stall = ["--run.steps", "40", "--run.save_every", "7"], 10
    run, began = tmp_path / "run", time.monotonic()
    done = pretrain(dataset, run, *length, "--run.stall_seconds", str(stall), ranks=2, patch=HANGING)
    assert done.returncode == 1 and time.monotonic() - began > 2 * stall
    [line] = errors(done.stderr)
    assert line.startswith("error: rank 0: rank 1 ") and line.endswith("the same command resumes"), done.stderr
    assert checkpoints(run) == ["step-00000007", "step-00000014"]
    for name in checkpoints(run):
        manifest.verify(manifest.load(run / "checkpoints" / name))


# One gradient of rank 1 is infinite at update 5, and its loss is not a number from update 9 on. Each rank notes a hash
# of its weights and slots after each update.
POISON = """
    import hashlib, json, os, pathlib
    import tensorflow as tf
    from bert import pretrain, pretraining
    from bert.training import distributed, step
    rank, GUARD = int(os.environ["HOROVOD_RANK"]), ("guard/", "loss_scale/", "spikes/")
    poison, now = tf.Variable(1.0, trainable=False), [0]
    measure, update, add = pretraining.Pretraining.measure, step.Step.update, distributed.HorovodCommunicator.all_reduce
    def measured(self, *arguments):
        found = measure(self, *arguments)
        return found | {"mlm": found["mlm"]._replace(loss=found["mlm"].loss * poison)}
    def summed(self, tensors, num_fp16=0):
        tensors = list(tensors)
        if rank == 1 and now[0] == 5 and len(tensors) > 9:
            tensors[3] = tensors[3] * float("inf")
        return add(self, tensors, num_fp16)
    def updated(self, number, *arguments, **named):
        now[0] = number
        poison.assign(float("nan") if rank == 1 and number >= 9 else 1.0)
        found = update(self, number, *arguments, **named)
        state = {name: v.numpy().tobytes() for name, v in sorted(self.state.items()) if not name.startswith(GUARD)}
        digest = hashlib.sha256(b"".join(state.values())).hexdigest()
        kept = {name: found[name] for name in ("skipped", "skipped_in_a_row", "loss_scale")}
        with open(f"OUT/rank-{rank}", "a") as stream:
            stream.write(json.dumps({"step": number, "state": digest} | kept) + "\\n")
        return found
    pretraining.Pretraining.measure, step.Step.update = measured, updated
    distributed.HorovodCommunicator.all_reduce = summed
"""


def test_all_ranks_skip_updates_that_are_not_finite_on_one_and_end_if_they_persist(
    dataset: Path, tmp_path: Path
) -> None:
    work, options = tmp_path / "work", ["--run.steps", "40", "--run.save_every", "7", "--run.max_skipped", "3"]
    options += ["--precision.compute", "float16", "--run.log_every", "40"]
    run, patch = work / SPECIAL_NAME, POISON.replace("OUT", str(tmp_path))
    work.mkdir()
    done = pretrain(dataset, run, *options, ranks=2, patch=patch, cwd=work)
    assert done.returncode == 4, done.stderr
    assert list(work.iterdir()) == [run]
    [line] = errors(done.stderr)
    saved = run / "checkpoints" / "step-00000007"
    assert line.startswith("error: step 11: the loss nan or its gradient is not finite; samples 60 to 65 in the order")
    shown = " ".join(str(saved).split())  # of a name's line break
    assert f"run.max_skipped 3 is reached; newest checkpoint: {shown}; start another run with" in line
    manifest.verify(manifest.load(saved))

    notes = [json.loads(line) for line in (tmp_path / "rank-0").read_text().splitlines()]
    assert notes == [json.loads(line) for line in (tmp_path / "rank-1").read_text().splitlines()]
    assert [note["skipped_in_a_row"] for note in notes] == [0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3]
    scales = [note["loss_scale"] / loss_scale.INITIAL for note in notes]
    assert scales == [1, 1, 1, 1, 1, 1 / 2, 1 / 2, 1 / 2, 1 / 2, 1 / 4, 1 / 8]  # halved for the next
    states = [note["state"] for note in notes]
    assert states[3] == states[4] != states[5] and states[7] == states[8] == states[9] == states[10] != states[6]

    lines = measured(run)  # updates that are not finite are logged, whatever run.log_every is
    assert [step for step, split in lines if split == "train"] == [5, 9, 10, 11]
    assert [lines[step, "train"]["loss"] for step in (9, 10, 11)] == ["nan"] * 3
    assert lines[5, "train"]["gradient_norm"] in ("inf", "nan") and lines[5, "train"]["loss"] > 0
