"""RoBERTa computes the same in transformers and here, for models that come in and that go out again; so do its tokens.

As test_transformers.py, which has the oracle.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.config import ModelConfig
from bert.text.vocabulary import TOKENIZER
from data import tfrecords
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.json_tokenizers import BytePairTokenizer
from tests.parity.test_transformers import Arrays, assert_equal, command, oracle, ours, theirs, to_run

pytestmark = pytest.mark.parity

G = "\u0120"  # a space
MERGES = [("t", "h"), ("th", "e"), (G, "the"), ("c", "a"), ("ca", "t"), (G, "cat"), (G, "t"), (G, G)]
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *byte_bpe.BYTES, *("".join(merge) for merge in MERGES), "<mask>"]
VOCABULARY = {token: number for number, token in enumerate(TOKENS)}
KINDS = (
    "RobertaModel",
    "RobertaForMaskedLM",
    "RobertaForQuestionAnswering",
    "RobertaForSequenceClassification",
    "RobertaForMultipleChoice",
    "RobertaForTokenClassification",
)
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "hidden_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "intermediate_size": 28,
        "max_position_embeddings": 21,
        "layer_norm_eps": 1e-5,
    },
    "deep": {
        "hidden_size": 36,
        "num_hidden_layers": 11,
        "num_attention_heads": 3,
        "intermediate_size": 130,
        "max_position_embeddings": 66,
        "layer_norm_eps": 1e-6,
    },
}
TEXTS = ["the cat", "The cat's  12 th\u00e9s \U0001f469\u200d\U0001f680 \u4e2d\u6587\n the"]


def inputs() -> Arrays:
    """Random ids other than that of padding, which takes no position there, and padding."""
    random, lengths = np.random.default_rng(4), np.array([19, 15, 10, 3])[:, None]
    mask = np.arange(19)[None] < lengths
    ids = np.where(mask, random.integers(2, len(VOCABULARY), mask.shape), 1)
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs in theirs/KIND/SIZE, as they came in in run/KIND/SIZE, as these went out in back/KIND/SIZE."""
    root = tmp_path_factory.mktemp("roberta")
    places = [Path(kind) / size for kind, size in itertools.product(KINDS, SIZES)]
    made = []
    for number, place in enumerate(places):
        (root / "theirs" / place).mkdir(parents=True)
        byte_bpe.save(VOCABULARY, MERGES, root / "theirs" / place)
        sizes = SIZES[place.name] | {"vocab_size": len(VOCABULARY), "type_vocab_size": 1, "pad_token_id": 1}
        classes = {"id2label": dict(enumerate(("no", "yes", "perhaps")))}
        sizes |= classes if "SequenceC" in str(place) or "TokenC" in str(place) else {}
        made.append(("make", str(place.parent), root / "theirs" / place, number, sizes))
    oracle(*made)
    for place in places:
        command("import", root / "theirs" / place, root / "run" / place)
        command("export", root / "run" / place, root / "back" / place)
    oracle(*(job(root / folder / place) for place in places for folder in ("theirs", "back")))
    return root


def job(folder: Path) -> tuple[str, Path, Path, Path]:
    given = inputs()
    if "RobertaForMultipleChoice" in folder.parts:  # one question, whose choices are the rows
        given = {name: value[None] for name, value in given.items()}
    return to_run(folder, given)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_in_computes_the_same_here(kind: str, size: str, converted: Path) -> None:
    run = converted / "run" / kind / size
    config = ModelConfig.load(run / "bert_config.json")
    assert config.max_position_embeddings == SIZES[size]["max_position_embeddings"] - 2
    expected, found = (
        theirs(converted / "theirs" / kind / size),
        ours(run, kind.replace("Roberta", "Bert"), config, inputs()),
    )
    inside = inputs()["attention_mask"]
    for name, value in expected.items():  # padding has another position there
        if name == "hidden_states":
            expected[name], found[name] = value[:, inside], found[name][:, inside]
        elif value.shape[:2] == inside.shape:
            expected[name], found[name] = value[inside], np.asarray(found[name])[inside]
    assert_equal(expected, found)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_out_computes_the_same_there(kind: str, size: str, converted: Path) -> None:
    before, after = (theirs(converted / folder / kind / size) for folder in ("theirs", "back"))
    before, after = (
        {name: value for name, value in found.items() if "hidden" not in name} for found in (before, after)
    )
    for name, value in before.items():
        inside = inputs()["attention_mask"] if value.shape[:2] == inputs()["input_ids"].shape else slice(None)
        np.testing.assert_array_equal(value[inside], after[name][inside])


def test_tokens_and_characters_are_theirs(converted: Path) -> None:
    folder, run = converted / "back/RobertaForMaskedLM/small", converted / "run/RobertaForMaskedLM/small"
    tokenizer = BytePairTokenizer(run / TOKENIZER)
    for only_tables in (False, True):
        if only_tables:  # as the published models have them
            (folder / TOKENIZER).unlink()
        found = oracle(*(("pair", folder, first, second) for first, second in itertools.permutations(TEXTS)))
        for (first, second), (ids, spans) in zip(itertools.permutations(TEXTS), found, strict=True):
            flat, splits, begin, end = tokenizer.encode_with_offsets([first, second])
            row = tokenizer.row(flat[: splits[1]], flat[splits[1] :])
            assert row.ids.tolist() == ids and not row.segments.any()
            places = [*range(1, 1 + splits[1]), *range(row.second, len(ids) - 1)]
            for number, place in enumerate(places):  # of a token of spaces alone, theirs are no characters
                if TOKENS[flat[number]].strip(G) and spans[place][0] < spans[place][1]:
                    assert [begin[number], end[number]] == spans[place]


def test_a_masked_text_and_a_sentence_of_words_have_their_tokens(converted: Path) -> None:
    folder, run = converted / "back/RobertaForMaskedLM/deep", converted / "run/RobertaForMaskedLM/deep"
    tokenizer = BytePairTokenizer(run / TOKENIZER)
    masked, words = "the <mask> cat", ["the", "cat", "'s", "th\u00e9"]
    theirs_masked, theirs_words = oracle(("tokens", folder, masked), ("tagged", folder, words))
    one, other = (tokenizer.encode([part])[0] for part in tokenizer.split_at_masks(masked))
    assert tokenizer.row(np.concatenate([one, [tokenizer.mask_id], other])).ids.tolist() == theirs_masked
    assert tokenizer.row(tokenizer.encode_words(words)[0]).ids.tolist() == theirs_words
    assert json.loads((folder / "config.json").read_text())["model_type"] == "roberta"


def test_a_document_of_records_has_the_tokens_of_its_sentences_together(converted: Path) -> None:
    sentences = [TEXTS[1], TEXTS[0], "\u00e9t\u00e9 the", TEXTS[1]]
    folder, run = converted / "back/RobertaForMaskedLM/deep", converted / "run/RobertaForMaskedLM/deep"
    (expected,) = oracle(("tokens", folder, " ".join(sentences)))
    tokenizer = BytePairTokenizer(run / TOKENIZER)
    documents, _ = tfrecords.tokenize([sentences], tokenizer)
    assert tokenizer.row(documents.ids).ids.tolist() == expected
