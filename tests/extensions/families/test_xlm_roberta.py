"""XLM-RoBERTa comes in and goes out as it was, finds answers in the characters of its text, and is refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert import fill_mask
from bert.convert import __main__ as convert
from bert.core.errors import InputError
from bert.masked_words import MaskedWords
from bert.runs import Run
from extensions.families import xlm_roberta
from tests.bert.convert.equations import imported
from tests.bert.convert.folders import same_bits, weights
from tests.extensions.families import test_roberta as roberta
from tests.unigram import PIECES, write

CASES = {"XLMRobertaForMaskedLM": "xlm-roberta", "CamembertForMaskedLM": "camembert"}


def a_folder(folder: Path, kind: str = "XLMRobertaForMaskedLM") -> dict[str, np.ndarray]:
    roberta.a_folder(folder, "RobertaForMaskedLM", architectures=[kind], model_type=CASES[kind], vocab_size=len(PIECES))
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    made = load_file(folder / "model.safetensors")
    for name in ("roberta.embeddings.word_embeddings.weight", "lm_head.bias"):
        made[name] = made[name][: len(PIECES)]
    save_file(made, folder / "model.safetensors")
    write(folder)
    return made


@pytest.mark.parametrize("kind", CASES)
def test_it_comes_back_with_its_bits_and_its_tokenizer(kind: str, tmp_path: Path) -> None:
    before = a_folder(tmp_path / "theirs", kind)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    before["roberta.embeddings.position_embeddings.weight"][:2] = 0  # nothing reads them
    same_bits(before, load_file(tmp_path / "back/model.safetensors"))
    config = json.loads((tmp_path / "back/config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("xlm-roberta", ["XLMRobertaForMaskedLM"])
    again = imported(tmp_path / "back", tmp_path / "again")
    same_bits(weights(run), weights(again))
    assert (run / "tokenizer.json").read_bytes() == (again / "tokenizer.json").read_bytes()


def test_words_for_a_mask_and_answers_in_the_text(tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    model = MaskedWords(Run.open(run))
    row = fill_mask.encode(model, "the <mask> cat", "text")
    assert [PIECES[number] for number in row] == ["<s>", "\u2581the", "<mask>", "\u2581cat", "</s>"]
    text = "the  \ufb01cat"
    ids, _, begin, end = model.tokenizer.encode_with_offsets([text])
    assert (PIECES[ids[-1]], text[begin[-1] : end[-1]]) == ("cat", "cat")


def test_a_file_of_sentencepiece_alone_is_refused_with_the_way_to_a_tokenizer(tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer.json").rename(tmp_path / "theirs/sentencepiece.bpe.model")
    with pytest.raises(InputError, match=r"sentencepiece\.bpe\.model: SentencePiece's own file is not read; make"):
        imported(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tokenizer_class": "XLMRobertaTokenizer"}, "has steps that transformers 5 leaves out for a XLMRobertaTok"),
        ({}, "has steps that transformers 5 leaves out"),
        ({"tokenizer_class": "T5TokenizerFast"}, "tokenizer_class is T5Tokenizer; supported: XLMRoberta, Camembert"),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]"}, "cls_token is '.CLS.'; supported: <s>"),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False}, "add_prefix_space is False"),
    ],
)
def test_settings_that_make_other_tokens_are_refused(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=said):
        imported(tmp_path / "theirs", tmp_path / "run")


def test_the_steps_of_the_published_files_are_those_of_transformers() -> None:
    meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    cuts = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, meta]}
    table = {"type": "Precompiled", "precompiled_charsmap": "AA=="}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    several = {"type": "Sequence", "normalizers": [table, spaces]}
    for normalizer in (None, table, several):
        assert xlm_roberta._is_own({"normalizer": normalizer, "pre_tokenizer": cuts})
        assert not xlm_roberta._is_own({"normalizer": normalizer, "pre_tokenizer": meta})
    lower = {"type": "Sequence", "normalizers": [table, {"type": "Lowercase"}]}
    for other in ({"type": "NFKC"}, lower, {**spaces, "content": "x"}):
        assert not xlm_roberta._is_own({"normalizer": other, "pre_tokenizer": cuts})
