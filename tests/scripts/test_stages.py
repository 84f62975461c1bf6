"""What the stages' targets of the Makefile run, with a python that only shows it."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SQUAD = "-m squad.train squad_mini --data.train_file"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `python` shows its arguments, and no stage's variable is set."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$*" >>"$SHOWN"\ncase "$*" in *"${FAILING:-none}"*) exit "${CODE:-3}" ;; esac\n')
    python.chmod(0o755)
    return {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "SHOWN": str(tmp_path / "shown"),
        "BERT_WORKDIR": "w",
        "VENV": "/nonexistent",
        "NP": "1",
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder to run make in, with a work folder of its own that holds documents of one byte."""
    for name in ("Makefile", "scripts", "bert", "squad", "tasks"):
        (tmp_path / name).symlink_to(ROOT / name)
    finish(tmp_path, "corpus/documents")
    return tmp_path


def finish(checkout: Path, *folders: str) -> None:
    """Makes the folders of stages that are finished."""
    for folder in folders:
        (checkout / "w" / folder).mkdir(parents=True)
        (checkout / "w" / folder / "manifest.json").write_text("\n")


def make(goal: str, checkout: Path, environment: dict[str, str], **variables: str) -> tuple[int, str, list[str]]:
    """Exit status, standard error and the commands that a target and those before it run."""
    command = ["make", "--no-print-directory", "-o", "setup", goal]
    done = subprocess.run(command, cwd=checkout, env=environment | variables, capture_output=True, text=True)
    shown = Path(environment["SHOWN"])
    lines = shown.read_text().splitlines() if shown.exists() else []
    shown.unlink(missing_ok=True)
    return done.returncode, done.stderr, lines


def stages(shown: list[str]) -> list[str]:
    """The names of the modules that were run."""
    return [line.split()[1] for line in shown]


def test_corpus_takes_one_source_or_both(environment: dict[str, str], checkout: Path) -> None:
    sources = {"WIKIPEDIA": "a b.xml.bz2", "BOOKS": "novels", "VOCAB_SIZE": "8000", "SHARDS": "3"}
    assert make("corpus", checkout, environment, **sources) == (
        0,
        "",
        [
            "-m data.wikipedia --source a b.xml.bz2 --output w/corpus/wikipedia",
            "-m data.books --source novels --output w/corpus/books",
            "-m data.documents --source w/corpus/wikipedia w/corpus/books --output w/corpus/documents",
            "-m data.shards --source w/corpus/documents --output w/corpus/shards --shards 3",
            "-m data.vocab --source w/corpus/shards --output w/corpus/vocab --size 8000",
        ],
    )
    assert stages(make("shards", checkout, environment, BOOKS="novels")[2]) == [
        "data.books",
        "data.documents",
        "data.shards",
    ]


def test_corpus_takes_a_vocabulary_and_stops_at_the_first_failure(environment: dict[str, str], checkout: Path) -> None:
    cased = environment | {"VOCAB": "v.txt", "LOWER_CASE": "false"}
    code, _, shown = make("corpus", checkout, cased, BOOKS="novels", FAILING="data.vocab")
    assert code == 2 and shown[-1].endswith("--vocab v.txt --lower_case false")
    code, _, shown = make("tfrecords", checkout, environment, BOOKS="novels", FAILING="data.books")
    assert code == 2 and shown[-1].startswith("-m data.books")


def test_corpus_without_sources_is_one_line_unless_there_is_one(environment: dict[str, str], checkout: Path) -> None:
    (checkout / "w/corpus/documents/manifest.json").unlink()
    code, error, shown = make("corpus", checkout, environment)
    ours = [line for line in error.splitlines() if not line.startswith("make: ")]
    assert code == 2 and len(ours) == 1 and "WIKIPEDIA" in ours[0] and "BOOKS" in ours[0] and not shown
    finish(checkout, "corpus/shards", "corpus/vocab")
    assert make("corpus", checkout, environment) == (0, "", [])
    assert stages(make("tfrecords", checkout, environment)[2]) == ["data.tfrecords"] * 2


