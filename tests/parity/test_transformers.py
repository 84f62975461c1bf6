"""Hidden states and logits equal those of transformers, for models that go out, that come in, and for real weights.

`make parity` installs transformers in an environment of its own and runs these; $PARITY_PYTHON is another interpreter.
"""

import dataclasses
import itertools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from bert import encode, labels
from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.labels import Head
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.heads import Choice, Classifier, Pooler, Tags, TaskModel
from bert.pretraining import PretrainingModel
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from squad.model import AnswerSpans

pytestmark = pytest.mark.parity

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("PARITY_PYTHON", str(ROOT / ".venv-parity/bin/python"))
SEQUENCES, CHOICES, WORDS = "BertForSequenceClassification", "BertForMultipleChoice", "BertForTokenClassification"
TASKS = (SEQUENCES, CHOICES, WORDS)
KINDS = ("BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForQuestionAnswering", *TASKS)
CLASSES = ("no", "yes", "perhaps")
Arrays = dict[str, np.ndarray]
SIZES = {
    "small": ModelConfig(
        vocab_size=97,
        hidden_size=20,
        num_hidden_layers=2,
        num_attention_heads=5,
        intermediate_size=28,
        max_position_embeddings=19,
    ),
    "deep": ModelConfig(
        vocab_size=61,
        hidden_size=36,
        num_hidden_layers=11,
        num_attention_heads=3,
        intermediate_size=130,
        max_position_embeddings=64,
        type_vocab_size=3,
    ),
    "pre": ModelConfig(  # MegatronBert there
        vocab_size=89,
        hidden_size=28,
        num_hidden_layers=3,
        num_attention_heads=7,
        intermediate_size=51,
        max_position_embeddings=23,
        norm_placement="pre",
    ),
    "wide": ModelConfig(
        vocab_size=211,
        hidden_size=264,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=511,
        max_position_embeddings=128,
    ),
}


def asked(program: Sequence[str], jobs: Sequence[Any]) -> str:
    """Return what a program prints in the environment of transformers, given the jobs as JSON."""
    done = subprocess.run(
        [PYTHON, *program],
        cwd=ROOT,
        input=json.dumps(jobs, default=str),
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def oracle(*jobs: tuple[Any, ...]) -> list[Any]:
    """Results of tests/parity/oracle.py; to start it takes seconds, so that it is given many jobs at once."""
    results: list[Any] = json.loads(asked([str(ROOT / "tests/parity/oracle.py")], jobs))
    return results


def inputs(config: ModelConfig, tokens: int = 19) -> Arrays:
    """Random ids and segments, with padding of several lengths."""
    random = np.random.default_rng(4)
    lengths = np.array([tokens, tokens - 4, tokens - 9, 3, tokens - 1])[:, None]
    ids, segments = (random.integers(0, high, (5, tokens)) for high in (config.vocab_size, config.type_vocab_size))
    return {"input_ids": ids, "token_type_ids": segments, "attention_mask": np.arange(tokens)[None] < lengths}


def to_run(folder: Path, given: Arrays) -> tuple[str, Path, Path, Path]:
    """The job for a folder, whose result `theirs` reads."""
    if CHOICES in folder.parts:  # one question, whose choices are the rows
        given = {name: value[None] for name, value in given.items()}
    np.savez(folder / "inputs.npz", allow_pickle=False, **given)
    return "run", folder, folder / "inputs.npz", folder / "outputs.npz"


def theirs(folder: Path) -> Arrays:
    """What transformers made of a folder."""
    with np.load(folder / "outputs.npz") as found:
        return {name: found[name] for name in found.files}


def ours(run: Path, kind: str, config: ModelConfig, given: Arrays | None = None) -> Arrays:
    """What our model of that kind makes of a run directory, under the names of transformers."""
    given = inputs(config) if given is None else given
    ids, segments, mask = (
        tf.constant(given[name].astype(np.int32)) for name in ("input_ids", "token_type_ids", "attention_mask")
    )
    tokens = TokenBatch(ids, mask, segments)
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    encoder = Encoder(config, 0)
    checkpoint.load_weights(run, variables(encoder))
    found = {"hidden_states": np.stack(encoder.states(tokens, Mode(tf.float32, DropoutRng(None))))}
    if kind == "BertForQuestionAnswering":
        reader = TaskModel(config, 0, AnswerSpans.described)
        checkpoint.load_weights(run, variables(reader))
        found["start_logits"], found["end_logits"] = reader(batch, Mode(tf.float32, DropoutRng(None)))
    elif kind in TASKS:
        task = a_task(kind, config)
        checkpoint.load_weights(run, variables(task))
        logits = task.logits(found["hidden_states"][-1]).numpy()
        found["logits"] = logits.T if kind == CHOICES else logits
    elif kind == "encoder":
        found["last_hidden_state"] = found["hidden_states"][-1]
    elif kind == "BertModel":
        pooler = Pooler(config, 0)
        checkpoint.load_weights(run, variables(pooler))
        found |= {"last_hidden_state": found["hidden_states"][-1], "pooler_output": pooler(found["hidden_states"][-1])}
    else:
        model = PretrainingModel(config, 0, "nsp" if kind == "BertForPreTraining" else "none")
        checkpoint.load_weights(run, variables(model))
        batch["masked_lm_positions"] = tf.tile(tf.range(ids.shape[1])[None], [ids.shape[0], 1])
        words, pair = model(batch, Mode(tf.float32, DropoutRng(None)))
        words += model.masked_lm.bias
        found |= {"logits": words} if pair is None else {"prediction_logits": words, "seq_relationship_logits": pair}
    return found


class Task(tf.Module):
    """What classifies texts, compares choices or tags words."""

    def __init__(self, config: ModelConfig, head: Classifier | Choice | Tags) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(config, 0), head
        self.pooler = None if isinstance(head, Tags) else Pooler(config, 0)

    def logits(self, states: np.ndarray) -> tf.Tensor:
        return self.head(
            self.pooler(states) if self.pooler else tf.constant(states), Mode(tf.float32, DropoutRng(None))
        )


def a_task(kind: str, config: ModelConfig) -> Task:
    if kind == CHOICES:
        return Task(config, Choice(config, 0))
    return Task(config, (Classifier if kind == SEQUENCES else Tags)(config, 0, len(CLASSES)))


def assert_equal(one: Arrays, two: Arrays) -> None:
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, two[name], rtol=0, atol=1e-4, err_msg=name)
        assert np.std(value) > 0.01, f"{name} says nothing"


