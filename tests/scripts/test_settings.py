"""Horovod's and NCCL's settings by name: each flag sets one variable, the same on every launcher."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, list[str]] = {"launch.sh": ["-np", "2"], "mpirun.sh": ["-np", "2"], "slurm.sh": []}

# Flag, a value for it, what it sets.
SETTINGS = [
    ("--fusion-mb", "33", "HOROVOD_FUSION_THRESHOLD=34603008"),
    ("--cycle-ms", "2.5", "HOROVOD_CYCLE_TIME=2.5"),
    ("--cache-capacity", "0", "HOROVOD_CACHE_CAPACITY=0"),
    ("--hierarchical-allreduce", "", "HOROVOD_HIERARCHICAL_ALLREDUCE=1"),
    ("--hierarchical-allgather", "", "HOROVOD_HIERARCHICAL_ALLGATHER=1"),
    ("--torus-allreduce", "", "HOROVOD_TORUS_ALLREDUCE=1"),
    ("--autotune", "", "HOROVOD_AUTOTUNE=1"),
    ("--autotune-log", "a b.csv", "HOROVOD_AUTOTUNE_LOG=a b.csv"),
    ("--nccl-streams", "2", "HOROVOD_NUM_NCCL_STREAMS=2"),
    ("--gloo-timeout", "90", "HOROVOD_GLOO_TIMEOUT_SECONDS=90"),
    ("--start-timeout", "120", "HOROVOD_START_TIMEOUT=120"),
    ("--horovod-log", "debug", "HOROVOD_LOG_LEVEL=debug"),
    ("--nccl-debug", "INFO", "NCCL_DEBUG=INFO"),
    ("--nccl-ifname", "^docker0,lo", "NCCL_SOCKET_IFNAME=^docker0,lo"),
    ("--nccl-ib-hca", "=mlx5_0,mlx5_1", "NCCL_IB_HCA==mlx5_0,mlx5_1"),
    ("--nccl-ib-disable", "", "NCCL_IB_DISABLE=1"),
    ("--nccl-p2p-disable", "", "NCCL_P2P_DISABLE=1"),
    ("--nccl-gdr-level", "PHB", "NCCL_NET_GDR_LEVEL=PHB"),
    ("--nccl-algo", "Ring", "NCCL_ALGO=Ring"),
    ("--nccl-proto", "LL128", "NCCL_PROTO=LL128"),
    ("--nccl-min-channels", "4", "NCCL_MIN_NCHANNELS=4"),
    ("--nccl-max-channels", "16", "NCCL_MAX_NCHANNELS=16"),
]


def launcher(script: str, *words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts" / script), *SCRIPTS[script], *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_flag_sets_its_variable_and_nothing_else(script: str, environment: dict[str, str]) -> None:
    words = [word for flag, value, _ in SETTINGS for word in (flag, value) if word]
    done = launcher(script, *words, "--dry-run", "--", "true", env=environment)
    settings = {line for line in done.stdout.splitlines()[:-1] if line.startswith(("HOROVOD_", "NCCL_"))}
    assert (done.returncode, done.stderr) == (0, "")
    assert settings == {setting for *_, setting in SETTINGS}


@pytest.mark.parametrize("script", [*SCRIPTS, "slurm_phases.sh"])
def test_help_lists_all_of_them(script: str, environment: dict[str, str]) -> None:
    done = subprocess.run([ROOT / "scripts" / script, "--help"], env=environment, capture_output=True, text=True)
    listed = re.findall(r"^  (--\S+) +(\w+)=(\w+) ", done.stdout, re.MULTILINE)
    assert [(flag, name) for flag, name, _ in listed] == [(flag, name.split("=")[0]) for flag, _, name in SETTINGS]
    assert done.returncode == 0 and f"scripts/{script}" in done.stdout and "--dry-run" in done.stdout


def test_the_page_lists_all_of_them() -> None:
    page = (ROOT / "docs" / "launch.md").read_text()
    rows = re.findall(r"^\| `(--[a-z0-9-]+)[^|]*\| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [(flag, name.split("=")[0]) for flag, _, name in SETTINGS]


def test_horovod_knows_the_variables() -> None:
    found = importlib.util.find_spec("horovod")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs Horovod, to look its variables up")
    code = b"".join(
        path.read_bytes()
        for path in Path(found.submodule_search_locations[0]).rglob("*")
        if path.suffix == ".so" or path.name in ("config_parser.py", "launch.py")
    )
    names = [setting.split("=")[0] for *_, setting in SETTINGS if setting.startswith("HOROVOD_")]
    assert len(names) == 12 and not [name for name in names if name.encode() not in code]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--fusion-megabytes 3 -- true", "--fusion-megabytes"),
        ("--fusion-mb many -- true", "'many'"),
        ("--cycle-ms -1 -- true", "'-1'"),
        ("--nccl-debug", "--nccl-debug"),
        ("--autotune", "no command"),
    ],
)
def test_a_wrong_flag_is_one_line(words: str, said: str, script: str, environment: dict[str, str]) -> None:
    done = launcher(script, *words.split(), env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and said in done.stderr and done.stderr.count("\n") == 1
