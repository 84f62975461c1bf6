"""ModernBERT comes in, computes what its equations say, and goes out as it was; what differs from it is refused.

The equations are in tests/bert/model/test_encoder.py; tests/parity/test_modernbert.py compares with transformers.
"""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert import labels
from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.heads import TaskModel
from bert.pretraining import PretrainingModel
from bert.runs import Run
from bert.training import checkpoint
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.json_tokenizers import BracketedTokenizer
from tasks.model import spaces_words
from tests.bert.convert.equations import imported
from tests.bert.convert.folders import Values, same_bits, weights
from tests.bert.model.test_encoder import batch_of, reference
from tests.extensions.families import test_roberta as roberta
from tests.extensions.tokenizers import bracketed

MODE = Mode(tf.float32, DropoutRng(None))
D, F, LAYERS, V = 20, 28, 3, bracketed.SIZE
OUTPUTS = {
    "ForSequenceClassification": 3,
    "ForTokenClassification": 3,
    "ForQuestionAnswering": 2,
    "ForMultipleChoice": 1,
}
SPECIAL_IDS = {"pad_token_id": V - 2, "cls_token_id": V - 4, "sep_token_id": V - 3}
CONFIG: dict[str, Any] = {  # as transformers 4.48 writes it
    "architectures": ["ModernBertForMaskedLM"],
    "model_type": "modernbert",
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 5,
    "intermediate_size": F,
    "max_position_embeddings": 64,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 500.0,
    "local_rope_theta": 70.0,
    "norm_eps": 1e-12,
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "decoder_bias": True,
    "classifier_bias": False,
}
LATER = {  # keys of transformers 5 in the place of earlier ones
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
    },
    "global_attn_every_n_layers": None,
    "global_rope_theta": None,
    "local_rope_theta": None,
}


def shapes(kind: str) -> dict[str, tuple[int, ...]]:
    """Of the tensors of a class, as transformers 5.23 writes them."""
    inside: dict[str, tuple[int, ...]] = {"embeddings.tok_embeddings": (V, D), "embeddings.norm": (D,)}
    for layer in (f"layers.{number}" for number in range(LAYERS)):
        inside |= {f"{layer}.attn.Wqkv": (3 * D, D), f"{layer}.attn.Wo": (D, D), f"{layer}.mlp_norm": (D,)}
        inside |= {f"{layer}.mlp.Wi": (2 * F, D), f"{layer}.mlp.Wo": (D, F)}
        inside |= {f"{layer}.attn_norm": (D,)} if layer != "layers.0" else {}
    inside |= {"final_norm": (D,)}
    prefix = "" if kind == "Model" else "model."
    made = {f"{prefix}{name}.weight": shape for name, shape in inside.items()}
    if kind != "Model":
        made |= {"head.dense.weight": (D, D), "head.norm.weight": (D,)}
    if kind in OUTPUTS:
        made |= {"classifier.weight": (OUTPUTS[kind], D), "classifier.bias": (OUTPUTS[kind],)}
    return made | ({"decoder.bias": (V,)} if kind == "ForMaskedLM" else {})


