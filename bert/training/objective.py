"""One loss of a task: its name, its part in the sum of all losses, and the figures that follow from its sums."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bert.model.losses import Detection, Distance, Measure


class Ratio(NamedTuple):
    """A figure in percent: one sum of an objective, divided by another sum."""

    part: str
    of: str = ""  # empty: the weight of the objective; where another sum is 0, there is no figure


ACCURACY = {"accuracy": Ratio("correct")}
DETECTION = ACCURACY | {
    "precision": Ratio("found", of="predicted"),
    "recall": Ratio("found", of="positive"),
}


class Objective(NamedTuple):
    """One loss of a task.

    The names of its sums over samples and of its figures begin with its name ("mlm_loss", "mlm_correct").
    """

    name: str
    measure: type[Measure] | type[Detection] | type[Distance] = Measure
    """what `Task.measure` returns of it; its fields are the sums"""
    figures: Mapping[str, Ratio] = ACCURACY
    """beside its mean loss"""
    factor: float | None = None
    """of its mean loss, in the loss of the task; None: it is added as it is"""
    two_classes: str = ""
    """the feature with its labels if they are 0 and 1: where all are the same, there are no figures"""
    learns_labels: bool = True
    """whether it learns labels that the samples have, the shares of which are reported"""
    no_figures: str = "no sample that was evaluated counts for {name}, so there are no figures of it"
    """what the user is told where there are none, with the remedy"""

    @property
    def sums(self) -> list[str]:
        """Return the names of its sums."""
        return [f"{self.name}_{field}" for field in self.measure._fields]

    def has_figures(self, weight: float, ones: float) -> bool:
        """Return whether samples of this total weight give a loss and an accuracy.

        ones: number of labels 1, if there are two classes. If all labels are the same, a constant prediction would have
        full accuracy, so there are no figures.
        """
        return weight > 0 and (not self.two_classes or 0 < ones < weight)

    def without_figures(self) -> str:
        """Return why an evaluation has no figures for this objective, and what to do."""
        return self.no_figures.format(name=self.name)

    def means(self, sums: Mapping[str, Any], weight: Any) -> dict[str, float]:
        """Return its mean loss and its figures. sums: by name. weight: what to divide the sums by."""
        means = {f"{self.name}_loss": float(sums[f"{self.name}_loss"] / weight)}
        for figure, (part, of) in self.figures.items():
            whole = sums[f"{self.name}_{of}"] if of else weight
            if not of or whole > 0:
                means[f"{self.name}_{figure}"] = float(100 * sums[f"{self.name}_{part}"] / whole)
        return means


def weighted_losses(objectives: Iterable[Objective], losses: Mapping[str, Any]) -> list[Any]:
    """Return the terms of a task's loss: mean loss times factor, for each objective that has a loss.

    losses: mean losses, by the names of the objectives.
    """
    present = [(losses[objective.name], objective.factor) for objective in objectives if objective.name in losses]
    return [loss if factor is None else loss * factor for loss, factor in present]


def mean_measures(
    objectives: Iterable[Objective], sums: Mapping[str, Any], weights: Mapping[str, Any]
) -> dict[str, float]:
    """Return the means of the objectives that have a weight, and "loss", the sum of all `weighted_losses`.

    Accuracies are in percent. sums: over samples, by the names of the sums. weights: of the samples, by the names of
    the objectives.
    """
    measured = [objective for objective in objectives if objective.name in weights]
    figures: dict[str, float] = {}
    for objective in measured:
        figures |= objective.means(sums, weights[objective.name])
    return {
        "loss": sum(weighted_losses(measured, {each.name: figures[f"{each.name}_loss"] for each in measured})),
        **figures,
    }
