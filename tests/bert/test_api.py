"""From Python a model gives what the commands write for the same inputs; what it cannot do, it says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert
from bert import api, encode, fill_mask, pretrain, recipes
from bert.core.errors import InputError, UsageError
from extensions.gpt import generate
from squad import predict as squad_predict
from squad import recipes as squad_recipes
from squad import train as squad_train
from tasks import predict, train
from tasks import recipes as tasks_recipes
from tests.bert.export.served import HOSTILE
from tests.extensions.gpt.runs import write_run
from tests.serve import runs
from tests.training import TINY, same_bits, weights

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [text for text in HOSTILE if text.strip() and "\n" not in text]
CLOSE = 1e-5  # the stated tolerance between a batch that XLA compiles and one that it does not


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each thing that a model can do."""
    root = tmp_path_factory.mktemp("api")
    made = {name: runs.of_task(root / name, name) for name in runs.TASKS}
    made |= {"answer": runs.of_questions(root / "answer"), "fill": runs.of_pretraining(root / "fill")}
    return made | {"generate": write_run(root / "generate")}


def written(folder: Path, run: Path, rows: list[dict[str, Any]], *more: str) -> list[dict[str, Any]]:
    """What tasks.predict writes for rows, without ids."""
    given, output = folder / "given.jsonl", folder / "out.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict.main(["--model", str(run), "--input", str(given), "--output", str(output), *more])
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "id"} for line in lines]


def check(found: list[Any], lines: list[dict[str, Any]]) -> None:
    """Numbers are close, everything else is equal; every field of a line is one of a result."""
    assert len(found) == len(lines) > 5
    for result, line in zip(found, lines, strict=True):
        for name, value in line.items():
            numbers = name == "probabilities"
            assert getattr(result, name) == (pytest.approx(value, abs=CLOSE) if numbers else value)


@pytest.mark.slow
def test_classes_are_those_of_tasks_predict(folders: dict[str, Path], tmp_path: Path) -> None:
    model = bert.load(folders["classify"], batch=5)
    check(model.classify(TEXTS), written(tmp_path, folders["classify"], [{"text": text} for text in TEXTS]))
    rows = [{"text": text, "other": f"a {text}"} for text in TEXTS]
    pairs = model.classify(TEXTS, [row["other"] for row in rows])
    check(pairs, written(tmp_path, folders["classify"], rows, "--text", "text", "other"))
    assert model.classify(TEXTS[0]).label == model.classify(TEXTS)[0].label
    assert model.classify([]) == []


@pytest.mark.slow
def test_labels_and_numbers_are_those_of_tasks_predict(folders: dict[str, Path], tmp_path: Path) -> None:
    rows = [{"text": text} for text in TEXTS]
    lines = written(tmp_path, folders["label"], rows)
    check(bert.load(folders["label"]).label(TEXTS), lines)
    assert max(line["windows"] for line in lines) > 1
    numbers = [line["value"] for line in written(tmp_path, folders["regress"], rows)]
    assert bert.load(str(folders["regress"])).regress(TEXTS) == pytest.approx(numbers, abs=CLOSE)


@pytest.mark.slow
def test_choices_and_tags_are_those_of_tasks_predict(folders: dict[str, Path], tmp_path: Path) -> None:
    choices = [["a", "river", text] for text in TEXTS]
    rows = [{"context": text, "choices": of_text} for text, of_text in zip(TEXTS, choices, strict=True)]
    check(bert.load(folders["choose"]).choose(TEXTS, choices), written(tmp_path, folders["choose"], rows))
    model, sentences = bert.load(folders["tag"]), [text.split() for text in TEXTS]
    lines = written(tmp_path, folders["tag"], [{"tokens": words} for words in sentences])
    check(model.tag(TEXTS), lines)
    check(model.tag(sentences), lines)
    assert model.tag("a river").words == ["a", "river"]


