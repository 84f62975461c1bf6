"""Which commands each stage runs, after which others, and which settings are refused before the first one."""

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from bert.core.errors import UserError
from bert.training.length import record
from data.pipeline import workers
from scripts import stages
from scripts.variables import PATHS, Variables
from tests.conftest import ROOT

Make = Callable[..., tuple[int, str, list[str]]]
NO_SOURCE = "no source is set; repeat with WIKIPEDIA="
LAUNCH = f"{ROOT}/scripts/launch.sh -np 2 -- "
TRAINED = f"{LAUNCH}python -m squad.train squad_mini --data.train_file"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """`make(*goals, failing="", **variables)`: exit code, error and commands of a work folder `w`, one goal at a time.

    The command that contains `failing` fails with 3.
    """
    monkeypatch.chdir(tmp_path)
    finish("corpus/documents")
    for field in fields(Variables):
        monkeypatch.delenv(field.name.upper(), raising=False)

    def run(*goals: str, failing: str = "no command", **variables: str) -> tuple[int, str, list[str]]:
        shown: list[str] = []

        def show(command: list[str]) -> None:
            shown.append(" ".join(command))
            if failing in shown[-1]:
                sys.exit(3)

        with monkeypatch.context() as patch:
            patch.setattr(stages, "run", show)
            for name, value in {"BERT_WORKDIR": "w", "GOALS": " ".join(goals), **variables}.items():
                patch.setenv(name, value)
            try:
                for goal in goals:
                    stages.main([goal])
            except UserError as error:
                return error.exit_code, str(error), shown
            except SystemExit as error:
                return int(error.code or 0), "", shown
            return 0, "", shown

    return run


def finish(*folders: str) -> None:
    """Makes the folders of stages that are finished."""
    for folder in folders:
        (Path("w") / folder).mkdir(parents=True)
        (Path("w") / folder / "manifest.json").write_text("\n")


def modules(shown: list[str]) -> list[str]:
    """The names of the modules that were run."""
    return [line.split("-m ")[1].split()[0] for line in shown]


def test_corpus_takes_one_source_or_several(make: Make) -> None:
    sources = {"WIKIPEDIA": "a b.xml.bz2", "BOOKS": "novels", "VOCAB_SIZE": "8000", "SHARDS": "3"}
    assert make("corpus", **sources) == (
        0,
        "",
        [
            "python -m data.wikipedia --source a b.xml.bz2 --output w/corpus/wikipedia",
            "python -m data.books --source novels --output w/corpus/books",
            "python -m data.documents --source w/corpus/wikipedia w/corpus/books --output w/corpus/documents",
            "python -m data.shards --source w/corpus/documents --output w/corpus/shards --shards 3",
            "python -m data.vocab --source w/corpus/shards --output w/corpus/vocab --size 8000",
        ],
    )
    assert modules(make("shards", BOOKS="novels")[2]) == ["data.books", "data.documents", "data.shards"]


def test_a_vocabulary_is_taken_and_the_first_failure_ends_all(make: Make) -> None:
    code, _, shown = make("corpus", failing="data.vocab", BOOKS="novels", VOCAB="v.txt", LOWER_CASE="false")
    assert code == 3 and shown[-1].endswith("--vocab v.txt --lower_case false")
    for given, name in (("v.txt", "vocab.txt"), ("run/tokenizer.json", "tokenizer.json"), ("train", "vocab.txt")):
        _, _, shown = make("tfrecords", BOOKS="novels", VOCAB=given)
        assert f" --vocab w/corpus/vocab/{name} " in shown[-1]
    code, _, shown = make("tfrecords", failing="data.books", BOOKS="novels")
    assert code == 3 and modules(shown) == ["data.books"]


def test_what_is_finished_needs_no_source(make: Make) -> None:
    (Path("w/corpus/documents/manifest.json")).unlink()
    for goal in ("corpus", "tokens", "bpe", "pretrain", "wikipedia"):
        code, error, shown = make(goal, SQUAD_DEV="squad1")
        assert code == 2 and error.startswith(NO_SOURCE) and not shown
    finish("corpus/shards", "corpus/vocab")
    assert make("corpus") == (0, "", [])
    assert modules(make("tfrecords")[2]) == ["data.tfrecords"] * 2


def test_samples_that_are_there_need_no_corpus(make: Make) -> None:
    (Path("w/corpus/documents/manifest.json")).unlink()
    finish("tfrecords/seq128", "tfrecords/seq512")
    assert modules(make("pretrain")[2]) == ["bert.pretrain"] * 2


