"""Fine-tuning, prediction and scoring on a question set made up here."""

import json
import lzma
import math
import shutil

import numpy as np
import pytest

from bert.convert import __main__ as convert
from bert.core.errors import InputError, UsageError
from bert.text.vocabulary import SPECIAL
from squad import metric, predict, train
from tests.training import same_bits, sign, weights

NAMES = ["ada", "bob", "cid", "dora", "eve", "finn", "gus", "hal"]
WORDS = [*NAMES, "who", "sees", "?", "the", "dog", ".", "in", "rain", "and", "then", "it", "sleeps"]
WINDOWS = "--windows.max_seq_length 29 --windows.doc_stride 7 --windows.max_query_length 9"
BATCH = "--batch.total 24 --batch.per_device 12 --optimizer.learning_rate 0.01"
MODEL = """--model.hidden_size 24 --model.num_attention_heads 3 --model.num_hidden_layers 1 --model.intermediate_size 40
    --model.max_position_embeddings 31"""


def question_set(path, count, seed):
    """Who sees the dog?  Passages of 10 to 40 words in which one name is followed by "sees"."""
    rng = np.random.default_rng(seed)
    articles = []
    for number in range(count):
        words = rng.choice(["the", "rain", "and", "it", "sleeps", "."], rng.integers(10, 40)).tolist()
        place, name = int(rng.integers(len(words))), str(rng.choice(NAMES))
        context = " ".join([*words[:place], name, "sees", "the", "dog", *words[place:]])
        answer = {"text": name, "answer_start": context.index(name)}
        qas = [{"id": f"q{number}", "question": "who sees the dog ?", "answers": [answer]}]
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": qas}]})
    path.write_bytes(lzma.compress(json.dumps({"version": "1.1", "data": articles}).encode()))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("squad")
    (path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    question_set(path / "train.json.xz", 150, seed=1)
    question_set(path / "dev.json.xz", 37, seed=2)
    return path


@pytest.fixture(autouse=True)
def workdir(folder, monkeypatch):
    monkeypatch.setenv("BERT_WORKDIR", str(folder / "work"))


def fine_tune(folder, run, options):
    train.main(f"squad_tiny --data.train_file {folder}/train.json.xz --run.directory {folder / run} {options}".split())


@pytest.fixture(scope="module")
def from_random(folder):
    return f"{WINDOWS} {BATCH} {MODEL} --init.checkpoint none --data.vocab {folder}/vocab.txt"


@pytest.fixture(scope="module")
def run(folder, from_random):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_WORKDIR", str(folder / "work"))
        fine_tune(folder, "run", from_random)
    return folder / "run"


def answered(run, dataset, output, *more):
    predict.main(["--model", str(run), "--dataset", str(dataset), "--output", str(output), *map(str, more)])
    return json.loads(output.read_text())


def test_a_small_model_learns_to_answer_and_every_answer_stands_in_its_passage(folder, run):
    nbest = folder / "nbest.json"
    found = answered(run, folder / "dev.json.xz", folder / "predictions.json", "--nbest", nbest, "--batch", 16)
    dataset = predict.examples.read_dataset(folder / "dev.json.xz")
    assert found.keys() == {example.id for example in dataset.examples}
    assert metric.score(dataset.examples, found).exact_match > 80  # one name of eight at random: 12.5
    lists = json.loads(nbest.read_text())
    for example in dataset.examples:
        candidates, passage = lists[example.id], dataset.passages[example.passage]
        assert candidates[0]["text"] == found[example.id]
        assert sum(candidate["probability"] for candidate in candidates) == pytest.approx(1)
        for candidate in candidates:
            assert passage[candidate["start"] :].startswith(candidate["text"])


def test_answers_do_not_depend_on_the_batch(folder, run):
    one = answered(run, folder / "dev.json.xz", folder / "one.json", "--batch", 1)
    many = answered(run, folder / "dev.json.xz", folder / "many.json", "--batch", 25)
    assert one == many


def test_answers_in_half_precision_are_as_good(folder, run):
    found = answered(run, folder / "dev.json.xz", folder / "half.json", "--compute", "bfloat16")
    assert metric.score(predict.examples.read_dataset(folder / "dev.json.xz").examples, found).exact_match > 80


def test_the_run_goes_on_in_place_and_takes_the_epochs_of_its_data(folder, run, from_random, capfd):
    settings = json.loads((run / "config.json").read_text())["config"]
    windows = json.loads(next((folder / "work").rglob("manifest.json")).read_text())["counts"]["windows"]
    assert settings["run.steps"] == math.ceil(settings["length.epochs"] * windows / 24)
    assert settings["optimizer.warmup_steps"] == int(0.1 * settings["run.steps"])
    fine_tune(folder, "run", from_random)
    said = capfd.readouterr().err
    assert "up to date" in said
    assert f"after step {settings['run.steps']}" in said


def test_fine_tuning_goes_on_with_the_head_that_an_import_brings(folder, run, tmp_path, capfd):
    convert.main(["export", "huggingface", str(run), str(tmp_path / "theirs")])
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    once = f"{WINDOWS} {BATCH} --run.steps 1 --optimizer.warmup_steps 1"  # update 1 of the warm-up has rate 0
    fine_tune(folder, "from_import", f"{once} --init.checkpoint {tmp_path}/back")
    assert "fresh" not in capfd.readouterr().err
    before, after = (weights(path, step) for path, step in ((tmp_path / "back", 0), (folder / "from_import", 1)))
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)
    assert {"answer_span/kernel", "answer_span/bias"} <= before.keys()


