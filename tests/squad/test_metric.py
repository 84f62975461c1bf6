"""Exact match and F1 against cases worked by hand and a small second implementation."""

import json
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.errors import InputError
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


@given(TEXTS, TEXTS)
def test_scores_equal_a_plain_word_count(prediction, gold):
    predicted, wanted = oracle_words(prediction), oracle_words(gold)
    shared, left = 0, list(wanted)
    for word in predicted:
        if word in left:
            left.remove(word)
            shared += 1
    assert metric.exact_match(prediction, gold) is (predicted == wanted)
    expected = 2 * shared / (len(predicted) + len(wanted)) if shared else 0
    assert metric.f1(prediction, gold) == pytest.approx(expected)


@given(TEXTS, TEXTS)
def test_f1_is_symmetric_bounded_and_one_where_answers_match(one, other):
    assert metric.f1(one, other) == pytest.approx(metric.f1(other, one))
    assert 0 <= metric.f1(one, other) <= 1
    if metric.exact_match(one, other) and metric.normalize(one):
        assert metric.f1(one, other) == 1


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
    assert "q3" in done.stderr
    assert "q9" in done.stderr


def test_the_metric_starts_without_tensorflow():
    code = "import sys, squad.metric; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("content", ["", "[]", '{"q1": 3}', '{"q1": null}', '{"q1": ["x"]}', "{", "[" * 100_000])
def test_malformed_predictions_are_refused_by_name(tmp_path, content):
    path = tmp_path / "predictions.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"predictions\.json"):
        metric.read_predictions(path)


def test_bad_commands_end_in_one_line_and_their_exit_code(dataset, tmp_path):
    for arguments, code in [((dataset,), 2), ((dataset, tmp_path / "none.json"), 3), ((dataset, dataset), 3)]:
        done = run(*arguments)
        assert done.returncode == code
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
