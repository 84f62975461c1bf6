"""Exact match and F1 against cases worked by hand and a small second implementation."""

import json
import string
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squad import metric
from squad.examples import Answer, Example

WORDS = ["the", "The", "a", "an", "than", "Paris", "paris,", "1,024", "--", "th\u00e9", " ", "N.Y."]
TEXTS = st.lists(st.sampled_from(WORDS)).map(" ".join)


def question(identity, *golds):
    return Example(id=identity, question="?", passage=0, answers=tuple(Answer(text=gold, start=0) for gold in golds))


@pytest.mark.parametrize(
    ("prediction", "gold", "match", "f1"),
    [
        ("the Eiffel Tower", "Eiffel tower.", True, 1.0),
        ("Eiffel", "the Eiffel Tower", False, 2 / 3),
        ("a cat and a dog", "cat dog", False, 0.8),  # 2 shared of 3 and of 2
        ("Denver Broncos", "Carolina Panthers", False, 0.0),
        ("half-time", "halftime", True, 1.0),
        ("half time", "half-time", False, 0.0),
        ("theatre", "atre", False, 0.0),  # articles are words, not letters
        ("A-frame", "frame", False, 0.0),  # punctuation goes first, and leaves "aframe"
        ("to to to be", "to be to", False, 6 / 7),  # bags: 3 shared of 4 and of 3
        ("the", "", True, 0.0),  # nothing is left to share: version 1.1 gives F1 0
        ("\u201cquoted\u201d", "quoted", False, 0.0),  # only ASCII punctuation is removed
        ("\u00c9COLE", "\u00e9cole", True, 1.0),
        ("an\u00a0apple", "apple", True, 1.0),
    ],
)
def test_one_answer_scores_as_counted_by_hand(prediction, gold, match, f1):
    assert metric.exact_match(prediction, gold) is match
    assert metric.f1(prediction, gold) == pytest.approx(f1)


def test_a_question_takes_its_best_gold_answer_and_the_mean_is_over_all_questions():
    questions = [question("q1", "cat", "black cat"), question("q2", "dog"), question("q3", "bird", "a red bird")]
    score = metric.score(questions, {"q1": "the black cat", "q3": "red bird flies", "other": "dog"})
    assert score == metric.Score(exact_match=100 / 3, f1=100 * (1 + 0 + 0.8) / 3, total=3)


def oracle_words(text):
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def oracle_shared(predicted, wanted):
    shared, left = 0, list(wanted)
    for word in predicted:
        if word in left:
            left.remove(word)
            shared += 1
    return shared


@given(TEXTS, TEXTS)
def test_scores_equal_a_plain_word_count(prediction, gold):
    predicted, wanted = oracle_words(prediction), oracle_words(gold)
    shared = oracle_shared(predicted, wanted)
    assert metric.exact_match(prediction, gold) is (predicted == wanted)
    expected = 2 * shared / (len(predicted) + len(wanted)) if shared else 0
    assert metric.f1(prediction, gold) == pytest.approx(expected)


def oracle_f1(prediction, gold):
    """Version 2.0: nothing equals nothing."""
    predicted, wanted = oracle_words(prediction), oracle_words(gold)
    if not predicted or not wanted:
        return Fraction(predicted == wanted)
    return Fraction(2 * oracle_shared(predicted, wanted), len(predicted) + len(wanted))


def oracle_v2(golds, predictions, odds, threshold):
    """The figures of version 2.0 from fractions, and for *_thresh all that are best: ranked questions cut in two."""
    raw = {}
    for key, texts in golds.items():
        said, wanted = predictions[key], [text for text in texts if oracle_words(text)] or [""]
        exact = max(Fraction(oracle_words(said) == oracle_words(text)) for text in wanted)
        raw[key] = {"exact": exact, "f1": max(oracle_f1(said, text) for text in wanted)}
    figures: dict[str, Any] = {}
    has, none = [key for key in golds if golds[key]], [key for key in golds if not golds[key]]
    for prefix, keys in [("", [*golds]), ("HasAns_", has), ("NoAns_", none)]:
        if keys:
            for name in ("exact", "f1"):
                sums = [Fraction(key in none) if odds[key] > threshold else raw[key][name] for key in keys]
                figures[prefix + name] = float(100 * sum(sums) / len(keys))
            figures[prefix + "total"] = len(keys)
    ranked = sorted(odds, key=lambda key: odds[key])
    for name in ("exact", "f1"):
        reached = []
        for cut in range(len(ranked) + 1):
            answered = [raw[key][name] for key in ranked[:cut] if key in has or not predictions[key]]
            reached.append(sum(answered) + sum(key in none for key in ranked[cut:]))
        best = [cut for cut, total in enumerate(reached) if total == max(reached)]
        figures[f"best_{name}"] = float(100 * max(reached) / Fraction(len(golds)))
        figures[f"best_{name}_thresh"] = {odds[ranked[cut - 1]] if cut else 0.0 for cut in best}
    return figures