def test_samples_that_are_there_need_no_corpus(environment: dict[str, str], tmp_path: Path, checkout: Path) -> None:
    (checkout / "w/corpus/documents/manifest.json").unlink()
    finish(checkout, "tfrecords/seq128", "tfrecords/seq512")
    assert stages(make("pretrain", checkout, environment)[2]) == ["bert.pretrain"] * 2


def test_shards_follow_the_corpus_and_the_cores(environment: dict[str, str], checkout: Path) -> None:
    def shards(megabytes: int, cores: int) -> int:
        nproc = checkout / "bin" / "nproc"
        nproc.write_text(f"#!/bin/sh\necho {cores}\n")
        nproc.chmod(0o755)
        with open(checkout / "w/corpus/documents/part-00000.jsonl", "wb") as stream:
            stream.truncate(megabytes << 20)  # of zeros, which take no room
        return int(make("shards", checkout, environment, BOOKS="novels")[2][-1].split("--shards ")[1])

    assert [shards(*place) for place in ((1, 256), (1600, 256), (20000, 256), (20000, 2))] == [8, 100, 512, 39]
    finish(checkout, "corpus/shards")
    (checkout / "w/corpus/shards/manifest.json").write_text(json.dumps({"parameters": {"shards": 77}}, indent=1))
    assert shards(20000, 2) == 77  # on another machine the same documents are not cut anew


def test_samples_are_made_for_both_phases(environment: dict[str, str], checkout: Path) -> None:
    settings = {"BOOKS": "novels", "DUPE_FACTOR": "3", "RECORDS": "documents"}
    shown = make("tfrecords", checkout, environment, **settings)[2][-2:]
    for line, length in zip(shown, (128, 512), strict=True):
        assert line.startswith("-m data.tfrecords --source w/corpus/shards --vocab w/corpus/vocab/vocab.txt")
        assert line.endswith(f"seq{length} --max_seq_length {length} --kind documents --dupe_factor 3")


def test_names_are_downloaded_and_paths_are_not(environment: dict[str, str], checkout: Path) -> None:
    named = environment | {"WIKIPEDIA": "simple", "BOOKS": "pg19", "TEXT": "notes", "SQUAD_DEV": "squad2"}
    assert make("corpus", checkout, named)[2][:6] == [
        "-m data.download wikipedia --wiki simple --output w/corpus/dump-simple",
        "-m data.download pg19 --output w/corpus/pg19",
        "-m data.download squad2 --output w/download/squad2",
        "-m data.wikipedia --source w/corpus/dump-simple --output w/corpus/wikipedia",
        "-m data.books --source w/corpus/pg19 --output w/corpus/books",
        "-m data.text --source notes --output w/corpus/text",
    ]
    for name in ("simple", "pg19", "squad2"):
        (checkout / name).mkdir()
    assert make("corpus", checkout, named)[2][0] == "-m data.wikipedia --source simple --output w/corpus/wikipedia"


def test_a_baseline_of_pubmed_is_named_by_its_year(environment: dict[str, str], checkout: Path) -> None:
    def shown(pubmed: str, *names: str) -> list[str]:
        for name in names:
            script = ["bash", "scripts/data.sh", name]
            subprocess.run(script, cwd=checkout, env=environment | {"PUBMED": pubmed, "TEXT": "notes"}, check=True)
        lines = Path(environment["SHOWN"]).read_text().splitlines()
        Path(environment["SHOWN"]).unlink()
        return lines

    assert shown("2026", "download", "pubmed", "documents") == [
        "-m data.download pubmed --year 2026 --output w/corpus/pubmed-2026",
        "-m data.pubmed --source w/corpus/pubmed-2026 --output w/corpus/pubmed",
        "-m data.documents --source w/corpus/text w/corpus/pubmed --output w/corpus/documents",
    ]
    assert shown("nlm files", "download", "pubmed") == ["-m data.pubmed --source nlm files --output w/corpus/pubmed"]


def test_verify_and_stats_imply_the_samples(environment: dict[str, str], checkout: Path) -> None:
    for goal in ("verify", "stats"):
        shown = make(goal, checkout, environment, BOOKS="novels")[2]
        assert stages(shown)[-3:] == ["data.tfrecords", "data.tfrecords", f"data.{goal}"]
        assert shown[-1].endswith(f"data.{goal} w/corpus w/tfrecords")


