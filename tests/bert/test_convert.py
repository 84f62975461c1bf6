"""Weights go out and come back with the same bits, under the names and in the layouts that others give them."""

import dataclasses
import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer as Fast

from bert.config import ModelConfig
from bert.convert import __main__ as convert
from bert.convert import names
from bert.errors import InputError, UsageError
from bert.inputs.tokenization import tokenizer_for
from bert.inputs.vocabulary import SPECIAL
from bert.model.encoder import Encoder, variables
from bert.model.heads import Classifier, Pooler
from bert.model.inference import InferenceEncoder
from bert.pretrain import PretrainingModel
from bert.recipes import SIZES
from bert.training import checkpoint
from squad import model as questions
from squad.config import Windowing
from squad.model import QuestionAnswering

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


def models(config: ModelConfig) -> dict[str, tf.Module]:
    words_only = PretrainingModel(config, 0, pairs="none")
    return {
        "BertForPreTraining": PretrainingModel(config, 0),
        "BertForMaskedLM": words_only,
        "BertForQuestionAnswering": QuestionAnswering(config, 0),
        "BertForSequenceClassification": Sequences(config, classes=3),
    }


@pytest.mark.parametrize("config", [SMALL, DEEP, dataclasses.replace(SIZES["tiny"], vocab_size=997)])
def test_the_table_has_every_variable_with_its_shape(config: ModelConfig) -> None:
    table = [*names.encoder(config), *(weight for head in names.heads(config, 3).values() for weight in head)]
    built = [variables(module) for module in models(config).values()]
    assert {weight.ours: weight.shape for weight in table} == {
        name: tuple(variable.shape) for module in built for name, variable in module.items()
    }
    assert len({weight.google for weight in table}) == len({weight.huggingface for weight in table}) == len(table)


@pytest.mark.parametrize(("size", "tensors", "parameters"), [("base", 206, 110_106_428), ("large", 398, 336_226_108)])
def test_the_table_counts_what_the_published_models_hold(size: str, tensors: int, parameters: int) -> None:
    config = dataclasses.replace(SIZES[size], vocab_size=30522)
    heads = names.heads(config, classes=3)
    pretrained = itertools.chain(*(heads[name] for name in ("pooler", "masked_lm", "next_sentence")))
    table = [*names.encoder(config), *pretrained]
    assert len(table) == tensors
    assert sum(int(np.prod(weight.shape)) for weight in table) == parameters