def test_tokens_that_are_there_need_no_source(make: Make) -> None:
    (Path("w/corpus/documents/manifest.json")).unlink()
    finish("corpus/bpe")
    assert make("tokens")[1].startswith(NO_SOURCE)  # a vocabulary alone is not enough
    finish("tokens")
    assert make("tokens") == (0, "", [])
    assert make("corpus")[1].startswith(NO_SOURCE)  # which they do not replace
    assert make("verify", BOOKS="novels")[2] == ["python -m data.verify w/corpus w/tokens"]


def test_shards_follow_the_corpus_and_the_cores(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def shards(megabytes: int, cores: int) -> int:
        monkeypatch.setattr(workers, "available", lambda: cores)
        with open("w/corpus/documents/part-00000.jsonl", "wb") as stream:
            stream.truncate(megabytes << 20)  # of zeros, which take no room
        return int(make("shards", BOOKS="novels")[2][-1].split("--max_shards ")[1])

    assert [shards(*place) for place in ((1, 256), (1600, 256), (20000, 256), (20000, 2))] == [8, 100, 512, 39]
    finish("corpus/shards")
    made = {"stage": "shards", "parameters": {"shards": 77}, "inputs": {}, "files": {}}
    Path("w/corpus/shards/manifest.json").write_text(json.dumps(made, indent=1))
    assert shards(20000, 2) == 77  # on another machine the same documents are not cut anew
    os.utime("w/corpus/documents/manifest.json", (2**31, 2**31))
    assert shards(20000, 2) == 39


def test_what_is_held_out_and_the_pairs_are_variables(make: Make) -> None:
    shown = make("tfrecords", BOOKS="novels", HELDOUT="0.2", PAIRS="sop")[2]
    assert "--held_out_fraction 0.2" in shown[-4] and all(line.endswith("--pairs sop") for line in shown[-2:])
    assert make("tfrecords", BOOKS="novels", PAIRS="order")[0] == 2
    shown = make("tfrecords", BOOKS="novels", PAIRS="none", RECORDS_FLAGS="--single_sentences true")[2]
    assert all(line.endswith("--pairs none --single_sentences true") for line in shown[-2:])


def test_samples_are_made_for_both_phases(make: Make) -> None:
    settings = {"DUPE_FACTOR": "3", "RECORDS": "documents", "MASKED_LM_PROB": "0.2"}
    shown = make("tfrecords", BOOKS="novels", **settings)[2][-2:]
    for line, length in zip(shown, (128, 512), strict=True):
        assert line == (
            f"python -m data.tfrecords --source w/corpus/shards --vocab w/corpus/vocab/vocab.txt --output "
            f"w/tfrecords/seq{length} --max_seq_length {length} --kind documents --dupe_factor 3 --masked_lm_prob 0.2"
        )


def test_names_are_downloaded_and_paths_are_not(make: Make) -> None:
    named = {"WIKIPEDIA": "simple", "BOOKS": "pg19", "TEXT": "notes", "PUBMED": "2026", "SQUAD_DEV": "squad2"}
    assert make("documents", **named)[2] == [
        "python -m data.download wikipedia --wiki simple --output w/corpus/dump-simple",
        "python -m data.download pg19 --output w/corpus/pg19",
        "python -m data.download pubmed --year 2026 --output w/corpus/pubmed-2026",
        "python -m data.download squad2 --output w/download/squad2",
        "python -m data.wikipedia --source w/corpus/dump-simple --output w/corpus/wikipedia",
        "python -m data.books --source w/corpus/pg19 --output w/corpus/books",
        "python -m data.text --source notes --output w/corpus/text",
        "python -m data.pubmed --source w/corpus/pubmed-2026 --output w/corpus/pubmed",
        "python -m data.documents --source w/corpus/wikipedia w/corpus/books w/corpus/text w/corpus/pubmed "
        "--output w/corpus/documents",
    ]
    for name in ("simple", "pg19", "2026", "squad2"):
        Path(name).mkdir()
    shown = make("documents", **named)[2]
    assert shown[0] == "python -m data.wikipedia --source simple --output w/corpus/wikipedia"
    assert "data.download" not in modules(shown)
    assert make("pubmed", PUBMED="nlm files")[2] == [
        "python -m data.pubmed --source nlm files --output w/corpus/pubmed"
    ]


def test_verify_and_stats_imply_the_samples(make: Make) -> None:
    for goal in ("verify", "stats"):
        shown = make(goal, BOOKS="novels")[2]
        assert modules(shown)[-3:] == ["data.tfrecords", "data.tfrecords", f"data.{goal}"]
        assert shown[-1].endswith(f"data.{goal} w/corpus w/tfrecords")


def test_verify_and_stats_make_nothing_anew(make: Make) -> None:
    finish("corpus/shards", "corpus/vocab", "tfrecords/seq128")  # perhaps with RECORDS=documents, in another shell
    for goal in ("verify", "stats"):
        assert make(goal) == (0, "", [f"python -m data.{goal} w/corpus w/tfrecords"])
        assert make(goal, BOOKS="novels") == make(goal)


def test_tokens_need_no_sentences(make: Make) -> None:
    sources = {"WIKIPEDIA": "a b.xml.bz2", "TEXT": "notes", "BPE_SIZE": "8000", "HELDOUT": "0.2"}
    texts = "w/corpus/wikipedia w/corpus/text"
    assert make("tokens", **sources)[2] == [
        "python -m data.wikipedia --source a b.xml.bz2 --output w/corpus/wikipedia",
        "python -m data.text --source notes --output w/corpus/text",
        f"python -m data.bpe --output w/corpus/bpe --source {texts} --size 8000 --heldout 0.2",
        f"python -m data.tokens --source {texts} --tokenizer w/corpus/bpe --output w/tokens --heldout 0.2",
    ]
    shown = make("bpe", BOOKS="novels", BPE="gpt2")[2]
    assert shown[1:] == ["python -m data.bpe --output w/corpus/bpe --import gpt2"]


def test_phase_2_starts_from_phase_1_and_waits_for_it(make: Make) -> None:
    assert make("pretrain", BOOKS="novels", FLAGS="--run.seed 7")[2][-2:] == [
        f"{LAUNCH}python -m bert.pretrain bert_mini_phase1 "
        "--data.train w/tfrecords/seq128 --run.directory w/pretrain/bert_mini_phase1 --run.seed 7",
        f"{LAUNCH}python -m bert.pretrain bert_mini_phase2 --init.checkpoint w/pretrain/bert_mini_phase1 "
        "--data.train w/tfrecords/seq512 --run.directory w/pretrain/bert_mini_phase2 --run.seed 7",
    ]
    shown = make("pretrain", failing="bert_mini_phase1", BOOKS="novels")[2]
    assert modules(shown)[-2:] == ["data.tfrecords", "bert.pretrain"]
    assert "bert_tiny_phase2 --init" in make("pretrain", BOOKS="novels", RECIPE="bert_tiny_phase2")[2][-1]
    for recipe, tokens in (("bert_1b3", 512), ("bert_small_corpus", 128)):  # of one phase
        assert f"--data.train w/tfrecords/seq{tokens} " in make("pretrain", BOOKS="novels", RECIPE=recipe)[2][-1]
    first, second = make("pretrain", BOOKS="novels", FLAGS="--run.seed 7 --phase2.run.steps 9")[2][-2:]
    assert first.endswith("bert_mini_phase1 --run.seed 7") and second.endswith("--run.seed 7 --run.steps 9")


def test_causal_recipes_train_on_tokens_and_not_on_questions(make: Make) -> None:
    shown = make("pretrain", RECIPE="gpt2_smoke", BOOKS="novels", FLAGS="--run.seed 7")[2]
    assert modules(shown) == ["data.books", "data.bpe", "data.tokens", "bert.pretrain"]
    flags = "--data.train w/tokens --run.directory w/pretrain/gpt2_smoke --run.seed 7"
    assert shown[-1] == f"{LAUNCH}python -m bert.pretrain gpt2_smoke {flags}"
    for goal in ("squad", "race"):
        code, error, shown = make(goal, RECIPE="gpt2_smoke", BOOKS="novels", SQUAD_TRAIN="t.json", RACE="r")
        assert code == 2 and error.startswith("RECIPE is gpt2_smoke, a causal model") and not shown


def test_questions_imply_pretraining_unless_a_run_is_given_or_finished(make: Make) -> None:
    questions = {"SQUAD_TRAIN": "squad1", "SQUAD_DEV": "d.json", "FLAGS": "--run.seed 7"}
    shown = make("squad", **questions, BOOKS="novels", PRETRAIN_FLAGS="--run.seed 8")[2]
    assert modules(shown)[0] == "data.download" and modules(shown)[-3:] == ["bert.pretrain"] * 2 + ["squad.train"]
    assert shown[-2].endswith("--run.seed 8")
    end = "--run.directory w/squad/bert_mini --run.seed 7"
    tuned = f"{TRAINED} w/download/squad1/train-v1.1.json --init.checkpoint w/pretrain/bert_mini_phase2 {end}"
    assert shown[-1] == tuned
    shown = make("squad", **questions, PRETRAINED="imported")[2]
    assert modules(shown) == ["data.download", "squad.train"] and "--init.checkpoint imported" in shown[-1]
    run = Path("w/pretrain/bert_mini_phase2")
    (run / "checkpoints/step-00000080").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"config": {"run.steps": 90}}, indent=1))
    assert "bert.pretrain" in modules(make("squad", **questions, BOOKS="novels")[2])  # it was stopped
    (run / "checkpoints/step-00000090").mkdir()
    assert make("squad", **questions)[2][1:] == [tuned]
    record(run, 90, 90, 95, 90)  # it became longer
    assert "bert.pretrain" in modules(make("squad", **questions, BOOKS="novels")[2])
    (run / "checkpoints/step-00000095").mkdir()
    assert make("squad", **questions)[2][1:] == [tuned]


