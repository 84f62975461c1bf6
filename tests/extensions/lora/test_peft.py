"""Adapters of peft go out and come in with the same bits; another function of the tensors is refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert import embedding
from bert.convert.__main__ import convert
from bert.core.config import LoraConfig
from bert.core.errors import InputError, UsageError
from bert.core.files import write_json
from bert.embedding import Embedding
from bert.labels import Head
from bert.model.encoder import variables
from bert.model.heads import TaskModel
from bert.pretraining import PretrainingModel
from bert.runs import Run
from bert.training import checkpoint
from extensions.lora.model import adapt
from tests.bert.convert.folders import SMALL, Values, a_run, same_bits, weights

TAGS = Head(kind="tags", labels=("O", "B-A", "I-A"))


def described(run: Path, values: Values) -> Values:
    """Write what the outputs mean, and a checkpoint that records it."""
    write_json(run / "config.json", TAGS.entries())
    checkpoint.save(run, 8, values, keep=1)
    return values


def test_an_adapter_comes_back_with_its_bits_and_a_variant_of_lora_is_refused(tmp_path: Path) -> None:
    model = TaskModel(SMALL, 0, TAGS)
    base, run = tmp_path / "base", tmp_path / "run"
    described(base, a_run(base, SMALL, model))
    adapt(model.encoder, LoraConfig(rank=3, alpha=12, targets=("query", "outer")), seed=1, first_layer=1)
    values = described(run, a_run(run, SMALL, model))
    with pytest.raises(InputError, match="several ranks or factors"):  # all are random
        convert("export", "peft", run, tmp_path / "none")
    values |= {name: np.array(4, np.float32) for name in values if name.endswith("lora_scale")}
    described(run, values)
    convert("export", "peft", run, tmp_path / "adapter")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    place = "base_model.model.bert.encoder.layer.1"
    assert {name.removeprefix(f"{place}.") for name in tensors} == {
        *(f"{module}.lora_{part}.weight" for module in ("attention.self.query", "output.dense") for part in "AB"),
        *(f"base_model.model.classifier.{part}" for part in ("weight", "bias")),
    }
    np.testing.assert_array_equal(tensors[f"{place}.output.dense.lora_A.weight"], values["layer_1/mlp/outer/lora_a"].T)
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["r"] == 3 and settings["lora_alpha"] == 12 and settings["task_type"] == "TOKEN_CLS"
    assert settings["target_modules"] == ["layer.1.attention.self.query", "layer.1.output.dense"]
    assert settings["modules_to_save"] == ["classifier"]

    convert("import", "peft", tmp_path / "adapter", tmp_path / "back", labels=TAGS.labels, base=base)
    found, of_base = weights(tmp_path / "back"), weights(base, 8)
    assert Run.open(tmp_path / "back").head == TAGS
    for name, value in found.items():
        source = values if name.startswith("tags/") or "/lora_" in name else of_base
        np.testing.assert_array_equal(value, source[name], err_msg=name)
    assert {name for name in found if "/lora_" in name} == {name for name in values if "/lora_" in name}

    def refused(changes: dict[str, object], reason: str, of: Path = base) -> None:
        write_json(tmp_path / "adapter" / "adapter_config.json", settings | changes)
        with pytest.raises((InputError, UsageError), match=reason):
            convert("import", "peft", tmp_path / "adapter", tmp_path / "none", base=of)

    refused({"use_dora": True}, "use_dora is True, which is not supported")
    refused({"corda_config": {"a": 1}}, "corda_config")
    refused({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', which changes the base; merge it in peft")
    refused({"init_lora_weights": "pissa_niter_4"}, "changes the base; merge it at the end of its training")
    refused({"bias": "all"}, "bias is 'all'")
    refused({"rank_pattern": {"(": 2}}, "not made of regular expressions")
    refused({"alpha_pattern": {"query": "much"}}, "alpha_pattern does not give modules a number")
    refused({"peft_type": "IA3"}, "peft_type is 'IA3'; supported: LORA")
    refused({"r": 4}, r"are not \[4, 20\] and \[20, 4\] finite")
    # Of the first values of A only; and what peft 0.21 sets to false for a torch.nn.Linear.
    eva = {"init_lora_weights": "eva", "eva_config": {"rho": 2.0}, "fan_in_fan_out": True}
    write_json(tmp_path / "adapter" / "adapter_config.json", settings | eva)
    convert("import", "peft", tmp_path / "adapter", tmp_path / "eva", base=base)
    same_bits(weights(tmp_path / "eva"), found)
    refused({}, "no such folder|no checkpoint", tmp_path / "nothing")
    with pytest.raises(InputError, match="no low-rank updates"):
        convert("export", "peft", base, tmp_path / "none")
    assert not (tmp_path / "none").exists()


POOLER, WORDS, QUERY = (
    "bert.pooler.dense",
    "bert.embeddings.word_embeddings",
    "bert.encoder.layer.1.attention.self.query",
)
CLASSES = Head(kind="classifier", labels=("bad", "so so", "good"))


def an_adapter(folder: Path, tensors: Values, **settings: object) -> None:
    """As peft 0.21 writes it: the values of LoRA's A [r, inputs] and B [outputs, r], and whole tensors."""
    folder.mkdir()
    save_file(
        {f"base_model.model.{name}": value for name, value in tensors.items()}, folder / "adapter_model.safetensors"
    )
    usual = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 2, "lora_alpha": 6, "eva_config": None}
    write_json(folder / "adapter_config.json", usual | settings)


