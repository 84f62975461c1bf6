"""Unigram: the most probable pieces of each word, by a search of our own, and characters that are those of the text."""

import functools
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.errors import InputError
from extensions.tokenizers import unigram
from extensions.tokenizers.json_tokenizers import UnigramTokenizer
from tests.unigram import PIECES, SCORES, fields, write

SPACE = "\u2581"
POOL = "thecat \t\n\u3000\ufb01\u00bd\u00e9\u0301\u4e2d\u0e02\u0e33\u2581\U0001f600x"


def best(word: str) -> list[str]:
    """The pieces of a word by dynamic programming; a character without a piece is <unk>, and several in a row are one.

    The score of an unknown character is that of the least probable piece less 10, as in SentencePiece.
    """
    unknown = min(SCORES.values()) - 10
    found: list[tuple[float, list[str]]] = [(0.0, [])]
    for end in range(1, len(word) + 1):
        ways = []
        for begin in range(end):
            piece, (score, before) = word[begin:end], found[begin]
            if piece in SCORES:
                ways.append((score + SCORES[piece], [*before, piece]))
            elif end - begin == 1:
                ways.append((score + unknown, [*before, "<unk>"]))
        found.append(max(ways, key=lambda way: way[0]))
    joined: list[str] = []
    for piece in found[-1][1]:
        if piece != "<unk>" or joined[-1:] != ["<unk>"]:
            joined.append(piece)
    return joined


def texts() -> list[str]:
    random = np.random.default_rng(3)
    written = ["the cat", "", " ", "the  cats", "\ufb01cat \u00bd", "e\u0301 the", "<mask> </s>", "x\ud800y"]
    return written + ["".join(random.choice(list(POOL), random.integers(1, 20))) for _ in range(300)]


def test_pieces_are_the_most_probable_ones(tmp_path: Path) -> None:
    tokenizer = UnigramTokenizer(write(tmp_path))
    ids, splits = tokenizer.encode(texts())
    for number, text in enumerate(texts()):
        normalised = unicodedata.normalize("NFKC", text.replace("\ud800", "?")).replace(SPACE, " ")
        expected = [piece for word in normalised.split() for piece in best(SPACE + word)]
        assert [tokenizer.vocab[one] for one in ids[splits[number] : splits[number + 1]]] == expected, text


def test_random_words_are_pieces_that_texts_can_have(tmp_path: Path) -> None:
    """CamemBERT has three pieces besides the special ones that no text has."""
    unused = [["<s>NOTUSED", 0.0], ["</s>NOTUSED", 0.0], ["<unk>NOTUSED", -100]]
    tokenizer = UnigramTokenizer(write(tmp_path, lambda content: content["model"]["vocab"].extend(unused)))
    assert [tokenizer.vocab[number] for number in tokenizer.ordinary] == list(SCORES)


def test_characters_are_those_that_a_piece_came_from(tmp_path: Path) -> None:
    tokenizer = UnigramTokenizer(write(tmp_path))
    ids, splits, begin, end = tokenizer.encode_with_offsets(texts())
    assert np.array_equal(ids, tokenizer.encode(texts())[0])
    for number, text in enumerate(texts()):
        for place in range(splits[number], splits[number + 1]):
            piece, shown = tokenizer.vocab[ids[place]], text[begin[place] : end[place]]
            assert 0 <= begin[place] < end[place] <= len(text) and (
                not shown[:1].isspace() or text[begin[place] :].isspace()
            )
            letters = piece.replace(SPACE, "")
            if piece != "<unk>" and letters:
                assert letters in unicodedata.normalize("NFKC", shown), (text, piece, shown)
    text = "a \ufb01cat e\u0301t"
    ids, _, begin, end = tokenizer.encode_with_offsets([text])
    found = {tokenizer.vocab[one]: text[b:e] for one, b, e in zip(ids, begin, end, strict=True)}
    assert found["cat"] == "cat" and found["\u00e9"] == "e\u0301"


@pytest.mark.parametrize("character", ["\u094d", " "])
def test_characters_of_one_long_run_are_read_once(character: str) -> None:
    """Anybody can send such a text to a service. To read the run for each of its tokens would take hours."""

    class Text(str):
        read = 0

        def __getitem__(self, place: Any) -> str:
            Text.read += 1
            return super().__getitem__(place)

    count = 500
    spans = unigram._without_spaces([(place, place + 1) for place in range(count + 2)], Text(f"t{count * character}t"))
    assert Text.read < 9 * count
    if character == " ":  # the next character that is none
        expected = [[count + 1, count + 2]] * count
    else:  # all marks that follow
        expected = [[place, count + 1] for place in range(1, count + 1)]
    assert spans[1:-1].tolist() == expected


def test_rows_are_those_of_roberta_and_a_mask_takes_the_spaces_before_it(tmp_path: Path) -> None:
    tokenizer = UnigramTokenizer(write(tmp_path))
    begin, pad, close, unknown, mask = (PIECES.index(f"<{name}>") for name in ("s", "pad", "/s", "unk", "mask"))
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id) == (begin, pad, close)
    assert (tokenizer.unk_id, tokenizer.mask_id, tokenizer.mask) == (unknown, mask, "<mask>")
    row = tokenizer.row(np.array([7, 8]), np.array([9]))
    assert row.ids.tolist() == [begin, 7, 8, close, close, 9, close] and not row.segments.any() and row.second == 5
    assert tokenizer.split_at_masks("the <mask> cat<mask>.") == ["the", " cat", "."]
    kept = UnigramTokenizer(write(tmp_path / "kept", lambda content: content["added_tokens"][-1].update(lstrip=False)))
    assert kept.split_at_masks("the <mask> cat") == ["the ", " cat"]
    assert tokenizer.word(PIECES.index(f"{SPACE}the")) == " the"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["model"].update(type="Word"), "not a tokenizer.json that tokenizers reads"),
        (lambda c: c.update(model=c["model"] | {"unk_id": 0}), "has the id 0, not that of <unk>"),
        (lambda c: c["model"]["vocab"].append(["cat", -3.0]), "a piece is there twice"),
        (lambda c: c["pre_tokenizer"].update(prepend_scheme="first"), "puts no space before each text"),
        (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "the pre_tokenizer is not that of SentencePiece"),
        (lambda c: c.update(post_processor=None), "puts other special tokens around texts"),
        (lambda c: c["added_tokens"][0].update(content="[E1]"), "the added token '.E1.' "),
        (lambda c: c["added_tokens"][0].update(rstrip=True), "the added token '<s>' has lstrip, rstrip"),
    ],
)
def test_another_tokenizer_is_refused_by_name(change: Callable[[Any], object], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        UnigramTokenizer(write(tmp_path, change))


def test_an_older_form_and_cuts_at_white_space_have_the_same_ids(tmp_path: Path) -> None:
    plain = UnigramTokenizer(write(tmp_path / "plain"))
    meta = fields()["pre_tokenizer"]
    cut = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, meta]}
    older = {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}
    for name, step in {"cut": cut, "older": older}.items():
        change = functools.partial(dict.update, pre_tokenizer=step)
        other = UnigramTokenizer(write(tmp_path / name, change))
        same = [text for text in texts() if text == " ".join(text.split())]
        assert len(same) > 20 and np.array_equal(other.encode(same)[0], plain.encode(same)[0])