def test_fine_tuning_follows_the_size_of_the_model_unless_a_recipe_is_named(make: Make) -> None:
    for recipe, given, tuned in (
        ("demo", "", "squad_mini"),
        ("bert_base", "", "squad_base"),
        ("bert_large_dgx1", "", "squad_large"),
        ("bert_large_dgx1", "squad_tiny", "squad_tiny"),
    ):
        shown = make("squad", RECIPE=recipe, SQUAD_RECIPE=given, SQUAD_TRAIN="t.json", PRETRAINED="p")[2]
        assert f" squad.train {tuned} " in shown[-1]


def test_an_evaluation_implies_fine_tuning_unless_the_model_is_there(make: Make) -> None:
    questions = {"SQUAD_DEV": "squad2", "PRETRAINED": "imported"}
    code, error, shown = make("squad-eval", **questions)
    assert code == 2 and error.startswith("w/squad/bert_mini: no fine-tuned model") and not shown
    dev, answers = "w/download/squad2/dev-v2.0.json", "w/squad/bert_mini/predictions.json"
    scored = [
        f"python -m squad.predict --model w/squad/bert_mini --dataset {dev} --output {answers}",
        f"python -m squad.metric {dev} {answers}",
    ]
    shown = make("squad-eval", **questions, SQUAD_TRAIN="t.json")[2]
    assert shown[1].startswith(f"{TRAINED} t.json --init.checkpoint imported") and shown[2:] == scored
    Path("w/squad/bert_mini").mkdir(parents=True)
    Path("w/squad/bert_mini/config.json").touch()
    assert make("squad-eval", **questions)[2][1:] == scored


