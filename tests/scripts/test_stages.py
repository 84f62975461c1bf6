"""What `make corpus`, `tfrecords` and `pretrain` run, with a python that only shows it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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


def run(script: str, environment: dict[str, str], /, cwd: Path = ROOT, **variables: str) -> tuple[int, str, list[str]]:
    """Exit status, standard error and the commands that were run."""
    env = environment | variables
    done = subprocess.run([ROOT / "scripts" / script], cwd=cwd, env=env, capture_output=True, text=True)
    shown = Path(environment["SHOWN"])
    return done.returncode, done.stderr, shown.read_text().splitlines() if shown.exists() else []


def test_corpus_takes_one_source_or_both(environment: dict[str, str]) -> None:
    assert run("corpus.sh", environment, WIKIPEDIA="a b.xml.bz2", BOOKS="novels", VOCAB_SIZE="8000", SHARDS="3")[2] == [
        "-m data.wikipedia --source a b.xml.bz2 --output w/corpus/wikipedia",
        "-m data.books --source novels --output w/corpus/books",
        "-m data.documents --source w/corpus/wikipedia w/corpus/books --output w/corpus/documents",
        "-m data.shards --source w/corpus/documents --output w/corpus/shards --shards 3",
        "-m data.vocab --source w/corpus/shards --output w/corpus/vocab --lower_case true --size 8000",
    ]


def test_corpus_takes_a_vocabulary_and_stops_at_the_first_failure(environment: dict[str, str]) -> None:
    cased = environment | {"VOCAB": "v.txt", "LOWER_CASE": "false"}
    code, _, shown = run("corpus.sh", cased, BOOKS="novels", FAILING="data.vocab")
    assert code == 3 and shown[-1].endswith("--lower_case false --vocab v.txt")
    code, _, shown = run("corpus.sh", environment, BOOKS="novels", FAILING="data.books")
    assert code == 3 and shown[-1].startswith("-m data.books")


def test_corpus_without_sources_is_one_line_unless_there_is_one(environment: dict[str, str], tmp_path: Path) -> None:
    code, error, shown = run("corpus.sh", environment, tmp_path)
    assert code == 2 and "WIKIPEDIA" in error and "BOOKS" in error and error.count("\n") == 1 and not shown
    for stage in ("shards", "vocab"):
        (tmp_path / "w" / "corpus" / stage).mkdir(parents=True)
        (tmp_path / "w" / "corpus" / stage / "manifest.json").touch()
    assert run("corpus.sh", environment, tmp_path) == (0, "", [])


def test_samples_are_made_for_both_phases(environment: dict[str, str]) -> None:
    shown = run("tfrecords.sh", environment)[2]
    assert [line.split("--max_seq_length ")[1] for line in shown] == [
        f"{length} --masked_lm_prob 0.15 --kind instances" for length in (128, 512)
    ]
    assert all("--source w/corpus/shards --vocab w/corpus/vocab/vocab.txt" in line for line in shown)


def test_names_are_downloaded_and_paths_are_not(environment: dict[str, str], tmp_path: Path) -> None:
    named = environment | {"WIKIPEDIA": "simple", "BOOKS": "pg19", "TEXT": "notes"}
    assert run("corpus.sh", named, tmp_path)[2][:5] == [
        "-m data.download wikipedia --wiki simple --output w/corpus/dump-simple",
        "-m data.download pg19 --output w/corpus/pg19",
        "-m data.wikipedia --source w/corpus/dump-simple --output w/corpus/wikipedia",
        "-m data.books --source w/corpus/pg19 --output w/corpus/books",
        "-m data.text --source notes --output w/corpus/text",
    ]
    for name in ("simple", "pg19"):
        (tmp_path / name).mkdir()
    Path(environment["SHOWN"]).unlink()
    assert run("corpus.sh", named, tmp_path)[2][0] == "-m data.wikipedia --source simple --output w/corpus/wikipedia"
    script = str(ROOT / "scripts" / "squad_data.sh")
    for name, path in (("squad1", "squad1/dev-v1.1.json"), ("squad2", "squad2/dev-v2.0.json")):
        Path(environment["SHOWN"]).unlink()
        done = subprocess.run([script, name, "dev"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.stdout == f"w/download/{path}\n"
        assert Path(environment["SHOWN"]).read_text() == f"-m data.download {name} --output w/download/{name}\n"
    done = subprocess.run([script, "d.json", "dev"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "d.json\n"


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
    command = [str(ROOT / "scripts" / "squad_seeds.sh"), "squad_base", "t.json", "d.json", "--init.checkpoint", "r"]
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
    both = "-m squad.spread w/seeds/squad_base/seed-3/score.json w/seeds/squad_base/seed-8/score.json"
    assert shown == [*one, *other, both, one[0], other[0], both]  # training says by itself that it is done


def test_phase_2_starts_from_phase_1(environment: dict[str, str]) -> None:
    phases = {"PHASES": "bert_mini_phase1 bert_mini_phase2", "FLAGS": "--run.seed 7"}
    assert run("pretrain.sh", environment | phases)[2] == [
        "-m bert.pretrain bert_mini_phase1 "
        "--data.train w/tfrecords/seq128 --run.directory w/pretrain/bert_mini_phase1 --run.seed 7",
        "-m bert.pretrain bert_mini_phase2 --init.checkpoint w/pretrain/bert_mini_phase1 "
        "--data.train w/tfrecords/seq512 --run.directory w/pretrain/bert_mini_phase2 --run.seed 7",
    ]


def test_phase_2_waits_for_phase_1(environment: dict[str, str]) -> None:
    code, _, shown = run("pretrain.sh", environment, PHASES="a_phase1 a_phase2", FAILING="a_phase1")
    assert code == 3 and len(shown) == 1


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