def vocabulary(config: ModelConfig) -> str:
    words = [f"w{number}" for number in range(config.vocab_size - len(SPECIAL))]
    return "\n".join([*SPECIAL, *words]) + "\n"


def a_run(folder: Path, config: ModelConfig, kind: str) -> None:
    """A run directory with every weight random."""
    module: tf.Module = a_task(kind, config) if kind in TASKS else TaskModel(config, 0, AnswerSpans.described)
    if kind not in (*TASKS, "BertForQuestionAnswering"):
        module = PretrainingModel(config, 0, "nsp" if kind == "BertForPreTraining" else "none")
    random, deviation = np.random.default_rng(5), config.hidden_size**-0.5
    folder.mkdir(parents=True)
    config.save(folder / "bert_config.json")
    (folder / "vocab.txt").write_text(vocabulary(config))
    if kind in (SEQUENCES, WORDS):
        head = Head(kind="classifier" if kind == SEQUENCES else "tags", labels=CLASSES)
        (folder / "config.json").write_text(json.dumps(head.entries()))
    values = {name: v + random.normal(0, deviation, v.shape).astype("f") for name, v in variables(module).items()}
    checkpoint.save(folder, 0, values, keep=1)


def command(way: str, source: Path, target: Path) -> None:
    convert.main([way, "huggingface", str(source), str(target)])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ours in run/KIND/SIZE, and as they went out in theirs/KIND/SIZE."""
    root, jobs = tmp_path_factory.mktemp("exported"), []
    for kind, size in itertools.product(KINDS[1:], SIZES):
        a_run(root / "run" / kind / size, SIZES[size], kind)
        command("export", root / "run" / kind / size, root / "theirs" / kind / size)
        jobs.append(to_run(root / "theirs" / kind / size, inputs(SIZES[size])))
    oracle(*jobs)
    return root


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs in theirs/KIND/SIZE, and as they came in in run/KIND/SIZE."""
    root = tmp_path_factory.mktemp("imported")
    made: list[tuple[Any, ...]] = []
    jobs: list[tuple[Any, ...]] = []
    for kind, size in itertools.product(KINDS, SIZES):
        folder = root / "theirs" / kind / size
        folder.mkdir(parents=True)
        (folder / "vocab.txt").write_text(vocabulary(SIZES[size]))
        sizes: dict[str, Any] = {
            key: value for key, value in dataclasses.asdict(SIZES[size]).items() if isinstance(value, int)
        }
        sizes |= {"id2label": dict(enumerate(CLASSES))} if kind in (SEQUENCES, WORDS) else {}
        name = f"Megatron{kind}" if SIZES[size].norm_placement == "pre" else kind
        made.append(("make", name, folder, len(made), sizes))
        jobs.append(to_run(folder, inputs(SIZES[size])))
    oracle(*made, *jobs)
    for kind, size in itertools.product(KINDS, SIZES):
        command("import", root / "theirs" / kind / size, root / "run" / kind / size)
    return root


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_goes_out_computes_the_same_there(kind: str, size: str, exported: Path) -> None:
    found, expected = theirs(exported / "theirs" / kind / size), ours(exported / "run" / kind / size, kind, SIZES[size])
    assert_equal(found, expected)
    if kind in TASKS:
        np.testing.assert_allclose(found["logits"], expected["logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_in_computes_the_same_here(kind: str, size: str, imported: Path) -> None:
    found, expected = theirs(imported / "theirs" / kind / size), ours(imported / "run" / kind / size, kind, SIZES[size])
    assert_equal(found, expected)
    if kind in TASKS:
        np.testing.assert_allclose(found["logits"], expected["logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [SEQUENCES, WORDS])
def test_names_of_classes_are_theirs_both_ways(kind: str, exported: Path, imported: Path) -> None:
    assert labels.read(imported / "run" / kind / "small").labels == CLASSES
    assert oracle(("classes", exported / "theirs" / kind / "small"))[0] == list(CLASSES)


def test_a_number_is_a_regression_there_and_comes_back(tmp_path: Path) -> None:
    config = SIZES["small"]
    (tmp_path / "run").mkdir()
    config.save(tmp_path / "run/bert_config.json")
    (tmp_path / "run/vocab.txt").write_text(vocabulary(config))
    task = Task(config, Classifier(config, 0, 1))
    checkpoint.save(tmp_path / "run", 0, variables(task), keep=1)
    command("export", tmp_path / "run", tmp_path / "theirs")
    oracle(to_run(tmp_path / "theirs", inputs(config)))
    logits = theirs(tmp_path / "theirs")["logits"]
    states = theirs(tmp_path / "theirs")["hidden_states"][-1]
    np.testing.assert_allclose(logits, task.logits(states), rtol=0, atol=1e-5)
    command("import", tmp_path / "theirs", tmp_path / "back")
    assert labels.read(tmp_path / "back").regression


TEXTS = ["A man eats pasta with cheese.", "", "Someone is having noodles for dinner.", "The engine has 12 valves!"]


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real weights, six layers of width 384: as they come in package/, come in in run/, go out in theirs/."""
    root = tmp_path_factory.mktemp("minilm")
    (root / "package").symlink_to(oracle(("minilm",))[0])
    command("import", root / "package", root / "run")
    command("export", root / "run", root / "theirs")
    return root


def test_real_weights_compute_the_same(minilm: Path) -> None:
    config = ModelConfig.load(minilm / "run/bert_config.json")
    oracle(to_run(minilm / "theirs", inputs(config)))
    assert_equal(theirs(minilm / "theirs"), ours(minilm / "run", "BertModel", config))


def test_real_weights_come_back_as_they_were(minilm: Path) -> None:
    before, after = (load_file(minilm / folder / "model.safetensors") for folder in ("package", "theirs"))
    before.pop("embeddings.position_ids", None)
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)


def test_features_of_real_texts_are_theirs_and_mean_something(minilm: Path) -> None:
    (minilm / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    arguments = ["--model", str(minilm / "run"), "--input", str(minilm / "texts.txt"), "--layers", "0", "-1"]
    encode.main([*arguments, "--pool", "mean", "--output", str(minilm / "features.npz")])
    with np.load(minilm / "features.npz") as found:
        features, rows = found["features"], np.split(found["ids"], found["row_splits"][1:-1])
    assert [row.tolist() for row in rows] == oracle(*(("tokens", minilm / "theirs", text) for text in TEXTS))
    length = max(map(len, rows))
    ids, mask = (np.stack([np.pad(x, (0, length - len(x))) for x in of]) for of in (rows, [row > 0 for row in rows]))
    oracle(to_run(minilm / "theirs", {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}))
    states = theirs(minilm / "theirs")["hidden_states"][[0, -1]]  # [2, B, T, D]
    mean = (states * mask[..., None]).sum(2) / mask.sum(1)[:, None]
    np.testing.assert_allclose(features, mean.transpose(1, 0, 2), rtol=0, atol=1e-5)
    units = features[:, 1] / np.linalg.norm(features[:, 1], axis=-1, keepdims=True)
    assert units[0] @ units[2] > 0.3 > units[0] @ units[3]
    encode.main([*arguments, "--output", str(minilm / "embeddings.npz")])  # as its folder says: of length 1
    with np.load(minilm / "embeddings.npz") as found:
        np.testing.assert_allclose(found["features"][:, 1], units, rtol=0, atol=1e-5)


def test_their_tokenizer_of_what_goes_out_knows_special_tokens(exported: Path) -> None:
    ids = oracle(("tokens", exported / "theirs/BertForPreTraining/small", "W3 w1, w2"))[0]
    assert ids == [2, 5 + 3, 5 + 1, 1, 5 + 2, 3]
