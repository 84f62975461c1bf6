"""Names of flags in transformers and google-research/bert: what is taken, and what is refused."""

import pytest

from bert.core import aliases, cli
from bert.core.config import PretrainConfig
from bert.core.errors import UsageError
from squad.config import SquadConfig
from tasks.config import TaskConfig

KINDS = {"pretrain": PretrainConfig, "tasks": TaskConfig, "squad": SquadConfig}


def translated(kind: str, *argv: str) -> list[str]:
    return aliases.translated(argv, cli.flags_of(KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_a_flag_of_ours_or_says_what_to_give(kind: str) -> None:
    flags = cli.flags_of(KINDS[kind])
    for name, ours in aliases.table(flags).items():
        if isinstance(ours, aliases.Refused):
            with pytest.raises(UsageError, match=f"--{name} "):
                translated(kind, f"--{name}", "1")
            continue
        words = translated(kind, f"--{name}") if isinstance(ours, aliases.Set) else translated(kind, f"--{name}", "1")
        given = words[0].removeprefix("--").partition("=")[0]
        assert given in flags, name
        if isinstance(ours, aliases.Set):
            cli.check(KINDS[kind], words, prog="tool")


@pytest.mark.parametrize(
    ("kind", "theirs", "ours"),
    [
        ("tasks", "--num_train_epochs 3 --learning_rate=2e-5", "--length.epochs 3 --optimizer.learning_rate=2e-5"),
        ("tasks", "--max_seq_length 128 --fp16 --seed 1", "--data.length 128 --precision.compute=float16 --run.seed 1"),
        ("tasks", "--bf16 True --max_steps 9", "--precision.compute=bfloat16 --run.steps 9"),
        ("squad", "--max_seq_length 384 --doc_stride 128", "--windows.max_seq_length 384 --windows.doc_stride 128"),
        ("squad", "--fp16", "--precision.compute=float16"),
        ("pretrain", "--train_batch_size 256 --num_train_steps 9", "--batch.total 256 --run.steps 9"),
        ("pretrain", "--output_dir out --data.train seed", "--run.directory out --data.train seed"),
        ("pretrain", "--data.length 128 --run.seed=--seed", "--data.length 128 --run.seed=--seed"),
    ],
)
def test_names_of_the_same_meaning_are_taken_and_reported(
    kind: str, theirs: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert translated(kind, *theirs.split()) == ours.split()
    notes = capsys.readouterr().err.splitlines()
    used = [word.partition("=")[0] for word in theirs.split() if word.startswith("--") and "." not in word]
    assert [note.split()[1] for note in notes] == used
    assert all(note.startswith("note: --") and note.endswith(" here") for note in notes)


def test_a_micro_batch_is_not_the_batch_of_an_update(capsys: pytest.CaptureFixture[str]) -> None:
    assert translated("tasks", "--per_device_train_batch_size", "8") == ["--batch.per_device", "8"]
    note = "note: --per_device_train_batch_size is --batch.per_device here; an update has --batch.total sequences"
    assert capsys.readouterr().err.startswith(note)


@pytest.mark.parametrize(
    ("kind", "argv", "message"),
    [
        (
            "tasks",
            "--gradient_accumulation_steps 4",
            "--gradient_accumulation_steps is computed here: give --batch.total",
        ),
        ("pretrain", "--num_train_epochs 3", "--num_train_epochs is a number of updates here: give --run.steps"),
        ("pretrain", "--max_seq_length 128", "--max_seq_length belongs to the data"),
        ("tasks", "--do_lower_case", "--do_lower_case belongs to the vocabulary"),
        ("tasks", "--fp16 false", "--fp16 false: only true is taken, for --precision.compute float16; leave it out"),
        ("squad", "--init_checkpoint bert_model.ckpt", "bert.convert import google"),
    ],
)
def test_names_of_another_meaning_are_refused_with_ours(kind: str, argv: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        translated(kind, *argv.split())


def test_only_the_first_rank_reports(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "1")
            translated("tasks", "--seed", "1")
            assert not capsys.readouterr().err
            patch.setenv(variable, "0")
            translated("tasks", "--seed", "1")
            assert capsys.readouterr().err
