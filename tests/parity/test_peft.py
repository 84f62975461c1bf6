"""LoRA is that of peft: logits, gradients, a step of AdamW, and adapters that come in and go out."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from bert.convert.__main__ import convert
from bert.core.config import InitConfig, LoraConfig, ModelConfig, OptimizerConfig
from bert.labels import Head
from bert.model.added import tunes
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.model.heads import TaskModel
from bert.runs import Run
from bert.training import checkpoint
from bert.training.guard import UpdateGuard
from bert.training.optimizer import Optimizer, learning
from extensions.lora.model import adapt, adapt_layer
from tests.parity.test_transformers import Arrays, inputs, oracle, vocabulary

pytestmark = pytest.mark.parity

SIZES = {"hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 28}
SIZES |= {"vocab_size": 97, "max_position_embeddings": 23, "num_labels": 3}
SETTINGS = {"r": 3, "lora_alpha": 12, "modules_to_save": ["pooler"]}
SETTINGS |= {"target_modules": ["query", "value", "intermediate.dense", "layer.1.output.dense"]}
TARGETS = {"self.query": "attention/query", "self.value": "attention/value"}
TARGETS |= {"intermediate.dense": "mlp/inner", "output.dense": "mlp/outer"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, peft's adapter of it with results, and the run of both."""
    root = tmp_path_factory.mktemp("peft")
    (root / "base").mkdir()
    (root / "base" / "vocab.txt").write_text(vocabulary(ModelConfig(vocab_size=97)))
    np.savez(root / "inputs.npz", allow_pickle=False, **given(), labels=np.array([2, 0, 1, 1, 2]))
    oracle(
        ("make", "BertForSequenceClassification", root / "base", 1, SIZES),
        ("adapted", root / "base", root / "adapter", SETTINGS, root / "inputs.npz", root / "found.npz"),
    )
    convert("import", "huggingface", root / "base", root / "run")
    convert("import", "peft", root / "adapter", root / "tuned", base=root / "run")
    return root


def given() -> Arrays:
    return inputs(ModelConfig(vocab_size=97), 19)


def batch() -> dict[str, tf.Tensor]:
    names = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {ours: tf.constant(given()[theirs].astype(np.int32)) for ours, theirs in names.items()}


def ours(name: str) -> tuple[str, bool]:
    """The name of a tensor of peft here, and whether it is transposed there."""
    name = name.replace(".modules_to_save.default", "").replace(".default", "")
    name = name.removeprefix("base_model.model.").removesuffix(".weight")
    if "lora_" in name:
        module, _, part = name.rpartition(".")
        layer = module.split("layer.")[1].split(".")[0]
        target = next(here for there, here in TARGETS.items() if module.endswith(there))
        return f"layer_{layer}/{target}/{part.lower()}", True
    part = "pooler" if "pooler" in name else "classifier"
    return (f"{part}/bias", False) if name.endswith(".bias") else (f"{part}/kernel", True)