@pytest.mark.parametrize("form", ["google", "huggingface"])
@pytest.mark.parametrize("kind", models(SMALL))
@pytest.mark.parametrize("config", [SMALL, DEEP], ids=["two layers", "eleven"])
def test_there_and_back_is_bit_equal(form: str, kind: str, config: ModelConfig, tmp_path: Path) -> None:
    before = a_run(tmp_path / "run", config, models(config)[kind])
    convert.main(["export", form, str(tmp_path / "run"), str(tmp_path / "theirs")])
    convert.main(["import", form, str(tmp_path / "theirs"), str(tmp_path / "back")])
    same_bits(before, weights(tmp_path / "back"))
    assert ModelConfig.load(tmp_path / "back" / "bert_config.json") == config
    for name in ("vocab.txt", "bert_config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    if form == "huggingface":
        assert json.loads((tmp_path / "theirs/config.json").read_text())["architectures"] == [kind]


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


def test_kernels_are_transposed_and_nothing_else_is(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "theirs")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    ours = weights(tmp_path / "run")
    assert len(ours) == len(tensors)
    same_bits({"word": ours["embeddings/word"]}, {"word": tensors["embeddings.word_embeddings.weight"]})
    for number in range(SMALL.num_hidden_layers):
        for module, (here, _) in LAYER.items():
            leaf, bias = ("gamma", "beta") if "Norm" in module else ("kernel", "bias")
            value = tensors[f"encoder.layer.{number}.{module}.weight"]
            same_bits(
                {leaf: ours[f"layer_{number}/{here}/{leaf}"], bias: ours[f"layer_{number}/{here}/{bias}"]},
                {leaf: value.T, bias: tensors[f"encoder.layer.{number}.{module}.bias"]},
            )


def test_theirs_in_and_out_is_bit_equal(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "theirs")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    same_bits(load_file(tmp_path / "back" / "model.safetensors"), tensors)


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


def original_folder(folder: Path, values: Values, config: ModelConfig = SMALL) -> None:
    folder.mkdir()
    fields = {key: value for key, value in dataclasses.asdict(config).items() if "placement" not in key}
    (folder / "bert_config.json").write_text(json.dumps(fields))
    (folder / "vocab.txt").write_text("\n".join(vocabulary(config)) + "\n")
    slots = {f"{name}/adam_{slot}": value for name, value in values.items() for slot in "mv"}
    checkpoint.write_bundle(folder / "bert_model.ckpt", values | slots | {"global_step": np.array(20, np.int64)})


def test_every_variable_of_an_original_checkpoint_is_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = original(SMALL)
    original_folder(tmp_path / "google", values)
    convert.main(["import", "google", str(tmp_path / "google"), str(tmp_path / "run")])
    ours = weights(tmp_path / "run")
    assert len(ours) == len(values)
    assert sorted(value.size for value in ours.values()) == sorted(value.size for value in values.values())
    transposed = values["cls/seq_relationship/output_weights"]
    same_bits({"kernel": ours["next_sentence/kernel"]}, {"kernel": transposed.T})
    kernel = values["bert/encoder/layer_1/attention/self/key/kernel"]
    same_bits({"kernel": ours["layer_1/attention/key/kernel"]}, {"kernel": kernel})
    ignored = json.loads((tmp_path / "run/config.json").read_text())["imported"]["ignored"]
    assert len(ignored) == 2 * len(values) + 1 and "global_step" in ignored
    assert f"and {len(ignored) - 4} more" in capsys.readouterr().err

    convert.main(["export", "google", str(tmp_path / "run"), str(tmp_path / "back")])
    reader = tf.train.load_checkpoint(str(tmp_path / "back" / "bert_model.ckpt"))
    same_bits({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}, values)


def test_both_formats_give_one_model(tmp_path: Path) -> None:
    their_folder(tmp_path / "huggingface")
    encoder = {name: value for name, value in original(SMALL).items() if name.startswith("bert/")}
    original_folder(tmp_path / "google", encoder)
    for form in ("huggingface", "google"):
        convert.main(["import", form, str(tmp_path / form), str(tmp_path / f"from_{form}")])
    same_bits(weights(tmp_path / "from_huggingface"), weights(tmp_path / "from_google"))


def widened(value: np.ndarray) -> np.ndarray:
    """bfloat16 is the upper half of float32."""
    return (value.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize(("kind", "exact"), [(np.float16, np.float64), (tf.bfloat16.as_numpy_dtype, None)])
def test_half_precision_is_read_exactly(kind: Any, exact: Any, tmp_path: Path) -> None:
    halves = {name: value.astype(kind) for name, value in theirs(SMALL).items()}
    their_folder(tmp_path / "theirs", tensors=halves)
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    expected = halves["embeddings.word_embeddings.weight"]
    got = weights(tmp_path / "run")["embeddings/word"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected.astype(exact) if exact else widened(expected))


def test_earlier_names_copies_of_tied_weights_and_buffers_are_known(tmp_path: Path) -> None:
    tensors = {f"bert.{name}": value for name, value in theirs(SMALL).items()}
    earlier = {name: name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta") for name in tensors}
    old = {earlier[name]: value for name, value in tensors.items()}
    old["bert.embeddings.position_ids"] = np.arange(17)[None]
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].copy()
    for folder, stored in (("new", tensors), ("old", old)):
        their_folder(tmp_path / folder, tensors=stored)
        convert.main(["import", "huggingface", str(tmp_path / folder), str(tmp_path / f"from_{folder}")])
    same_bits(weights(tmp_path / "from_new"), weights(tmp_path / "from_old"))


def test_weights_in_several_files_are_one_model(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "whole")
    their_folder(tmp_path / "parts")
    (tmp_path / "parts" / "model.safetensors").unlink()
    places = {name: f"model-{number % 3}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({name: value for name, value in tensors.items() if places[name] == file}, tmp_path / "parts" / file)
    (tmp_path / "parts/model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for folder in ("whole", "parts"):
        convert.main(["import", "huggingface", str(tmp_path / folder), str(tmp_path / f"from_{folder}")])
    same_bits(weights(tmp_path / "from_whole"), weights(tmp_path / "from_parts"))


@pytest.mark.parametrize("words", [WORDS, [*WORDS[:-1], "River"]], ids=["lower-cased", "cased"])
def test_their_tokenizer_gives_our_ids(words: list[str], tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, QuestionAnswering(SMALL, 0), words)
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    fast = Fast.from_file(str(tmp_path / "theirs/tokenizer.json"))
    text = "The River flows, unable! a  b? rivers xyz \u6c34"
    ours = tokenizer_for(tmp_path / "run/vocab.txt", SMALL)
    assert ours.encode([text])[0].tolist() == fast.encode(text, add_special_tokens=False).ids
    assert fast.encode(text).tokens[0] == "[CLS]" and fast.encode(text).tokens[-1] == "[SEP]"
    settings = json.loads((tmp_path / "theirs/tokenizer_config.json").read_text())
    assert settings["do_lower_case"] == ("River" not in words)


def test_a_vocabulary_is_found_in_tokenizer_json(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, QuestionAnswering(SMALL, 0))
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    (tmp_path / "theirs/vocab.txt").unlink()
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    assert (tmp_path / "back/vocab.txt").read_bytes() == (tmp_path / "run/vocab.txt").read_bytes()


def test_the_card_says_what_the_run_was(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, PretrainingModel(SMALL, 0))
    settings = {"data.train": "some folder/seq128", "batch.total": 24, "precision.xla": False, "run.directory": "/x"}
    about = {"config": settings, "versions": {"tensorflow": "2.21.0"}}
    (tmp_path / "run/config.json").write_text(json.dumps(about))
    lines = [{"step": step, "split": "heldout", "loss": 3.0 - step, "mlm_accuracy": 0.51 + step} for step in (0, 7)]
    (tmp_path / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 8, "spl')
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    card = (tmp_path / "theirs/README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n")
    assert "--data.train 'some folder/seq128' \\\n    --batch.total 24 \\\n    --precision.xla false\n" in card
    assert "| heldout | 7 | -4.0000 | 7.5100 |" in card and "/x" not in card


def test_an_imported_head_for_questions_answers_them(tmp_path: Path) -> None:
    values = a_run(tmp_path / "run", SMALL, QuestionAnswering(SMALL, 0))
    convert.main(["export", "google", str(tmp_path / "run"), str(tmp_path / "theirs")])
    convert.main(["import", "google", str(tmp_path / "theirs"), str(tmp_path / "back")])
    loaded = questions.load(tmp_path / "back")
    model = QuestionAnswering(SMALL, 1)
    for name, variable in variables(model).items():
        variable.assign(values[name])
    ids = tf.constant(np.random.default_rng(4).integers(0, SMALL.vocab_size, (3, 7)), tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    expected = model.answer_span(InferenceEncoder(model.encoder, tf.float32)(*batch.values()))
    for found, one in zip(loaded.logits(batch), expected, strict=True):
        np.testing.assert_array_equal(found, one)
    assert loaded.windowing == Windowing(max_seq_length=17, doc_stride=5, max_query_length=2)


def test_a_failure_is_one_line_and_its_exit_code(run_module: RunModule, tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/model.safetensors").rename(tmp_path / "theirs/pytorch_model.bin")
    done = run_module("bert.convert", "import", "huggingface", tmp_path / "theirs", tmp_path / "run")
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 3 and done.stdout == ""
    assert len(said) == 1 and "pytorch_model.bin" in said[0] and "save_pretrained" in said[0]


def test_the_same_again_is_not_made_again_and_other_weights_are(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "theirs")
    command = ["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")]
    convert.main(command)
    made = (tmp_path / "run/manifest.json").stat().st_ino
    convert.main(command)
    assert (tmp_path / "run/manifest.json").stat().st_ino == made
    their_folder(tmp_path / "theirs", tensors=tensors | {"pooler.dense.bias": np.ones(20, np.float32)})
    convert.main(command)
    np.testing.assert_array_equal(weights(tmp_path / "run")["pooler/bias"], np.ones(20))


def test_layer_norm_before_the_sub_layers_has_no_name_elsewhere(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, norm_placement="pre")
    a_run(tmp_path / "run", config, PretrainingModel(config, 0))
    with pytest.raises(InputError, match="norm_placement is 'pre'"):
        convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("argv", [["import", "keras", "a", "b"], ["import", "google", "a"], ["to", "google", "a", "b"]])
def test_a_wrong_command_line_is_said_to_be_one(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="see --help"):
        convert.main(argv)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "relu"),
        ("hidden_act", "gelu_new"),
        ("position_embedding_type", "relative_key"),
        ("layer_norm_eps", 1e-5),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("model_type", "roberta"),
        ("num_hidden_layers", 0),
        ("num_attention_heads", 0),
        ("num_attention_heads", 7),
        ("hidden_size", "20"),
        ("vocab_size", 30),
        ("hidden_dropout_prob", 1.5),
        ("hidden_dropout_prob", "much"),
    ],
)
def test_an_architecture_that_is_not_ours_is_refused_by_its_key(key: str, value: Any, tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    path = tmp_path / "theirs/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=f"config.json.*{key}|vocab.txt.*{key}"):
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_another_form_of_lower_casing_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").write_text('{"do_lower_case": false}')
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    assert "do_lower_case is False, but texts will be lower-cased" in capsys.readouterr().err
