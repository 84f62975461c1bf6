"""Start from another run or an import, and resume: what is taken, what may be missing, and what is refused."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert import labels
from bert.core import manifest
from bert.core.config import ModelConfig, PretrainConfig, RunConfig
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.labels import Head
from bert.model.encoder import Encoder, variables
from bert.model.heads import Classifier, Pooler, TaskModel
from bert.pretraining import Pretraining, PretrainingModel
from bert.text import rules
from bert.text.records import Dataset
from bert.training import checkpoint, loop, resume
from bert.training.communicator import Communicator
from squad.model import AnswerSpans
from tests.bert.training.imports import Bare, Values, export_and_import, write_run
from tests.bert.training.ranks import Ranks, as_ranks
from tests.training import same_bits, sign, weights


def initial_weights(config: PretrainConfig, dataset: Path, start_from: Path) -> Values:
    """Return the initial weights of a run that starts from another."""
    module = variables(PretrainingModel(config.model, config.run.seed))
    data = manifest.load(dataset)
    resume.begin(config, Communicator(), module, data, dataset / "vocab.txt", start_from, new_heads=(), entries={})
    return {name: variable.numpy() for name, variable in module.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "missing"),
    [
        (Bare, ["masked_lm", "next_sentence"]),
        (lambda config: TaskModel(config, 1, AnswerSpans.described), ["pooler", "masked_lm", "next_sentence"]),
        (lambda config: PretrainingModel(config, 1, "none"), ["pooler", "next_sentence"]),
        (lambda config: PretrainingModel(config, 1), []),
    ],
    ids=["encoder and pooler", "questions", "masked words", "all"],
)
def test_heads_that_an_import_lacks_are_reported_and_initialised_randomly(
    module: type[Bare],
    missing: list[str],
    config: PretrainConfig,
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = write_run(tmp_path / "ours", module(config.model), config.model, dataset)
    back = export_and_import(tmp_path / "ours")
    capsys.readouterr()
    after = initial_weights(config, dataset, back)
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == bool(missing)
    for line in notes:
        assert re.findall(r"has no ([a-z_, ]+);", line) == [", ".join(missing)]
    random = {name: v.numpy() for name, v in variables(PretrainingModel(config.model, config.run.seed)).items()}
    for name, value in after.items():
        expected = random if name.split("/")[0] in missing else before
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("started", [True, False])
def test_all_ranks_begin_with_the_weights_of_rank_0(
    started: bool, config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    before = variables(PretrainingModel(config.model, config.run.seed))
    if started:
        before = write_run(tmp_path / "ours", PretrainingModel(config.model, 99), config.model, dataset)

    def work(comm: Ranks) -> Values:
        module = variables(PretrainingModel(config.model, config.run.seed + comm.rank))
        source = tmp_path / "ours" if started else None
        resume.begin(
            config, comm, module, manifest.load(dataset), dataset / "vocab.txt", source, new_heads=(), entries={}
        )
        return {name: variable.numpy() for name, variable in module.items()}

    for after in as_ranks(3, 1, work):
        same_bits(after, {name: np.asarray(value) for name, value in before.items()})


def test_a_run_that_was_trained_here_must_have_every_head(
    config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    write_run(tmp_path / "ours", Bare(config.model), config.model, dataset)
    with pytest.raises(InputError, match="no variable masked_lm/bias"):
        initial_weights(config, dataset, tmp_path / "ours")
    (tmp_path / "ours/config.json").unlink()
    sign(tmp_path / "ours")
    with pytest.raises(InputError, match="no variable masked_lm/bias"):
        initial_weights(config, dataset, tmp_path / "ours")


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["layer_1/mlp/inner/bias", "pooler/kernel", "masked_lm/transform/kernel"])
def test_an_import_that_lost_a_variable_is_refused(
    gone: str, config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    write_run(tmp_path / "ours", PretrainingModel(config.model, 1), config.model, dataset)
    back = export_and_import(tmp_path / "ours")
    settings = json.loads((back / "config.json").read_text())
    settings["imported"]["missing_heads"] = ["masked_lm", "next_sentence"]  # as if it had come in without them
    (back / "config.json").write_text(json.dumps(settings))
    sign(back)
    values = weights(back, 0)
    del values[gone]
    checkpoint.save(back, 0, values, keep=1)
    with pytest.raises(InputError, match=f"no variable {gone}"):
        initial_weights(config, dataset, back)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", "[]", '{"imported": 3}', '{"imported": {"missing_heads": 3}}'])
def test_a_damaged_config_is_reported(text: str, config: PretrainConfig, dataset: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "ours", PretrainingModel(config.model, 1), config.model, dataset)
    (tmp_path / "ours/config.json").write_text(text)
    sign(tmp_path / "ours")
    with pytest.raises(IntegrityError, match=r"ours/config\.json: damaged"):
        initial_weights(config, dataset, tmp_path / "ours")
    assert not config.run.path.exists()


def test_weights_of_another_vocabulary_of_the_same_size_are_refused(
    config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    words = (dataset / "vocab.txt").read_text().split("\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "vocab.txt").write_text("\n".join([*words[:-3], words[-2], words[-3], ""]))
    data, vocab = manifest.load(dataset), dataset / "vocab.txt"
    with pytest.raises(UsageError, match=r"other/vocab\.txt and .*/vocab\.txt differ; make the data with"):
        resume.begin(config, Communicator(), {}, data, vocab, tmp_path / "other", new_heads=(), entries={})
    assert not config.run.path.exists()


def test_weights_of_a_byte_level_bpe_are_refused_for_word_pieces(
    config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tokenizer.json").write_text("{}\n")
    data, vocab = manifest.load(dataset), dataset / "vocab.txt"
    with pytest.raises(UsageError, match=r"other/tokenizer\.json and .*/vocab\.txt are of different kinds"):
        resume.begin(config, Communicator(), {}, data, vocab, tmp_path / "other", new_heads=(), entries={})
    assert not config.run.path.exists()


def test_a_run_that_other_code_began_says_so_when_it_resumes(
    config: PretrainConfig, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = manifest.load(dataset)
    write_run(tmp_path / "other", PretrainingModel(config.model, 1), config.model, dataset)
    initial_weights(config, dataset, tmp_path / "other")
    capsys.readouterr()
    resume._check_same(config, data)
    assert capsys.readouterr().err == ""  # the same
    path = config.run.path / "config.json"
    recorded = json.loads(path.read_text())
    code = recorded["code"]
    path.write_text(json.dumps(recorded | {"code": "0123abcd", "versions": recorded["versions"] | {"numpy": "1.0"}}))
    resume._check_same(config, data)
    said = capsys.readouterr().err
    assert f"begun by another program (code was 0123abcd, is {code}, numpy was 1.0, is {np.__version__})" in said
    del recorded["code"]  # of an older version
    path.write_text(json.dumps(recorded))
    resume._check_same(config, data)
    assert capsys.readouterr().err == ""


def test_a_run_directory_of_another_version_is_refused_in_one_line(config: PretrainConfig, dataset: Path) -> None:
    data, state = manifest.load(dataset), {"a": tf.Variable([2.0, 3.0])}
    resume.begin(config, Communicator(), {}, data, dataset / "vocab.txt", None, new_heads=(), entries={})
    checkpoint.save(config.run.path, 3, state, keep=1)
    assert resume.restore(config, Communicator(), state, data) == 3
    path = config.run.path / "config.json"
    facts = json.loads(path.read_text())
    for version in (1, resume.VERSION + 1):
        path.write_text(json.dumps(facts | {"version": version}))
        sign(config.run.path)
        with pytest.raises(UsageError, match=f"its layout is of version {version}, .* give another --run.directory"):
            resume.restore(config, Communicator(), state, data)
    del facts["version"]  # as before there was a version
    path.write_text(json.dumps(facts))
    sign(config.run.path)
    with pytest.raises(UsageError, match="its layout is of version 1"):
        resume.restore(config, Communicator(), state, data)


def test_the_current_folder_is_a_run_directory() -> None:
    default = Path("work/recipe")
    for directory, expected in ((Path("."), Path(".")), (Path("x"), Path("x")), (None, default)):
        assert RunConfig(directory=directory).placed(default, steps=7) == RunConfig(directory=expected, steps=7)


class Classifying(tf.Module):
    """What classifies texts in three classes."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.encoder, self.pooler = Encoder(config, seed), Pooler(config, seed)
        self.classifier = Classifier(config, seed, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stored", "note"),
    [
        ({}, ""),  # of an earlier version
        (Head(kind="classifier", labels=("no", "yes", "?")).entries(), ""),
        (Head(kind="classifier", labels=("yes", "no", "?")).entries(), "classes yes, no, ?, not classes no, yes, ?;"),
        (Head(kind="classifier", labels=("no", "yes")).entries(), "classes no, yes, not classes no, yes, ?;"),
        (Head(kind="classifier", regression=True).entries(), "a number, not classes no, yes, ?;"),
        (Head(kind="tags", labels=("no", "yes")).entries(), ""),
        ({"head": "answer_span"}, ""),
    ],
)
def test_a_head_is_taken_only_if_its_classes_have_the_same_names_in_the_same_order(
    stored: dict[str, Any],
    note: str,
    config: PretrainConfig,
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = write_run(tmp_path / "other", Classifying(config.model, 1), config.model, dataset)
    (tmp_path / "other/config.json").write_text(json.dumps({"config": {}} | stored))
    sign(tmp_path / "other")
    module, data, vocab = variables(Classifying(config.model, 2)), manifest.load(dataset), dataset / "vocab.txt"
    random = {name: variable.numpy() for name, variable in module.items()}
    facts = {"recipe": "classify"} | Head(kind="classifier", labels=("no", "yes", "?")).entries()
    resume.begin(
        config, Communicator(), module, data, vocab, tmp_path / "other", new_heads=("classifier",), entries=facts
    )
    assert (f"classifier has {note} initialised randomly" in capsys.readouterr().err) == bool(note)
    for name, variable in module.items():
        expected = random if note and name.startswith("classifier/") else before
        np.testing.assert_array_equal(variable.numpy(), expected[name], err_msg=name)
    assert labels.read(config.run.path) == Head(kind="classifier", labels=("no", "yes", "?"))


def test_what_a_task_says_of_itself_is_recorded_beside_what_every_run_says(
    config: PretrainConfig, dataset: Path
) -> None:
    data, vocab = manifest.load(dataset), dataset / "vocab.txt"
    resume.begin(
        config, Communicator(), {}, data, vocab, None, (), {"recipe": "mine", "config": "another", "head": "tags"}
    )
    facts = json.loads((config.run.path / "config.json").read_text())
    assert facts["recipe"] == "mine" and facts["head"] == "tags" and facts["config"]["run.seed"] == config.run.seed
    resume._check_same(config, data)


@pytest.mark.slow
def test_a_run_whose_samples_had_other_rules_is_refused(config: PretrainConfig, dataset: Path) -> None:
    data, vocab = Dataset(dataset, "train"), dataset / "vocab.txt"
    run = dataclasses.replace(config.run, steps=4, evaluate_every=0)
    straight = dataclasses.replace(config, run=dataclasses.replace(run, directory=config.run.path / "new"))
    old = dataclasses.replace(config, run=dataclasses.replace(run, directory=config.run.path / "old"))

    def train(config: PretrainConfig) -> None:
        task = Pretraining(config.model, config.run.seed)
        loop.train(loop.Training(task=task, config=config, comm=Communicator(), data=data, vocab=vocab))

    train(straight)
    facts = json.loads((straight.run.path / "config.json").read_text())
    assert facts["rules"] == rules.RULES == 2
    shutil.copytree(straight.run.path, old.run.path)
    (old.run.path / "config.json").write_text(json.dumps(facts | {"rules": 99}))
    sign(old.run.path)
    with pytest.raises(UsageError, match="ordered by rules 99, and this program has 2 only; use the version"):
        train(old)
    del facts["rules"]
    (old.run.path / "config.json").write_text(json.dumps(facts))
    sign(old.run.path)
    with pytest.raises(UsageError, match=r"by rules 1, and .* \(1\.0\.0 for 1\), or begin anew"):
        train(old)


def test_an_import_has_the_newest_rules(tmp_path: Path) -> None:
    rules.check(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"imported": {}, "config": {"model.hidden_size": 20}}))
    rules.check(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(IntegrityError, match=r"config\.json: damaged"):
        rules.check(tmp_path)
