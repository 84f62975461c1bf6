"""RoBERTa's tokenizer: characters of tokens, and rows."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text.tokenization import tokenizer_for
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.json_tokenizers import BytePairTokenizer
from tests.extensions.families.test_roberta import MERGES, TOKENS, VOCABULARY


@pytest.fixture(scope="module", params=[False, True], ids=["as it is", "with a space before it"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BytePairTokenizer:
    path = tmp_path_factory.mktemp("bpe") / TOKENIZER
    tables = byte_bpe.Tables(VOCABULARY, MERGES, byte_bpe.ROBERTA, request.param)
    path.write_text(byte_bpe.text_of_tables(tables, path), encoding="utf-8")
    return BytePairTokenizer(path)


@given(st.text(st.sampled_from("the rv\n\t\u3000\u00e9\u4e2d\U0001f680\ud800<>")))
def test_the_characters_of_the_tokens_are_the_text_in_order(tokenizer: BytePairTokenizer, text: str) -> None:
    ids, splits, begin, end = tokenizer.encode_with_offsets([text, "the", text])
    flat, rows = tokenizer.encode([text, "the", text])
    np.testing.assert_array_equal(ids, flat)
    np.testing.assert_array_equal(splits, rows)
    first, last = begin[: splits[1]], end[: splits[1]]
    assert (first < last).all() and (np.diff(first) >= 0).all() and (np.diff(last) >= 0).all()
    assert {place for b, e in zip(first, last, strict=True) for place in range(b, e)} >= {
        place for place, letter in enumerate(text) if not letter.isspace()
    }
    np.testing.assert_array_equal(begin[splits[2] :], first)


def test_special_strings_in_a_text_are_only_text(tokenizer: BytePairTokenizer) -> None:
    ids, _ = tokenizer.encode(["<s> the</s><mask><pad>"])
    special = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.unk_id}
    assert len(special) == 5 and not special & set(ids.tolist())


def test_a_row_ends_every_text_and_parts_a_pair_twice(tokenizer: BytePairTokenizer) -> None:
    the, river = np.array([VOCABULARY["the"]]), np.array([VOCABULARY["river"]] * 2)
    ids, segments, second = tokenizer.row(the, river)
    assert [TOKENS[number] for number in ids] == ["<s>", "the", "</s>", "</s>", "river", "river", "</s>"]
    assert second == 4 and segments.tolist() == [0] * 7 and ids.dtype == np.int32
    assert tokenizer.row(the).second == 3 == 1 + tokenizer.special_tokens(paired=False)
    assert tokenizer.special_tokens(paired=True) == 4


def test_a_model_of_another_size_or_tokenizer_is_refused(tokenizer: BytePairTokenizer, tmp_path: Path) -> None:
    path = tmp_path / TOKENIZER
    path.write_text(byte_bpe.text_of_tables(byte_bpe.Tables(VOCABULARY, MERGES, byte_bpe.ROBERTA), path))
    with pytest.raises(InputError, match="entries, but the model was trained with 99"):
        tokenizer_for(path, ModelConfig(vocab_size=99))
    path.write_text(byte_bpe.text_of({token: n for n, token in enumerate((*byte_bpe.BYTES, byte_bpe.END))}, [], path))
    with pytest.raises(InputError, match=r"the special token '<\|endoftext\|>'"):
        tokenizer_for(path, ModelConfig())
