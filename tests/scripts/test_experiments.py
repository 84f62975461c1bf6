"""scripts/data_array.sh, seeds.sh and ablation.sh, with a python that only shows its arguments."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `python` shows its arguments, and nothing else is set."""
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


def test_a_job_of_an_array_does_its_share(environment: dict[str, str]) -> None:
    job = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "4", "SLURM_ARRAY_TASK_MAX": "8"}
    job |= {"SLURM_ARRAY_TASK_COUNT": "5"}
    command = [str(ROOT / "scripts" / "data_array.sh"), "data.tfrecords", "--source", "a b"]
    done = subprocess.run(command, env=environment | job | {"SLURM_CPUS_PER_TASK": "6"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = Path(environment["SHOWN"]).read_text()
    assert shown == "-m data.tfrecords --source a b --workers 6 --task 3 --of 5\n"
    assert subprocess.run(command, env=environment, capture_output=True).returncode != 0  # not in an array
    some = job | {"SLURM_ARRAY_TASK_COUNT": "3"}  # --array=4,7,8
    for jobs, code in ((None, 2), ("7", 2), ("9", 0)):
        more = {"JOBS": jobs} if jobs else {}
        done = subprocess.run(command, env=environment | some | more, capture_output=True, text=True)
        assert done.returncode == code and (code == 0 or done.stderr.startswith("error: job 7 has no share of "))
    assert Path(environment["SHOWN"]).read_text().splitlines()[1:] == [
        "-m data.tfrecords --source a b --workers 1 --task 7 --of 9"
    ]


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
    assert shown == [*one, *other, one[0], other[0]]  # training says by itself that it is done


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
    ]


@pytest.mark.parametrize("given", ["tasks rte", "squad squad_base t.json --init.checkpoint r", "glue rte data"])
def test_seeds_of_nothing_are_one_line(environment: dict[str, str], given: str) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "seeds.sh"), *given.split()], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


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
