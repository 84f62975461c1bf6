"""Questions with a RoBERTa: the layout of its windows; a run is in tests/tasks/test_families.py."""

import numpy as np
import pytest

from bert.core.errors import UsageError
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.json_tokenizers import BytePairTokenizer
from squad import features
from squad.config import Windowing
from squad.examples import Example
from tests.extensions.families.test_roberta import MERGES, TOKENS, VOCABULARY

PASSAGE = "the river  the caf\u00e9 river. the the \U0001f680river"
QUESTION = "the river"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BytePairTokenizer:
    path = tmp_path_factory.mktemp("bpe") / TOKENIZER
    path.write_text(byte_bpe.text_of_tables(byte_bpe.Tables(VOCABULARY, MERGES, byte_bpe.ROBERTA), path))
    return BytePairTokenizer(path)


def test_windows_have_two_separators_and_one_segment(tokenizer: BytePairTokenizer) -> None:
    passages = features.tokenize(tokenizer, [PASSAGE])
    question = Example(id="q", question=QUESTION, passage=0, answers=())
    made = features.windows(
        tokenizer, [question], passages, Windowing(max_seq_length=17, doc_stride=5, max_query_length=9)
    )
    room = 17 - 4 - 2
    assert len(made.inputs["input_ids"]) > 1 and not made.inputs["segment_ids"].any()
    for row, ids in enumerate(made.inputs["input_ids"]):
        tokens = [TOKENS[number] for number in ids[made.inputs["input_mask"][row] > 0]]
        assert tokens[:5] == ["<s>", "the", "\u0120river", "</s>", "</s>"] and tokens[-1] == "</s>"
        assert made.places.offset[row] == 5 and made.places.length[row] <= room
        first = made.places.first[row]
        expected = passages.ids[first : first + made.places.length[row]]
        np.testing.assert_array_equal(ids[5 : 5 + made.places.length[row]], expected)
        assert (ids[made.inputs["input_mask"][row] == 0] == 1).all()


@pytest.mark.parametrize(
    "answer", ["the", "river", "caf\u00e9", "caf\u00e9 river", "\U0001f680", "\U0001f680river", "river."]
)
def test_the_characters_of_an_answer_come_back(answer: str, tokenizer: BytePairTokenizer) -> None:
    tokens = features.tokenize(tokenizer, [PASSAGE])
    start = PASSAGE.index(answer)
    span = features.token_span(tokens.starts, tokens.ends, start, start + len(answer))
    assert span is not None
    assert PASSAGE[tokens.starts[span[0]] : tokens.ends[span[1]]] == answer


def test_a_window_without_room_for_the_passage_is_refused(tokenizer: BytePairTokenizer) -> None:
    windowing = Windowing(max_seq_length=6, doc_stride=1, max_query_length=2)
    with pytest.raises(UsageError, match="has no room for a passage beside a question of 2 tokens"):
        features.room(tokenizer, 7, windowing)
