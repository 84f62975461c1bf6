"""Sentences have the scores of one pass for each token, files are read as published, and accuracy counts ties half."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.errors import InputError, UsageError
from bert.masked_words import MaskedWords
from bert.runs import Run
from extensions.gpt import trained
from extensions.minimal_pairs import minimal_pairs as command
from extensions.minimal_pairs import pseudo_likelihood, reading, scoring
from extensions.minimal_pairs.accuracy import Accuracy
from extensions.minimal_pairs.reading import Pair
from tests.bert.test_evaluate import log_probabilities, tokens_of
from tests.bert.test_evaluate import write_run as write_masked_run
from tests.extensions.gpt.runs import write_run
from tests.extensions.gpt.test_evaluate_lm import POSITIONS, losses

SENTENCES = ["the cats sees a dog .", "the cats sees dogs .", "a bee", "cat"]
SENTENCES += ["the ant sees bees .", "the bee sees bees ."]
PIECES = ["cats", "dogs", "bees", "ants"]  # of two tokens each


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masked_run(tmp_path_factory.mktemp("pairs") / "run")


def pairs(*sentences: str) -> list[Pair]:
    """Pairs of consecutive sentences, the good one first."""
    both = zip(sentences[::2], sentences[1::2], strict=True)
    return [Pair(good=good, bad=bad, paradigm="p", where=f"f: line {n}") for n, (good, bad) in enumerate(both)]


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def line(**fields: Any) -> str:
    return json.dumps({"sentence_good": "the cat", "sentence_bad": "the the", "pairID": "0"} | fields) + "\n"


def one_at_a_time(run: Path, text: str, word_l2r: bool = False) -> float:
    """The sum of log p of each token, by a pass of the training model with nothing but this copy of the text."""
    row, mask, total = tokens_of(run, text), 4, 0.0
    vocabulary = (run / "vocab.txt").read_text().split("\n")
    for place in range(1, len(row) - 1):
        masked = [*row[:place], mask, *row[place + 1 :]]
        behind = place + 1
        while word_l2r and vocabulary[row[behind]].startswith("##"):
            masked[behind] = mask
            behind += 1
        total += log_probabilities(run, masked, place)[row[place]]
    return total


@pytest.mark.slow
@pytest.mark.parametrize(("method", "batch"), [("masked", 1), ("masked", 64), ("word_l2r", 3)])
def test_a_score_is_the_sum_over_tokens_each_predicted_in_a_pass_of_its_own(
    run: Path, method: scoring.Method, batch: int
) -> None:
    found = scoring.score(run, pairs(*SENTENCES), method, batch, "float32")
    expected = np.array([one_at_a_time(run, text, method == "word_l2r") for text in SENTENCES])
    np.testing.assert_allclose(found.good, expected[::2], atol=1e-4)
    np.testing.assert_allclose(found.bad, expected[1::2], atol=1e-4)
    others = [one_at_a_time(run, text, method == "masked") for text in SENTENCES]
    assert [text for text, a, b in zip(SENTENCES, expected, others, strict=True) if abs(a - b) > 1e-3] == [
        text for text in SENTENCES if any(word in text for word in PIECES)
    ]


@pytest.mark.slow
def test_without_masks_a_score_is_the_mean_over_all_tokens_of_one_pass(run: Path) -> None:
    found = scoring.score(run, pairs(*SENTENCES), "unmasked", 5, "float32")
    expected = []
    for row in (tokens_of(run, text) for text in SENTENCES):
        expected.append(np.mean([log_probabilities(run, row, place)[token] for place, token in enumerate(row)]))
    np.testing.assert_allclose(np.stack([found.good, found.bad], axis=1).ravel(), expected, atol=1e-4)


@pytest.mark.slow
def test_a_causal_score_is_the_log_likelihood_after_the_end_of_a_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    texts = ["she saw the ship", "she saw ship the", "one", "a longer one, of other words"]
    found = scoring.score(folder, pairs(*texts), "auto", 3, "float32")
    tokenizer = trained.load(folder).tokenizer
    expected = [-losses(folder, [tokenizer.end, *tokenizer.encode(text)], POSITIONS, 1).sum() for text in texts]
    np.testing.assert_allclose(np.stack([found.good, found.bad], axis=1).ravel(), expected, atol=1e-3)
    assert found.method == "causal" and found.unknown is None
    with pytest.raises(UsageError, match="is a causal language model; give --score causal"):
        scoring.score(folder, pairs(*texts), "masked", 3, "float32")


def test_the_copy_that_two_sentences_share_is_computed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, computed = MaskedWords(Run.open(run), batch=1), []
    ask = model.ask

    def noted(ids: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        computed.append(ids)
        return ask(ids, *rest)

    monkeypatch.setattr(model, "ask", noted)
    rows = [np.array(tokens_of(run, text), np.int32) for text in ("the ant sees .", "the bee sees .")]
    found = dict(pseudo_likelihood.log_probabilities(model, rows, "masked"))
    assert len(computed) == 4 + 4 - 1
    assert found[0][1] != found[1][1]


def test_equal_tokens_are_a_tie_that_counts_half(run: Path) -> None:
    found = scoring.score(run, pairs("the Cat .", "the cat .", "the zebra", "the lion"), "masked", 7, "float32")
    assert (found.good == found.bad).all() and found.unknown == 1
    assert Accuracy.of(np.array([1.0, 2, 3, 4]), np.array([1.0, 1, 4, 4])).percent == 50


# Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_intervals_are_those_that_were_published(right: int, count: int, low: float, high: float) -> None:
    found = Accuracy(pairs=count, right=right, ties=0).interval()
    np.testing.assert_allclose(found, (100 * low, 100 * high), atol=5e-3)


def test_the_lines_of_blimp_name_their_paradigm_phenomenon_and_field(tmp_path: Path) -> None:
    fields = {"UID": "drop_argument", "linguistics_term": "argument_structure", "field": "syntax/semantics"}
    content = line(**fields, two_prefix=False)
    folder = write(tmp_path / "data", {"a.jsonl": content, "own.jsonl": line(), "notes.md": "read me"})
    first, own = reading.read(folder)
    assert (first.paradigm, first.field) == ("drop_argument", "syntax_semantics")
    assert first.phenomenon == "argument_structure"
    assert (own.paradigm, own.phenomenon, own.field) == ("own", "", "")
    assert own.where == f"{folder / 'own.jsonl'}: line 1"


def test_the_odd_lines_of_zorro_are_the_bad_ones(tmp_path: Path) -> None:
    name = "island-effects-adjunct_island.txt"
    folder = write(tmp_path / "babyberta", {name: "look at this things .\nlook at this thing .\nb two\ng two\n"})
    first, second = reading.read(folder)
    assert (first.bad, first.good) == ("look at this things .", "look at this thing .")
    assert (second.bad, second.good, second.where) == ("b two", "g two", f"{folder / name}: line 3")
    assert (first.paradigm, first.phenomenon, first.field) == ("island-effects-adjunct_island", "island-effects", "")


def test_some_pairs_of_each_paradigm_are_always_the_same_whatever_else_is_there(tmp_path: Path) -> None:
    content = {name: "".join(f"bad {n}\ngood {n}\n" for n in range(size)) for name, size in (("a", 3), ("b", 41))}
    folder = write(tmp_path / "data", {f"{name}.txt": text for name, text in content.items()})
    found = [pair.good for pair in reading.chosen(reading.read(folder), 7)]
    numbers = [int(sentence.removeprefix("good ")) for sentence in found[3:]]
    assert found[:3] == ["good 0", "good 1", "good 2"]
    assert len(numbers) == 7 and numbers == sorted(set(numbers)) and len(set(np.diff(numbers))) > 1
    assert [pair.good for pair in reading.chosen(reading.read(folder / "b.txt"), 7)] == found[3:]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", line() + "{\n", r"a\.jsonl: line 2: not a JSON object with sentence_good and sentence_bad"),
        ("a.jsonl", '{"sentence_good": "x"}\n', "line 1: .*no sentence_bad"),
        ("a.jsonl", line(sentence_bad=3), "line 1: .*sentence_bad is 3"),
        ("a.jsonl", line(sentence_good=" "), "line 1: a sentence is empty"),
        ("a.jsonl", line(UID="a\nb"), "line 1: the name of what it tests is empty or cannot be printed"),
        ("a.jsonl", line() + "\n" + line(), "line 2: is empty"),
        ("a.jsonl", "", "has no pairs"),
        ("a-b.txt", "one\ntwo\nthree\n", r"a-b\.txt: line 3: a bad sentence without its good one"),
        ("a-b.txt", "one\n \n", "line 2: is empty"),
        ("a.csv", "one,two\n", "its name does not say how it is read"),
    ],
)
def test_a_bad_file_is_one_line_that_names_the_place(tmp_path: Path, name: str, content: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        reading.read(write(tmp_path / "data", {name: content}) / name)
    assert "\n" not in str(error.value)


def test_a_folder_of_no_or_two_kinds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no such file"):
        reading.read(write(tmp_path / "data", {"a.csv": "x"}))
    with pytest.raises(InputError, match="has files of both kinds"):
        reading.read(write(tmp_path / "data", {"a.jsonl": line(), "b.txt": "one\ntwo\n"}))


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("a " * 10, "line 0: the bad sentence has 12 tokens with the special ones, and the model takes 11"),
        ("\u0000", "line 0: the bad sentence has no tokens"),
    ],
)
def test_a_sentence_that_cannot_be_scored_is_named(run: Path, sentence: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        scoring.score(run, pairs("the cat", sentence), "masked", 8, "float32")


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_json_and_a_picture(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = line(UID="one", linguistics_term="term", field="syntax") + line(sentence_bad="the cat", UID="$two")
    folder = write(tmp_path / "data", {"a.jsonl": content})
    output, picture = tmp_path / "scores.json", tmp_path / "scores.png"
    command.main([str(run), "--data", str(folder), "--output", str(output), "--picture", str(picture)])
    found, shown = json.loads(output.read_text()), capsys.readouterr().out
    two = found["paradigms"]["$two"]
    assert (two["pairs"], two["right"], two["ties"], two["accuracy"]) == (1, 0, 1, 50) and two["low"] < two["high"]
    assert found["all"]["pairs"] == 2 and list(found["phenomena"]) == ["term"] and found["score"] == "masked"
    assert found["checkpoint"].endswith("step-00000003") and found["pairs_with_unknown_tokens"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"{found['all']['accuracy']:.1f}" in shown.splitlines()[-1]
    command.main([str(run), "--data", str(folder), "--output", str(output), "--pairs", "1"])
    of_each = {name: of["pairs"] for name, of in json.loads(output.read_text())["paradigms"].items()}
    assert of_each == {"one": 1, "$two": 1}
    with pytest.raises(UsageError, match="is a masked language model; give --score masked, "):
        command.main([str(run), "--data", str(folder), "--score", "causal"])
