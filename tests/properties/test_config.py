"""Damaged configurations of runs and models are refused, or have fields of the declared types."""

import dataclasses
import json
import math
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given

from bert import recipes, spread
from bert.convert import architecture
from bert.core import files, manifest, outputs
from bert.core.config import ModelConfig, flatten
from bert.runs import Run
from bert.training import resume
from squad import model, threshold
from squad.recipes import RECIPES
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged_json, survives

pytestmark = pytest.mark.slow

MODEL = dataclasses.asdict(ModelConfig(vocab_size=99))
PUBLISHED = {key: MODEL[key] for key in (*architecture.SIZES, *architecture.RATES, "hidden_act")} | {
    "model_type": "bert",
    "layer_norm_eps": 1e-12,
    "id2label": {"0": "no", "1": "yes"},
}
DEMO = recipes.RECIPES["demo_phase1"].phases[0].config
PRETRAIN = {"version": resume.VERSION, "recipe": "demo_phase1", "config": flatten(DEMO), "versions": {}}
SQUAD = {"version": resume.VERSION, "config": flatten(next(iter(RECIPES.values()))()), "versions": {"python": "3"}}
IMPORTED: dict[str, Any] = {
    "imported": {"origin": "google x", "ignored": ["global_step"], "missing_heads": ["answer_span", "classifier"]},
    "config": flatten(ModelConfig(), "model."),
}
TUNED = {"threshold": -1.25, "exact": 81.5, "f1": 83.0, "total": 7, "dataset": "dev.json", "weights": "0123abcd"}
SCORES = {"exact_match": 81.25, "f1": 88.41, "total": 10570}


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type; a whole number is also a float."""
    if typing.get_origin(hint) is Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is hint


@given(content=damaged_json(MODEL))
@fuzz
def test_an_architecture_is_refused_or_has_fields_of_their_types(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, "bert_config.json", content)
    config = survives(lambda: ModelConfig.load(path))
    if config:
        wrong = {
            name: getattr(config, name)
            for name, hint in typing.get_type_hints(ModelConfig).items()
            if not is_of(getattr(config, name), hint)
        }
        assert not wrong


@given(content=damaged_json(PUBLISHED))
@fuzz
def test_an_architecture_from_elsewhere_is_refused_or_has_positive_sizes(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, "config.json", content)
    config = survives(lambda: architecture.read_architecture(path))
    if config:
        assert all(type(getattr(config, name)) is int and getattr(config, name) > 0 for name in architecture.SIZES)
        labels = survives(lambda: architecture.labels(files.read_object(path), 2, path))
        assert labels is None or (len(labels) == 2 and {*map(type, labels)} == {str})


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> manifest.Manifest:
    """A finished folder, of which only the hash matters."""
    folder = tmp_path_factory.mktemp("finished") / "records"
    outputs.build(folder, stage="x", parameters={}, inputs=[], make=lambda _: outputs.StageResult(counts={}))
    return manifest.load(folder)


def check_same(folder: Path, records: manifest.Manifest) -> bool:
    config = DEMO
    resume._check_same(dataclasses.replace(config, run=dataclasses.replace(config.run, directory=folder)), records)
    return True


@given(content=damaged_json(PRETRAIN | {"config": PRETRAIN["config"]}))
@fuzz
def test_a_run_is_resumed_only_with_its_configuration(
    content: bytes, tmp_path: Path, records: manifest.Manifest
) -> None:
    path = written(tmp_path, "config.json", content)
    if survives(lambda: check_same(tmp_path, records)):
        assert json.loads(path.read_bytes())["version"] == resume.VERSION


@given(content=damaged_json(IMPORTED))
@fuzz
def test_the_missing_heads_of_an_import_are_names_or_the_file_is_refused(content: bytes, tmp_path: Path) -> None:
    written(tmp_path, "config.json", content)
    heads = survives(lambda: resume._missing_heads(tmp_path))
    assert heads is None or {*map(type, heads)} <= {str}


@pytest.mark.parametrize("good", [SQUAD, IMPORTED], ids=["trained", "imported"])
def test_the_windows_of_a_run_are_refused_or_possible(good: dict[str, Any], tmp_path: Path) -> None:
    @given(content=damaged_json(good))
    @fuzz
    def check(content: bytes) -> None:
        written(tmp_path, "config.json", content)
        found = survives(lambda: model._trained_for(Run(tmp_path, ModelConfig())))
        if found:
            assert {type(value) for value in dataclasses.astuple(found.windowing)} == {int}
            assert 5 <= found.length <= ModelConfig.max_position_embeddings
            assert type(found.impossible) is bool

    check()


@given(content=damaged_json(TUNED))
@fuzz
def test_a_threshold_is_refused_or_finite(content: bytes, tmp_path: Path) -> None:
    written(tmp_path, threshold.NAME, content)
    value = survives(lambda: threshold.load_threshold(tmp_path, str(TUNED["weights"])))
    assert value is None or math.isfinite(value)


@given(content=damaged_json(SCORES))
@fuzz
def test_scores_are_refused_or_can_be_averaged(content: bytes, tmp_path: Path) -> None:
    good, path = written(tmp_path, "one.json", json.dumps(SCORES).encode()), written(tmp_path, "two.json", content)
    survives(lambda: spread.spread([spread.read_scores(good), spread.read_scores(path)]))
    survives(lambda: spread.spread([spread.read_scores(path)]))
