"""Names of flags in transformers and google-research/bert: what is taken, and what is refused."""

import re

import pytest

from bert.core import aliases, cli
from bert.core.config import PretrainConfig
from bert.core.errors import UsageError
from squad.config import SquadConfig
from tasks.config import TaskConfig
from tests.offline import ROOT

KINDS = {"pretrain": PretrainConfig, "tasks": TaskConfig, "squad": SquadConfig}


def translated(kind: str, *argv: str) -> list[str]:
    return aliases.translated(argv, cli.flags_of(KINDS[kind]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_a_flag_of_ours_or_says_what_to_give(kind: str) -> None:
    flags = cli.flags_of(KINDS[kind])
    for name, ours in aliases.table(flags).items():
        if isinstance(ours, aliases.Refused):
            with pytest.raises(UsageError, match=f"--{name} "):
                translated(kind, f"--{name}", "7")
            continue
        words = translated(kind, f"--{name}") if isinstance(ours, aliases.Set) else translated(kind, f"--{name}", "1")
        given = words[0].removeprefix("--").partition("=")[0]
        assert given in flags, name
        if isinstance(ours, aliases.Set):
            cli.check(flags.values(), words, prog="tool")


@pytest.mark.parametrize(
    ("kind", "theirs", "ours"),
    [
        ("tasks", "--num_train_epochs 3 --weight_decay=2e-5", "--length.epochs 3 --optimizer.weight_decay=2e-5"),
        ("tasks", "--max_seq_length 128 --fp16 --seed 1", "--data.length 128 --precision.compute=float16 --run.seed 1"),
        ("tasks", "--bf16 True --max_steps 9", "--precision.compute=bfloat16 --run.steps 9"),
        ("squad", "--max_seq_length 384", "--windows.max_seq_length 384"),
        ("squad", "--fp16 --use_xla=True", "--precision.compute=float16 --precision.xla=true"),
        ("pretrain", "--save_steps 256 --num_train_steps 9", "--run.save_every 256 --run.steps 9"),
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


@pytest.mark.parametrize(
    ("kind", "theirs", "note"),
    [
        (
            "tasks",
            "--per_device_train_batch_size",
            "--batch.per_device here; an update has --batch.total sequences on any number of devices",
        ),
        ("pretrain", "--train_batch_size", "--batch.total here, over all ranks"),
        ("pretrain", "--phase2.learning_rate", "--phase2.optimizer.learning_rate here, for any number of ranks"),
        ("squad", "--doc_stride", "--windows.doc_stride here, tokens between the starts of two windows; in "),
    ],
)
def test_a_note_says_what_else_the_name_means_elsewhere(
    kind: str, theirs: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert translated(kind, theirs, "8", theirs, "8") == [note.split()[0], "8"] * 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: {theirs} is {note}")


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        ("--num_train_epochs 3 --length.epochs=3", "--num_train_epochs and --length.epochs"),
        ("--run.steps 3 --max_steps 3", "--run.steps and --max_steps"),
        ("--fp16 --bf16", "--fp16 and --bf16"),
    ],
)
def test_two_names_of_one_flag_are_an_error_and_one_line(
    argv: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=f"^{names} are one setting; give one of them$"):
        translated("tasks", *argv.split())
    assert not capsys.readouterr().err


def test_all_names_that_are_refused_are_in_one_message() -> None:
    with pytest.raises(
        UsageError, match=r"^--do_predict is no flag here; give it to .*predict\. --report_to is no .*leave it out$"
    ):
        translated("tasks", "--do_predict", "--seed", "1", "--report_to", "wandb", "--do_predict")


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_change_nothing_are_taken_and_told(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults of TrainingArguments (transformers 5.0, training_args.py), and what is done here anyway."""
    given = """--fp16 False --bf16=false --no_cuda false --do_train --do_eval true --max_steps -1 --report_to none
        --gradient_accumulation_steps 1 --local_rank=-1 --resume_from_checkpoint none --overwrite_output_dir false
        --gradient_checkpointing False --use_horovod false --save_strategy steps"""
    assert translated(kind, "--run.seed", "3", *given.split(), "--data.limit", "x") == [
        "--run.seed",
        "3",
        "--data.limit",
        "x",
    ]
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 14 and all(note.endswith(" changes nothing here") for note in notes)


@pytest.mark.parametrize(
    ("kind", "theirs", "ours"),
    [
        ("tasks", "--warmup_steps 0.1", "--length.warmup 0.1"),
        ("squad", "--warmup_steps=0.06", "--length.warmup=0.06"),
        ("tasks", "--warmup_steps 100", "--optimizer.warmup_steps 100"),
        ("tasks", "--warmup_steps 0", "--length.warmup 0"),
        ("tasks", "--warmup_steps 0 --warmup_ratio 0.2", "--length.warmup 0.2"),
        ("pretrain", "--warmup_steps 0", "--optimizer.warmup_steps 0"),
        ("pretrain", "--warmup_steps 0.1", "--warmup_steps is no flag here; give --optimizer.warmup_steps"),
    ],
)
def test_warmup_steps_below_1_are_a_share(kind: str, theirs: str, ours: str) -> None:
    """`get_warmup_steps` of transformers 5.23: from 1 on a number, else the ceiling of it times all steps."""
    if ours.startswith(theirs.split()[0]):
        with pytest.raises(UsageError, match=ours):
            translated(kind, *theirs.split())
    else:
        assert translated(kind, *theirs.split()) == ours.split()


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    section = page.partition("### Names of flags in other programs")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.M)
    shown = {(name, flag) for names, flags in rows for name in re.findall(r"`(\w+)`", names) for flag in flags.split()}
    names = set()
    for options in KINDS.values():
        for name, ours in aliases.table(cli.flags_of(options)).items():
            if not isinstance(ours, aliases.Refused) and name not in aliases.OURS:
                names.add(name)
                assert any(given == name and ours.partition("=")[0] in flag for given, flag in shown), name
    assert {name for name, _ in shown} == names


@pytest.mark.parametrize(
    ("kind", "argv", "message"),
    [
        (
            "tasks",
            "--gradient_accumulation_steps 4",
            "--gradient_accumulation_steps is no flag here; give --batch.total",
        ),
        ("pretrain", "--num_train_epochs 3", "--num_train_epochs is no flag here; give --run.steps"),
        ("pretrain", "--max_seq_length 128", "--max_seq_length is no flag here; give it to data.tfrecords"),
        ("tasks", "--do_lower_case", "--do_lower_case is no flag here; give --lower_case of data.vocab"),
        ("tasks", "--fp16 half", "--fp16 half: only true is taken, for --precision.compute float16; leave it out"),
        ("squad", "--init_checkpoint bert_model.ckpt", "bert.convert import google"),
    ],
)
def test_names_of_another_meaning_are_refused_with_ours(kind: str, argv: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        translated(kind, *argv.split())


def test_a_flag_that_was_removed_is_refused_but_for_the_value_that_the_program_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert translated("pretrain", "--objective.embeddings", "shared") == []
    assert capsys.readouterr().err == "note: --objective.embeddings shared changes nothing here\n"
    with pytest.raises(UsageError, match=r"--objective\.embeddings was removed: both models learn one table of words"):
        translated("pretrain", "--objective.embeddings=disentangled")


def test_only_the_first_rank_reports(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "1")
            translated("tasks", "--seed", "1")
            assert not capsys.readouterr().err
            patch.setenv(variable, "0")
            translated("tasks", "--seed", "1")
            assert capsys.readouterr().err
