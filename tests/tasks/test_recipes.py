"""Recipes of tasks: known data, published settings, and batches that any sensible number of ranks divides."""

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
    "simcse_unsupervised": (64, 3e-5, 1),  # README of SimCSE (Gao et al. 2021), of BERT-Base
    "simcse_supervised": (512, 5e-5, 3),
    "tsdae": (8, 3e-5, 1),  # Wang et al. 2021
    "embed": (128, 2e-5, 1),  # training_nli_v2.py of sentence-transformers
}


def test_a_recipe_reads_known_data_and_scores_it_in_each_epoch() -> None:
    for name, recipe in RECIPES.items():
        made = recipe()
        embeds = made.data.task == "embed"
        assert (embeds or made.data.task == name) and datasets.of(made.data).metrics, name
        assert made.length.evaluations == (4 if embeds else 1) and made.optimizer.name == "adamw", name
        published = PUBLISHED.get(name, (32, made.optimizer.learning_rate, made.length.epochs))
        assert (made.batch.total, made.optimizer.learning_rate, made.length.epochs) == published, name


def test_any_number_of_ranks_gets_nearly_the_batch_of_the_recipe() -> None:
    for name, recipe in {**RECIPES, **SQUAD}.items():
        wanted = recipe().batch
        for ranks in (1, 2, 3, 4, 6, 8, 12, 16):
            given = wanted.divided(ranks)
            case = f"{name} on {ranks} ranks: {given}"
            assert given.total == given.per_device * ranks * given.accumulation(ranks), case
            assert abs(given.total / wanted.total - 1) <= 0.5 * ranks / wanted.total + 0.13, case
            assert given.per_device <= (wanted.per_device or wanted.max_per_device), case