def test_logits_gradients_and_a_step_are_those_of_peft(made: Path) -> None:
    run = Run.open(made / "tuned")
    assert run.head is not None
    model = TaskModel(run.config, 3, run.head)
    run.load(model)  # merged
    expected = np.load(made / "found.npz")
    mode = Mode(tf.float32, DropoutRng(None))
    np.testing.assert_allclose(model(batch(), mode), expected["logits"], atol=1e-5)

    model = TaskModel(run.config, 3, run.head)
    adapt(model.encoder, LoraConfig(rank=3, alpha=12, targets=("query", "value", "inner")), seed=1)
    adapt_layer(model.encoder.layers[1], "layer_1", LoraConfig(rank=3, alpha=12, targets=("outer",)), seed=1)
    every = variables(model)
    stored = checkpoint.Stored(checkpoint.steps(made / "tuned")[0], apart=tunes)
    assert stored.shapes.keys() == every.keys()
    for name, variable in every.items():
        variable.assign(stored.get(name))
    learns = learning(every, InitConfig())
    with tf.GradientTape() as tape:
        logits = model(batch(), mode)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant([2, 0, 1, 1, 2]), logits)
        loss = tf.reduce_mean(losses)
    gradients = dict(zip(learns, tape.gradient(loss, list(learns.values())), strict=True))
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)
    config = OptimizerConfig(name="adamw", learning_rate=0.01, weight_decay=0, clip_norm=1e6)
    update = Optimizer(learns, config).updater(UpdateGuard(False, 0.0, False), [])
    update(list(gradients.values()), loss, tf.constant(0.01))
    compared = set()
    for theirs, value in expected.items():
        kind, _, rest = theirs.partition("/")
        if kind != "logits":
            name, transposed = ours(rest)
            found = gradients[name] if kind == "gradient" else learns[name]
            np.testing.assert_allclose(found, value.T if transposed else value, atol=1e-5, err_msg=theirs)
            compared.add(name)
    assert compared == learns.keys()


EVERYWHERE = {  # name of an adapter: its settings
    "all": {"r": 3, "target_modules": "all-linear"},
    "words": {
        "r": 4,
        "target_modules": ["query", "dense", "word_embeddings", "position_embeddings"],
        "rank_pattern": {"query": 2, "pooler.dense": 5},
        "alpha_pattern": {"word_embeddings": 3},
        "use_rslora": True,
    },
    "whole": {"r": 2, "target_modules": ["value"], "modules_to_save": ["word_embeddings", "LayerNorm"]},
    "eva": {"r": 2, "target_modules": ["value"], "init_lora_weights": "eva"},
}


def test_updates_of_the_pooler_and_of_embeddings_are_those_of_peft(made: Path) -> None:
    """Also of the adapters that go out again, as peft loads them."""
    adapters = {name: (made / name, made / f"{name}.npz") for name in EVERYWHERE}
    given_file = made / "inputs.npz"
    oracle(
        *(("adapted", made / "base", adapter, EVERYWHERE[n], given_file, out) for n, (adapter, out) in adapters.items())
    )
    for name, (adapter, _) in adapters.items():
        convert("import", "peft", adapter, made / f"{name}_run", base=made / "run")
    same = [name for name in EVERYWHERE if name != "words"]  # which has several ranks
    for name in same:
        convert("export", "peft", made / f"{name}_run", made / f"{name}_back")
    np.savez(made / "rows.npz", allow_pickle=False, **given())
    oracle(
        *(("with_adapter", made / "base", made / f"{n}_back", 3, made / "rows.npz", made / f"{n}.npy") for n in same)
    )
    for name, (_, found) in adapters.items():
        run = Run.open(made / f"{name}_run")
        assert run.head is not None
        model = TaskModel(run.config, 3, run.head)
        run.load(model)
        expected = np.load(found)["logits"]
        np.testing.assert_allclose(
            model(batch(), Mode(tf.float32, DropoutRng(None))), expected, atol=1e-5, err_msg=name
        )
        if name in same:
            np.testing.assert_allclose(np.load(made / f"{name}.npy"), expected, atol=1e-5, err_msg=name)


def test_an_adapter_goes_out_as_it_came_and_peft_loads_it(made: Path) -> None:
    convert("export", "peft", made / "tuned", made / "back")
    first, second = (load_file(made / name / "adapter_model.safetensors") for name in ("adapter", "back"))
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
    np.savez(made / "rows.npz", allow_pickle=False, **given())
    oracle(("with_adapter", made / "base", made / "back", 3, made / "rows.npz", made / "logits.npy"))
    np.testing.assert_array_equal(np.load(made / "logits.npy"), np.load(made / "found.npz")["logits"])
    assert any(map(tunes, checkpoint.Stored(checkpoint.steps(made / "tuned")[0], apart=tunes).shapes))
    assert Run.open(made / "tuned").head == Head(kind="classifier", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
