"""Models of one base have one encoder in memory, and answer as each of them does alone."""

import dataclasses
import gc
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import labels
from bert.convert.__main__ import convert
from bert.core import manifest
from bert.core.config import LoraConfig, ModelConfig
from bert.engines.engine import Engine
from bert.hardware.choices import EngineName
from bert.labels import Head
from bert.model.encoder import Encoder, variables
from bert.model.heads import TaskModel
from bert.model.inference import InferenceEncoder
from bert.training import checkpoint
from extensions.lora.bases import base_of, shared_part
from extensions.lora.inference import AdaptedEncoder
from extensions.lora.model import adapt
from serve.items import Masked, Passage, Question, Sentence, Text
from serve.models import Models
from squad.model import AnswerSpans
from tasks import datasets
from tasks.loading import entries
from tests.bert.export.served import CONFIG
from tests.serve import runs
from tests.serve.test_heads import answers, head

SEED = 1  # of the encoder of `runs.of_pretraining`
ASKED: dict[str, Any] = {
    "answer": Question(question="Which river?", context="caf\u00e9 7, a river. " * 9, n_best=5),
    "classify": Text(text="a river", second="b c d"),
    "tag": Sentence(text="a river in \u6771\u4eac " * 4),
    "label": Text(text="river 7, cafe"),
    "fill": Masked(text="a [MASK] river"),
    "embed": Passage(text="b c d river"),
}
LORA = {
    "classify": LoraConfig(rank=3, alpha=7, targets=("query", "value")),
    "tag": LoraConfig(rank=5, alpha=2, targets=("key", "output", "inner", "outer")),
    "embed": LoraConfig(rank=2, alpha=3, targets=("value",)),
}
RANKS = {"classify": 6, "peft": 6, "tag": 5, "embed": 2}  # of products: queries and values are one, 3 + 3


def saved(folder: Path, name: str, seed: int = SEED, lora: LoraConfig | None = None, **more: Any) -> Path:
    """A run whose encoder begins with `seed`. lora: its updates, with random values. more: arguments of `runs.save`."""
    if name == "embed":
        described: dict[str, Any] = {"embedding": {"pool": "cls"}}
        model: Encoder | TaskModel = Encoder(CONFIG, seed)
    elif name == "answer":
        described = Head(kind="answer_span").entries() | {"config": runs.WINDOWS}
        model = TaskModel(CONFIG, seed, AnswerSpans.described)
    else:
        described = entries(datasets.kind(*runs.TASKS[name]))
        of_task = labels.of(described, folder)
        assert of_task is not None
        model = TaskModel(CONFIG, seed, of_task)
    if lora:
        encoder = model if isinstance(model, Encoder) else model.encoder
        adapt(encoder, lora, seed, first_layer=1 if name == "tag" else 0)
    random = np.random.default_rng(len(name))
    weights = dict(variables(model))
    for variable in (weights[one] for one in weights if one.endswith("lora_b")):
        variable.assign(random.normal(0, 0.3, variable.shape))
    return runs.save(folder, weights, described, **more)


@pytest.fixture(scope="module")
def of_base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of one base: itself, three of LoRA with other ranks and targets, heads alone, an adapter of peft."""
    root = tmp_path_factory.mktemp("sharing")
    made = {name: saved(root / name, name, lora=lora) for name, lora in LORA.items()}
    made |= {"fill": runs.of_pretraining(root / "fill"), "answer": saved(root / "answer", "answer")}
    own = dataclasses.replace(CONFIG, hidden_dropout_prob=0.3, vocab_multiple=8)  # changes nothing in the encoder
    made["label"] = saved(root / "label", "label", config=own)
    convert("export", "peft", made["classify"], root / "adapter")
    names = runs.TASKS["classify"][1].names
    convert("import", "peft", root / "adapter", root / "peft", labels=names, base=made["fill"])
    return made | {"peft": root / "peft"}


def encoder_of(models: Models, name: str) -> Engine:
    (model,) = [one for one in models.all() if one.name == name]
    return model.heads["embed"].encoder


def base(models: Models, name: str) -> Engine:
    return shared_part(encoder_of(models, name))


def route(name: str) -> str:
    return "classify" if name == "peft" else name


def same(found: Any, expected: Any) -> None:
    """Compare answers: numbers within 1e-5 of the largest one, all else exactly."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            same(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=2e-5, abs=2e-5)
    else:
        assert found == expected


def answer_alike(models: Models, folders: Mapping[str, Path], engine: EngineName = "tensorflow") -> None:
    """Every model answers as a service of it alone, whose kernels have the updates."""
    for name, folder in folders.items():
        alone = Models({name: folder}, "float32", 8, engine)
        assert not isinstance(encoder_of(alone, name), AdaptedEncoder)
        for one in {route(name), "embed"}:
            same(answers(head(models, name, one), [ASKED[one]]), answers(head(alone, name, one), [ASKED[one]]))