def test_tasks_are_fine_tuned_and_scored(make: Make) -> None:
    tuned = f"{LAUNCH}python -m tasks.train {{0}} --data.folder {{1}} --init.checkpoint imported "
    tuned += "--run.directory w/tasks/{0} --run.seed 7"
    scored = "python -m tasks.evaluate --model w/tasks/{0} --folder {1}"
    for goal, task, variables in (
        ("glue", "mrpc", {"GLUE": "a b", "TASK": "mrpc"}),
        ("race", "race", {"RACE": "a b"}),
        ("ner", "conll2003", {"NER": "a b"}),
    ):
        shown = make(goal, PRETRAINED="imported", FLAGS="--run.seed 7", **variables)[2]
        assert shown == [line.format(task, "a b") for line in (tuned, scored)]
    assert "bert.pretrain" in modules(make("race", RACE="r", BOOKS="novels")[2])


def test_serve_takes_the_model_that_there_is(make: Make) -> None:
    code, error, shown = make("serve")
    assert code == 2 and error.endswith("make serve MODEL=RUN, or run make demo first") and not shown
    shown = make("squad", "serve", SQUAD_TRAIN="t.json", PRETRAINED="p")[2]
    assert modules(shown) == ["squad.train"]  # which here made nothing; serving it was not refused before
    for run in ("demo/squad/pretrained", "squad/bert_mini"):  # the later one is taken before the earlier
        (Path("w") / run).mkdir(parents=True)
        (Path("w") / run / "config.json").write_text("{}")
        assert make("serve")[2] == [f"python -m serve --model w/{run}"]
    assert make("serve", SQUAD_RUN="a b")[2] == ["python -m serve --model a b"]
    shown = make("serve", MODEL="-c", SQUAD_RUN="a b", FLAGS="--port 8001 --host '::1'")[2]
    assert shown == [f"python -m serve --model {Path.cwd()}/-c --port 8001 --host ::1"]  # no flag of that name
    last = (ROOT / "scripts/demo.sh").read_text().strip().splitlines()[-1]
    assert "make serve" in last and "http://127.0.0.1:8000" in last


