"""What cannot be converted is refused by name, as bad input, and nothing is written.

Damaged and hostile files of weights are in tests/faults/test_convert_faults.py.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert import pretrain, recipes
from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.model.heads import Classifier
from bert.pretraining import PretrainingModel
from bert.text import tokenizer_kind
from bert.text.tokenizer_kind import TokenizerType
from bert.text.vocabulary import TOKENIZER
from bert.training import checkpoint
from extensions.tokenizers import byte_bpe
from tests.bert.convert.folders import SMALL, Choices, Sequences, Values, Words, a_run, models, their_folder, weights
from tests.extensions.families import test_families as families
from tests.extensions.families import test_roberta as roberta
from tests.extensions.gpt import test_family as gpt2

STEPS = {"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}}
ADDED = json.dumps(STEPS | {"added_tokens": [{"content": "@@"}]})
Change = dict[str, Any] | Callable[[Path], None]  # keys of config.json (None removes one), or what is done to a folder


FOREIGN = {  # files of folders that are not of transformers, as their programs write them, and what is said
    "peft": (
        {"adapter_config.json": '{"peft_type": "LORA"}', "adapter_model.safetensors": ""},
        "import peft .* --base",
    ),
    "AdapterHub": (
        {"adapter_config.json": '{"config": {}}', "pytorch_adapter.bin": "", "pytorch_model_head.bin": ""},
        "adapter of AdapterHub",
    ),
    "keras-hub": (
        {"config.json": '{"module": "keras_hub.src.models.bert.bert_backbone"}', "model.weights.h5": ""},
        "preset of keras-hub",
    ),
    "Google": ({"bert_config.json": "{}", "bert_model.ckpt.index": ""}, "convert import google"),
    "TF-Hub": ({"saved_model.pb": "", "assets/vocab.txt": ""}, "a SavedModel"),
    "Lightning": ({"epoch=1-step=2.ckpt": ""}, "Lightning, a pickle"),
    "ONNX": ({"config.json": "{}", "model.onnx": ""}, "graph of ONNX"),
    "Keras": (
        {"config.json": "{}", "tf_model.h5": ""},
        "a file of Keras, which is not read .tf_model.h5.; save it with save_pretrained",
    ),
    "pickle": ({"config.json": "{}", "pytorch_model.bin": "", "model.onnx": ""}, "a pickle .pytorch_model.bin"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_folder_of_another_kind_is_named_as_what_it_is(what: str, tmp_path: Path) -> None:
    contents, said = FOREIGN[what]
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        convert.main(["import", "huggingface", str(tmp_path), str(tmp_path / "run")])


def test_a_folder_of_transformers_is_named_as_such_to_the_other_formats(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    a_run(tmp_path / "base", SMALL, PretrainingModel(SMALL, 0))
    for more in (["google"], ["peft", "--base", str(tmp_path / "base")]):
        with pytest.raises(InputError, match=r"a model of transformers .*convert import huggingface"):
            convert.main(["import", more[0], str(tmp_path / "theirs"), str(tmp_path / "run"), *more[1:]])


def exported(run: Path, folder: Path) -> None:
    convert.main(["export", "huggingface", str(run), str(folder)])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of transformers that are taken: bert/, classifier/ with three classes, roberta/, distilbert/, gpt2/."""
    root = tmp_path_factory.mktemp("good")
    their_folder(root / "bert")
    a_run(root / "run", SMALL, Sequences(SMALL, 3))
    exported(root / "run", root / "classifier")
    roberta.a_folder(root / "roberta")
    families.a_folder(root / "distilbert", "distilbert")
    gpt2.a_run(root / "causal")
    exported(root / "causal", root / "gpt2")
    return root


def refused(command: list[str], message: str, target: Path) -> None:
    with pytest.raises(InputError, match=message):
        convert.main([*command, str(target)])
    assert not target.exists()


def tensors(change: Callable[[Values], object]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        stored = load_file(folder / "model.safetensors")
        change(stored)
        save_file(stored, folder / "model.safetensors")

    return rewrite


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, content: str) -> Callable[[Path], None]:
    """Write a file in the place of `name`; a tokenizer.json, which would be read first, is removed."""

    def change(folder: Path) -> None:
        (folder / TOKENIZER).unlink(missing_ok=True)
        (folder / name).write_text(content)

    return change


def padding_elsewhere(folder: Path) -> None:
    byte_bpe.save(roberta.VOCABULARY | {"<pad>": 3, "<unk>": 1}, roberta.MERGES, folder)


