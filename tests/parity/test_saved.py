"""An export that transformers loads and saves is imported again as the run that it was, of every family."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert.core.config import ModelConfig
from bert.runs import Run
from extensions.gpt import tokenizer_files
from extensions.tokenizers import byte_bpe
from tests import unigram
from tests.bert.convert.folders import same_bits, weights
from tests.extensions.tokenizers import bracketed
from tests.parity import test_families, test_gpt2, test_modernbert, test_roberta, test_xlm_roberta
from tests.parity.test_transformers import command, oracle, vocabulary

pytestmark = pytest.mark.parity

V = 97
LONG = "w" * 150  # a word that has tokens by Google's rules, and by BertTokenizer of transformers 5 none
TEXTS = ("The W3 w1, caf\u00e9 w12 cat the", LONG, "[MASK] <mask> \u4e2d  the")
BERT = {"vocab_size": V, "hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 28}
BERT |= {"max_position_embeddings": 19}
ROBERTA = {"vocab_size": len(test_roberta.VOCABULARY), "type_vocab_size": 1, "pad_token_id": 1}
XLM, MODERN = test_xlm_roberta.SIZES, {"vocab_size": bracketed.SIZE, "pad_token_id": 1, "cls_token_id": 2}
MODERN |= {"sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
GPT2 = {"vocab_size": len(test_gpt2.VOCABULARY), "eos_token_id": test_gpt2.VOCABULARY[byte_bpe.END]}
CLASSES = {"id2label": {0: "no", 1: "yes", 2: "perhaps"}}
WORDS = {"vocab_size": V, "max_position_embeddings": 23}
KINDS: dict[str, dict[str, Any]] = {
    "BertForPreTraining": BERT,
    "BertForTokenClassification": BERT | CLASSES,
    "MegatronBertForQuestionAnswering": BERT,
    "DistilBertForSequenceClassification": test_families.SIZES["distilbert"][0] | WORDS | CLASSES,
    "ElectraForMaskedLM": test_families.SIZES["electra"][0] | WORDS,
    "RobertaForMaskedLM": test_roberta.SIZES["small"] | ROBERTA,
    "XLMRobertaForSequenceClassification": XLM | {"type_vocab_size": 1, "pad_token_id": 1} | CLASSES,
    "CamembertForMaskedLM": XLM | {"type_vocab_size": 1, "pad_token_id": 1},
    "BertForMaskedLM": XLM,
    "ModernBertForMaskedLM": test_modernbert.SIZES["small"] | MODERN,
    "GPT2LMHeadModel": test_gpt2.SIZES["small"] | GPT2,
}


def write_tokenizer(kind: str, folder: Path) -> None:
    """Write a tokenizer of the family; that of word pieces is cased, and has a special token more."""
    if kind == "BertForMaskedLM" or kind.startswith(("XLM", "Camembert")):
        unigram.write(folder)
    elif kind.startswith("Roberta"):
        byte_bpe.save(test_roberta.VOCABULARY, test_roberta.MERGES, folder)
    elif kind.startswith("Modern"):
        bracketed.write(folder / "tokenizer.json")
    elif kind.startswith("GPT2"):
        tokenizer_files.write_tokenizer(byte_bpe.text_of(test_gpt2.VOCABULARY, test_gpt2.MERGES, folder), 19, folder)
    else:
        rules = {"do_lower_case": False, "max_input_chars_per_word": 200, "additional_special_tokens": ["w12"]}
        words = vocabulary(ModelConfig(vocab_size=V)).replace("w0\n", "w\n").replace("w2\n", "##w\n")
        (folder / "vocab.txt").write_text(words.replace("w3\n", "W3\n"))
        (folder / "tokenizer_config.json").write_text(json.dumps(rules))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As they came in in run/KIND, as these went out in out/KIND, as transformers saved these in saved/KIND."""
    root = tmp_path_factory.mktemp("saved")
    for kind in KINDS:
        (root / "theirs" / kind).mkdir(parents=True)
        write_tokenizer(kind, root / "theirs" / kind)
    oracle(*(("make", kind, root / "theirs" / kind, n, sizes) for n, (kind, sizes) in enumerate(KINDS.items())))
    for kind in KINDS:
        command("import", root / "theirs" / kind, root / "run" / kind)
        command("export", root / "run" / kind, root / "out" / kind)
    oracle(*(("saved", root / "out" / kind, root / "saved" / kind) for kind in KINDS))
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_what_they_saved_is_the_run_that_it_was(kind: str, saved: Path) -> None:
    run, again = saved / "run" / kind, saved / "again" / kind
    command("import", saved / "saved" / kind, again)
    same_bits(weights(run), weights(again))
    for name in ("bert_config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (run / name).exists() == (again / name).exists()
        assert not (run / name).exists() or (run / name).read_bytes() == (again / name).read_bytes(), name
    assert Run.open(run).head == Run.open(again).head


def test_their_tokens_are_ours_and_of_what_they_saved_the_same(saved: Path) -> None:
    kinds = [kind for kind in KINDS if not kind.startswith("GPT2")]  # a causal run has no rows
    given = [("tokens", saved / form / kind, text) for kind in kinds for form in ("out", "saved") for text in TEXTS]
    for (_, folder, text), ids in zip(given, oracle(*given), strict=True):
        tokenizer = Run.open(saved / "run" / folder.name).tokenizer
        parts = [tokenizer.encode([part])[0].tolist() for part in tokenizer.split_at_masks(text)]
        ours = [number for part in parts for number in (*part, tokenizer.mask_id)][:-1]
        assert ids[1:-1] == ours, f"{folder}: {text}"
