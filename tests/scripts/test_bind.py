"""--bind on a made-up machine: two sockets of 10 cores with two threads, 8 GPUs, 4 InfiniBand adapters."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "scripts" / "launcher.sh"
StandIn = Callable[[str, str], Path]

NODES = {0: "0-9,20-29", 1: "10-19,30-39"}  # CPU n and CPU n + 20 are the threads of one core
BUSES = ["07:00.0", "0F:00.0", "47:00.0", "4E:00.0", "87:00.0", "90:00.0", "B7:00.0", "BD:00.0"]
ADAPTERS = {
    "mlx5_0": (0, "4: ACTIVE"),
    "mlx5_1": (0, "1: DOWN"),
    "mlx5_10": (1, "4: ACTIVE"),
    "mlx5_2": (1, "4: ACTIVE"),
}
SMI = "\n".join(f"print('{i}, GPU-{i}{i}-x, 00000000:{bus}')" for i, bus in enumerate(BUSES))
WRAPPER = '#!/bin/bash\nwhile [[ $1 == --* ]]; do [[ $1 != --cpu-list ]] || shift; shift; done; exec "$@"\n'


@pytest.fixture
def machine(environment: dict[str, str], stand_in: StandIn, tmp_path: Path) -> dict[str, str]:
    """An environment on that machine, in one of four ranks of this host."""

    def write(path: str, text: str) -> None:
        (tmp_path / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / path).write_text(text + "\n")

    for node, cpus in NODES.items():
        write(f"devices/system/node/node{node}/cpulist", cpus)
    write("devices/system/node/node2/cpulist", "")  # memory alone
    for cpu in range(40):
        write(f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 20},{cpu % 20 + 20}")
    for gpu, bus in enumerate(BUSES):
        write(f"bus/pci/devices/0000:{bus.lower()}/numa_node", str(gpu // 4))
    for name, (node, state) in ADAPTERS.items():
        write(f"class/infiniband/{name}/device/numa_node", str(node))
        write(f"class/infiniband/{name}/ports/1/state", state)
    for name, text in (("nvidia-smi", SMI), ("numactl", WRAPPER), ("taskset", WRAPPER)):
        stand_in(name, text)
    return environment | {"BERT_SYS": str(tmp_path / "sys"), "BERT_CPUS": "0-39", "TF_CPP_MIN_LOG_LEVEL": "2"}


def bind(env: dict[str, str], *words: str, rank: int = 0, size: int = 8) -> subprocess.CompletedProcess[str]:
    place = {"HOROVOD_LOCAL_RANK": str(rank), "HOROVOD_LOCAL_SIZE": str(size)}
    return subprocess.run([LAUNCHER, "bind", *words], env=place | env, capture_output=True, text=True, timeout=60)


def shown(env: dict[str, str], rank: int = 0, size: int = 8) -> list[str]:
    """What --dry-run says for a rank, less the rank."""
    done = bind(env, "--dry-run", "python", "a b", rank=rank, size=size)
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if not line.startswith(("HOROVOD", "OMPI"))]


def cpus(env: dict[str, str], rank: int, size: int) -> set[int]:
    words = shown(env, rank, size)[-1].split()
    return {int(cpu) for cpu in words[1].removeprefix("--physcpubind=").split(",")}


def test_a_rank_gets_its_share_beside_its_gpu(machine: dict[str, str]) -> None:
    assert shown(machine, rank=5) == [  # the second of four ranks on ten cores
        "NCCL_IB_HCA==mlx5_10,mlx5_2",
        "OMP_NUM_THREADS=3",
        "TF_CPP_MIN_LOG_LEVEL=2",
        "TF_NUM_INTEROP_THREADS=3",
        "TF_NUM_INTRAOP_THREADS=3",
        "numactl --physcpubind=12,13,14,32,33,34 --membind=1 python 'a b'",
    ]
    assert shown(machine, rank=0)[0] == "NCCL_IB_HCA==mlx5_0"


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 5, 8])
def test_the_shares_of_a_node_are_apart_and_together_all_of_it(size: int, machine: dict[str, str]) -> None:
    shares = [cpus(machine, rank, size) for rank in range(size)]
    whole = set(range(40)) if size > 4 else {cpu for cpu in range(40) if cpu % 20 < 10}  # GPUs 0 to 3 are on one node
    assert set.union(*shares) == whole and sum(map(len, shares)) == len(whole)
    assert all({cpu % 20 for cpu in share} == {cpu % 20 for cpu in share if cpu < 20} for share in shares)


def test_visible_devices_decide_which_gpu_is_meant(machine: dict[str, str]) -> None:
    for visible in ("6,1", "GPU-66-x,GPU-11-x"):
        there = machine | {"CUDA_VISIBLE_DEVICES": visible}
        assert [min(cpus(there, rank, 2)) for rank in range(2)] == [10, 0]


def test_only_cores_that_the_process_may_use_are_shared_out(machine: dict[str, str]) -> None:
    there = machine | {"BERT_CPUS": "2-4,22-24,11"}
    assert [cpus(there, rank, 3) for rank in range(3)] == [{2, 22}, {3, 23}, {4, 24}]


def test_other_launchers_name_the_rank_their_own_way(machine: dict[str, str]) -> None:
    expected = shown(machine, rank=5)[-1]
    for place in (
        {"OMPI_COMM_WORLD_LOCAL_RANK": "5", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
        {"SLURM_LOCALID": "5", "SLURM_STEP_TASKS_PER_NODE": "8(x4)"},
    ):
        done = subprocess.run(
            [LAUNCHER, "bind", "--dry-run", "python", "a b"], env=machine | place, capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == expected


def test_without_gpus_the_ranks_are_dealt_to_the_nodes(machine: dict[str, str], stand_in: StandIn) -> None:
    stand_in("nvidia-smi", "print('No devices were found')\n")
    assert [cpus(machine, rank, 2) for rank in range(2)] == [
        {cpu for cpu in range(40) if (cpu % 20 >= 10) == rank} for rank in (False, True)
    ]


def test_what_the_user_sets_stays(machine: dict[str, str]) -> None:
    there = shown(machine | {"NCCL_IB_HCA": "mlx5_7", "OMP_NUM_THREADS": "1"})
    assert there[:2] == ["NCCL_IB_HCA=mlx5_7", "OMP_NUM_THREADS=1"] and "TF_NUM_INTRAOP_THREADS=1" in there


def test_without_a_working_numactl_taskset_binds(machine: dict[str, str], stand_in: StandIn) -> None:
    stand_in("numactl", "#!/bin/sh\necho 'set_mempolicy: Operation not permitted' >&2; exit 1\n")
    assert shown(machine, rank=4)[-1] == "taskset --cpu-list 10,11,30,31 python 'a b'"


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["tree", "numa_node", "both", "cores"])
def test_where_it_cannot_bind_it_says_so_once_and_runs(
    broken: str, machine: dict[str, str], stand_in: StandIn, tmp_path: Path
) -> None:
    if broken == "tree":
        machine["BERT_SYS"] = "/nonexistent"
    elif broken == "numa_node":
        for bus in BUSES:
            (tmp_path / "sys/bus/pci/devices" / f"0000:{bus.lower()}" / "numa_node").write_text("-1\n")
    elif broken == "both":
        stand_in("numactl", "#!/bin/sh\nexit 1\n")
        stand_in("taskset", WRAPPER.replace('exec "$@"', "exit 1"))
    else:
        machine["BERT_CPUS"] = "0,10"
    command = [sys.executable, "-c", "print('ran'); raise SystemExit(75)"]
    first, other = (bind(machine, *command, rank=rank) for rank in (0, 3))
    assert (first.returncode, first.stdout) == (other.returncode, other.stdout) == (75, "ran\n")
    assert first.stderr.startswith("warning: ") and "unbound" in first.stderr and first.stderr.count("\n") == 1
    assert other.stderr == ""


def test_this_machine_itself(clean: dict[str, str]) -> None:
    code = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    done = bind(clean, sys.executable, "-c", code, size=1)
    assert done.returncode == 0
    bound, threads = done.stdout.rsplit(maxsplit=1)
    allowed = {str(cpu) for cpu in os.sched_getaffinity(0)}
    assert set(bound.strip("[]").split(", ")) <= allowed and 1 <= int(threads) <= len(allowed)
