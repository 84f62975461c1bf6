"""Settings of examples that a task does not read: they are refused, and what it reads is taken."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bert.core.errors import UsageError
from tasks import datasets, scoring, train
from tasks.config import TaskData
from tasks.recipes import RECIPES

PAIR = ("a", "b")


@pytest.mark.parametrize(
    ("recipe", "given", "said"),
    [
        ("tag", {"where": ("language=de",)}, "data.where is for"),  # all languages would be trained on
        ("choose", {"where": ("language=de",)}, "data.where is for"),
        ("xnli_like", {"where": ("language=de",)}, ""),
        ("mrpc", {"text": ("one", "two")}, "data.text is for"),
        ("tag", {"text": ("token",)}, "data.text is for .*--data.word"),
        ("tag", {"label": "ner"}, "data.label is for .*--data.tag"),
        ("tag", {"word": "token", "tag": "ner", "tag_names": ("O", "B-PER"), "entities": False, "stride": 8}, ""),
        ("conll2003", {"entities": False}, ""),
        ("classify", {"tag": "ner"}, "data.tag is for"),
        ("classify", {"entities": False}, "data.entities is for"),
        ("race", {"levels": ("high",)}, ""),
        ("swag", {"levels": ("high",)}, "data.levels is for"),
        ("classify", {"separator": ";"}, "data.separator is for"),
        ("multilabel", {"separator": ";"}, ""),
        ("multilabel", {"separator": ";", "label_columns": PAIR}, "data.separator is for"),
        ("multilabel", {"label": "toxic", "label_columns": PAIR}, "data.label is for"),
        ("multilabel", {"label_columns": PAIR}, ""),
        ("tag", {"positive": ("B-PER",)}, "data.positive is for"),
        ("mrpc", {"positive": ("1",)}, ""),
        ("classify", {"first_length": 9}, "data.first_length is for"),
        ("sst2", {"first_length": 9}, "data.first_length is for"),
        ("classify", {"text": PAIR, "first_length": 9}, ""),
        ("rte", {"first_length": 9}, ""),
        ("swag", {"first_length": 9}, ""),
        ("classify", {"stride": 9}, "data.stride is for .*data.windows"),
        ("classify", {"stride": 9, "windows": "max"}, ""),
        ("classify", {"loss": "tsdae"}, "data.loss is for"),
        ("regress", {"pool": "max"}, "data.pool is for"),
        ("classify", {"temperature": 0.1}, "data.temperature is for"),
        ("embed", {"temperature": 0.1, "both_directions": True, "dimensions": (8,), "normalize": False}, ""),
        ("embed", {"loss": "cosine", "temperature": 0.1}, "data.temperature is for"),
        ("embed", {"loss": "cosine", "score_scale": 5.0, "label": "similarity"}, ""),
        ("embed", {"loss": "cosent", "score_scale": 5.0}, "data.score_scale is for"),
        ("embed", {"label": "similarity"}, "data.label is for"),  # the contrastive loss reads no scores
        ("embed", {"label": "similarity", "dev": Path("sts.tsv"), "dev_text": PAIR}, ""),
        ("embed", {"loss": "cosine", "dev": Path("sts.tsv"), "dev_text": PAIR}, "data.dev_text is for"),
        ("embed", {"deleted": 0.5}, "data.deleted is for"),
        ("tsdae", {"deleted": 0.5}, ""),
        ("tsdae", {"dimensions": (8,)}, "data.dimensions is for"),
    ],
)
def test_a_setting_of_another_task_is_refused(recipe: str, given: dict[str, Any], said: str) -> None:
    data = replace(RECIPES["classify" if recipe == "xnli_like" else recipe]().data, **given)
    if not said:
        datasets.check_read(data)
        return
    with pytest.raises(UsageError, match=said):
        datasets.check_read(data)


def test_training_begins_with_that_check() -> None:
    made = RECIPES["tag"]()
    with pytest.raises(UsageError, match=r"data\.where is for"):
        train.run("tag", replace(made, data=replace(made.data, where=("language=de",))))


def test_every_recipe_has_only_settings_that_its_task_reads() -> None:
    for recipe in RECIPES.values():
        datasets.check_read(recipe().data)


@pytest.mark.parametrize(("task", "ok"), [("mrpc", False), ("race", False), ("choose", False), ("classify", True)])
def test_columns_are_for_files_that_have_some(task: str, ok: bool) -> None:
    data = TaskData(task=task)
    for text, label in ((PAIR, None), (None, "topic")):
        if ok:
            changed = scoring.labelled_by(data, text, label, None)
            assert (changed.text, changed.label) == (text or data.text, label or data.label)
        else:
            with pytest.raises(UsageError, match=f"{task} reads files of one layout"):
                scoring.labelled_by(data, text, label, None)