@given(st.data())
def test_the_figures_of_version_2_equal_those_of_fractions(data):
    count = data.draw(st.integers(1, 7))
    keys = [f"q{n}" for n in range(count)]
    golds = {key: data.draw(st.lists(TEXTS, max_size=3)) for key in keys}
    answers = TEXTS | st.sampled_from(["", " ", "the", "--", *(text for texts in golds.values() for text in texts)])
    predictions = {key: data.draw(answers) for key in keys}
    odds_of = st.sampled_from([-2.5, 0.0, 0.5, 1.0, 1.5, 3.0])
    odds = {key: data.draw(odds_of) for key in data.draw(st.permutations(keys))}
    threshold = data.draw(st.sampled_from([-9.0, 0.5, 1.0, 9.0]))
    questions = [question(key, *golds[key]) for key in keys]
    expected = oracle_v2(golds, predictions, odds, threshold)
    found = metric.score_v2(questions, predictions, odds, threshold)
    for name in ("best_exact_thresh", "best_f1_thresh"):
        assert found.pop(name) in expected.pop(name)
    assert found == pytest.approx(expected, rel=1e-12)
    plain = {key: value for key, value in oracle_v2(golds, predictions, odds, 9.0).items() if "best" not in key}
    assert metric.score_v2(questions, predictions) == pytest.approx(plain, rel=1e-12)


def test_always_none_scores_the_share_of_impossible_questions(shared_data):
    dataset = metric.examples.read_dataset(shared_data / "squad" / "dev-v2.0.json.xz")
    assert dataset.version == "2.0"
    found = metric.score_v2(dataset.examples, {example.id: "" for example in dataset.examples})
    assert found["exact"] == found["f1"] == 100 * 5945 / 11873
    assert (found["HasAns_f1"], found["NoAns_f1"]) == (0, 100)


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "squad.metric", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def dataset(tmp_path):
    answers = [{"text": "x", "answer_start": 0}]
    qas = [{"id": identity, "question": "?", "answers": answers} for identity in ("q1", "q2", "q3")]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": "x", "qas": qas}]}]}))
    return path


def test_the_command_prints_one_json_line_and_notes_what_is_unanswered(dataset, tmp_path):
    predictions = tmp_path / "predictions.json"
    predictions.write_text(json.dumps({"q1": "X.", "q2": "y", "q9": "x"}))
    done = run(dataset, predictions)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"exact_match": 100 / 3, "f1": 100 / 3, "total": 3}
    assert "q3" in done.stderr and "q9" in done.stderr


@pytest.fixture
def dataset_v2(tmp_path):
    answers = [{"text": "x", "answer_start": 0}]
    qas = [{"id": "q1", "question": "?", "answers": answers, "is_impossible": False}]
    qas += [{"id": f"q{n}", "question": "?", "answers": [], "is_impossible": True} for n in (2, 3)]
    path = tmp_path / "dev2.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "x", "qas": qas}]}]}))  # says no version
    return path


def test_the_command_reads_the_version_from_the_file(dataset_v2, tmp_path):
    predictions, odds = tmp_path / "predictions.json", tmp_path / "odds.json"
    predictions.write_text(json.dumps({"q1": "X.", "q2": "y"}))
    odds.write_text(json.dumps({"q1": -2, "q2": 0.5, "q9": 7}))
    done = run(dataset_v2, predictions, "--na_prob", odds)
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    expected = {"exact": 50, "f1": 50, "total": 2, "HasAns_f1": 100, "NoAns_total": 1, "best_f1": 100}
    assert (expected | {"best_f1_thresh": -2}).items() <= found.items()
    assert "1 questions without a prediction are left out: q3" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ("DEV2 SAID --na_prob LACKS", 3, "no number for 1 questions with a prediction: q2"),
        ("DEV2 SAID --na_prob NAN", 3, "'q2' has NaN, not a finite number"),
        ("DEV2 SAID --na_prob HUGE", 3, "'q2' has Infinity, not a finite number"),
        ("DEV2 SAID --na_prob SAID", 3, "'q1' has \"x\", not a finite number"),
        ("DEV2 OTHERS", 3, "no predictions for the questions"),
        ("DEV SAID --na_prob ODDS", 2, "is version 1.1"),
        ("DEV SAID --na_probe ODDS", 2, "did you mean --na_prob"),
        ("--na_prob ODDS", 2, "required: DATASET, PREDICTIONS"),
        ("DEV", 2, "required: PREDICTIONS"),
        ("DEV NONE", 3, "NONE"),
        ("DEV DEV", 3, "dev.json"),
        ("BARE SAID", 3, "question 'q1' has no gold answer"),
    ],
)
def test_what_cannot_be_scored_is_one_line(dataset, dataset_v2, tmp_path, arguments, code, reason):
    contents = {"SAID": {"q1": "x", "q2": "y"}, "OTHERS": {"q9": "x"}, "ODDS": {"q1": 1, "q2": 2}, "LACKS": {"q1": 1}}
    paragraph = {"context": "a", "qas": [{"id": "q1", "question": "?", "answers": []}]}
    contents["BARE"] = {"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph]}]}
    contents |= {"NAN": {"q1": 1, "q2": float("nan")}, "HUGE": {"q1": 1, "q2": float("inf")}}
    paths = {"DEV": dataset, "DEV2": dataset_v2}
    for name, content in contents.items():
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(json.dumps(content))
    done = run(*(paths.get(word, word) for word in arguments.split()))
    assert done.returncode == code and reason in done.stderr and done.stdout == ""
    (error,) = (line for line in done.stderr.splitlines() if not line.startswith("note: "))
    assert error.startswith("error: ")


def test_the_metric_starts_without_tensorflow():
    code = "import sys, squad.metric; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
