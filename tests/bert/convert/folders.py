"""Small models with random weights, as run directories and in the formats of others."""

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file

from bert.core.config import ModelConfig
from bert.model.encoder import Encoder, variables
from bert.model.heads import Choice, Classifier, Pooler, Tags, TaskModel
from bert.pretraining import PretrainingModel
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from squad.model import AnswerSpans

Values = dict[str, np.ndarray]
RunModule = Callable[..., subprocess.CompletedProcess[str]]
WORDS = ["river", "##s", "flow", "un", "##able", "a", "b", "!", "?", "the"]
SMALL = ModelConfig(
    vocab_size=31,
    hidden_size=20,
    num_hidden_layers=2,
    num_attention_heads=5,
    intermediate_size=28,
    max_position_embeddings=17,
    type_vocab_size=3,
)
DEEP = dataclasses.replace(SMALL, num_hidden_layers=11, hidden_size=12, num_attention_heads=3, intermediate_size=7)


def vocabulary(config: ModelConfig, words: list[str] = WORDS) -> list[str]:
    tokens = [*SPECIAL, *words]
    return tokens + [f"w{number}" for number in range(config.vocab_size - len(tokens))]


def a_run(folder: Path, config: ModelConfig, module: tf.Module, words: list[str] = WORDS) -> Values:
    """A run directory with random weights, and slots of an optimizer beside them; returns the weights."""
    random = np.random.default_rng(1)
    values = {name: random.normal(0, 0.1, v.shape).astype(np.float32) for name, v in variables(module).items()}
    folder.mkdir()
    config.save(folder / "bert_config.json")
    (folder / "vocab.txt").write_text("\n".join(vocabulary(config, words)) + "\n")
    slots = {"adam_m/pooler/kernel": np.ones(3), "run/seconds": np.ones(())}
    checkpoint.save(folder, 7, values | slots, keep=1)
    return values


