"""The tokenizer in a graph: the same ids and offsets as the one in Python."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert.core.errors import UsageError
from bert.export import tokenizer as exported
from bert.text import vocabulary
from bert.text.normalization import TokenizerConfig
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL

pytest.importorskip("tensorflow_text", reason="it is in the graph")

LETTERS = "abeixs\xdf\xe9\u03b1\u03c3\u03c2\u4e2d\u1100\u1161.,!\xb2\xbd"
VOCAB = [*SPECIAL, *dict.fromkeys(["the", "##s", *LETTERS, *(f"##{letter}" for letter in LETTERS)])]
RULES = {
    "lower": TokenizerConfig(),
    "cased": TokenizerConfig(lower_case=False, strip_accents=False),
    "accents": TokenizerConfig(strip_accents=False, longest_word=5),
    "chinese": TokenizerConfig(split_ideographs=False),
    "fast": TokenizerConfig(fast=True),
}
ODD = "aEs\xc9\xdf\u0130\u03a3\u03c3\u03c2\u0301\u0345\u4e2d\uf900\uac00\u200d\xad.,$ \xa0\n\x0b\0\ufffd\u2028\xb2"


@pytest.fixture(scope="module", params=RULES)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[WordPieceTokenizer, tf.Module]:
    folder = tmp_path_factory.mktemp("vocab")
    vocabulary.write(VOCAB, RULES[request.param], folder)
    tokenizer = WordPieceTokenizer(folder / "vocab.txt")
    made, module = exported.GraphTokenizer(tokenizer), tf.Module()
    texts = [tf.TensorSpec([None], tf.string)]
    module.ids = tf.function(lambda texts: made.tokenize(texts), texts, autograph=False)
    module.places = tf.function(lambda texts: made.tokenize_with_offsets(texts), texts, autograph=False)
    tf.saved_model.save(module, str(folder / "saved"))
    return tokenizer, tf.saved_model.load(str(folder / "saved"))


@pytest.mark.slow
@settings(max_examples=60)
@given(texts=st.lists(st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8")), max_size=30), max_size=5))
@example(texts=[])
@example(texts=["", " ", "Der Fu\xdf. \u039f\u03a3 \u03a3\u0301. a\u03a3\u200d", "ssssss the"])
@example(texts=["a\u03a3\U0001e4ecb a\u03a3\U00010d50 \U0001343f\u03a3a b\u0ece\u03a3 \U000105c9\ua7cb"])
@example(texts=["a\ue000b \U000f0000x\U0010fffd \U0010ffff \U0002b820\U0002b920 a\u2e52 a\u0898"])
def test_a_saved_graph_has_the_same_ids_and_offsets(
    texts: list[str], both: tuple[WordPieceTokenizer, tf.Module]
) -> None:
    tokenizer, graph = both
    given = tf.constant([text.encode() for text in texts], tf.string)
    tokens, flat = graph.places(given), graph.ids(given)
    ids, splits, begin, end = tokenizer.encode_with_offsets(texts)
    for found, expected in zip(
        (tokens[0].flat_values, tokens[0].row_splits, tokens[1], tokens[2], flat.flat_values, flat.row_splits),
        (ids, splits, begin, end, ids, splits),
        strict=True,
    ):
        np.testing.assert_array_equal(found.numpy(), expected)


def test_what_has_no_form_in_a_graph_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary.write([*VOCAB, "[E1]"], TokenizerConfig(special=("[E1]",)), tmp_path)
    with pytest.raises(UsageError, match=r"the special token \[E1\] has no operation in a graph"):
        exported.GraphTokenizer(WordPieceTokenizer(tmp_path / "vocab.txt"))
    vocabulary.write(VOCAB, TokenizerConfig(), tmp_path)
    monkeypatch.setattr(exported, "text", None)
    with pytest.raises(UsageError, match="needs tensorflow-text, which is not installed; install the version for"):
        exported.GraphTokenizer(WordPieceTokenizer(tmp_path / "vocab.txt"))