def test_updates_of_the_pooler_and_of_embeddings_are_those_of_the_formula(tmp_path: Path) -> None:
    """W + alpha / r B A (Hu et al. 2021); of peft's Embedding W + alpha / r (B A)^T, of a [V, D] table."""
    base, random = tmp_path / "base", np.random.default_rng(2)
    values = a_run(base, SMALL, TaskModel(SMALL, 0, CLASSES))
    write_json(base / "config.json", CLASSES.entries())
    checkpoint.save(base, 8, values, keep=1)
    shapes = {
        f"{POOLER}.lora_A.weight": (2, 20),
        f"{POOLER}.lora_B.weight": (20, 2),
        f"{WORDS}.lora_embedding_A": (2, 31),
        f"{WORDS}.lora_embedding_B": (20, 2),
        f"{QUERY}.lora_A.weight": (5, 20),  # of another rank and factor
        f"{QUERY}.lora_B.weight": (20, 5),
        "bert.embeddings.LayerNorm.bias": (20,),
        "classifier.weight": (3, 20),
        "classifier.bias": (3,),
    }
    made = {name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    patterns = {"rank_pattern": {"query": 5}, "alpha_pattern": {r"layer\.1\..*query": 4}}
    an_adapter(tmp_path / "adapter", made, **patterns)
    convert("import", "peft", tmp_path / "adapter", tmp_path / "run", base=base)
    run = Run.open(tmp_path / "run")
    assert run.head == CLASSES  # the names of the base, as in peft
    model = TaskModel(run.config, 0, CLASSES)
    run.load(model)
    found = {name: variable.numpy() for name, variable in variables(model).items()}
    product = {name: made[f"{name}.lora_B.weight"] @ made[f"{name}.lora_A.weight"] for name in (POOLER, QUERY)}
    words = (made[f"{WORDS}.lora_embedding_B"] @ made[f"{WORDS}.lora_embedding_A"]).T
    expected = values | {
        "pooler/kernel": values["pooler/kernel"] + 3 * product[POOLER].T,
        "embeddings/word": values["embeddings/word"] + 3 * words,
        "layer_1/attention/query/kernel": values["layer_1/attention/query/kernel"] + 4 / 5 * product[QUERY].T,
        "embeddings/layer_norm/beta": made["bert.embeddings.LayerNorm.bias"],
        "classifier/kernel": made["classifier.weight"].T,
        "classifier/bias": made["classifier.bias"],
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)

    convert("export", "peft", tmp_path / "run", tmp_path / "back")  # what the base has otherwise goes out as a whole
    stored = load_file(tmp_path / "back" / "adapter_model.safetensors")
    np.testing.assert_allclose(stored[f"base_model.model.{WORDS}.weight"], expected["embeddings/word"], atol=1e-6)
    assert {f"base_model.model.bert.embeddings.LayerNorm.{part}" for part in ("weight", "bias")} <= stored.keys()
    settings = json.loads((tmp_path / "back" / "adapter_config.json").read_text())
    assert {"embeddings.word_embeddings", "embeddings.LayerNorm", "pooler"} <= {*settings["modules_to_save"]}
    convert("import", "peft", tmp_path / "back", tmp_path / "again", base=base)
    same_bits(weights(tmp_path / "again"), weights(tmp_path / "run"))


@pytest.mark.parametrize("form", ["", ".lora_embedding"])
def test_words_that_differ_from_those_of_the_head_are_refused_and_the_encoder_is_not(form: str, tmp_path: Path) -> None:
    """The head of masked words of peft 0.21 keeps the table of the base: its logits are not those of one table."""
    base = tmp_path / "base"
    a_run(base, SMALL, PretrainingModel(SMALL, 0))
    pair = {
        f"{QUERY}.lora_A.weight": np.ones((2, 20), np.float32),
        f"{QUERY}.lora_B.weight": np.ones((20, 2), np.float32),
    }
    parts = {f"{form}_A": (2, 31), f"{form}_B": (20, 2)} if form else {".weight": (31, 20)}
    changed = {f"{WORDS}{end}": np.ones(shape, np.float32) for end, shape in parts.items()}
    an_adapter(tmp_path / "adapter", pair | changed, task_type=None, ensure_weight_tying=True)
    with pytest.raises(InputError, match=r"not the table of the head of masked words.*--head none"):
        convert("import", "peft", tmp_path / "adapter", tmp_path / "none", base=base)
    convert("import", "peft", tmp_path / "adapter", tmp_path / "run", head="none", base=base)
    value = weights(base, 7)["embeddings/word"] + 6.0 if form else np.ones((31, 20))
    np.testing.assert_allclose(weights(tmp_path / "run")["embeddings/word"], value, rtol=1e-6)
    assert not any(name.startswith("masked_lm/") for name in weights(tmp_path / "run"))


ST = "sentence_transformers.sentence_transformer.modules"
OWN: dict[str, Any] = {  # of a folder as add_adapter and save_pretrained of sentence-transformers 6.2 write it
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{ST}.pooling.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{ST}.normalize.Normalize"},
    ],
    "1_Pooling/config.json": {"embedding_dimension": 20, "pooling_mode": "max", "include_prompt": True},
    "tokenizer_config.json": {"model_max_length": 5},
    "config_sentence_transformers.json": {"prompts": {"query": "a "}, "truncate_dim": 4, "similarity_fn_name": "dot"},
}