def weights(folder: Path, step: int = 0) -> Values:
    reader = tf.train.load_checkpoint(str(folder / f"checkpoints/step-{step:08d}/variables"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def same_bits(one: Values, two: Values) -> None:
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value.dtype == two[name].dtype
        np.testing.assert_array_equal(value.view(np.uint32), two[name].view(np.uint32), err_msg=name)


class Sequences(tf.Module):
    """What classifies sequences."""

    def __init__(self, config: ModelConfig, classes: int) -> None:
        super().__init__()
        self.encoder, self.pooler = Encoder(config, 0), Pooler(config, 0)
        self.classifier = Classifier(config, 0, classes)


class Choices(tf.Module):
    """What compares choices."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder, self.pooler, self.choice = Encoder(config, 0), Pooler(config, 0), Choice(config, 0)


class Words(tf.Module):
    """What tags words."""

    def __init__(self, config: ModelConfig, classes: int) -> None:
        super().__init__()
        self.encoder, self.tags = Encoder(config, 0), Tags(config, 0, classes)


def models(config: ModelConfig) -> dict[str, tf.Module]:
    words_only = PretrainingModel(config, 0, pairs="none")
    return {
        "BertForPreTraining": PretrainingModel(config, 0),
        "BertForMaskedLM": words_only,
        "BertForQuestionAnswering": TaskModel(config, 0, AnswerSpans.described),
        "BertForSequenceClassification": Sequences(config, classes=3),
        "BertForMultipleChoice": Choices(config),
        "BertForTokenClassification": Words(config, classes=3),
    }


# What transformers 5.23 writes for one layer, its own names beside ours; Google's follow from modeling.py.
LAYER = {
    "attention.self.query": ("attention/query", "attention/self/query"),
    "attention.self.key": ("attention/key", "attention/self/key"),
    "attention.self.value": ("attention/value", "attention/self/value"),
    "attention.output.dense": ("attention/output", "attention/output/dense"),
    "attention.output.LayerNorm": ("attention/layer_norm", "attention/output/LayerNorm"),
    "intermediate.dense": ("mlp/inner", "intermediate/dense"),
    "output.dense": ("mlp/outer", "output/dense"),
    "output.LayerNorm": ("mlp/layer_norm", "output/LayerNorm"),
}


def theirs(config: ModelConfig) -> Values:
    """The tensors of a BertModel as its state_dict has them: kernels [outputs, inputs], no prefix."""
    width, inner = config.hidden_size, config.intermediate_size
    rows = (("word", config.vocab_size), ("position", config.max_position_embeddings), ("token_type", 3))
    shapes: dict[str, tuple[int, ...]] = {f"embeddings.{name}_embeddings.weight": (size, width) for name, size in rows}
    shapes |= {"pooler.dense.weight": (width, width), "pooler.dense.bias": (width,)}
    shapes |= {f"embeddings.LayerNorm.{leaf}": (width,) for leaf in ("weight", "bias")}
    for number in range(config.num_hidden_layers):
        for module in LAYER:
            outputs = inner if module.startswith("inter") else width
            inputs = inner if module == "output.dense" else width
            place = f"encoder.layer.{number}.{module}"
            shapes |= {f"{place}.weight": (outputs,) if "Norm" in module else (outputs, inputs)}
            shapes |= {f"{place}.bias": (outputs,)}
    random = np.random.default_rng(2)
    return {name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def their_folder(folder: Path, config: ModelConfig = SMALL, tensors: Values | None = None) -> Values:
    """A folder as transformers writes it; returns its tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = theirs(config) if tensors is None else tensors
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    fields = {key: value for key, value in dataclasses.asdict(config).items() if "placement" not in key}
    (folder / "config.json").write_text(json.dumps(fields | {"model_type": "bert", "layer_norm_eps": 1e-12}))
    (folder / "vocab.txt").write_text("\n".join(vocabulary(config)) + "\n")
    return tensors


def original(config: ModelConfig) -> Values:
    """A checkpoint of run_pretraining.py: its names, kernels [inputs, outputs], output_weights not, slots of Adam."""
    values = {}
    for name, value in theirs(config).items():
        name = "bert/" + name.replace("_embeddings.weight", "_embeddings").replace(".", "/").replace("layer/", "layer_")
        if "LayerNorm" in name:
            name = name.replace("weight", "gamma").replace("bias", "beta")
        elif name.endswith("weight"):
            name, value = name.replace("weight", "kernel"), value.T.copy()
        values[name] = value
    random, width = np.random.default_rng(3), config.hidden_size
    heads: dict[str, tuple[int, ...]] = {
        "predictions/transform/dense/kernel": (width, width),
        "predictions/transform/dense/bias": (width,),
        "predictions/transform/LayerNorm/gamma": (width,),
        "predictions/transform/LayerNorm/beta": (width,),
        "predictions/output_bias": (config.vocab_size,),
        "seq_relationship/output_weights": (2, width),
        "seq_relationship/output_bias": (2,),
    }
    return values | {f"cls/{name}": random.normal(0, 0.1, shape).astype(np.float32) for name, shape in heads.items()}


OF_NVIDIA = ("local_step", "batch_finite", "bad_steps", "current_loss_scale", "bert/pooler/dense/bias/accum")


def original_folder(folder: Path, values: Values, config: ModelConfig = SMALL) -> None:
    folder.mkdir()
    fields = {key: value for key, value in dataclasses.asdict(config).items() if "placement" not in key}
    (folder / "bert_config.json").write_text(json.dumps(fields))
    (folder / "vocab.txt").write_text("\n".join(vocabulary(config)) + "\n")
    slots = {f"{name}/adam_{slot}": value for name, value in values.items() for slot in "mv"}
    counters = ("global_step", *OF_NVIDIA)
    state = slots | dict.fromkeys(counters, np.array(20, np.int64))
    checkpoint.write_bundle(folder / "bert_model.ckpt", values | state)


def widened(value: np.ndarray) -> np.ndarray:
    """bfloat16 is the upper half of float32."""
    return (value.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
