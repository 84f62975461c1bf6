"""A run whose ranks differ, or whose checkpoints do not fit on the disk, ends before its first update."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from bert.core import files, manifest
from bert.core.config import ModelConfig, ParallelConfig, RunConfig
from bert.core.errors import ResourceError, UsageError, UserError
from bert.hardware.devices import Device
from bert.model import cost
from bert.model.model_shard import Parts
from bert.training import preflight
from bert.training.communicator import Communicator
from tests.bert.training.ranks import Ranks, as_ranks

PLAIN, SHARDED = ParallelConfig(), ParallelConfig(shard_optimizer=True)
STATE = {"a": tf.Variable(tf.zeros([3, 5])), "b": tf.Variable(0.0)}


class Second(Communicator):
    """Rank 1 of 2, where rank 0 has other settings, or where `wrong` ranks do."""

    rank, size = 1, 2

    def __init__(self, changes: dict[str, Any], wrong: float) -> None:
        self.changes, self.wrong = changes, wrong

    def broadcast_object(self, value: Any) -> Any:
        return value | self.changes if isinstance(value, dict) else value

    def all_reduce(self, tensors: Any, num_fp16: int = 0) -> list[tf.Tensor]:
        return [tensor + self.wrong for tensor in tensors]


def check(dataset: Path, comm: Communicator, state: dict[str, tf.Variable] = STATE) -> None:
    preflight.same_on_all_ranks(
        {"run.seed": 5, "run.steps": 7}, manifest.load(dataset), state, dataset / "run" / "new", comm
    )


def test_ranks_that_agree_pass(dataset: Path) -> None:
    check(dataset, Communicator())
    check(dataset, Second({}, wrong=0.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run.seed": 6}, "rank 1: run.seed is 5, on rank 0 6; give all ranks"),
        ({"tensorflow": "1.0"}, "on rank 0 1.0"),
        ({"data": "0"}, "rank 1: data is"),
        ({"code": "0"}, "rank 1: code is [0-9a-f]{12}, on rank 0 0; give all ranks the same command, code and data"),
        ({"run.new": 1}, "run.new is None, on rank 0 1"),
    ],
)
def test_the_rank_that_differs_reports_the_difference(changes: dict[str, Any], message: str, dataset: Path) -> None:
    with pytest.raises(UsageError, match=message):
        check(dataset, Second(changes, wrong=0.0))


def test_code_is_told_from_code_with_one_other_line(tmp_path: Path) -> None:
    assert preflight.code() == preflight.code() != preflight.code(tmp_path)
    for name, line in (("one", "rate = 0.01"), ("two", "rate = 0.02"), ("three", "rate = 0.01")):
        module = tmp_path / name / "bert" / "model" / "rates.py"
        module.parent.mkdir(parents=True)
        module.write_text(line)
    one, two, three = (preflight.code(tmp_path / name) for name in ("one", "two", "three"))
    assert one == three != two


def test_the_others_end_with_it(dataset: Path) -> None:
    with pytest.raises(UserError, match="1 of 2 ranks differ"):
        check(dataset, Second({}, wrong=1.0))


def test_a_disk_too_small_for_the_checkpoints_is_refused(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 127}))
    with pytest.raises(ResourceError, match="2 checkpoints need 128 bytes, 127 are free"):
        check(dataset, Communicator())


def on_ranks(count: int, of_this_host: int) -> Communicator:
    comm = Communicator()
    comm.size, comm.local_size = count, of_this_host
    return comm


def test_a_model_that_cannot_fit_into_memory_is_refused_before_it_is_made() -> None:
    preflight.memory(ModelConfig(vocab_size=99), PLAIN, Communicator())
    with pytest.raises(
        ResourceError, match=r"GiB; choose a smaller model, or divide it over ranks with --parallel\.tensor"
    ):
        preflight.memory(
            ModelConfig(hidden_size=65_536, num_attention_heads=1024, num_hidden_layers=100), PLAIN, Communicator()
        )


def test_a_model_whose_moments_fit_only_when_divided_is_refused_when_they_are_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ModelConfig(vocab_size=99, num_hidden_layers=3)
    count = cost.parameters(model)
    # On 8 ranks, 2 of them on this host: 8 bytes per parameter for weight and gradient, and an eighth of the moments.
    divided, whole, halves = (2 * each * count for each in (8 + 1, 8 + 8, 8 + 4))
    monkeypatch.setattr(preflight.os, "sysconf", lambda name: divided + 2 if name == "SC_PHYS_PAGES" else 1)
    preflight.memory(model, SHARDED, on_ranks(8, of_this_host=2))
    with pytest.raises(ResourceError, match=r"give --parallel\.shard_optimizer true, or choose a smaller model"):
        preflight.memory(model, PLAIN, on_ranks(8, of_this_host=2))
    with pytest.raises(ResourceError, match=f"{halves / 2**30:,.1f} GiB; .*divide it over ranks"):
        preflight.memory(model, SHARDED, on_ranks(2, of_this_host=2))  # a half of the moments is still too much
    monkeypatch.setattr(preflight.os, "sysconf", lambda name: whole if name == "SC_PHYS_PAGES" else 1)
    preflight.memory(model, PLAIN, on_ranks(8, of_this_host=2))


def test_a_teacher_that_does_not_fit_beside_the_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, teacher = (ModelConfig(vocab_size=99, num_hidden_layers=layers) for layers in (3, 12))
    count = cost.teacher_parameters(teacher)
    need = 16 * cost.parameters(model) + 4 * count
    monkeypatch.setattr(preflight.os, "sysconf", lambda name: need if name == "SC_PHYS_PAGES" else 1)
    preflight.memory(model, PLAIN, Communicator(), teacher=teacher)
    monkeypatch.setattr(preflight.os, "sysconf", lambda name: need - 1 if name == "SC_PHYS_PAGES" else 1)
    with pytest.raises(ResourceError, match=f"parameters, and a teacher of {count:,}, need"):
        preflight.memory(model, PLAIN, Communicator(), teacher=teacher)


def test_a_model_that_fits_only_in_parts_passes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelConfig(vocab_size=99, num_hidden_layers=3)
    need = 2 * 16 * cost.local_parameters(model, 2)
    monkeypatch.setattr(preflight.os, "sysconf", lambda name: need if name == "SC_PHYS_PAGES" else 1)
    preflight.memory(model, ParallelConfig(tensor=2), on_ranks(4, of_this_host=2))
    with pytest.raises(ResourceError):
        preflight.memory(model, PLAIN, on_ranks(4, of_this_host=2))


@pytest.mark.parametrize(
    ("parallel", "ranks", "said"),
    [
        (PLAIN, 1, None),
        (ParallelConfig(overlap=True), 1, "parallel.overlap has no effect on one rank"),
        (
            ParallelConfig(bucket_megabytes=3, shard_optimizer=True),
            1,
            "parallel.bucket_megabytes, parallel.shard_optimizer have no effect on one rank",
        ),
        (ParallelConfig(overlap=True), 2, None),
        (ParallelConfig(overlap=True, bucket_megabytes=30), 2, "parallel.overlap hides nothing: all 23.2 MB"),
        (SHARDED, 2, None),
    ],
)
def test_settings_that_change_nothing_are_named(parallel: ParallelConfig, ranks: int, said: str | None) -> None:
    model = ModelConfig(vocab_size=99, hidden_size=256, num_attention_heads=4, num_hidden_layers=3)
    told = preflight.settings_without_effect(parallel, model, ranks)
    assert (told is None) if said is None else (told is not None and told.startswith(said)), told


class InParts(Communicator):
    """One of the ranks that hold a model together; this host has all of them, or half."""

    def __init__(self, count: int, on_this_host: int) -> None:
        self.parts = Parts(0, count, lambda x, name: x)
        self.local_size = on_this_host


def test_a_model_that_cannot_be_divided_is_refused_and_parts_on_several_hosts_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, run = ModelConfig(vocab_size=99, hidden_size=24, num_attention_heads=12, intermediate_size=28), RunConfig()
    preflight.parts(model, run, Communicator())
    preflight.parts(model, run, InParts(4, on_this_host=8))
    assert capsys.readouterr().err == ""
    preflight.parts(model, run, InParts(4, on_this_host=2))
    assert "4: the parts of a model are on several hosts" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"tensor 3 does not divide both .*heads 12 and .* 28; give one of 1, 2, 4$"):
        preflight.parts(model, run, InParts(3, on_this_host=3))
    generator = dataclasses.replace(model, hidden_size=12, num_attention_heads=6, intermediate_size=14)
    preflight.parts(model, run, InParts(2, on_this_host=2), generator)
    both = r"both the generator's num_attention_heads 6 and .* 14; give one of 1, 2, or another --objective.gen"
    with pytest.raises(UsageError, match=both):
        preflight.parts(model, run, InParts(4, on_this_host=4), generator)
    gpu = InParts(2, on_this_host=2)
    gpu.device = Device(kind="GPU")
    preflight.parts(model, run, gpu)
    with pytest.raises(UsageError, match=r"tensor needs --run.deterministic true"):
        preflight.parts(model, dataclasses.replace(run, deterministic=False), gpu)


def test_ranks_that_do_not_share_the_run_directory_end_together(tmp_path: Path) -> None:
    def work(comm: Ranks) -> None:
        run = tmp_path / ("elsewhere" if comm.rank == 2 else "run")
        run.mkdir(exist_ok=True)
        preflight.shared(run, comm)

    errors = as_ranks(3, 1, work)
    assert all(isinstance(error, UsageError) and "1 of 3 ranks do not see" in str(error) for error in errors)
    assert as_ranks(2, 1, work) == [None, None]
    assert not list((tmp_path / "run").iterdir())