@pytest.mark.slow
def test_the_command_in_the_model_card_is_that_of_the_run(folder, run, from_random, tmp_path):
    once = f"--init.checkpoint {run} --run.steps 1 --optimizer.warmup_steps 1"
    for number, options in enumerate((from_random, once)):
        fine_tune(folder, f"card{number}", f"{WINDOWS} {BATCH} {options} --run.steps 1")
        convert.main(["export", "huggingface", str(folder / f"card{number}"), str(tmp_path / f"theirs{number}")])
        command = (tmp_path / f"theirs{number}" / "README.md").read_text().split("```")[1].replace("\\\n", " ")
        assert command.split()[:4] == ["python", "-m", "squad.train", "squad_tiny"]
        train.main([*command.split()[3:], "--run.directory", str(folder / f"again{number}")])
        same_bits(weights(folder / f"card{number}", 1), weights(folder / f"again{number}", 1))


def test_a_vocabulary_of_another_size_is_refused(folder, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    (other / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS, "cat"]) + "\n")
    sign(other)
    with pytest.raises(InputError, match=r"vocab\.txt: 26 entries, but the model was trained with 25"):
        answered(other, folder / "dev.json.xz", tmp_path / "out.json")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("", "no weights: give --init.checkpoint"),
        ("--init.checkpoint none", "give --data.vocab"),
        (
            "--init.checkpoint RUN --model.hidden_size 27",
            "hidden_size 27 contradicts the weights of .*, whose model.* 24",
        ),
        ("--init.checkpoint none --data.vocab v --windows.max_seq_length 32", "more than the model's 31 positions"),
    ],
)
def test_commands_that_cannot_mean_what_they_say_are_refused(folder, run, options, reason):
    with pytest.raises(UsageError, match=reason):
        fine_tune(folder, "third", f"{WINDOWS} {BATCH} {MODEL} {options.replace('RUN', str(run))}")
    assert not (folder / "third").exists()


@pytest.mark.parametrize(
    "arguments", ["", "--dataset d.json", "--question q", "--dataset d --output o --question q --context c"]
)
def test_predict_needs_one_kind_of_question(run, arguments):
    with pytest.raises(UsageError):
        predict.main(["--model", str(run), *arguments.split()])
