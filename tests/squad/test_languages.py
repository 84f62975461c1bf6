"""Answers are compared by the rules of MLQA's evaluation, and languages are told apart."""

import json
from pathlib import Path

import pytest

from bert.core.errors import InputError
from squad import languages, metric
from squad.examples import Dataset

PASSAGES = {  # of the Universal Declaration of Human Rights, as the United Nations publish it
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience",
    "de": "Alle Menschen sind frei und gleich an W\u00fcrde und Rechten geboren. Sie sind mit Vernunft begabt",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como est\u00e1n",
    "vi": "sinh ra \u0111\u1ec1u \u0111\u01b0\u1ee3c t\u1ef1 do v\u00e0 b\u00ecnh \u0111\u1eb3ng v\u1ec1 nh\u00e2n",
    "fr": "naissent libres et \u00e9gaux en dignit\u00e9 et en droits. Ils sont dou\u00e9s de raison et de conscience",
    "it": "nascono liberi ed eguali in dignit\u00e0 e diritti. Essi sono dotati di ragione e di coscienza",
    "pt": "nascem livres e iguais em dignidade e em direitos. Dotados de raz\u00e3o e de consci\u00eancia",
    "nl": "Een ieder heeft aanspraak op alle rechten en vrijheden, zonder enig onderscheid van welke aard ook",
    "ru": "\u0412\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f",
    "zh": "\u4eba\u4eba\u751f\u800c\u81ea\u7531",
    "ja": "\u3059\u3079\u3066\u306e\u4eba\u9593\u306f",
    "ko": "\ubaa8\ub4e0 \uc778\uac04\uc740",
    "ar": "\u064a\u0648\u0644\u062f \u062c\u0645\u064a\u0639 \u0627\u0644\u0646\u0627\u0633",
    "fa": "\u062a\u0645\u0627\u0645 \u0627\u0641\u0631\u0627\u062f \u0628\u062f\u0646\u06cc\u0627 \u0645\u06cc",
    "hi": "\u0938\u092d\u0940 \u0914\u0930 \u0905\u0927\u093f\u0915\u093e\u0930\u094b\u0902 \u0915\u0947",
}


@pytest.mark.parametrize(
    ("language", "prediction", "gold", "match", "f1"),
    [  # worked by hand by mlqa_evaluation_v1.py of facebookresearch/MLQA, which has given the same
        ("de", "K\u00f6lner Dom", "der K\u00f6lner Dom", True, 1.0),
        ("de", "\u201eFaust\u201c", "Faust", True, 1.0),
        ("de", "eins", "", False, 0.0),  # a number, no article
        ("de", "einem Haus in der Stadt", "Haus", False, 0.5),
        ("es", "\u00bfqu\u00e9?", "qu\u00e9", True, 1.0),
        ("es", "la Torre de las Flores", "Torre", False, 0.5),
        ("en", "\u201cthe\u201d cat\u2019s", "cats", True, 1.0),
        ("en", "eine Katze", "Katze", False, 2 / 3),
        ("zh", "\u5317\u4eac\u5e02", "\u5317\u4eac\u5e02\u6d77\u6dc0\u533a", False, 2 / 3),
        ("zh", "\u201c\u4f60 \u597d\u201d", "\u4f60\u597d", True, 1.0),
        ("zh", "2008\u5e74 Beijing", "beijing", False, 0.5),
        ("hi", "\u0926\u093f\u0932\u094d\u0932\u0940\u0964", "\u0926\u093f\u0932\u094d\u0932\u0940", True, 1.0),
        ("ar", "\u0642\u0627\u0647\u0631\u0629", "\u0627\u0644\u0642\u0627\u0647\u0631\u0629", True, 1.0),
        ("ar", "\u0648\u0627\u0644\u0644\u0647\u060c", "\u0648 \u0644\u0647", True, 1.0),  # within a word, too
        ("vi", "nh\u1eefng con m\u00e8o", "con m\u00e8o", True, 1.0),
    ],
)
def test_answers_are_compared_as_mlqa_does(language: str, prediction: str, gold: str, match: bool, f1: float) -> None:
    rules = languages.MLQA[language]
    assert metric.exact_match(prediction, gold, rules) is match
    assert metric.f1(prediction, gold, rules) == pytest.approx(f1)


def test_languages_are_told_apart() -> None:
    others = {"ru": "other", "fa": "other"}
    for language, passage in PASSAGES.items():
        assert languages.language_of([passage]) == others.get(language, language)
    for unknown in ("", "1905", "cat", "x y z"):
        assert languages.language_of([unknown]) is None


def test_rules_that_are_for_english_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    def of(language: languages.Language | None, passage: str) -> languages.Rules:
        return languages.rules(language, Dataset(passages=[PASSAGES.get(passage, passage)], examples=[]), Path("set"))

    for passage, told in (("en", ""), ("cat", ""), ("de", "--language de"), ("ru", "none are for this language")):
        assert of(None, passage) is languages.SQUAD
        warning = capsys.readouterr().err
        assert told in warning and bool(warning) == bool(told)
    assert of("auto", "hi") is languages.MLQA["hi"] and "MLQA's rules for hi" in capsys.readouterr().err
    assert of("zh", "en") is languages.MLQA["zh"]
    for passage in ("fr", "cat"):
        with pytest.raises(
            InputError, match=r"^set: its language is (fr|not recognised); give --language, one of en, es"
        ):
            of("auto", passage)


def test_the_command_scores_by_the_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = {"id": "1", "question": "?", "answers": [{"text": "der Dom", "answer_start": 8}]}
    article = {"paragraphs": [{"context": "Das war der Dom.", "qas": [question]}]}
    paths = tmp_path / "dev.json", tmp_path / "answers.json"
    for path, content in zip(paths, ({"version": "1.0", "data": [article]}, {"1": "Dom"}), strict=True):
        path.write_text(json.dumps(content))
    for flags, match in (((), 0.0), (("--language", "de"), 100.0), (("--language", "auto"), 100.0)):
        metric.main([*map(str, paths), *flags])
        assert json.loads(capsys.readouterr().out)["exact_match"] == match