def a_folder(folder: Path, kind: str = "ForMaskedLM", **changes: Any) -> Values:
    """A folder with random weights; changes: of config.json, None removes a key."""
    folder.mkdir(parents=True)
    fields = CONFIG | SPECIAL_IDS | {"architectures": [f"ModernBert{kind}"]} | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in fields.items() if v is not None}))
    bracketed.write(folder / "tokenizer.json")
    random = np.random.default_rng(3)
    made = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes(kind).items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    return made


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, LATER], ids=["earlier keys", "later keys"])
def test_scores_of_words_are_those_of_the_equations(changes: dict[str, Any], tmp_path: Path) -> None:
    theirs = a_folder(tmp_path / "theirs", **changes)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    config = ModelConfig.load(run / "bert_config.json")
    assert config.of_layers(lambda local, base: local) == [False, True, False]
    weight: Values = {
        "embeddings/word": theirs["model.embeddings.tok_embeddings.weight"],
        "embeddings/layer_norm/gamma": theirs["model.embeddings.norm.weight"],
        "final/layer_norm/gamma": theirs["model.final_norm.weight"],
        "masked_lm/transform/kernel": theirs["head.dense.weight"].T,
        "masked_lm/layer_norm/gamma": theirs["head.norm.weight"],
        "masked_lm/bias": theirs["decoder.bias"],
    }
    for number in range(LAYERS):
        there, here = f"model.layers.{number}", f"layer_{number}"
        parts = np.split(theirs[f"{there}.attn.Wqkv.weight"], 3)
        weight |= {f"{here}/attention/{n}/kernel": x.T for n, x in zip(("query", "key", "value"), parts, strict=True)}
        inner, gate = np.split(theirs[f"{there}.mlp.Wi.weight"], 2)
        weight |= {f"{here}/mlp/inner/kernel": inner.T, f"{here}/mlp/gate/kernel": gate.T}
        weight |= {
            f"{here}/attention/output/kernel": theirs[f"{there}.attn.Wo.weight"].T,
            f"{here}/mlp/outer/kernel": theirs[f"{there}.mlp.Wo.weight"].T,
            f"{here}/mlp/layer_norm/gamma": theirs[f"{there}.mlp_norm.weight"],
        }
        if number:
            weight[f"{here}/attention/layer_norm/gamma"] = theirs[f"{there}.attn_norm.weight"]
    same_bits(weight, weights(run))
    model = PretrainingModel(config, 0, "none")
    checkpoint.load_weights(run, variables(model))
    batch = batch_of(dataclasses.replace(config, type_vocab_size=2))
    words, _ = model(batch, Mode(tf.float32, DropoutRng(None)))
    made_up = {"pooler/kernel": np.zeros((D, D)), "next_sentence/kernel": np.zeros((D, 2))}  # of which nothing is read
    exact = {name: value.astype(np.float64) for name, value in (weight | made_up).items()}
    expected, _ = reference(exact, config, {name: value.numpy() for name, value in batch.items()})
    np.testing.assert_allclose(words + model.masked_lm.bias, expected, atol=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ForMaskedLM", "Model", *OUTPUTS])
def test_it_comes_back_with_its_bits(kind: str, tmp_path: Path) -> None:
    before = a_folder(tmp_path / "theirs", kind, classifier_pooling="mean")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    same_bits(before, load_file(tmp_path / "back/model.safetensors"))
    config = json.loads((tmp_path / "back/config.json").read_text())
    shared = {key: value for key, value in (CONFIG | LATER | SPECIAL_IDS).items() if value is not None}
    assert {key: config[key] for key in shared} == shared | {"architectures": [f"ModernBert{kind}"]}
    assert config["classifier_pooling"] == "mean"
    same_bits(weights(run), weights(imported(tmp_path / "back", tmp_path / "again")))
    with pytest.raises(InputError):
        convert.main(["export", "google", str(run), str(tmp_path / "google")])


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_scores_of_texts_tags_and_answers_are_those_of_the_equations(pooling: str, tmp_path: Path) -> None:
    """Of the states, which another test compares; tests/bert/export/test_onnx.py has the graph of ONNX."""
    random = np.random.default_rng(6)
    ids, mask = random.integers(0, V, (4, 11)), (np.arange(11) < np.array([11, 7, 4, 2])[:, None]).astype(np.int32)
    for kind in OUTPUTS:
        theirs = a_folder(tmp_path / kind, kind, classifier_pooling=pooling)
        run = imported(tmp_path / kind, tmp_path / f"run_{kind}")
        config, head = ModelConfig.load(run / "bert_config.json"), labels.of(labels.settings(run), run)
        assert head is not None and config.pooling == pooling
        model = TaskModel(config, 0, head)
        checkpoint.load_weights(run, variables(model))
        x = model.encoder(TokenBatch(*(tf.constant(a, tf.int32) for a in (ids, mask, ids * 0))), MODE).numpy()
        if kind in ("ForSequenceClassification", "ForMultipleChoice"):
            mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
            x = mean if pooling == "mean" else x[:, 0]
        y: np.ndarray = gelu(x.astype(np.float64) @ theirs["head.dense.weight"].T)
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-12) * theirs["head.norm.weight"]
        expected = y @ theirs["classifier.weight"].T + theirs["classifier.bias"]
        arrays = (("input_ids", ids), ("input_mask", mask), ("segment_ids", ids * 0))
        batch: dict[str, tf.Tensor] = {name: tf.constant(value, tf.int32) for name, value in arrays}
        choices = kind == "ForMultipleChoice"
        logits = model({name: value[None] if choices else value for name, value in batch.items()}, MODE)
        found = np.stack(logits, axis=-1) if isinstance(logits, tuple) else logits.numpy()
        np.testing.assert_allclose(found.T if choices else found, expected, atol=2e-5, err_msg=kind)


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def test_heads_that_do_not_fit_are_left_aside_or_refused_by_name(tmp_path: Path) -> None:
    theirs = a_folder(tmp_path / "theirs", "ForSequenceClassification", problem_type="regression")  # of three numbers
    run = imported(tmp_path / "theirs", tmp_path / "run")
    settings = json.loads((run / "config.json").read_text())
    assert settings["imported"]["ignored"] == sorted(name for name in theirs if not name.startswith("model."))
    assert "head" not in settings
    with pytest.raises(UsageError, match="contradicts"):
        convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "x"), "--head", "tags"])
    a_folder(tmp_path / "other", "ForSequenceClassification", classifier_pooling="max")
    with pytest.raises(InputError, match="classifier_pooling is 'max'; supported: cls and mean"):
        imported(tmp_path / "other", tmp_path / "x")
    config = ModelConfig.load(run / "bert_config.json")
    values = {name: variable.numpy() for name, variable in variables(PretrainingModel(config, 0, "nsp")).items()}
    checkpoint.save(run, 1, values, keep=1)
    with pytest.raises(InputError, match="next_sentence"):
        convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    assert not (tmp_path / "back").exists() and not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_dropout": 0.1}, "mlp_dropout"),
        ({"hidden_activation": "silu"}, "classifier_activation"),
        ({"hidden_activation": 3}, "hidden_activation"),
        ({"local_attention": 1}, "local_attention"),
        ({"local_attention": "wide"}, "local_attention"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers"),
        ({"global_rope_theta": -1.0}, "rope_theta"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "scaled"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "scaled"),
        ({"layer_types": ["full_attention"] * 2}, "layer_types"),
        ({"layer_types": ["sliding_attention", "full_attention", "full_attention"]}, "equal distances"),
        ({"hidden_size": 15}, "even width"),
        ({"norm_eps": 2}, "norm_eps"),
        ({"intermediate_size": None}, "intermediate_size"),
    ],
    ids=str,
)
def test_other_functions_of_the_same_weights_are_refused(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs", **changes)
    with pytest.raises(InputError, match=named):
        imported(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tokens_are_bytes_and_runs_of_spaces_between_brackets(tmp_path: Path) -> None:
    bracketed.write(tmp_path / "tokenizer.json")
    tokenizer = BracketedTokenizer(tmp_path / "tokenizer.json")
    ids, splits, begin, end = tokenizer.encode_with_offsets(["the cat   caf\u0065\u0301", "[SEP] the"])
    texts = [[tokenizer.vocab[number] for number in ids[splits[n] : splits[n + 1]]] for n in (0, 1)]
    assert texts[0] == ["the", "\u0120cat", "   ", "ca", "f", "\u00c3", "\u00a9"]  # one character, two bytes
    assert texts[1] == [*"[SEP]", "\u0120the"]
    spans = list(zip(begin[: splits[1]].tolist(), end[: splits[1]].tolist(), strict=True))
    assert spans[:5] == [(0, 3), (4, 7), (7, 10), (10, 12), (12, 13)]
    assert all(span in ((13, 14), (13, 15), (14, 15)) for span in spans[5:])
    pair = tokenizer.row(np.array([7]), np.array([8]))
    assert pair.ids.tolist() == [V - 4, 7, V - 3, 8, V - 3] and not pair.segments.any()


WORDS = ("the", "cat", "cat's", "caf\u00e9", "\ncat", "the cat", "a", "")


def their_words(path: Path) -> list[list[int]]:
    """The ids of each word, as transformers asks tokenizers for them with is_split_into_words."""
    made = Tokenizer.from_file(str(path)).encode(WORDS, is_pretokenized=True, add_special_tokens=False)
    owners = zip(made.ids, made.word_ids, strict=True)
    return [[number for number, word in copy if word == place] for place, copy in enumerate([[*owners]] * len(WORDS))]


def our_words(run: Path) -> list[list[int]]:
    ids, splits = Run.open(run).tokenizer.encode_words(WORDS)
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(splits)]


@pytest.mark.parametrize("family", ["modernbert", "roberta"])
@pytest.mark.parametrize("prefix", [False, True])
def test_words_that_get_tags_have_the_tokens_of_their_tokenizer(prefix: bool, family: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    if family == "modernbert":
        a_folder(folder, "ForTokenClassification")
        bracketed.write(folder / "tokenizer.json", prefix=prefix)
    else:
        roberta.a_folder(folder, "RobertaForTokenClassification")
        tables = byte_bpe.Tables(roberta.VOCABULARY, roberta.MERGES, byte_bpe.ROBERTA, prefix)
        (folder / "tokenizer.json").write_text(byte_bpe.text_of_tables(tables, folder))
    settings = {"add_prefix_space": prefix} | ({"tokenizer_class": "RobertaTokenizer"} if prefix else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    run = imported(folder, tmp_path / "run")
    expected = their_words(folder / "tokenizer.json")
    assert our_words(run) == expected
    assert spaces_words(run) is prefix
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    assert their_words(tmp_path / "back/tokenizer.json") == expected
    if not prefix:  # a run that was trained here has read its words within texts, and goes out so
        settings = json.loads((run / "config.json").read_text())
        assert settings.pop("spaced_words") is False
        (run / "config.json").write_text(json.dumps(settings))
        (run / "manifest.json").unlink()  # of an import
        checkpoint.save(run, 1, weights(run), keep=1)  # which records config.json
        within = our_words(run)
        assert within != expected
        convert.main(["export", "huggingface", str(run), str(tmp_path / "spaced")])
        assert their_words(tmp_path / "spaced/tokenizer.json")[:-1] == within[:-1]  # but the empty word
        assert json.loads((tmp_path / "spaced/tokenizer_config.json").read_text())["add_prefix_space"] is True
        assert our_words(imported(tmp_path / "spaced", tmp_path / "again"))[:-1] == within[:-1]


@pytest.mark.parametrize(("name", "refused"), [("PreTrainedTokenizerFast", True), ("TokenizersBackend", False)])
def test_two_files_that_differ_about_the_space_are_refused_but_of_transformers_5(
    name: str, refused: bool, tmp_path: Path
) -> None:
    """transformers 4.57 takes the one of tokenizer_config.json, 5.24 that of tokenizer.json."""
    a_folder(tmp_path / "theirs", "ForTokenClassification")
    (tmp_path / "theirs/tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": name, "add_prefix_space": True})
    )
    if refused:
        with pytest.raises(InputError, match=r"add_prefix_space is True, but False in tokenizer\.json"):
            imported(tmp_path / "theirs", tmp_path / "run")
        return
    run = imported(tmp_path / "theirs", tmp_path / "run")
    assert our_words(run) == their_words(tmp_path / "theirs/tokenizer.json")


def test_the_tokenizer_of_mmbert_is_refused_by_its_name(tmp_path: Path) -> None:
    """Its parts are those of Gemma's: characters, spaces as U+2581, bytes as tokens of their own."""
    a_folder(tmp_path / "theirs")
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a"]
    model = models.BPE(vocab={t: n for n, t in enumerate(tokens)}, merges=[], byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.save(str(tmp_path / "theirs/tokenizer.json"))
    with pytest.raises(InputError, match="the tokenizer of Gemma and mmBERT, which is not supported"):
        imported(tmp_path / "theirs", tmp_path / "run")


@pytest.mark.parametrize("what", ["normalizer", "post_processor", "merges"])
def test_other_tokenizers_are_refused(what: str, tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs")
    path = tmp_path / "theirs/tokenizer.json"
    fields = json.loads(path.read_text())
    if what == "normalizer":
        fields["normalizer"] = {"type": "Lowercase"}
    elif what == "post_processor":
        fields["post_processor"] = None
    else:
        fields["model"]["ignore_merges"] = True
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"give the tokenizer.json of ModernBERT"):
        imported(tmp_path / "theirs", tmp_path / "run")


def test_a_causal_model_and_learned_positions_exclude_its_choices() -> None:
    with pytest.raises(UsageError, match=r"a causal model needs model\.positions learned"):
        ModelConfig(causal=True, norm_placement="pre", positions="rotary")
    with pytest.raises(UsageError, match=r"embedding_norm needs model\.norm_placement pre"):
        ModelConfig(embedding_norm=True)
    with pytest.raises(UsageError, match="position_initializer needs"):
        ModelConfig(positions="rotary", position_initializer="sinusoidal")
    assert Encoder(ModelConfig(vocab_size=9, hidden_size=12, num_attention_heads=3), 0).norm is None
