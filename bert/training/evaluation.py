"""Losses and accuracies of samples, without dropout: in training, and of a trained model."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert.core.progress import Progress
from bert.model.dropout import DropoutRng
from bert.text.sampler import Batch, samples_in
from bert.training.communicator import Communicator
from bert.training.task import Execution, Sums, Task, flat, means, names_of_sums


class Evaluation:
    """What is measured of each batch, and the figures that follow from the sums."""

    def __init__(self, task: Task, execution: Execution, comm: Communicator) -> None:
        self.task, self.comm = task, comm
        self._two_classes: dict[str, str] = getattr(task, "two_classes", {})
        self._measure = execution.function(lambda batch: task.measure(batch, execution.mode(DropoutRng(None))))
        self.names = [*task.objectives, *names_of_sums(task), *(f"{name}_ones" for name in task.objectives)]

    def sums(self, batch: Batch) -> Sums:
        """Return the weights and measures of a batch, and how many labels of the objectives with two classes are 1."""
        ones = {f"{name}_ones": tf.reduce_sum(batch[feature]) for name, feature in self._two_classes.items()}
        return self.task.weights(batch) | flat(self._measure(batch)) | ones

    def figures(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """Return the means of the objectives that have figures, and "loss", the sum of all mean losses.

        Accuracies are in percent.

        sums: of `sums` over batches, of tensors or of numbers.
        """
        weights = {
            name: sums[name]
            for name in self.task.objectives
            if has_figures(sums[name], sums[f"{name}_ones"] if name in self._two_classes else None)
        }
        return means(self.task, sums, weights)

    def of_all_ranks(self, batches: Mapping[str, Sequence[Batch]]) -> dict[str, float]:
        """Return the figures of the batches of all ranks, and those of each source if there are several.

        batches: by the name of their source. All ranks have the same names; a rank may have no batch. The figures of a
        source have its name behind theirs ("mlm_accuracy/books"). An objective has none where `has_figures` is false.
        """
        suffixes = ["", *(f"/{source}" for source in batches)] if len(batches) > 1 else [""]
        parts = []
        samples = sum(samples_in(batch) for some in batches.values() for batch in some)
        with self.comm.sums_over_parts(), Progress("evaluate", "samples", samples) as progress:
            for source, some in batches.items():
                for batch in some:
                    sums = self.sums(batch)
                    progress.add(samples_in(batch))
                    parts.append(sums | {f"{name}/{source}": value for name, value in sums.items()})
        totals = sum_over_ranks(parts, [f"{name}{suffix}" for suffix in suffixes for name in self.names], self.comm)
        all_figures: dict[str, float] = {}
        for suffix in suffixes:
            figures = self.figures({name: totals[f"{name}{suffix}"] for name in self.names})
            all_figures |= {f"{name}{suffix}": value for name, value in figures.items() if name != "loss" or not suffix}
        return all_figures


def sum_over_ranks(parts: Iterable[Sums], names: Sequence[str], comm: Communicator) -> Sums:
    """Sum the named scalars over the parts of all replicas that have them."""
    parts = list(parts)
    totals = [
        tf.add_n([tf.zeros([]), *(tf.cast(part[name], tf.float32) for part in parts if name in part)]) for name in names
    ]
    return dict(zip(names, comm.replicas.all_reduce(totals), strict=True))


def has_figures(weight: float, ones: float | None) -> bool:
    """Return whether a loss and an accuracy can be said of samples of this weight.

    ones: how many labels are 1, if the labels are 0 and 1. Where all are the same, an accuracy is that of a constant.
    """
    return weight > 0 and (ones is None or 0 < ones < weight)


def without_figures(objective: str) -> str:
    """Return why an evaluation has no figures of an objective, and the remedy."""
    if objective == "mlm":
        return "no word of the samples is masked, so there are no figures of mlm; make them with data.tfrecords"
    return (
        f"all pairs that were evaluated have the same label, so there are no figures of {objective}; evaluate more, or "
        "hold out more documents (python -m data.shards --held_out_fraction)"
    )