@pytest.mark.slow
def test_models_of_one_base_share_its_weights_and_answer_as_each_does_alone(of_base: dict[str, Path]) -> None:
    models = Models(of_base, "float32", 8)
    assert models.sharing() == [("tensorflow", list(of_base))]
    first = base(models, "fill")
    assert isinstance(first, InferenceEncoder)
    for name in of_base:
        mine = encoder_of(models, name)
        assert mine.embeddings.word is first.embeddings.word and shared_part(mine) is first
        assert isinstance(mine, AdaptedEncoder) == (name in RANKS)
        if isinstance(mine, AdaptedEncoder):  # of its own it has the updates alone
            own = {id(x): x for x in mine.variables}.keys() - {id(x) for x in first.variables}
            assert {x.shape[1] for x in mine.variables if id(x) in own and x.shape[1] < 20} == {RANKS[name]}
    answer_alike(models, {name: of_base[name] for name in (*RANKS, "answer")})


@pytest.mark.slow
def test_another_bit_or_another_equation_is_another_base(of_base: dict[str, Path], tmp_path: Path) -> None:
    def digest(folder: Path, config: ModelConfig = CONFIG) -> str:
        return base_of(config, checkpoint.to_use(folder)).digest

    assert len({digest(folder) for folder in of_base.values()}) == 1
    assert digest(of_base["tag"]) != digest(of_base["tag"], dataclasses.replace(CONFIG, hidden_act="relu"))
    assert digest(of_base["tag"]) != digest(of_base["tag"], dataclasses.replace(CONFIG, num_attention_heads=2))
    model = TaskModel(CONFIG, SEED, AnswerSpans.described)
    bias = model.encoder.layers[1].mlp.inner.bias
    bias.assign(np.nextafter(np.zeros(bias.shape, np.float32), np.float32(1)))
    described = Head(kind="answer_span").entries() | {"config": runs.WINDOWS}
    other = runs.save(tmp_path / "other", variables(model), described)
    assert digest(other) != digest(of_base["answer"])
    models = Models(
        {"other": other, "tag": of_base["tag"], "answer": saved(tmp_path / "of", "answer", 7)}, "float32", 8
    )
    assert models.sharing() == []
    assert all(type(encoder_of(models, name)) is InferenceEncoder for name in ("other", "tag", "answer"))


@pytest.mark.slow
def test_a_model_that_is_loaded_again_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    folders = {name: saved(tmp_path / name, name, lora=LORA[name]) for name in ("classify", "tag")}
    folders["answer"] = saved(tmp_path / "answer", "answer")
    models = Models(folders, "float32", 8)
    first, others = base(models, "tag"), {one.name: one for one in models.all()}
    before = answers(head(models, "tag", "tag"), [ASKED["tag"]])

    saved(folders["tag"], "tag", lora=LoraConfig(rank=5, alpha=40, targets=("query",)), step=4)  # another adapter
    assert models.reload() == ["tag"] and models.sharing() == [("tensorflow", list(folders))]
    assert base(models, "tag") is first and answers(head(models, "tag", "tag"), [ASKED["tag"]]) != before
    saved(folders["tag"], "tag", seed=2, lora=LORA["tag"], step=5)  # another base
    assert models.reload() == ["tag"] and models.sharing() == [("tensorflow", ["classify", "answer"])]
    assert all(model is others[model.name] for model in models.all() if model.name != "tag")
    assert type(encoder_of(models, "tag")) is InferenceEncoder and base(models, "classify") is first
    answer_alike(models, {"classify": folders["classify"]})

    for name in ("classify", "answer"):  # all have it now
        saved(folders[name], name, seed=2, lora=LORA.get(name), step=6)
    gone = [weakref.ref(first), weakref.ref(first.embeddings.word)]
    del first, others
    assert models.reload() == ["classify", "answer"]
    assert models.sharing() == [("tensorflow", ["classify", "answer"])]  # tag's kernels have its updates
    assert models.reload(force=True) == list(folders) and models.sharing() == [("tensorflow", list(folders))]
    gc.collect()
    assert [one() for one in gone] == [None, None]
    answer_alike(models, {"tag": folders["tag"]})


@pytest.mark.slow
def test_openvino_shares_encoders_without_updates_alone(of_base: dict[str, Path]) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnx")
    without = {name: of_base[name] for name in ("label", "answer")}
    for engine in ("auto", "openvino"):
        models = Models(without, "float32", 8, engine)
        assert models.sharing() == [("openvino", ["label", "answer"])]
    several = without | {"tag": of_base["tag"], "classify": of_base["classify"]}
    models = Models(several, "float32", 8, "openvino")
    assert models.sharing() == [("openvino", ["label", "answer"])]
    assert base(models, "tag") is not base(models, "classify")
    assert Models(several, "float32", 8, "auto").sharing() == [("tensorflow", list(several))]
    assert Models({"tag": of_base["tag"]}, "float32", 8, "auto").all()[0].details["engine"] == "openvino"


@pytest.mark.slow
def test_each_checkpoint_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"fill": runs.of_pretraining(tmp_path / "fill"), "embed": saved(tmp_path / "embed", "embed")}
    verified, verify = list[Path](), manifest.verify

    def noted(content: manifest.Manifest) -> None:
        verified.append(content.path)
        verify(content)

    monkeypatch.setattr(manifest, "verify", noted)
    Models(folders, "float32", 8)
    assert verified == [folder / "checkpoints" / "step-00000003" for folder in folders.values()]