def test_tokens_need_no_sentences(environment: dict[str, str], checkout: Path) -> None:
    sources = {"WIKIPEDIA": "a b.xml.bz2", "TEXT": "notes", "BPE_SIZE": "8000", "HELDOUT": "0.2"}
    texts = "w/corpus/wikipedia w/corpus/text"
    expected = [
        "-m data.wikipedia --source a b.xml.bz2 --output w/corpus/wikipedia",
        "-m data.text --source notes --output w/corpus/text",
        f"-m data.bpe --output w/corpus/bpe --source {texts} --size 8000 --heldout 0.2",
        f"-m data.tokens --source {texts} --tokenizer w/corpus/bpe --output w/tokens --heldout 0.2",
    ]
    assert make("tokens", checkout, environment, **sources) == (0, "", expected)
    shown = make("bpe", checkout, environment, BOOKS="novels", BPE="gpt2")[2]
    assert shown[1:] == ["-m data.bpe --output w/corpus/bpe --import gpt2"]


def test_causal_recipes_train_on_tokens_and_not_on_questions(environment: dict[str, str], checkout: Path) -> None:
    causal = environment | {"RECIPE": "gpt2_smoke"}
    shown = make("pretrain", checkout, causal, BOOKS="novels", FLAGS="--run.seed 7")[2]
    assert stages(shown) == ["data.books", "data.bpe", "data.tokens", "bert.pretrain"]
    flags = "--data.train w/tokens --run.directory w/pretrain/gpt2_smoke --run.seed 7"
    assert shown[-1] == f"-m bert.pretrain gpt2_smoke {flags}"
    finish(checkout, "tokens")
    assert stages(make("pretrain", checkout, causal)[2]) == ["bert.pretrain"]
    code, error, shown = make("squad", checkout, causal, BOOKS="novels", SQUAD_TRAIN="t.json")
    assert code == 2 and "error: RECIPE is gpt2_smoke, a causal model" in error and not shown


def test_tokens_that_are_there_need_no_source_and_are_checked(environment: dict[str, str], checkout: Path) -> None:
    (checkout / "w/corpus/documents/manifest.json").unlink()
    code, error, shown = make("tokens", checkout, environment)
    assert code == 2 and "error: no source is set" in error and not shown
    finish(checkout, "corpus/bpe")
    code, error, shown = make("tokens", checkout, environment)
    assert code == 2 and "error: no source is set" in error and not shown
    finish(checkout, "tokens")
    assert make("tokens", checkout, environment) == (0, "", [])
    code, error, shown = make("corpus", checkout, environment)  # which they do not replace
    assert code == 2 and "error: no source is set" in error and not shown
    shown = make("verify", checkout, environment, BOOKS="novels")[2]
    assert shown[-1] == "-m data.verify w/corpus w/tfrecords w/tokens"


def test_questions_imply_pretraining_unless_a_run_is_given_or_finished(
    environment: dict[str, str], checkout: Path
) -> None:
    questions = environment | {"SQUAD_TRAIN": "squad1", "SQUAD_DEV": "d.json", "FLAGS": "--run.seed 7"}
    shown = make("squad", checkout, questions, BOOKS="novels", PRETRAIN_FLAGS="--run.seed 8")[2]
    assert stages(shown)[0] == "data.download" and stages(shown)[-3:] == ["bert.pretrain"] * 2 + ["squad.train"]
    assert shown[-2].endswith("--run.seed 8")
    end = "--run.directory w/squad/bert_mini --run.seed 7"
    tuned = f"{SQUAD} w/download/squad1/train-v1.1.json --init.checkpoint w/pretrain/bert_mini_phase2 {end}"
    assert shown[-1] == tuned
    shown = make("squad", checkout, questions, PRETRAINED="imported")[2]
    assert stages(shown) == ["data.download", "squad.train"] and "--init.checkpoint imported" in shown[-1]
    run = checkout / "w/pretrain/bert_mini_phase2"
    (run / "checkpoints/step-00000080").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"config": {"run.steps": 90}}, indent=1))
    assert "bert.pretrain" in stages(make("squad", checkout, questions, BOOKS="novels")[2])  # it was stopped
    (run / "checkpoints/step-00000090").mkdir()
    assert make("squad", checkout, questions)[2][1:] == [tuned]


