"""XLM-RoBERTa, CamemBERT, and BERT with their words compute the same in transformers and here; so do their tokens.

As test_roberta.py: the weights and rows of XLM-RoBERTa are RoBERTa's.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.config import ModelConfig
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers.json_tokenizers import UnigramTokenizer
from tests.parity.test_transformers import Arrays, assert_equal, command, oracle, ours, theirs, to_run
from tests.unigram import PIECES, write

pytestmark = pytest.mark.parity

KINDS = {
    "XLMRobertaForMaskedLM": "XLMRoberta",
    "XLMRobertaForSequenceClassification": "XLMRoberta",
    "XLMRobertaForTokenClassification": "XLMRoberta",
    "XLMRobertaForQuestionAnswering": "XLMRoberta",
    "CamembertForMaskedLM": "Camembert",
    "BertForMaskedLM": "Bert",
}
SIZES: dict[str, Any] = {"hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 5, "intermediate_size": 28}
SIZES |= {"vocab_size": len(PIECES), "max_position_embeddings": 31}
TEXTS = ["the cat", "The c\u0301at's  \ufb01th\u00e9s \u00bd \U0001f469\u200d\U0001f680 \u4e2d\u6587\n the", "\ufeff a"]


def inputs() -> Arrays:
    random, lengths = np.random.default_rng(4), np.array([19, 15, 10, 3])[:, None]
    mask = np.arange(19)[None] < lengths
    ids = np.where(mask, random.integers(2, len(PIECES), mask.shape), 1)
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs in theirs/KIND, as they came in in run/KIND, as these went out in back/KIND."""
    root = tmp_path_factory.mktemp("xlm")
    made = []
    for number, (kind, family) in enumerate(KINDS.items()):
        write(root / "theirs" / kind)
        sizes = SIZES | ({} if family == "Bert" else {"type_vocab_size": 1, "pad_token_id": 1})
        if "SequenceC" in kind or "TokenC" in kind:
            sizes |= {"id2label": dict(enumerate(("no", "yes", "perhaps")))}
        made.append(("make", kind, root / "theirs" / kind, number, sizes))
    oracle(*made)
    for kind in KINDS:
        command("import", root / "theirs" / kind, root / "run" / kind)
        command("export", root / "run" / kind, root / "back" / kind)
    oracle(*(to_run(root / folder / kind, inputs()) for kind in KINDS for folder in ("theirs", "back")))
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_the_same_here_and_when_it_has_gone_out(kind: str, converted: Path) -> None:
    run, inside = converted / "run" / kind, inputs()["attention_mask"]
    config = ModelConfig.load(run / "bert_config.json")
    expected, back = theirs(converted / "theirs" / kind), theirs(converted / "back" / kind)
    found = ours(run, kind.replace(KINDS[kind], "Bert"), config, inputs())
    for values in (expected, found, back):  # padding has another position there
        for name, value in values.items():
            if name == "hidden_states":
                values[name] = np.asarray(value)[:, inside]
            elif np.shape(value)[:2] == inside.shape:
                values[name] = np.asarray(value)[inside]
    assert_equal(expected, found)
    for name, value in expected.items():
        np.testing.assert_array_equal(value, back[name])
    names = {"Camembert": "XLMRoberta"}  # the same function
    assert json.loads((converted / "back" / kind / "config.json").read_text())["architectures"] == [
        kind.replace(KINDS[kind], names.get(KINDS[kind], KINDS[kind]))
    ]


def test_tokens_and_characters_are_theirs(converted: Path) -> None:
    tokenizer = UnigramTokenizer(converted / "run/XLMRobertaForMaskedLM" / TOKENIZER)
    pairs = list(itertools.permutations(TEXTS, 2))
    for folder in (converted / "theirs/XLMRobertaForMaskedLM", converted / "back/XLMRobertaForMaskedLM"):
        found = oracle(*(("pair", folder, *pair) for pair in pairs), ("tokens", folder, "the <mask> cat"))
        for (first, second), (ids, spans) in zip(pairs, found, strict=False):
            flat, splits, begin, end = tokenizer.encode_with_offsets([first, second])
            row = tokenizer.row(flat[: splits[1]], flat[splits[1] :])
            assert row.ids.tolist() == ids and not row.segments.any()
            places = [*range(1, 1 + splits[1]), *range(row.second, len(ids) - 1)]
            for number, place in enumerate(places):
                text = first if number < splits[1] else second
                theirs_of, ours_of = text[slice(*spans[place])].strip(), text[begin[number] : end[number]]
                assert theirs_of in ours_of  # and the marks behind the last character
        one, other = (tokenizer.encode([part])[0] for part in tokenizer.split_at_masks("the <mask> cat"))
        assert tokenizer.row(np.concatenate([one, [tokenizer.mask_id], other])).ids.tolist() == found[-1]