@pytest.mark.parametrize("own", [False, True])
def test_an_adapter_of_embeddings_has_those_of_its_folder_or_of_its_base(own: bool, tmp_path: Path) -> None:
    """peft's folder says nothing of the pooling, and SentenceTransformer's says all."""
    base, random = tmp_path / "base", np.random.default_rng(2)
    values = a_run(base, SMALL, TaskModel(SMALL, 0, CLASSES).encoder)
    of_base = Embedding(pool="cls", normalize=True, length=7, dimensions=3, prompts={"query": "the "})
    write_json(base / "config.json", of_base.entries())
    checkpoint.save(base, 8, values, keep=1)
    shapes = {f"{QUERY}.lora_A.weight": (2, 20), f"{QUERY}.lora_B.weight": (20, 2)}
    made = {name.removeprefix("bert."): random.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    an_adapter(tmp_path / "adapter", made, task_type="FEATURE_EXTRACTION")
    for name, content in OWN.items() if own else ():
        (tmp_path / "adapter" / name).parent.mkdir(exist_ok=True)
        write_json(tmp_path / "adapter" / name, content)
    convert("import", "peft", tmp_path / "adapter", tmp_path / "run", base=base)
    expected = Embedding(pool="max", normalize=True, length=5, dimensions=4, similarity="dot", prompts={"query": "a "})
    run = Run.open(tmp_path / "run")
    assert embedding.of(run.settings, run.settings_path) == (expected if own else of_base)
    if not own:  # an adapter of another task has nothing of it
        made |= {"classifier.weight": np.ones((3, 20), np.float32), "classifier.bias": np.ones(3, np.float32)}
        an_adapter(tmp_path / "of_classes", made)
        convert("import", "peft", tmp_path / "of_classes", tmp_path / "classes", base=base)
        assert embedding.KEY not in Run.open(tmp_path / "classes").settings


@pytest.mark.parametrize("outputs", [1, 3])
def test_an_adapter_of_a_cross_encoder_has_its_activation_and_its_length(outputs: int, tmp_path: Path) -> None:
    """The sigmoid of one output is a number, of several it is one of each label, as CrossEncoder.predict has it."""
    base, head = tmp_path / "base", Head(kind="classifier", regression=True) if outputs == 1 else CLASSES
    values = a_run(base, SMALL, TaskModel(SMALL, 0, head))
    write_json(base / "config.json", head.entries())
    checkpoint.save(base, 8, values, keep=1)
    shapes = {f"{QUERY}.lora_A.weight": (2, 20), f"{QUERY}.lora_B.weight": (20, 2)}
    an_adapter(tmp_path / "adapter", {name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    activation = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    for name, content in {
        "modules.json": OWN["modules.json"][:1],
        "sentence_bert_config.json": {"transformer_task": "sequence-classification"},
        "tokenizer_config.json": {"model_max_length": 6},
        "config_sentence_transformers.json": activation,
    }.items():
        write_json(tmp_path / "adapter" / name, content)
    if outputs > 1:
        with pytest.raises(InputError, match="sigmoids of several outputs; give --head multilabel"):
            convert("import", "peft", tmp_path / "adapter", tmp_path / "run", base=base)
        return
    convert("import", "peft", tmp_path / "adapter", tmp_path / "run", base=base)
    run = Run.open(tmp_path / "run")
    assert run.head == Head(kind="classifier", regression=True, activation="sigmoid")
    assert run.settings["inputs"] == {"length": 6, "odd_to_longer": True}


@pytest.mark.parametrize("method", ["PREFIX_TUNING", "IA3"])
def test_another_method_than_lora_is_named(method: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    described(base, a_run(base, SMALL, TaskModel(SMALL, 0, TAGS)))
    an_adapter(tmp_path / "adapter", {}, peft_type=method)
    save_file({"prompt_embeddings": np.zeros((2, 2), np.float32)}, tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(InputError, match=f"peft_type is '{method}'; supported: LORA"):
        convert("import", "peft", tmp_path / "adapter", tmp_path / "run", base=base)
