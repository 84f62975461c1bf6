"""Submissions are as the GLUE server takes them, and GLUE's score is the mean over its nine tasks."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bert.core.errors import InputError, UsageError
from bert.text.vocabulary import SPECIAL
from tasks import glue, predict, submission, train
from tests.training import ROOT


def test_a_submission_has_the_ids_in_order(tmp_path: Path) -> None:
    with submission.writer("rte", tmp_path / "RTE.tsv") as add:
        add("0", "entailment")
        add("1", "not_entailment")
    assert (tmp_path / "RTE.tsv").read_text() == "index\tprediction\n0\tentailment\n1\tnot_entailment\n"


def test_another_number_of_rows_than_that_of_the_test_set_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submission.ROWS.keys() == glue.TASKS.keys()
    for rows, told in (
        (146, ""),
        (71, "71 predictions, but the GLUE server expects 146 of wnli"),
    ):  # its dev set has 71
        with submission.writer("wnli", tmp_path / "WNLI.tsv") as add:
            for number in range(rows):
                add(str(number), "1")
        said = capsys.readouterr().err
        assert told in said and bool(said) == bool(told)


def test_similarity_is_clipped(tmp_path: Path) -> None:
    with submission.writer("stsb", tmp_path / "STS-B.tsv") as add:
        for identity, value in enumerate((-0.3, 2.25, 5.5)):
            add(str(identity), value)
    assert (tmp_path / "STS-B.tsv").read_text().split("\n")[1:4] == ["0\t0.0000", "1\t2.2500", "2\t5.0000"]


@pytest.mark.parametrize("identity", ["0", "2", "x"])
def test_a_missing_or_doubled_id_leaves_no_file(tmp_path: Path, identity: str) -> None:
    with pytest.raises(InputError, match="stands where 1 is expected"), submission.writer("rte", tmp_path / "f") as add:
        add("0", "entailment")
        add(identity, "entailment")
    assert not (tmp_path / "f").exists()
    with pytest.raises(UsageError, match="not for race"), submission.writer("race", tmp_path / "f"):
        pass


def glue_folder(path: Path) -> Path:
    """MNLI with both its development and test sets, and the diagnostic set, as their columns are."""
    rows = {"entailment": "a dog . a dog", "contradiction": "a dog . no dog", "neutral": "a dog . a big dog"}
    for folder, file, has_label in (
        ("MNLI", "train", True),
        ("MNLI", "dev_matched", True),
        ("MNLI", "dev_mismatched", True),
        ("MNLI", "test_matched", False),
        ("MNLI", "test_mismatched", False),
        ("AX", "diagnostic", False),
    ):
        lines = ["\t".join(["index", "sentence1", "sentence2", *(["gold_label"] if has_label else [])])]
        for number in range(9):
            label, text = list(rows.items())[number % 3]
            lines.append("\t".join([str(number), *text.split(" . "), *([label] if has_label else [])]))
        (path / folder).mkdir(parents=True, exist_ok=True)
        (path / folder / f"{file}.tsv").write_text("\n".join(lines) + "\n")
    return path


def test_a_model_of_mnli_is_submitted_for_three_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = glue_folder(tmp_path)
    assert submission.test_sets("mnli", folder) == {
        "MNLI-m": ("mnli", folder / "MNLI/test_matched.tsv"),
        "MNLI-mm": ("mnli", folder / "MNLI/test_mismatched.tsv"),
        "AX": ("ax", folder / "AX/diagnostic.tsv"),
    }
    (folder / "AX/diagnostic.tsv").unlink()
    assert list(submission.test_sets("mnli", folder)) == ["MNLI-m", "MNLI-mm"]
    assert "diagnostic.tsv: no such file; the diagnostic set is not predicted" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"test\.tsv: no such file"):
        submission.test_sets("rte", folder)
    with pytest.raises(UsageError, match="not for race"):
        submission.test_sets("race", folder)


STOPPED = """
import os, signal, sys
from bert import resumable
from bert.core import cli
from tasks import predict

write, resumable.SECONDS, name = predict.write, 0.0, sys.argv.pop(1)

def stopped(found, output, submitted, task):
    if submitted.name == "MNLI-mm.tsv":
        os.kill(os.getpid(), getattr(signal, name))
    return write(found, output, submitted, task)

predict.write = stopped
cli.main(predict.main)
"""


def _check_stop_between_two_sets(at: Path, folder: Path, name: str, code: int) -> None:
    """Check that a signal after the first set leaves it whole, and that the same command then makes the same files."""
    command = f"--model {at}/run --folder {folder} --submission {at}/{name}"
    line = [sys.executable, "-c", STOPPED, name, *command.split()]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    errors = [said for said in done.stderr.splitlines() if said.startswith(("error: ", "stopped "))]
    assert len(errors) == (code == 75) and all("the same command goes on" in said for said in errors)
    assert "Traceback" not in done.stderr
    assert [path.name for path in (at / name).glob("[!.]*")] == ["MNLI-m.tsv"]
    assert (at / name / ".MNLI-m.tsv.parts").is_dir()  # it need not be computed again
    predict.main(command.split())
    files = [{path.name: path.read_bytes() for path in made.iterdir()} for made in (at / name, at / "out")]
    assert files[0] == files[1]


@pytest.mark.slow
def test_all_submissions_are_written_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    folder, vocab = glue_folder(tmp_path / "glue"), tmp_path / "vocab.txt"
    vocab.write_text("\n".join([*SPECIAL, "a", "no", "big", "dog"]) + "\n")
    small = "--model.hidden_size 8 --model.num_attention_heads 2 --model.num_hidden_layers 1 --data.length 16"
    small += " --model.intermediate_size 8 --model.max_position_embeddings 16 --batch.total 9 --run.steps 1"
    start = f"--init.checkpoint none --data.vocab {vocab} --run.directory {tmp_path}/run --optimizer.warmup_steps 1"
    train.main(f"mnli --data.folder {folder} {start} {small}".split())
    predict.main(f"--model {tmp_path}/run --folder {folder} --submission {tmp_path}/out".split())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]
    for path in (tmp_path / "out").iterdir():
        header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
        assert header == ["index", "prediction"] and [row[0] for row in rows] == [str(n) for n in range(9)]
        assert {row[1] for row in rows} <= set(glue.NLI)
    for name, code in (("SIGTERM", 75), ("SIGKILL", -signal.SIGKILL)):
        _check_stop_between_two_sets(tmp_path, folder, name, code)
    with pytest.raises(UsageError, match="has no training examples"):
        train.main(f"mnli --data.task ax --data.folder {folder} {start}2 {small}".split())


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("", "either --input, or --folder"),
        ("--input a --folder b --submission c", "either --input, or --folder"),
        ("--folder b", "--folder needs --submission"),
        ("--folder b --output c --submission d", "--output needs --input"),
        ("text --submission d", "--submission needs"),
        ("--input a", "--input needs --output or --submission"),
    ],
)
def test_flags_that_do_not_fit_are_named(flags: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        predict.main(["--model", "run", *flags.split()])


def test_the_score_is_a_mean_of_means() -> None:
    scores = {name: {"accuracy": 50.0} for name in glue.TASKS if name != "ax"}
    scores["mrpc"] = {"f1": 90.0, "accuracy": 80.0}
    assert submission.score(scores) == pytest.approx((8 * 50 + 85) / 9)
    with pytest.raises(InputError, match="no scores of wnli"):
        submission.score({name: row for name, row in scores.items() if name != "wnli"})