def test_flags_go_to_the_goals_that_are_named(make: Make) -> None:
    given = {"SQUAD_TRAIN": "t.json", "BOOKS": "novels"}
    for goals, of_pretraining, of_questions in (
        (("squad",), False, True),
        (("pretrain", "squad"), True, True),
        (("squad", "pretrain"), True, True),  # whose order does not matter
    ):
        shown = make(*goals, **given, FLAGS="--run.seed '7 8'")[2]
        for line in shown:
            expected = {"bert.pretrain": of_pretraining, "squad.train": of_questions}.get(modules([line])[0], False)
            assert line.endswith(" --run.seed 7 8") == expected
    shown = make("pretrain", "squad", **given, FLAGS="--a", SQUAD_FLAGS="--b")[2]
    assert shown[-1].endswith(" --b")
    assert make("verify", GOALS="verify bench", BOOKS="novels", FLAGS="-k x")[0] == 0  # they are for bench
    code, error, shown = make("verify", BOOKS="novels", FLAGS="--workers 2")
    assert code == 2 and error.startswith("FLAGS: verify takes none") and not shown
    finish("squad/bert_mini")
    Path("w/squad/bert_mini/config.json").write_text("{}")  # a model, which answers without being trained
    code, error, shown = make("squad-eval", SQUAD_DEV="d.json", FLAGS="--compute bfloat16")
    assert code == 2 and error.startswith("FLAGS: squad-eval takes none") and not shown
    assert make("squad-eval", SQUAD_DEV="d.json", **given, FLAGS="--a")[2][-3].endswith(" --a")


