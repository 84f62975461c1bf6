"""Losses and accuracies of samples, without dropout: in training, and of a trained model."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert.core.progress import Progress
from bert.model.dropout import DropoutRng
from bert.text.sampler import Batch, samples_in
from bert.training.communicator import Communicator
from bert.training.objective import mean_measures
from bert.training.task import Execution, Sums, Task, flatten_measures, names_of_sums


class Evaluation:
    """Measures batches, and computes figures from the sums."""

    def __init__(self, task: Task, execution: Execution, comm: Communicator) -> None:
        self.task, self.comm = task, comm
        self._measure = execution.function(lambda batch: task.measure(batch, execution.mode(DropoutRng(None))))
        self.names = [*task.names, *names_of_sums(task), *(f"{name}_ones" for name in task.names)]

    def sums(self, batch: Batch) -> Sums:
        """Return the weights and measures of a batch, and the number of labels 1 of objectives with two classes."""
        ones = {
            f"{objective.name}_ones": tf.reduce_sum(batch[objective.two_classes])
            for objective in self.task.objectives
            if objective.two_classes
        }
        return self.task.weights(batch) | flatten_measures(self._measure(batch)) | ones

    def figures(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """Return the means of the objectives that have figures, and "loss", the sum of their weighted mean losses.

        Accuracies are in percent. sums: of what `sums` returns, over all batches; tensors or numbers.
        """
        weights = {
            objective.name: sums[objective.name]
            for objective in self.task.objectives
            if objective.has_figures(sums[objective.name], sums[f"{objective.name}_ones"])
        }
        return mean_measures(self.task.objectives, sums, weights)

    def of_all_ranks(self, batches: Mapping[str, Sequence[Batch]]) -> dict[str, float]:
        """Return the figures over the batches of all ranks; if there are several sources, also figures for each source.

        batches: by the name of their source. All ranks have the same names; a rank may have no batch. The figures of a
        source end with its name ("mlm_accuracy/books"). An objective may have no figures (`Objective.has_figures`).
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
    """Return the sum of each named scalar over all parts of all replicas; a part may lack a scalar."""
    parts = list(parts)
    totals = [
        tf.add_n([tf.zeros([]), *(tf.cast(part[name], tf.float32) for part in parts if name in part)]) for name in names
    ]
    return dict(zip(names, comm.replicas.all_reduce(totals), strict=True))