def no_mask(folder: Path) -> None:
    left = {token: number for token, number in roberta.VOCABULARY.items() if token != "<mask>"}
    byte_bpe.save(left, roberta.MERGES, folder)


def end_added(folder: Path) -> None:
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    end, named = {"SpecialToken": {"id": "E", "type_id": 0}}, {"id": "E", "ids": [258], "tokens": ["E"]}
    steps = {"single": [end, first], "pair": [first, second], "special_tokens": {"E": named}}
    tokenizer = json.loads((folder / TOKENIZER).read_text())
    tokenizer["post_processor"] = steps | {"type": "TemplateProcessing"}
    (folder / TOKENIZER).write_text(json.dumps(tokenizer))


IMPORTS: list[tuple[str, Change, str]] = [
    ("bert", {"hidden_act": "tanh"}, "config.json: hidden_act is 'tanh'; supported: gelu, gelu_python, gelu_new"),
    ("bert", {"position_embedding_type": "relative_key"}, "config.json: position_embedding_type is 'relative_key'"),
    ("bert", {"layer_norm_eps": 0}, "config.json: layer_norm_eps is 0, not a number in"),
    ("bert", {"model_type": "mpnet"}, "is 'mpnet'; supported here: 'bert', 'megatron-bert', 'roberta', 'xlm"),
    ("bert", {"is_decoder": True}, "config.json: is_decoder is True"),
    ("bert", {"add_cross_attention": True}, "config.json: add_cross_attention is True"),
    ("bert", {"quantization_config": {"bits": 8}}, "config.json: quantization_config is {'bits': 8}"),
    ("bert", {"num_hidden_layers": 0}, "config.json: num_hidden_layers is 0, not a positive integer"),
    ("bert", {"hidden_size": "20"}, "config.json: hidden_size is '20', not a positive integer"),
    ("bert", {"num_attention_heads": 7}, "config.json: .*num_attention_heads"),
    ("bert", {"hidden_dropout_prob": 1.5}, r"config.json: hidden_dropout_prob is 1.5, not a number in \[0, 1\)"),
    ("bert", {"hidden_dropout_prob": "much"}, "config.json: hidden_dropout_prob is 'much'"),
    ("bert", {"vocab_size": 30}, "vocab.txt: .* but vocab_size is 30"),
    ("bert", written("tokenizer_config.json", '{"strip_accents": "no"}'), "strip_accents is 'no'; give a bool"),
    ("bert", written("tokenizer_config.json", '{"tokenizer_class": "BertJapaneseTokenizer"}'), "BertJapaneseTokenizer"),
    ("bert", written("tokenizer_config.json", '{"word_tokenizer_type": "mecab"}'), "those of mecab .*; use the model"),
    ("bert", written("tokenizer_config.json", '{"tokenizer_class": "RoFormer"}'), "tokenizer_class is 'RoFormer'"),
    ("bert", written("tokenizer.json", '{"normalizer": {"type": "NFKC"}}'), "only a BertNormalizer is supported"),
    ("bert", written("tokenizer.json", ADDED), "the added token '@@' is not a special one of the vocabulary"),
    ("classifier", tensors(lambda t: t.pop("classifier.bias")), "missing tensor classifier.bias"),
    ("classifier", tensors(lambda t: t.pop("classifier.weight")), "missing tensor classifier.weight"),
    ("classifier", tensors(lambda t: t.update({"classifier.weight": np.ones((4, 20), "f")})), r"has shape \[4, 20\]"),
    ("classifier", tensors(lambda t: t.update({"classifier.bias": np.ones((), "f")})), r"classifier\.\w+ has shape"),
    ("classifier", tensors(lambda t: t.update({"classifier.dense.weight": np.ones(3, "f")})), "unknown tensors: class"),
    ("classifier", {"id2label": {"0": "a", "1": "b"}}, "config.json: the classifier has 3 classes, id2label does not"),
    ("classifier", {"id2label": {"0": "a", "1": "b", "2": "a"}}, "config.json: id2label names two classes 'a'"),
    ("classifier", {"id2label": None, "num_labels": 10**16}, "the classifier has 3 classes, num_labels does not"),
    ("roberta", {"pad_token_id": 0}, "pad_token_id is 0; only 1 is supported"),
    ("roberta", {"type_vocab_size": 2}, "type_vocab_size is 2; only 1 is supported"),
    ("roberta", {"layer_norm_eps": 0}, "layer_norm_eps is 0, not a number in"),
    ("roberta", {"hidden_act": "relu"}, "hidden_act is 'relu'; only 'gelu'"),
    ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings is 2"),
    ("roberta", {"max_position_embeddings": 45}, r"position_embeddings\.weight has shape \[43, 20\], but .* \[45, 20"),
    ("roberta", {"vocab_size": 99}, "entries, but vocab_size is 99"),
    ("roberta", {"num_hidden_layers": 4}, r"missing tensor roberta\.encoder\.layer\.3"),
    (
        "roberta",
        tensors(lambda t: t.update({"lm_head.decoder.weight": t["roberta.embeddings.word_embeddings.weight"] + 1})),
        r"lm_head\.decoder\.weight differs from roberta\.embeddings",
    ),
    ("roberta", without("merges.txt"), r"no vocab\.json and merges\.txt"),
    ("roberta", without("vocab.json"), r"no vocab\.json and merges\.txt"),
    ("roberta", written("vocab.json", '{"a": 0'), r"vocab\.json: not a vocabulary"),
    ("roberta", written("merges.txt", "#version: 0.2\nt h e\n"), r"merges\.txt: line 2"),
    ("roberta", written("tokenizer.json", '{"model": '), r"tokenizer\.json: not a byte-level BPE"),
    ("roberta", written("tokenizer_config.json", '{"add_prefix_space": 3}'), "add_prefix_space is 3"),
    ("roberta", padding_elsewhere, "<pad> has the id 3, which is 1"),
    ("roberta", no_mask, "no token '<mask>' in it"),
    ("distilbert", {"dim": None}, "dim is None, not a positive integer"),
    ("distilbert", {"n_heads": 7}, "num_attention_heads"),
    ("distilbert", {"dropout": 2}, r"dropout is 2, not a number in \[0, 1\)"),
    ("distilbert", {"activation": "tanh"}, "activation is 'tanh'; supported: gelu"),
    ("distilbert", {"vocab_size": 7}, "entries, but vocab_size is 7"),
    ("distilbert", {"n_layers": 4}, r"missing tensor distilbert\.transformer\.layer\.3"),
    ("gpt2", {"activation_function": "tanh"}, "activation_function is 'tanh'; supported: gelu, "),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights is False; only True"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True; only False"),
    ("gpt2", {"tie_word_embeddings": False}, "tie_word_embeddings is False; only True"),
    ("gpt2", {"n_layer": 0}, "n_layer is 0, not a positive integer"),
    ("gpt2", {"n_inner": "x"}, "n_inner is 'x'"),
    ("gpt2", {"n_head": 3}, "is not a multiple of"),
    ("gpt2", {"layer_norm_epsilon": -1}, "layer_norm_epsilon is -1, not a number"),
    ("gpt2", {"n_layer": 2}, "unknown tensors: transformer.h.2"),
    ("gpt2", {"n_embd": 40}, "has shape"),
    ("gpt2", {"vocab_size": 99}, "259 entries, but vocab_size is 99"),
    ("gpt2", {"eos_token_id": 3}, "eos_token_id is 3, but only"),
    ("gpt2", written("generation_config.json", '{"eos_token_id": [258, 3]}'), r"eos_token_id is \[258, 3\], but only"),
    ("gpt2", written("tokenizer_config.json", '{"add_prefix_space": true}'), "add_prefix_space is True"),
    ("gpt2", written("tokenizer_config.json", '{"tokenizer_class": "BertTokenizer"}'), "tokenizer_class is BertToken"),
    ("gpt2", written("added_tokens.json", '{"<|user|>": 259}'), r"the added token '<\|user\|>'"),
    ("gpt2", end_added, "the post_processor puts other special tokens"),
    (
        "gpt2",
        tensors(lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1})),
        r"lm_head\.weight differs from transformer\.wte\.weight",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "change", "message"), IMPORTS, ids=[f"{kind}-{message[:40]}" for kind, _, message in IMPORTS]
)
def test_an_import_is_refused_by_name(kind: str, change: Change, message: str, good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good / kind, tmp_path / kind))
    if callable(change):
        change(folder)
    else:
        facts = json.loads((folder / "config.json").read_text()) | change
        kept = {key: value for key, value in facts.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))
    refused(["import", "huggingface", str(folder)], message, tmp_path / "run")


