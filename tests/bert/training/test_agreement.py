"""Replicas with different weights are found before a checkpoint is written."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import IntegrityError
from bert.training import agreement
from bert.training.communicator import Communicator
from tests.training import checkpoints, errors, pretrain


class Fourth(Communicator):
    """Replica 3 of 4; the others have these weights."""

    rank, size = 3, 4

    def __init__(self, *others: Sequence[tf.Variable]) -> None:
        self.others = others

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.concat([*(agreement.checksum(other)[tf.newaxis] for other in self.others), tensors[0]], axis=0)]


def weights() -> list[tf.Variable]:
    random = np.random.default_rng(5)
    return [tf.Variable(random.normal(size=shape).astype(np.float32)) for shape in ((70, 30), (7,), ())]


def test_the_last_bit_of_one_weight_is_seen() -> None:
    agreement.check(weights(), 9, Fourth(weights(), weights(), weights()))
    differing = weights()
    row = differing[0].numpy()
    row[3, 5] = np.nextafter(row[3, 5], np.float32(9))
    differing[0].assign(row)
    with pytest.raises(
        IntegrityError, match="after update 9 replicas 1, 3 have other weights than replica 0; no check"
    ):
        agreement.check(differing, 9, Fourth(weights(), differing, weights()))


# Rank 1 changes a weight by what is below the digits of a loss.
OTHER_WEIGHTS = """
    from bert.model.encoder import variables
    from bert.training import step
    update = step.Step.update
    def updating(self, number, *arguments, **named):
        measures = update(self, number, *arguments, **named)
        if number == 9 and self.comm.rank == 1:
            weight = list(variables(self.task.module).values())[2]
            weight.assign(weight * (1 + 1e-6))
        return measures
    step.Step.update = updating
"""


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_run_whose_ranks_differ_ends_before_it_saves(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = pretrain(dataset, run, "--run.steps", "21", "--run.save_every", "7", ranks=2, patch=OTHER_WEIGHTS)
    assert checkpoints(run) == ["step-00000007"]
    said = "after update 14 replica 1 has other weights than replica 0; no checkpoint was written"
    assert errors(ended.stderr) and all(said in line for line in errors(ended.stderr)[:1]), ended.stderr
