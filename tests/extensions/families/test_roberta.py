"""RoBERTa comes in, computes what its equations say, is used by every command, and goes out as it was."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file

from bert import encode, fill_mask, masked_evaluation
from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.masked_words import MaskedWords
from bert.model.encoder import variables
from bert.model.heads import Pooler
from bert.runs import Run
from bert.text.tokenization import tokenizer_for
from bert.training import checkpoint
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.json_tokenizers import BytePairTokenizer
from tests.bert.convert.equations import CLASSES, D, Equations, a_dense, a_norm, encoder, imported, random_tensors
from tests.bert.convert.folders import Values, same_bits, weights

G = "\u0120"  # a space
WORDS = ["th", "the", f"{G}the", "ri", "ver", "river", f"{G}river", f"{G}r"]
MERGES = [("t", "h"), ("th", "e"), (G, "the"), ("r", "i"), ("v", "er"), ("ri", "ver"), (G, "river"), (G, "r")]
MERGES.insert(4, ("e", "r"))
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *byte_bpe.BYTES, "er", *WORDS, "<mask>"]
VOCABULARY = {token: number for number, token in enumerate(TOKENS)}
SIZES = {
    "vocab_size": len(TOKENS),
    "hidden_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "intermediate_size": 28,
    "max_position_embeddings": 43,
    "type_vocab_size": 1,
}
V, EPSILON = len(TOKENS), 1e-5


HEADS = {  # class -> tensors beside the encoder, as transformers 5.23 writes them
    "RobertaModel": a_dense("roberta.pooler.dense", D),
    "RobertaForMaskedLM": a_dense("lm_head.dense", D) | a_norm("lm_head.layer_norm") | {"lm_head.bias": (V,)},
    "RobertaForQuestionAnswering": a_dense("qa_outputs", 2),
    "RobertaForSequenceClassification": a_dense("classifier.dense", D) | a_dense("classifier.out_proj", 3),
    "RobertaForMultipleChoice": a_dense("roberta.pooler.dense", D) | a_dense("classifier", 1),
    "RobertaForTokenClassification": a_dense("classifier", 3),
}


def tensors(kind: str) -> Values:
    """Random tensors of a model with 43 rows of positions, two of which nothing reads."""
    tables = {"word": V, "position": 43, "token_type": 1}
    return random_tensors(encoder("roberta", tables) | HEADS[kind])


def a_folder(folder: Path, kind: str = "RobertaForMaskedLM", **changes: Any) -> Values:
    """A folder as transformers writes it; changes: of config.json."""
    folder.mkdir(parents=True)
    fields = SIZES | {"model_type": "roberta", "architectures": [kind], "layer_norm_eps": EPSILON, "pad_token_id": 1}
    fields |= {"id2label": {str(number): name for number, name in enumerate(CLASSES)}}
    (folder / "config.json").write_text(json.dumps(fields | changes))
    byte_bpe.save(VOCABULARY, MERGES, folder)
    made = tensors(kind)
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    return made


def states(given: Values, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return Equations("roberta", given).states(ids, mask, np.zeros_like(ids))


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEADS)
def test_every_class_comes_back_with_its_bits(kind: str, tmp_path: Path) -> None:
    before = a_folder(tmp_path / "theirs", kind)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    after = load_file(tmp_path / "back/model.safetensors")
    prefix = "roberta." if kind == "RobertaModel" else ""
    before = {name.removeprefix(prefix): value for name, value in before.items()}
    position = f"{'' if prefix else 'roberta.'}embeddings.position_embeddings.weight"
    before[position][:2] = 0  # nothing reads them
    same_bits(before, after)
    config = json.loads((tmp_path / "back/config.json").read_text())
    assert config["architectures"] == [kind] and config["max_position_embeddings"] == 43
    assert (config["layer_norm_eps"], config["pad_token_id"], config["bos_token_id"]) == (EPSILON, 1, 0)
    again = imported(tmp_path / "back", tmp_path / "again")
    same_bits(weights(run), weights(again))
    assert (run / "tokenizer.json").read_bytes() == (again / "tokenizer.json").read_bytes()


def test_the_classifier_has_a_dense_layer_of_its_own_and_an_unused_pooler_is_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "RobertaForSequenceClassification"
    given = a_folder(tmp_path / "theirs", kind)
    more = {
        "roberta.pooler.dense.weight": np.ones((D, D), np.float32),
        "roberta.pooler.dense.bias": np.ones(D, np.float32),
    }
    save_file(given | more, tmp_path / "theirs/model.safetensors")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    assert "ignored tensors: roberta.pooler.dense.bias, roberta.pooler.dense.weight" in capsys.readouterr().err
    pooler = Pooler(ModelConfig.load(run / "bert_config.json"), 0)
    checkpoint.load_weights(run, variables(pooler))
    hidden = np.random.default_rng(7).normal(size=(4, 3, D)).astype(np.float32)
    expected = np.tanh(hidden[:, 0] @ given["classifier.dense.weight"].T + given["classifier.dense.bias"])
    np.testing.assert_allclose(pooler(hidden), expected, atol=1e-5)
    np.testing.assert_array_equal(weights(run)["classifier/kernel"], given["classifier.out_proj.weight"].T)
    assert list(json.loads((run / "config.json").read_text())["id2label"].values()) == list(CLASSES)


def test_names_without_a_prefix_buffers_and_tied_copies_are_understood(tmp_path: Path) -> None:
    given = a_folder(tmp_path / "theirs")
    copies = {"lm_head.decoder.weight": given["roberta.embeddings.word_embeddings.weight"]}
    copies |= {"lm_head.decoder.bias": given["lm_head.bias"], "roberta.embeddings.position_ids": np.arange(43)[None]}
    save_file(given | copies, tmp_path / "theirs/model.safetensors")
    one = imported(tmp_path / "theirs", tmp_path / "one")
    plain = {name.removeprefix("roberta."): value for name, value in given.items()}
    save_file(plain, tmp_path / "theirs/model.safetensors")
    same_bits(weights(one), weights(imported(tmp_path / "theirs", tmp_path / "two")))


@pytest.mark.slow
def test_features_are_those_of_begin_text_end(tmp_path: Path) -> None:
    given = a_folder(tmp_path / "theirs")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    assert ModelConfig.load(run / "bert_config.json").max_position_embeddings == 41
    (tmp_path / "texts").write_text(f"the river\n{'the river' * 9}\n", encoding="utf-8")
    options = ["--input", str(tmp_path / "texts"), "--output", str(tmp_path / "out.jsonl"), "--pool", "none"]
    encode.main(["--model", str(run), *options])
    short, long = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert short["tokens"] == ["<s>", "the", f"{G}river", "</s>"]
    for line in (short, long):  # the short one has padding behind it
        ids = np.array([[VOCABULARY[token] for token in line["tokens"]]])
        expected = states(given, ids, np.ones_like(ids))
        np.testing.assert_allclose(np.array(line["features"])[:, 0], expected[0], atol=3e-5)


def log_probabilities(given: Values, ids: np.ndarray) -> np.ndarray:
    """log p [T, V] at every position of one row, after RobertaLMHead."""
    logits = Equations("roberta", given).logits(states(given, ids[None], np.ones_like(ids)[None])[0], "ForMaskedLM")
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


@pytest.mark.slow
def test_a_mask_stands_for_a_word_and_the_space_before_it(tmp_path: Path) -> None:
    given = a_folder(tmp_path / "theirs")
    model = MaskedWords(Run.open(imported(tmp_path / "theirs", tmp_path / "run")))
    row = fill_mask.encode(model, "the <mask> the", "text")
    assert [TOKENS[number] for number in row] == ["<s>", "the", "<mask>", f"{G}the", "</s>"]
    (found,) = fill_mask.fill(model, ["the <mask> the"], 3, ["text"])
    expected = log_probabilities(given, row)[2]
    best = np.argsort(-expected)[:3]
    (choices,) = found["masks"]
    np.testing.assert_allclose([choice["probability"] for choice in choices], np.exp(expected[best]), rtol=1e-3)
    assert model.tokenizer.word(VOCABULARY[f"{G}river"]) == " river"
    with pytest.raises(InputError, match="no <mask> in the text"):
        fill_mask.encode(model, "the [MASK]", "the text")


@pytest.mark.slow
def test_the_pseudo_perplexity_masks_each_token(tmp_path: Path) -> None:
    given = a_folder(tmp_path / "theirs")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    (tmp_path / "texts").write_text("the river\n", encoding="utf-8")
    found = masked_evaluation.of_texts(Run.open(run), tmp_path / "texts", 32, "float32")
    ids = np.array([VOCABULARY[token] for token in ("<s>", "the", f"{G}river", "</s>")])
    total = 0.0
    for place in (1, 2):
        masked = ids.copy()
        masked[place] = VOCABULARY["<mask>"]
        total += log_probabilities(given, masked)[place, ids[place]]
    assert found["tokens"] == 2 and found["pseudo_perplexity"] == pytest.approx(math.exp(-total / 2), rel=1e-4)


def test_a_prefix_of_the_tokenizer_is_kept(tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").write_text('{"add_prefix_space": true}')
    run = imported(tmp_path / "theirs", tmp_path / "run")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    assert json.loads((tmp_path / "back/tokenizer_config.json").read_text())["add_prefix_space"] is True
    for folder in (run, imported(tmp_path / "back", tmp_path / "again")):
        tokenizer = tokenizer_for(folder / "tokenizer.json", ModelConfig.load(folder / "bert_config.json"))
        ids, splits, begin, end = tokenizer.encode_with_offsets(["the river", " the", ""])
        assert [TOKENS[number] for number in ids] == [f"{G}the", f"{G}river", f"{G}the"]
        assert (splits.tolist(), begin.tolist(), end.tolist()) == ([0, 2, 3, 3], [0, 4, 1], [3, 9, 4])


def test_one_output_is_a_number_and_classes_of_which_several_can_be_right_are_labels(tmp_path: Path) -> None:
    kind = "RobertaForSequenceClassification"
    given = a_folder(tmp_path / "number", kind, id2label={"0": "LABEL_0"}, problem_type="regression")
    given |= {
        "classifier.out_proj.weight": np.ones((1, D), np.float32),
        "classifier.out_proj.bias": np.ones(1, np.float32),
    }
    save_file(given, tmp_path / "number/model.safetensors")
    run = imported(tmp_path / "number", tmp_path / "one")
    assert json.loads((run / "config.json").read_text())["regression"] is True
    a_folder(tmp_path / "several", kind, problem_type="multi_label_classification")
    run = imported(tmp_path / "several", tmp_path / "two")
    facts = json.loads((run / "config.json").read_text())
    assert facts["head"] == "multilabel" and not facts["imported"]["ignored"]
    assert {"pooler/kernel", "multilabel/kernel"} <= {*weights(run)}


@pytest.mark.parametrize("strips", [True, False])
def test_a_mask_takes_the_spaces_before_it_if_its_file_says_so(strips: bool, tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs")
    tables = byte_bpe.Tables(VOCABULARY, MERGES, byte_bpe.ROBERTA, mask_strips=strips)
    path = tmp_path / "theirs/tokenizer.json"
    path.write_text(byte_bpe.text_of_tables(tables, tmp_path), encoding="utf-8")
    oracle = tokenizers.Tokenizer.from_file(str(path))  # reads special tokens in texts, which ours does not
    ours = BytePairTokenizer(imported(tmp_path / "theirs", tmp_path / "run") / "tokenizer.json")
    text = "the  <mask> the<mask>"
    parts = [list(part) for part in map(lambda part: ours.encode([part])[0], ours.split_at_masks(text))]
    joined = [number for part in parts for number in (*part, ours.mask_id)][:-1]
    assert joined == oracle.encode(text, add_special_tokens=False).ids
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    settings = json.loads((tmp_path / "back/tokenizer_config.json").read_text())
    assert settings["mask_token"]["lstrip"] is strips
    assert byte_bpe.read_tables(tmp_path / "back/tokenizer.json", byte_bpe.ROBERTA).mask_strips is strips