class Two(tf.Module):
    """An encoder with two heads that transformers calls `classifier`."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.classifier = Words(SMALL, classes=3), Classifier(SMALL, 0, 3)


def of(module: tf.Module, config: ModelConfig = SMALL) -> Callable[[Path, Path], object]:
    """Return a function that writes a run with the module's variables."""
    return lambda run, good: a_run(run, config, module)


def of_roberta(run: Path, good: Path) -> None:
    convert.main(["import", "huggingface", str(good / "roberta"), str(run)])


def of_two_segments(run: Path, good: Path) -> None:
    """A run with the tokens of RoBERTa and two segments, which RoBERTa does not have."""
    of_roberta(run.with_name("one"), good)
    config = dataclasses.replace(ModelConfig.load(run.with_name("one") / "bert_config.json"), type_vocab_size=2)
    a_run(run, config, models(config)["BertForMaskedLM"], [])
    (run / "vocab.txt").unlink()
    tables = byte_bpe.Tables(roberta.VOCABULARY, roberta.MERGES, byte_bpe.ROBERTA)
    (run / "tokenizer.json").write_text(byte_bpe.text_of_tables(tables, run), encoding="utf-8")
    checkpoint.save(run, 8, weights(run, 7), keep=1)


PRE = dataclasses.replace(SMALL, norm_placement="pre")
EXPORTS: dict[str, tuple[str, Callable[[Path, Path], object], str]] = {
    "choices": ("google", of(Choices(SMALL)), "the head choice has no form in Google's format"),
    "tags": ("google", of(Words(SMALL, classes=3)), "the head tags has no form in Google's format"),
    "norms before": ("google", of(PretrainingModel(PRE, 0), PRE), "norms precede the sub-layers"),
    "roberta": ("google", of_roberta, "RoBERTa has no form in Google's format"),
    "causal": ("google", lambda run, good: gpt2.a_run(run), "has no form in Google's format"),
    "two heads": ("huggingface", of(Two()), "transformers calls the heads classifier and tags the same"),
    "segments": (
        "huggingface",
        of_two_segments,
        "of byte pairs; BERT, which has its settings, has word pieces .* type_vocab_size 1, not 2",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", EXPORTS)
def test_an_export_is_refused_by_name(case: str, good: Path, tmp_path: Path) -> None:
    form, write, message = EXPORTS[case]
    write(tmp_path / "run", good)
    refused(["export", form, str(tmp_path / "run")], message, tmp_path / "theirs")


FORMS: dict[str, tuple[dict[str, Any], TokenizerType, str]] = {
    "no cause": ({}, "word pieces", ""),
    "an activation that BERT has": ({"hidden_act": "relu"}, "byte pairs", "its tokenizer is one of byte pairs; BERT, "),
    "BERT's norms": (
        {},
        "bracketed byte pairs",
        "its tokenizer is one of bracketed byte pairs; BERT, which has its se",
    ),
    "Megatron's norms": ({"norm_placement": "pre"}, "unigram", "its tokenizer is one of unigram; MegatronBert, which"),
    "blocks that none has": (
        {"positions": "rotary"},
        "word pieces",
        "of the other formats BERT is nearest, which has positions 'learned', not 'rotary'",
    ),
}


@pytest.mark.parametrize("case", FORMS)
def test_the_cause_of_a_refusal_is_named_and_told_before_training(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which tokenizers a class of transformers is distributed with: `slow_tokenizer_class` in tokenization_auto.py."""
    changes, tokens, message = FORMS[case]
    config = dataclasses.replace(SMALL, **changes)
    files = {
        "word pieces": ("vocab.txt", ""),
        "byte pairs": ("tokenizer.json", "{}"),
        "bracketed byte pairs": (
            "tokenizer.json",
            '{"model": {"type": "BPE"}, "added_tokens": [{"content": "[CLS]"}]}',
        ),
        "unigram": ("tokenizer.json", '{"model": {"type": "Unigram"}}'),
    }
    name, content = files[tokens]
    (tmp_path / name).write_text(content)
    assert tokenizer_kind.of(tmp_path / name) == tokens
    phase = recipes.RECIPES["bert_tiny"].phases[0]
    (placed,) = pretrain.placed(
        [
            dataclasses.replace(
                phase,
                config=dataclasses.replace(
                    phase.config, data=dataclasses.replace(phase.config.data, train=tmp_path), model=config
                ),
            )
        ],
        "",
    )
    pretrain._tell_form(placed)
    told = capsys.readouterr().err
    assert (message in told and "bert.export onnx writes it" in told) if message else not told
