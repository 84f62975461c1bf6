"""Tasks with a RoBERTa: the layout of pairs and of words; a run is in test_families.py."""

import numpy as np
import pytest

from bert.core.errors import UsageError
from bert.text import byte_bpe
from bert.text.tokenization import BytePairTokenizer
from tasks import alignment, inputs
from tests.bert.convert.test_roberta import MERGES, TOKENS, VOCABULARY

G = "\u0120"  # a space


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BytePairTokenizer:
    path = tmp_path_factory.mktemp("bpe") / byte_bpe.NAME
    path.write_text(byte_bpe.text_of_tables(byte_bpe.Tables(VOCABULARY, MERGES, byte_bpe.ROBERTA), path))
    return BytePairTokenizer(path)


def shown(ids: np.ndarray, mask: np.ndarray) -> str:
    return " ".join(TOKENS[number] for number in ids[mask > 0])


def test_pairs_have_two_separators_and_one_segment(tokenizer: BytePairTokenizer) -> None:
    found = inputs.pairs(tokenizer, ["the river", "river", "the" * 9], ["the", None, "river" * 5], 13)
    rows = [shown(ids, mask) for ids, mask in zip(found["input_ids"], found["input_mask"], strict=True)]
    assert rows[:2] == [f"<s> the {G}river </s> </s> the </s>", "<s> river </s>"]
    assert rows[2] == "<s> the the the the the </s> </s> river river river river </s>"
    assert not found["segment_ids"].any() and (found["input_ids"][found["input_mask"] == 0] == 1).all()
    with pytest.raises(UsageError, match="the special tokens alone are 4"):
        inputs.pairs(tokenizer, ["the"], ["the"], 3)


def test_each_word_of_a_sentence_has_a_space_before_it(tokenizer: BytePairTokenizer) -> None:
    made = alignment.windows(tokenizer, [["the", "rivers", "the"]], 11, 4)
    assert shown(made.input_ids[0], made.input_mask[0]) == f"<s> {G}the {G}river s {G}the </s>"
    assert made.position.tolist() == [1, 2, 4]
