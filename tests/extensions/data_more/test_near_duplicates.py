"""Documents that resemble an earlier one are found; the oracle is the exact Jaccard similarity of their shingles."""

import itertools
import json
import random

import numpy as np
import pytest

from bert.core import manifest
from extensions.data_more import near_duplicates


def exact(one: str, other: str) -> float:
    def shingles(text: str) -> set[tuple[str, ...]]:
        words = text.lower().replace(".", "").split()
        return set(zip(*(words[place:] for place in range(5)), strict=False))

    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


def changed(words: list[str], edits: int, draw: random.Random) -> list[str]:
    words = list(words)
    for place in draw.sample(range(len(words)), edits):
        words[place] = f"other{draw.randrange(10**6)}"
    return words


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Families of texts: each an original of 60 to 230 words, and some with a few words changed."""
    draw, made = random.Random(11), []
    for _ in range(61):
        words = [f"word{draw.randrange(5000)}" for _ in range(draw.randint(60, 230))]
        family = [words] + [changed(words, draw.choice([1, 1, 2, 3, 9, 30]), draw) for _ in range(4)]
        made += [" ".join(one).capitalize() + "." for one in family]
    draw.shuffle(made)
    return made


def stored(tmp_path, texts):
    path = tmp_path / "signatures"
    path.write_bytes(b"".join(near_duplicates.signature(text).tobytes() for text in texts))
    return path


def test_signatures_estimate_the_exact_similarity(texts):
    signatures = np.array([near_duplicates.signature(text) for text in texts])
    for row, other in itertools.combinations(range(0, len(texts), 3), 2):
        similarity = exact(texts[row], texts[other])
        estimate = (signatures[row] == signatures[other]).mean()
        assert abs(estimate - similarity) < 5 * (max(similarity * (1 - similarity), 0.01) / 128) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.8, *(pytest.param(t, marks=pytest.mark.thorough) for t in (0.5, 0.7, 0.9))])
def test_what_resembles_an_earlier_document_is_found_and_nothing_else(tmp_path, texts, threshold):
    found = near_duplicates.find(stored(tmp_path, texts), threshold, np.ones(len(texts), bool))
    kept: list[str] = []
    for text, is_dropped in zip(texts, found, strict=True):
        closest = max((exact(text, other) for other in kept), default=0.0)
        margin = 4 * (closest * (1 - closest) / 128) ** 0.5
        assert is_dropped if closest - margin > threshold else not is_dropped if closest + margin < threshold else True
        if not is_dropped:
            kept.append(text)
    assert 0.1 < found.mean() < 0.8


def test_bands_catch_the_pairs_at_the_threshold():
    draw = np.random.default_rng(3)
    for threshold in (0.5, 0.8, 0.95):
        bands = near_duplicates.Bands.at(threshold)
        equal = np.asarray(draw.random((4000, bands.number, bands.rows)) < threshold)
        assert bands.number * bands.rows <= near_duplicates.HASHES and equal.all(axis=-1).any(axis=-1).mean() > 0.98


def test_documents_that_are_dropped_anyway_are_not_compared_with(tmp_path):
    texts = [" ".join(f"w{n}" for n in range(first, first + 80)) for first in (0, 0, 1, 500)]
    considered = np.array([False, True, True, True])
    assert near_duplicates.find(stored(tmp_path, texts), 0.8, considered).tolist() == [False, False, True, False]
    assert not near_duplicates.find(stored(tmp_path, texts), 0.8, np.zeros(4, bool)).any()


@pytest.mark.parametrize("texts", [["", " \n", "!?"], ["One two.", "One three.", "\u6cb3"]])
def test_short_texts_are_near_duplicates_only_if_their_words_are_equal(tmp_path, texts):
    assert not near_duplicates.find(stored(tmp_path, texts), 0.8, np.ones(3, bool)).any()
    again = [*texts[1:], "one, TWO", "two one"]
    found = near_duplicates.find(stored(tmp_path, ["One two.", *again]), 0.8, np.ones(5, bool))
    assert found.tolist()[3:] == [True, False]


def test_each_character_of_a_script_without_spaces_is_a_word(tmp_path):
    text = "\u6cb3\u6d41\u5165\u6d77\u5c71\u9ad8\u6c34\u957f\u65e5\u6708\u661f\u8fb0\u5929\u5730\u7384\u9ec4" * 3
    texts = [text + "".join(map(chr, range(0x5000, 0x5100))), "".join(map(chr, range(0x5000, 0x5100))) + text]
    assert near_duplicates.find(stored(tmp_path, texts), 0.8, np.ones(2, bool)).tolist() == [False, True]


def test_many_documents_with_equal_bands_stay_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(near_duplicates, "MOST_KEPT", 2)
    base = [f"w{n}" for n in range(300)]
    texts = [" ".join(base[: 230 + n] + [f"x{n}_{k}" for k in range(120)]) for n in range(40)]
    assert not near_duplicates.find(stored(tmp_path, texts), 0.95, np.ones(40, bool)).any()


@pytest.mark.slow
def test_the_stage_drops_and_counts_them_with_any_number_of_workers(tmp_path, stage, folder, texts, read, contents):
    parts = {f"part-{n:05d}.jsonl": [{"id": f"{n}:{k}", "text": texts[7 * n + k]} for k in range(7)] for n in range(40)}
    parts["part-00040.jsonl"] = [{"id": "a", "text": texts[3]}, {"id": "b", "text": "Short."}]
    source = folder("text", "text", parts)
    for workers in (1, 2):
        options = ("--source", source, "--output", tmp_path / f"out{workers}", "--workers", workers)
        code, lines = stage("documents", *options, "--near_duplicates", 0.8)
        assert code == 0
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")
    all_texts = [document["text"] for documents in parts.values() for document in documents]
    considered = np.array([text not in all_texts[:place] for place, text in enumerate(all_texts)])
    expected = near_duplicates.find(stored(tmp_path, all_texts), 0.8, considered)
    counts = dict(manifest.load(tmp_path / "out1").counts)
    assert counts["near duplicates"] == expected.sum() > 50 and counts["duplicates"] == 1 and counts["too short"] == 1
    ids = [document["id"] for documents in parts.values() for document in documents]
    kept = [one for one, is_near in zip(ids, expected, strict=True) if not is_near and one not in "ab"]
    assert [document["id"] for document in read(tmp_path / "out1")] == kept
    assert any(f"{counts['near duplicates']} near duplicates" in line for line in lines)
    assert stage("documents", "--source", source, "--output", tmp_path / "all", "--workers", 1)[0] == 0
    described = json.loads((tmp_path / "all/manifest.json").read_text())
    assert "near_duplicates" not in described["parameters"] and "near duplicates" not in described["counts"]