@pytest.mark.parametrize(
    ("goals", "variables", "said"),
    [
        ("squad", {}, "SQUAD_TRAIN is not set; repeat as: make squad SQUAD_TRAIN=FILE"),
        ("squad-eval", {}, "SQUAD_DEV is not set; repeat as: make squad-eval SQUAD_DEV=FILE"),
        ("pretrain squad", {}, "SQUAD_TRAIN is not set"),  # before hours of pretraining
        ("glue", {"TASK": "mrpc"}, "GLUE is not set; repeat as: make glue GLUE=FOLDER"),
        ("glue", {"GLUE": "g"}, "TASK is not set; repeat as: make glue TASK=mrpc"),
        ("glue", {"GLUE": "g", "TASK": "race"}, "TASK is 'race'; it is one of: cola sst2"),
        ("race", {}, "RACE is not set"),
        ("ner", {}, "NER is not set"),
        ("pretrain", {"RECIPE": "bert_larg"}, "RECIPE is 'bert_larg'; did you mean bert_large? it is one of: bert_1b3"),
        ("pretrain", {"FLAGS": "--init.checkpoint r"}, "--init.checkpoint: each phase starts from the one before; "),
        ("pretrain", {"SQUAD_RECIPE": "mini"}, "SQUAD_RECIPE is 'mini'; "),
        ("corpus", {"NP": "0"}, "NP is '0'; it is a whole number from 1 to"),
        ("corpus", {"VOCAB_SIZE": "8k"}, "VOCAB_SIZE is '8k'; it is a whole number from 1 to"),
        ("corpus", {"VOCAB_SIZE": "8_000"}, "VOCAB_SIZE is '8_000'; "),
        ("corpus", {"MASKED_LM_PROB": "nan"}, "MASKED_LM_PROB is 'nan'; it is a number at least 0 and below 1"),
        ("corpus", {"LOWER_CASE": "no"}, "LOWER_CASE is 'no'; it is one of: true false"),
        ("corpus", {"RECORDS": "document"}, "RECORDS is 'document'; did you mean documents? it"),
        ("corpus", {"GIVEN": "BOOKS VOCABSIZE"}, "VOCABSIZE: no variable of the stages; did you mean VOCAB_SIZE?"),
        ("corpus", {"GIVEN": "OUTPUT"}, "OUTPUT: no variable of the stages; make help lists them"),
        ("squad-evaluate", {}, "no stage 'squad-evaluate'; did you mean squad-eval?"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_runs(
    make: Make, goals: str, variables: dict[str, str], said: str
) -> None:
    code, error, shown = make(*goals.split(), **{"BOOKS": "novels", **variables})
    assert code == 2 and error.startswith(said) and not shown, error


def test_an_empty_variable_is_one_that_is_not_set(make: Make) -> None:
    empty = {field.name.upper(): "" for field in fields(Variables) if field.name not in ("books", "bert_workdir")}
    assert make("pretrain", **empty, BOOKS="novels") == make("pretrain", BOOKS="novels")


def test_a_dry_run_prints_what_would_run(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOOKS", "my $(x) books")
    monkeypatch.setenv("BERT_WORKDIR", "elsewhere")
    monkeypatch.setattr(stages, "run", lambda command: pytest.fail(f"{command} was run"))
    stages.main(["--dry_run", "shards"])
    shown = capsys.readouterr().out.splitlines()
    assert (
        shlex.split(shown[0])[4] == "my $(x) books" and shown[-1].endswith("--max_shards BY_SIZE") and len(shown) == 3
    )


def test_commands_get_the_signals_and_their_status_is_passed_on() -> None:
    rank = textwrap.dedent("""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
        print("ready", flush=True)
        time.sleep(60)
    """)
    code = f"from scripts import stages; stages.run([{sys.executable!r}, '-c', {rank!r}]); print('went on')"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=60)[0], process.returncode) == ("", 75)
    with pytest.raises(SystemExit, match="137"):
        stages.run(["sh", "-c", "kill -9 $$"])


STOPPED = """
SHELL := bash
.RECIPEPREFIX = >
all: stop after
stop:
>@python -c "from scripts import stages; stages.run(['bash', '-c', '''COMMAND'''])"
after:
>@echo went on
"""


STOPS = {
    "itself": ("exit 75", False, -signal.SIGINT),
    "itself, in the background of a script": ("exit 75", True, 2),
    "by Ctrl-C": ("trap 'exit 75' INT; echo ready; sleep 60 >/dev/null 2>&1 & wait", False, -signal.SIGINT),
    "not, but fails": ("exit 4", False, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", STOPS)
def test_a_stop_on_request_ends_make_without_its_error(how: str, tmp_path: Path) -> None:
    """Where make ignores SIGINT it ends with its error, instead of going on as if all were done."""
    command, ignored, status = STOPS[how]
    (tmp_path / "Makefile").write_text(STOPPED.replace("COMMAND", command))
    # `make test` runs this too, and what it tells a make within it makes that print where it is.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
    }
    process = subprocess.Popen(
        ["make", "-f", tmp_path / "Makefile"],
        cwd=ROOT,
        env=environment | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=-1,
        stderr=-1,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )
    assert process.stdout
    if how == "by Ctrl-C":
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "")
    assert ("***" in errors) == (status == 2), errors


def test_the_last_line_says_what_follows(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    assert make("vocab", "tfrecords", BOOKS="novels")[0] == 0
    assert capsys.readouterr().err == "next: make pretrain\n"


@pytest.mark.parametrize("value", ["a b", "$a$(b)`c`", "*[a]", "~", "-a", "--a=b", "'a\"#;\\\u00e4"])
def test_all_stages_look_in_the_same_places(make: Make, value: str) -> None:
    place = str(Path.cwd() / value) if value.startswith("-") else value
    settings = {name.upper(): value for name in PATHS}
    code, error, shown = make("verify", "pretrain", "squad", **settings)
    assert code == 0, error
    for name in ("wikipedia", "books", "text", "pubmed"):
        assert f"python -m data.{name} --source {place} --output {place}/corpus/{name}" in shown
    assert f"python -m data.verify {place}/corpus {place}/tfrecords" in shown
    run, records = f"{place}/pretrain/bert_mini_phase", f"{place}/tfrecords/seq"
    assert [line.split("bert.pretrain ")[1] for line in shown if "bert.pretrain" in line] == [
        f"bert_mini_phase1 --data.train {records}128 --run.directory {run}1",
        f"bert_mini_phase2 --init.checkpoint {run}1 --data.train {records}512 --run.directory {run}2",
    ]
    assert shown[-1] == f"{TRAINED} {place} --init.checkpoint {place} --run.directory {place}"
