"""Recipes of tasks: known data, published settings, and batches that any sensible number of ranks divides."""

import pytest

from squad.recipes import RECIPES as SQUAD
from tasks import datasets
from tasks.recipes import RECIPES

PUBLISHED = {  # Devlin et al. 2019; run_glue.py of transformers; SWAG has 16
    "cola": (32, 2e-5, 3),
    "mrpc": (32, 2e-5, 5),
    "wnli": (32, 2e-5, 5),
    "swag": (16, 2e-5, 3),
    "conll2003": (32, 5e-5, 3),
    "race": (32, 1e-5, 3),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_reads_known_data_and_scores_it_in_each_epoch(name: str) -> None:
    made = RECIPES[name]()
    known = datasets.of(made.data)
    assert made.data.task == name and known.metrics
    assert made.length.evaluations == 1 and made.optimizer.name == "adamw"
    batch, rate, epochs = PUBLISHED.get(name, (32, made.optimizer.learning_rate, made.length.epochs))
    assert (made.batch.total, made.optimizer.learning_rate, made.length.epochs) == (batch, rate, epochs)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12, 16])
@pytest.mark.parametrize("name", [*RECIPES, *SQUAD])
def test_any_number_of_ranks_gets_nearly_the_batch_of_the_recipe(name: str, ranks: int) -> None:
    wanted = (RECIPES.get(name) or SQUAD[name])().batch
    given = wanted.divided(ranks)
    assert given.total == given.per_device * ranks * given.accumulation(ranks)
    assert abs(given.total / wanted.total - 1) <= 0.5 * ranks / wanted.total + 0.13, given
    assert given.per_device <= (wanted.per_device or wanted.max_per_device)