def test_an_evaluation_implies_fine_tuning_unless_the_model_is_there(
    environment: dict[str, str], checkout: Path
) -> None:
    given = environment | {"SQUAD_DEV": "squad2", "PRETRAINED": "imported"}
    code, error, _ = make("squad-eval", checkout, given)
    assert code == 2 and error.startswith("error: w/squad/bert_mini: no fine-tuned model")
    (checkout / "w/squad/bert_mini").mkdir(parents=True)
    (checkout / "w/squad/bert_mini/config.json").touch()
    dev, answers = "w/download/squad2/dev-v2.0.json", "w/squad/bert_mini/predictions.json"
    scored = [
        f"-m squad.predict --model w/squad/bert_mini --dataset {dev} --output {answers}",
        f"-m squad.metric {dev} {answers}",
    ]
    assert make("squad-eval", checkout, given)[2][1:] == scored
    shown = make("squad-eval", checkout, given, SQUAD_TRAIN="t.json")[2]
    assert shown[1].startswith(f"{SQUAD} t.json --init.checkpoint imported") and shown[2:] == scored


def test_a_job_of_an_array_does_its_share(environment: dict[str, str]) -> None:
    job = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "4", "SLURM_ARRAY_TASK_COUNT": "5"}
    command = [str(ROOT / "scripts" / "data_array.sh"), "data.tfrecords", "--source", "a b"]
    done = subprocess.run(command, env=environment | job | {"SLURM_CPUS_PER_TASK": "6"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = Path(environment["SHOWN"]).read_text()
    assert shown == "-m data.tfrecords --source a b --workers 6 --task 3 --of 5\n"
    assert subprocess.run(command, env=environment, capture_output=True).returncode != 0  # not in an array


def test_each_seed_is_trained_answered_and_scored_once(environment: dict[str, str], tmp_path: Path) -> None:
    for seed in (3, 8):  # which training makes
        (tmp_path / "w" / "seeds" / "squad_base" / f"seed-{seed}").mkdir(parents=True)
    command = [str(ROOT / "scripts" / "seeds.sh"), "squad", "squad_base", "t.json", "d.json", "--init.checkpoint", "r"]
    for _ in range(2):
        seeds = environment | {"SEEDS": "3 8"}
        done = subprocess.run(command, cwd=tmp_path, env=seeds, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    shown = Path(environment["SHOWN"]).read_text().splitlines()
    one = [
        "-m squad.train squad_base --data.train_file t.json --run.seed 3 --run.directory w/seeds/squad_base/seed-3 "
        "--init.checkpoint r",
        "-m squad.predict --model w/seeds/squad_base/seed-3 --dataset d.json "
        "--output w/seeds/squad_base/seed-3/predictions.json",
        "-m squad.metric d.json w/seeds/squad_base/seed-3/predictions.json",
    ]
    other = [line.replace("seed 3", "seed 8").replace("seed-3", "seed-8") for line in one]
    folder = "w/seeds/squad_base"
    both = f"-m bert.spread {folder}/seed-3/score.json {folder}/seed-8/score.json --picture {folder}/spread.png"
    assert shown == [*one, *other, both, one[0], other[0], both]  # training says by itself that it is done


@pytest.mark.parametrize(
    ("given", "train", "evaluate"),
    [
        ("glue", "--data.folder glue", "--folder glue"),
        ("t.tsv d.tsv", "--data.train t.tsv --data.dev d.tsv", "--input d.tsv"),
    ],
)
def test_seeds_of_a_task(environment: dict[str, str], tmp_path: Path, given: str, train: str, evaluate: str) -> None:
    (tmp_path / "w" / "seeds" / "rte" / "seed-3").mkdir(parents=True)
    command = [str(ROOT / "scripts" / "seeds.sh"), "tasks", "rte", *given.split(), "--init.checkpoint", "r"]
    done = subprocess.run(command, cwd=tmp_path, env=environment | {"SEEDS": "3"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = "w/seeds/rte/seed-3"
    assert Path(environment["SHOWN"]).read_text().splitlines() == [
        f"-m tasks.train rte {train} --run.seed 3 --run.directory {run} --init.checkpoint r",
        f"-m tasks.evaluate --model {run} {evaluate}",
        f"-m bert.spread {run}/score.json --picture w/seeds/rte/spread.png",
    ]


@pytest.mark.parametrize("given", ["tasks rte", "squad squad_base t.json --init.checkpoint r", "glue rte data"])
def test_seeds_of_nothing_are_one_line(environment: dict[str, str], given: str) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "seeds.sh"), *given.split()], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_phase_2_starts_from_phase_1(environment: dict[str, str], checkout: Path) -> None:
    flags = {"BOOKS": "novels", "FLAGS": "--run.seed 7"}
    assert make("pretrain", checkout, environment, **flags)[2][-2:] == [
        "-m bert.pretrain bert_mini_phase1 "
        "--data.train w/tfrecords/seq128 --run.directory w/pretrain/bert_mini_phase1 --run.seed 7",
        "-m bert.pretrain bert_mini_phase2 --init.checkpoint w/pretrain/bert_mini_phase1 "
        "--data.train w/tfrecords/seq512 --run.directory w/pretrain/bert_mini_phase2 --run.seed 7",
    ]


def test_phase_2_waits_for_phase_1(environment: dict[str, str], checkout: Path) -> None:
    code, _, shown = make("pretrain", checkout, environment, BOOKS="novels", FAILING="bert_mini_phase1")
    assert code == 2 and stages(shown)[-2:] == ["data.tfrecords", "bert.pretrain"]


@pytest.mark.parametrize("target, variable", [("squad", "SQUAD_TRAIN"), ("squad-eval", "SQUAD_DEV")])
def test_make_names_the_variable_that_is_missing(target: str, variable: str) -> None:
    needed = ["make", "--no-print-directory", "-o", "setup", target, f"{variable}="]
    done = subprocess.run(needed, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.splitlines()[0].startswith(f"error: {variable} is not set")


def test_the_ablation_is_three_runs_of_one_recipe_and_their_report(environment: dict[str, str]) -> None:
    env = environment | {"COMPUTE": "bfloat16"}
    words = [str(ROOT / "scripts" / "ablation.sh"), "bert_base_phase1", "--data.train", "d"]
    assert subprocess.run(words, cwd=ROOT, env=env, capture_output=True).returncode == 0
    begin, out = "-m bert.pretrain bert_base_phase1 --data.train d --precision.compute", "w/ablation/bert_base_phase1"
    assert Path(environment["SHOWN"]).read_text().splitlines() == [
        f"{begin} float32 --precision.compress false --precision.xla false --run.directory {out}/float32",
        f"{begin} bfloat16 --precision.xla false --run.directory {out}/bfloat16",
        f"{begin} bfloat16 --precision.xla true --run.directory {out}/bfloat16_xla",
        f"-m bert.report {out}/float32 {out}/bfloat16 {out}/bfloat16_xla --output {out}",
    ]
    assert subprocess.run(words[:1], cwd=ROOT, env=env, capture_output=True).returncode == 2


def test_the_whole_ablation_goes_on_to_fused_attention_and_packing(environment: dict[str, str]) -> None:
    words = [str(ROOT / "scripts" / "ablation.sh"), "bert_large_phase2", "--data.train", "d"]
    env = environment | {"COMPUTE": "bfloat16", "ALL": "1"}
    assert subprocess.run(words, cwd=ROOT, env=env, capture_output=True).returncode == 0
    *runs, report = Path(environment["SHOWN"]).read_text().splitlines()
    out = "w/ablation/bert_large_phase2"
    names = ["float32", "tf32", "bfloat16", "bfloat16_xla", "undropped", "fused", "fused_packed"]
    assert report == f"-m bert.report {' '.join(f'{out}/{name}' for name in names)} --output {out}"
    flags = [line.removeprefix("-m bert.pretrain bert_large_phase2 --data.train d ") for line in runs]
    mixed = "--precision.compute bfloat16 --precision.xla true --model.attention_probs_dropout_prob 0"
    assert flags[1].startswith("--precision.compute tf32 --precision.compress false --precision.xla false --run")
    assert flags[4:] == [
        f"{mixed} --run.directory {out}/undropped",
        f"{mixed} --model.fused_attention true --run.directory {out}/fused",
        f"{mixed} --model.fused_attention true --batch.pack true --run.directory {out}/fused_packed",
    ]


def test_the_whole_ablation_does_without_fused_attention_where_that_does_not_run(environment: dict[str, str]) -> None:
    words = [str(ROOT / "scripts" / "ablation.sh"), "bert_large_phase2", "--data.train", "d"]
    env = environment | {"COMPUTE": "bfloat16", "ALL": "1", "FAILING": "fused_attention", "CODE": "2"}
    assert subprocess.run(words, cwd=ROOT, env=env, capture_output=True).returncode == 0
    *_, fused, packed, report = Path(environment["SHOWN"]).read_text().splitlines()
    out = "w/ablation/bert_large_phase2"
    assert fused.endswith(f"--model.fused_attention true --run.directory {out}/fused")
    assert packed.endswith(f"--model.attention_probs_dropout_prob 0 --batch.pack true --run.directory {out}/packed")
    names = ["float32", "tf32", "bfloat16", "bfloat16_xla", "undropped", "packed"]
    assert report == f"-m bert.report {' '.join(f'{out}/{name}' for name in names)} --output {out}"
    assert subprocess.run(words, cwd=ROOT, env=env | {"CODE": "70"}, capture_output=True).returncode == 70
    assert Path(environment["SHOWN"]).read_text().splitlines()[-1] == fused


def test_tasks_are_fine_tuned_and_scored(environment: dict[str, str], checkout: Path) -> None:
    given = environment | {"PRETRAINED": "imported", "FLAGS": "--run.seed 7"}
    tuned = "-m tasks.train {0} --data.folder {1} --init.checkpoint imported --run.directory w/tasks/{0} --run.seed 7"
    scored = "-m tasks.evaluate --model w/tasks/{0} --folder {1}"
    for goal, task, variables in (
        ("glue", "mrpc", {"GLUE": "a b", "TASK": "mrpc"}),
        ("race", "race", {"RACE": "a b"}),
        ("ner", "conll2003", {"NER": "a b"}),
    ):
        shown = make(goal, checkout, given, **variables)[2]
        assert shown == [line.format(task, "a b") for line in (tuned, scored)]
    assert "bert.pretrain" in stages(make("race", checkout, environment, RACE="r", BOOKS="novels")[2])


def test_a_wrong_task_is_one_line_before_anything_runs(environment: dict[str, str], checkout: Path) -> None:
    for variables, said in (
        ({"TASK": "mrpc"}, "GLUE is not set ; repeat as: make glue GLUE=FOLDER"),
        ({"GLUE": "g"}, "TASK is not set ; repeat as: make glue TASK=mrpc"),
        ({"GLUE": "g", "TASK": "race"}, "TASK is race ; it is one of: cola sst2"),
        ({"GLUE": "g", "TASK": "rte", "RECIPE": "gpt2_117m"}, "a causal model, which cannot be fine-tuned ;"),
    ):
        code, error, shown = make("glue", checkout, environment, **variables)
        assert code == 2 and said in error.splitlines()[0] and not shown


def test_serve_takes_the_model_that_there_is(environment: dict[str, str], checkout: Path) -> None:
    code, error, shown = make("serve", checkout, environment)
    assert code == 2 and "make serve MODEL=RUN" in error and not shown
    for run in ("demo/squad/pretrained", "squad/bert_mini"):  # the later one is taken before the earlier
        (checkout / "w" / run).mkdir(parents=True)
        (checkout / "w" / run / "config.json").write_text("{}")
        assert make("serve", checkout, environment)[2] == [f"-m serve --model w/{run}"]
    assert make("serve", checkout, environment, SQUAD_RUN="a b")[2] == ["-m serve --model a b"]
    given = {"MODEL": "-c", "FLAGS": "--port 8001 --host '::1'"}
    assert make("serve", checkout, environment, **given)[2] == ["-m serve --model ./-c --port 8001 --host ::1"]