@pytest.mark.slow
def test_answers_are_those_of_squad_predict(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = [f"Which river {number}?" for number in range(len(TEXTS))]
    asked = [
        {"id": str(number), "question": question, "context": text}
        for number, (question, text) in enumerate(zip(questions, TEXTS, strict=True))
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    files = {name: tmp_path / f"{name}.json" for name in ("output", "nbest", "null_odds")}
    flags = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    squad_predict.main(["--model", str(folders["answer"]), "--dataset", str(tmp_path / "asked.jsonl"), *flags])
    best, several, odds = (json.loads(path.read_text()) for path in files.values())
    model = bert.load(folders["answer"], batch=7)
    found = model.answer(questions, TEXTS)
    assert [answer.text for answer in found] == list(best.values())
    assert {answer.text for answer in found} > {""}, "there are answers, and questions without one"
    for answer, text, candidates, null_odds in zip(found, TEXTS, several.values(), odds.values(), strict=True):
        assert answer.null_odds == pytest.approx(null_odds, abs=1e-4)
        assert text[answer.start : answer.end] == answer.text
        assert [one.text for one in answer.candidates] == [one["text"] for one in candidates]
        probabilities = {one["text"]: one["probability"] for one in candidates}
        assert answer.probability == pytest.approx(probabilities[answer.text], abs=CLOSE)
    assert model.answer(questions[3], TEXTS[3]).text == found[3].text
    same = model.answer([questions[3], questions[4]], TEXTS[3])
    assert same[0].text == found[3].text and len(same) == 2
    assert [answer.text for answer in model.answer(questions[3], [TEXTS[3], TEXTS[3]])] == [found[3].text] * 2
    assert "are cut" not in capsys.readouterr().err
    model.answer(["river " * 99, "Which?"], TEXTS[3])
    assert "note: the questions: 1 questions have more than" in capsys.readouterr().err


@pytest.mark.slow
def test_masks_and_features_are_those_of_the_commands(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"a [MASK] river [MASK] {text}" for text in TEXTS if len(text) < 40]
    run, model = folders["fill"], bert.load(folders["fill"], batch=3)
    (tmp_path / "masked.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    files = ["--input", str(tmp_path / "masked.txt"), "--output"]
    fill_mask.main([str(run), *files, str(tmp_path / "words.jsonl"), "--top", "3"])
    lines = [json.loads(line)["masks"] for line in (tmp_path / "words.jsonl").read_text().splitlines()]
    found = model.fill(texts, top=3)
    assert [[[one.word for one in mask] for mask in masks] for masks in found] == [
        [[one["word"] for one in mask] for mask in masks] for masks in lines
    ]
    assert found[0][1][2].probability == pytest.approx(lines[0][1][2]["probability"], abs=CLOSE)
    assert [one.word for one in model.fill(texts[0])[0]][:3] == [one.word for one in found[0][0]]
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    files = ["--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "features.npz")]
    encode.main(["--model", str(run), *files, "--pool", "cls", "--layers", "-2", "--length", "9"])
    features = np.load(tmp_path / "features.npz")["features"][:, 0]
    cut = sum(len(model.run.tokenizer.encode([text])[0]) > 7 for text in TEXTS)
    assert 0 < cut < len(TEXTS) and f"{cut} truncated to 9 tokens" in capsys.readouterr().err
    np.testing.assert_allclose(model.embed(TEXTS, pool="cls", layer=-2, length=9), features, atol=CLOSE)
    assert f"note: the texts: {cut} of {len(TEXTS)} have more than 9 tokens and are cut" in capsys.readouterr().err
    np.testing.assert_allclose(bert.load(folders["tag"]).embed(TEXTS[0]).shape, [24])
    assert model.embed([]).shape == (0, 24)


@pytest.mark.slow
def test_prompts_are_continued_as_by_the_command(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    prompts = ["She saw", "", "caf\u00e9"]
    generate.main([str(folders["generate"]), *prompts, "--max_tokens", "5", "--seed", "3", "--top_p", "0.9", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    model = bert.load(folders["generate"])
    found = model.generate(prompts, max_tokens=5, seed=3, top_p=0.9)
    assert [(one.text, one.tokens, one.end) for one in found] == [
        (line["text"], line["tokens"], line["end"]) for line in lines
    ]
    assert model.generate(prompts[0], max_tokens=5, seed=3, top_p=0.9) == found[0]
    assert model.uses == ("generate",)
    with pytest.raises(UsageError, match="compute bfloat16 has no effect"):
        bert.load(folders["generate"], compute="bfloat16")
    with pytest.raises(UsageError, match="temperature"):
        model.generate("a", temperature=-1.0)


@pytest.fixture(scope="module")
def tagger(folders: dict[str, Path]) -> api.Model:
    return bert.load(folders["tag"])


def test_what_a_model_cannot_do_is_said_with_what_it_can(tagger: api.Model) -> None:
    assert tagger.uses == ("tag", "embed")
    for ask in (
        lambda: tagger.answer("Who?", "Nobody."),
        lambda: tagger.classify([]),
        lambda: tagger.generate("a"),
        lambda: tagger.fill("[MASK]"),
    ):
        with pytest.raises(UsageError, match=r"tag: this model has no \w+; it has tag and embed"):
            ask()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.embed(None), "text is None; give a text, or a list of texts"),
        (lambda model: model.embed(["a", 7]), r"text\[1\] is 7; give a text"),
        (lambda model: model.embed({"text": "a"}), r"text is \{'text': 'a'\}; give a text, or a list of texts"),
        (lambda model: model.embed({"a"}), r"text is \{'a'\}; give a text, or a list of texts"),
        (lambda model: model.embed("a", pool="sum"), "pool is 'sum'; give one of auto, mean, cls, max, none"),
        (lambda model: model.answer_among(["a"], ["b"]), r"question is \['a'\]; give a text"),
        (lambda model: model.embed("a", layer=9), "not a layer of the model"),
        (lambda model: model.embed("a", pool="none"), "the states of all tokens"),
        (lambda model: model.classify(["a", "b"], ["c"]), "second has 1 entries for 2 texts"),
        (lambda model: model.answer(["a", "b"], ["c"]), "text has 1 entries for 2 texts"),
        (lambda model: model.choose(["a", "b"], [["c"]]), "choices has 1 entries for 2 texts"),
        (lambda model: model.choose(["a"], None), "choices is None; give a text, or a list of texts"),
        (lambda model: model.fill("[MASK]", top=0), "top is 0; give 1 at least"),
        (lambda model: model.embed("a b c", length=0), "length 0: give 3 at least"),
        (lambda model: model.embed("a b c", length=1), "length 1: give 3 at least"),
        (lambda model: model.embed("a b c", length=-2), "length -2: give 3 at least"),
        (lambda model: model.tag(None), "text is None; give a text, or a list of texts"),
        (lambda model: model.tag(["a", 7]), r"text\[1\] is 7; give a text, or a list of its words"),
        (lambda model: model.tag([["a", 7]]), r"text\[0\] is \['a', 7\]; give a text, or a list of its words"),
    ],
)
def test_a_mistake_is_an_error_that_says_what_to_give(ask: Any, message: str, tagger: api.Model) -> None:
    with pytest.raises(UsageError, match=message):
        ask(tagger)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "onnx"}, "engine is 'onnx'; give one of .*openvino"),
        ({"compute": "fp16"}, "compute is 'fp16'; give one of float32"),
        ({"device": "cuda"}, "device is 'cuda'; give one of "),
        ({"batch": 0}, "batch is 0; give a number of texts"),
        ({"batch": "8"}, "batch is '8'; give a number of texts"),
    ],
)
def test_a_model_is_not_loaded_in_another_way_than_it_is_asked_for(
    settings: dict[str, Any], message: str, folders: dict[str, Path]
) -> None:
    with pytest.raises(UsageError, match=message):
        bert.load(folders["tag"], **settings)


