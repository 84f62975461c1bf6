"""What a service answers is what the commands answer, computed alone or together with others."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import fill_mask, hidden_states
from bert.masked_words import MaskedWords
from bert.runs import Run
from serve.heads import Head
from serve.items import Choices, Masked, Passage, Question, RequestError, Sentence, Text
from serve.models import Models
from squad import model as squad_model
from squad.examples import Dataset, Example
from squad.reader import Reader
from tasks import loading
from tasks import model as tasks_model
from tasks.examples import ChoiceExample, TaggedSentence, TextExample
from tasks.predict import predictions
from tests.bert.export.served import HOSTILE
from tests.serve import runs

QUESTIONS = ["Which river?", "", "z" * 90, "caf\u00e9 or \u6771\u4eac?"]
TOGETHER = 1e-5  # the stated tolerance between answers computed alone and in a batch


def head(models: Models, name: str, route: str) -> Head:
    found = models.choose(name, route)
    assert found is not None
    return found.heads[route]


def answers(asked: Head, items: list[Any]) -> list[dict[str, Any]]:
    """The answers to all items, computed together."""
    prepared = [asked.prepare(item, sys.maxsize) for item in items]
    results = asked.compute([row for one in prepared for row in one.rows])
    found, begin = [], 0
    for one in prepared:
        found.append(one.finish(list(results[begin : begin + len(one.rows)])))
        begin += len(one.rows)
    return found


@pytest.mark.slow
def test_questions_have_the_answers_of_squad_predict(models: Models, folders: dict[str, Path]) -> None:
    model = squad_model.load(folders["answer"])
    reader = Reader(model, batch=3, limit=0.0)
    texts = [text for text in HOSTILE if text]
    asked = [(question, text) for question in QUESTIONS if question for text in texts]
    examples = [Example(id="", question=question, passage=n, answers=()) for n, (question, _) in enumerate(asked)]
    expected = reader.answer(Dataset(passages=[text for _, text in asked], examples=examples))
    items = [Question(question=question, context=text, n_best=20) for question, text in asked]
    for found, (_, told), (_, text) in zip(
        answers(head(models, "answer", "answer"), items), expected, asked, strict=True
    ):
        real = [candidate for candidate in told.candidates if candidate.text]
        assert found["null_odds"] == pytest.approx(told.null_odds, abs=1e-4)
        assert found["no_answer_probability"] == pytest.approx(1 - sum(c.probability for c in real), abs=1e-4)
        assert (found["answer"] or {"text": ""})["text"] == told.best(0.0).text
        assert [one["text"] for one in found["candidates"]] == [candidate.text for candidate in real]
        for one, candidate in zip(found["candidates"], real, strict=True):
            assert one["probability"] == pytest.approx(candidate.probability, abs=1e-5)
            assert text[one["start"] : one["end"]] == one["text"]


def test_the_best_of_several_passages_is_the_best_of_all(models: Models) -> None:
    asked = head(models, "answer", "answer")
    texts = [text for text in HOSTILE if text.strip()]
    alone = answers(asked, [Question(question="Which?", context=text, n_best=20) for text in texts])
    (both,) = answers(asked, [Question(question="Which?", context=texts, n_best=20)])
    assert sum(one["probability"] for one in both["candidates"]) + both["no_answer_probability"] == pytest.approx(1)
    for one in both["candidates"]:
        assert texts[one["passage"]][one["start"] : one["end"]] == one["text"]
        same = next(other for other in alone[one["passage"]]["candidates"] if other["text"] == one["text"])
        assert same["start"] == one["start"]
    # The odds of one candidate against another of its passage do not depend on other passages.
    first, *rest = both["candidates"]
    for one in (other for other in rest if other["passage"] == first["passage"]):
        here = {other["text"]: other["probability"] for other in alone[first["passage"]]["candidates"]}
        ratio = here[first["text"]] / here[one["text"]]
        assert first["probability"] / one["probability"] == pytest.approx(ratio, rel=1e-3)


@pytest.mark.slow
def test_a_passage_without_words_changes_no_probability(tmp_path: Path) -> None:
    """Of a model that always answers: only then such a passage has a candidate of its own."""
    made = Models({"answer": runs.of_questions(tmp_path / "run", impossible=False)}, "float32", 8)
    asked = head(made, "answer", "answer")
    alone, beside = answers(
        asked, [Question(question="Which?", context=text, n_best=20) for text in (["a river"], ["a river", " ", ""])]
    )
    assert [one["text"] for one in beside["candidates"]] == [one["text"] for one in alone["candidates"]]
    for one, other in zip(beside["candidates"], alone["candidates"], strict=True):
        assert one["probability"] == pytest.approx(other["probability"], abs=TOGETHER)


def cut(model: tasks_model.FineTuned[Any], example: Any) -> bool:
    """Return whether the model does not read all tokens of an example."""
    if model.kind.data.windows != "first":
        return False
    pairs = getattr(example, "pairs", None) or [(example.first, example.second)]
    rows = [[text for text in pair if text is not None] for pair in pairs]
    return any(len(model.tokenizer.encode(row)[0]) + len(row) + 1 > model.kind.length for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classify", "label", "regress", "choose", "tag"])
def test_tasks_have_the_answers_of_tasks_predict(name: str, models: Models, folders: dict[str, Path]) -> None:
    items: list[Any]
    examples: list[Any]
    texts = [text for text in HOSTILE if text.split()]
    if name == "choose":
        items = [Choices(text=text, choices=["a", "river", "b c"]) for text in texts]
        examples = [ChoiceExample(id="", pairs=tuple((item.text, choice) for choice in item.choices)) for item in items]
    elif name == "tag":
        items = [Sentence(text=text) for text in texts] + [Sentence(words=["a river", "b"])]
        examples = [TaggedSentence(id="", words=tuple(item.words or str(item.text).split())) for item in items]
    elif name == "label":  # in windows, which pairs do not have
        items = [Text(text=text) for text in HOSTILE]
        examples = [TextExample(id="", first=item.text) for item in items]
    else:
        items = [Text(text=text) for text in HOSTILE] + [Text(text="a", second=text) for text in HOSTILE]
        examples = [TextExample(id="", first=item.text, second=item.second) for item in items]
    model = loading.load(folders[name])
    expected = predictions(tasks_model.Reader(model, batch=3), examples)
    route = "classify" if name == "regress" else name
    for found, line, example in zip(answers(head(models, name, route), items), expected, examples, strict=True):
        del line["id"]
        if name != "tag":  # whose words are all read
            assert found.pop("truncated") == cut(model, example)
        assert found.keys() == line.keys()
        for key, value in line.items():
            assert found[key] == (
                value if key in ("label", "labels", "windows", "words", "tags") else pytest.approx(value, abs=1e-5)
            )


@pytest.mark.slow
def test_masks_are_filled_as_by_fill_mask(models: Models, folders: dict[str, Path]) -> None:
    texts = ["[MASK]", "a [MASK] river [MASK]", "\u6771 [MASK] caf\u00e9"]
    model = MaskedWords(Run.open(folders["fill"]))
    found = answers(head(models, "fill", "fill"), [Masked(text=text, top=7) for text in texts])
    for one, line in zip(found, fill_mask.fill(model, texts, 7, texts), strict=True):
        for mine, theirs in zip(one["masks"], line["masks"], strict=True):
            assert [word["word"] for word in mine] == [word["word"] for word in theirs]
            np.testing.assert_allclose(
                [word["probability"] for word in mine], [word["probability"] for word in theirs], atol=1e-6
            )


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["auto", "cls", "max"])
def test_features_are_those_of_encode(pool: Any, models: Models, folders: dict[str, Path]) -> None:
    reader = hidden_states.Reader(Run.open(folders["tag"]), pool=pool)
    found = answers(head(models, "tag", "embed"), [Passage(text=text, pool=pool) for text in HOSTILE])
    for one, told in zip(found, reader.encode(HOSTILE), strict=True):
        np.testing.assert_allclose(one["features"], told.features[0], atol=1e-5)
        assert one["tokens"] == len(told.ids)
    assert [one["truncated"] for one in found] == [one["tokens"] == 73 for one in found]


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("answer", [Question(question="Which?", context=text) for text in HOSTILE if text]),
        ("classify", [Text(text=text) for text in HOSTILE]),
        ("fill", [Masked(text=f"{text} [MASK]") for text in HOSTILE if len(text) < 60]),
    ],
)
def test_answers_together_are_those_alone(name: str, items: list[Any], models: Models) -> None:
    asked = head(models, name, name)
    together = answers(asked, items)
    for found, item in zip(together, items, strict=True):
        (alone,) = answers(asked, [item])
        np.testing.assert_allclose(_numbers(found), _numbers(alone), atol=TOGETHER)


def _numbers(found: Any) -> list[float]:
    """All numbers of an answer, in order; between answers whose scores are equal the order may differ."""
    if isinstance(found, dict):
        return sorted(number for value in found.values() for number in _numbers(value))
    if isinstance(found, list):
        return sorted(number for value in found for number in _numbers(value))
    return [float(found)] if isinstance(found, float) else []


@pytest.mark.parametrize(
    ("name", "item", "message"),
    [
        (
            "answer",
            Question(question="Who?", context="river " * 900),
            r"\d+ windows of the model; send one of at most 5",
        ),
        ("tag", Sentence(words=["a"] * 999), r"\d+ windows of the model; send at most 5"),
        ("tag", Sentence(text=" \n"), "no words"),
        ("tag", Sentence(words=["a", " "]), "an empty one"),
        ("label", Text(text="a", second="b"), "is a pair, and windows are for single texts"),
        ("choose", Choices(text="a", choices=["b"]), "1 choices, but the model has 3"),
        ("choose", Choices(text="a", choices=[]), "0 choices, but the model has 3"),
        ("fill", Masked(text="a river"), r"no \[MASK\]"),
        ("fill", Masked(text="[MASK]" * 33), "33 masks; send at most 32"),
        ("fill", Masked(text="[MASK]" + "a" * 90), r"\d+ tokens, but the model has 73"),
    ],
)
def test_what_cannot_be_answered_is_refused(name: str, item: Any, message: str, models: Models) -> None:
    with pytest.raises(RequestError, match=message):
        head(models, name, name).prepare(item, 5)
