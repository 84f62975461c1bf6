"""Tasks with a RoBERTa: the layout of pairs and of words; a run is in test_families.py."""

from pathlib import Path

import numpy as np
import pytest

from bert.core.errors import UsageError
from bert.runs import Run
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.json_tokenizers import BytePairTokenizer
from tasks import alignment, inputs, train
from tests.bert.convert.equations import imported
from tests.extensions.families import test_modernbert as modernbert
from tests.extensions.families.test_roberta import MERGES, TOKENS, VOCABULARY

G = "\u0120"  # a space


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BytePairTokenizer:
    path = tmp_path_factory.mktemp("bpe") / TOKENIZER
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


@pytest.mark.slow
def test_a_model_that_read_words_without_spaces_is_trained_further_so(tmp_path: Path) -> None:
    modernbert.a_folder(tmp_path / "theirs", "ForTokenClassification", id2label={"0": "O", "1": "B-X", "2": "I-X"})
    imported(tmp_path / "theirs", tmp_path / "run")
    (tmp_path / "train.conll").write_text("the O\ncat B-X\nthe I-X\n\n" * 8)
    command = ["tag", "--data.train", tmp_path / "train.conll", "--data.length", 16, "--length.epochs", 1]
    flags = ["--init.checkpoint", tmp_path / "run", "--run.directory", tmp_path / "tuned"]
    train.main([str(word) for word in (*command, *flags)])
    first, second = (Run.open(tmp_path / name) for name in ("run", "tuned"))
    assert first.head == second.head and second.head is not None and not second.head.spaced
    words = ["the", "cat"]
    np.testing.assert_array_equal(second.tokenizer.encode_words(words)[0], first.tokenizer.encode_words(words)[0])
    assert second.tokenizer.vocab[second.tokenizer.encode_words(words)[0][0]] == "the"