def test_what_is_no_text_to_tag_is_refused(tagger: api.Model) -> None:
    with pytest.raises(InputError, match="sentence 1 has no words"):
        tagger.tag(["a", " "])
    with pytest.raises(InputError, match="no such folder"):
        bert.load(tagger.run.path / "nothing")


@pytest.mark.slow
def test_a_pretraining_from_python_is_that_of_the_command(dataset: Path, tmp_path: Path) -> None:
    flags = [*TINY, "--run.steps", "4", "--batch.per_device", "3", "--data.train", str(dataset)]
    pretrain.main(["demo_phase1", *flags, "--run.directory", str(tmp_path / "command")])
    names = [flag.removeprefix("--") for flag in flags[::2]]
    settings: dict[str, Any] = dict(zip(names, flags[1::2], strict=True)) | {"run.directory": tmp_path / "python"}
    settings |= {"batch.total": 6, "optimizer.learning_rate": 0.01}
    run = bert.train("demo_phase1", bert.recipe("demo_phase1", settings))
    assert run == tmp_path / "python"
    same_bits(weights(run, 4), weights(tmp_path / "command", 4))
    assert bert.load(run).uses == ("fill", "embed")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", pytest.param("squad_tiny", marks=pytest.mark.thorough)])
def test_a_fine_tuning_from_python_is_that_of_the_command(
    task: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    questions = task == "squad_tiny"
    rows: list[dict[str, Any]] = [{"text": f"a river {letter}", "label": letter} for letter in "abcabc"]
    if questions:
        rows = [
            {
                "id": letter,
                "question": "Which?",
                "context": f"a {letter}",
                "answers": {"text": [letter], "answer_start": [2]},
            }
            for letter in "bcdefg"
        ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings: dict[str, Any] = {
        "data.train_file" if questions else "data.train": tmp_path / "train.jsonl",
        "init.checkpoint": folders["fill"],
        "batch.total": 6,
        "batch.per_device": 3,
        "run.steps": 3,
        "model.hidden_dropout_prob": 0.0,
        **({"windows.max_seq_length": 47, "windows.max_query_length": 9} if questions else {"data.length": 17}),
    }
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    command = squad_train if questions else train
    command.main([task, *flags, "--run.directory", str(tmp_path / "command")])
    run = bert.train(task, settings | {"run.directory": tmp_path / "python"})
    same_bits(weights(run, 3), weights(tmp_path / "command", 3))
    model = bert.load(run)
    assert model.uses == ("answer" if questions else "classify", "embed")
    assert model.run.settings["config"]["model.hidden_dropout_prob"] == 0.0
    assert model.run.settings["recipe"] == task


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("clasify", {}, "no recipe 'clasify'; did you mean classify"),
        ("bert_base", {}, "has 2 phases; give bert_base_phase1, then bert_base_phase2"),
        ("classify", {"data.lenth": 3}, "unknown argument '--data.lenth=3'; did you mean --data.length"),
        ("classify", {"data.length": "long"}, "invalid int value: 'long'"),
    ],
)
def test_a_mistake_in_a_configuration_is_an_error(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bert.recipe(name, settings)


def test_a_setting_without_effect_is_refused_as_the_flag_is() -> None:
    with pytest.raises(UsageError, match="has no effect without lora"):
        bert.train("classify", {"data.train": "train.tsv", "lora.alpha": 4})


def test_settings_are_read_like_flags() -> None:
    config = bert.recipe("multilabel", {"data.text": ["one", "two"], "data.train": "x.tsv", "init.checkpoint": None})
    assert (config.data.text, config.data.train) == (("one", "two"), Path("x.tsv"))
    assert bert.recipe("squad_base", {"data.impossible": False}).data.impossible is False
    names = [*recipes.RECIPES, *tasks_recipes.RECIPES, *squad_recipes.RECIPES]
    assert len(names) == len(set(names)), "a name is of one command"


def test_the_import_of_the_package_is_cheap() -> None:
    code = "import bert, sys; print(sorted({'tensorflow', 'numpy'} & set(sys.modules)), bert.__version__)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown == f"[] {bert.__version__}\n"
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        bert.lod  # noqa: B018
