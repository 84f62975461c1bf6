"""No reader of a run takes a configuration, a vocabulary or a set of weights that is not the one of that run."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from bert import adapt, hidden_states
from bert.convert import __main__ as convert
from bert.convert import names
from bert.core import manifest
from bert.core.config import ModelConfig, PretrainConfig, StartConfig
from bert.core.errors import InputError, IntegrityError
from bert.heads import GENERATOR, KINDS, PRETRAINED
from bert.model import heads
from bert.model.encoder import Encoder, variables
from bert.model.heads import TaskModel
from bert.pretraining import PretrainingModel
from bert.runs import Run
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint, description, fine_tuning, resume
from bert.training.communicator import Communicator
from bert.training.saver import Saver
from extensions.gpt import trained
from squad import model as questions
from squad.model import AnswerSpans
from squad.recipes import RECIPES

SMALL = ModelConfig(
    vocab_size=9, hidden_size=6, num_hidden_layers=2, num_attention_heads=3, intermediate_size=7, type_vocab_size=2
)
WINDOWS = {"windows.max_seq_length": 13, "windows.doc_stride": 5, "windows.max_query_length": 4}


def written(run: Path, values: Mapping[str, tf.Tensor]) -> Path:
    """A run directory with these values as its checkpoint."""
    run.mkdir()
    SMALL.save(run / "bert_config.json")
    (run / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "##b", "zoe", "\u6c34"]) + "\n", encoding="utf-8")
    (run / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')
    (run / "tokenizer.json").write_text('{"version": "2"}\n')  # a run has this one or vocab.txt; all are checked alike
    (run / "config.json").write_text(json.dumps({"version": 2, "config": WINDOWS}))
    checkpoint.save(run, 3, values, keep=1)
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return written(tmp_path / "run", variables(TaskModel(SMALL, 1, AnswerSpans.described)))


def flips(path: Path) -> Iterator[int]:
    """Flip each bit of a file, one at a time; yield its number while it is flipped."""
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        place = bit // 8
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit % 8]) + data[place + 1 :])
        yield bit
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", description.FILES)
def test_every_flipped_bit_of_a_described_file_is_found(name: str, run: Path) -> None:
    for bit in flips(run / name):
        with pytest.raises(IntegrityError) as raised:
            checkpoint.check_description(run)
        assert str(raised.value).startswith(f"{run / name}: not the file that "), bit
    checkpoint.check_description(run)


def _pretrain(run: Path, config: PretrainConfig, dataset: Path) -> None:
    resume.begin(
        config, Communicator(), {}, manifest.load(dataset), dataset / "vocab.txt", run, new_heads=(), entries={}
    )


def _resume(run: Path, config: PretrainConfig, dataset: Path) -> None:
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, directory=run))
    resume.restore(config, Communicator(), {}, manifest.load(dataset))


def _fine_tune(run: Path, config: PretrainConfig, dataset: Path) -> None:
    recipe = RECIPES["squad_tiny"]()
    fine_tuning.sources(dataclasses.replace(recipe, init=StartConfig(checkpoint=run)), (), None)


def _encode(run: Path, config: PretrainConfig, dataset: Path) -> None:
    hidden_states.Reader(Run.open(run))


READERS: dict[str, Callable[[Path, PretrainConfig, Path], object]] = {
    "bert.pretrain, the same run": _resume,
    "bert.pretrain --init.checkpoint": _pretrain,
    "squad.train --init.checkpoint": _fine_tune,
    "squad.predict, squad.threshold, squad.export": lambda run, *_: questions.load(run),
    "bert.encode": _encode,
    "bert.adapt": lambda run, *_: adapt.main([str(run), "--words", "words.txt", "--output", str(run.parent / "out")]),
    "bert.generate, bert.evaluate_lm": lambda run, *_: trained.load(run),
    "bert.convert export": lambda run, *_: convert.convert("export", "huggingface", run, run.parent / "out"),
}


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", description.FILES)
def test_every_reader_refuses_a_changed_file_before_it_uses_it(
    name: str, reader: str, run: Path, config: PretrainConfig, dataset: Path
) -> None:
    data = (run / name).read_bytes()
    changes = [data.replace(b"2", b"3"), b"{" + data, data + b"\n"]
    changes += [data.replace(b'num_hidden_layers": 2', b'num_hidden_layers": 99999999')]
    for changed in {*changes, b""} - {data}:
        (run / name).write_bytes(changed)
        with pytest.raises(IntegrityError, match=f"/{name}: not the file that .* export it with python -m bert.conv"):
            READERS[reader](run, config, dataset)
    (run / name).unlink()
    with pytest.raises(InputError, match=f"/{name}: no such file, but .* records it; put it back"):
        READERS[reader](run, config, dataset)


def test_a_damaged_manifest_does_not_accuse_the_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = variables(TaskModel(SMALL, 1, AnswerSpans.described))
    checkpoint.save(run, 5, values, keep=2)
    path = run / "checkpoints/step-00000005/manifest.json"
    facts = json.loads(path.read_text())
    del facts["checksum"]  # what follows is not found by it
    facts["extra"]["description"]["vocab.txt"] = "0" * 64
    path.write_text(json.dumps(facts))
    checkpoint.check_description(run)
    changes: list[Any] = [{"description": 3}, {"description": {"vocab.txt ": "0"}}, {"descriptioo": {}}, {"step": 3}]
    for change in changes:
        path.write_text(json.dumps(facts | {"extra": facts["extra"] | change}))
        assert checkpoint.load_weights(run, values).name == "step-00000003"
        assert "trying another checkpoint" in capsys.readouterr().err


def test_a_checkpoint_of_an_earlier_version_is_taken_with_one_warning(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "checkpoints/step-00000003/manifest.json"
    facts = json.loads(path.read_text())
    del facts["extra"]["description"], facts["checksum"]
    path.write_text(json.dumps(facts))
    questions.load(run)
    assert capsys.readouterr().err.count("warning: ") == 1


def test_what_a_disk_does_to_a_file_after_the_start_is_not_recorded_as_right(run: Path) -> None:
    saver = Saver(run, 1, 0, Communicator())
    saver.description = description.hashes(run)
    (run / "vocab.txt").write_text("other\n")
    saver.save(7, {"a": tf.Variable(1.0)})
    saver.wait()
    with pytest.raises(IntegrityError, match=r"vocab\.txt: not the file"):
        checkpoint.check_description(run)


def values_of(*modules: tf.Module, **more: float) -> dict[str, tf.Tensor]:
    values = {name: tf.identity(variable) for module in modules for name, variable in variables(module).items()}
    return values | {name.replace("__", "/"): tf.constant(value) for name, value in more.items()}


DEEPER = dataclasses.replace(SMALL, num_hidden_layers=4)
SLOTS = {"adam_m__layer_0__mlp__bias": 1.0, "applied": 1.0, "guard__skipped": 1.0, "run__seconds": 1.0}


@pytest.mark.slow
def test_weights_that_the_model_does_not_take_are_refused(tmp_path: Path) -> None:
    everything = values_of(PretrainingModel(SMALL, 1), **SLOTS)
    cases = {
        "4 layers, but this model has 2": values_of(PretrainingModel(DEEPER, 1)),
        "1 layers, but this model has 2": {
            name: value for name, value in everything.items() if not name.startswith("layer_1/")
        },
        r"2 variables are not this model's \(embeddings/language, layer_1/gate\)": values_of(
            PretrainingModel(SMALL, 1), embeddings__language=1.0, layer_1__gate=1.0
        ),
        r"1 variables are not this model's \(adapters/a\)": everything | {"adapters/a": tf.constant(1.0)},
        r"1 variables are not this model's \(final/layer_norm\)": everything | {"final/layer_norm": tf.constant(1.0)},
    }
    for number, (reason, values) in enumerate(cases.items()):
        run = written(tmp_path / f"run{number}", values)
        for module in (Encoder(SMALL, 1), PretrainingModel(SMALL, 1)):
            with pytest.raises(InputError, match=reason):
                checkpoint.load_weights(run, variables(module))
        with pytest.raises(InputError, match=reason if "layers" in reason else "unknown tensors: "):
            convert.convert("export", "google", run, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_the_state_of_training_and_heads_of_other_tasks_may_remain(tmp_path: Path) -> None:
    own = heads.Output(SMALL, 1, f"{checkpoint.OF_OBJECTIVE}/halves", outputs=1)
    modules = PretrainingModel(SMALL, 1), heads.AnswerSpan(SMALL, 1), own
    run = written(tmp_path / "run", values_of(*modules, **SLOTS))
    for module in (Encoder(SMALL, 2), PretrainingModel(SMALL, 2, "none"), TaskModel(SMALL, 2, AnswerSpans.described)):
        checkpoint.load_weights(run, variables(module))
    convert.convert("export", "google", run, tmp_path / "out")


def test_a_run_resumes_from_exactly_its_own_variables(tmp_path: Path) -> None:
    run = written(tmp_path / "run", {"a": tf.constant(1.0), "run/seconds": tf.constant(1.0)})
    with pytest.raises(InputError, match=r"1 variables are not this model's \(run/seconds\)"):
        checkpoint.restore(run, {"a": tf.Variable(0.0)})


def test_all_heads_are_known_to_both_sides() -> None:
    assert [name for name in (*PRETRAINED, *KINDS) if name != GENERATOR] == names.HEAD_NAMES  # which is not exported
