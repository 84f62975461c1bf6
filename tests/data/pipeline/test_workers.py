"""The process pool: ordered, and gone when its parent is."""

import os
import signal
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

from bert.core.errors import InputError, ResourceError
from data.pipeline import workers
from tests.waiting import runs, wait_for


def double(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0)  # the first task ends last
    return 2 * number


def refuse(number: int) -> int:
    raise InputError(f"shard {number}: no text in it; make fewer shards")


def die(number: int) -> int:
    os._exit(9)


@pytest.mark.slow
def test_results_come_in_the_order_of_the_tasks():
    assert list(workers.run(double, range(7), 3)) == list(workers.run(double, range(7), 1)) == list(range(0, 14, 2))


def test_a_result_that_was_read_is_freed():
    results = workers.run(np.zeros, range(1, 8), 2)
    read = [weakref.ref(next(results)) for _ in range(6)]
    assert [reference() for reference in read] == [None] * 6
    assert next(results).shape == (7,)


def _noted(taken, count):
    for number in range(count):
        taken.append(number)
        yield number


def test_tasks_are_taken_as_workers_need_them():
    taken: list[int] = []
    results = workers.run(abs, _noted(taken, 2000), 2)
    assert next(results) == 0 and 2 <= len(taken) < 1000
    assert list(results) == list(range(1, 2000)) and len(taken) == 2000
    assert not list(workers.run(abs, iter(()), 2))


def test_a_fault_in_a_worker_keeps_its_kind_and_its_line():
    with pytest.raises(InputError, match="shard 0: no text in it; make fewer shards"):
        list(workers.run(refuse, range(3), 2))


def test_a_killed_worker_is_a_lack_of_memory():
    with pytest.raises(ResourceError, match="fewer --workers"):
        list(workers.run(die, range(3), 2))


def test_workers_end_with_a_killed_parent(tmp_path):
    module = tmp_path / "slow.py"
    module.write_text(
        "import os, sys, time\n"
        "from data.pipeline import workers\n"
        "def work(path):\n"
        "    open(path, 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    list(workers.run(work, sys.argv[1:], 2))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    parent = subprocess.Popen([sys.executable, module, tmp_path / "a", tmp_path / "b"], env=environment)
    paths = [tmp_path / name for name in "ab"]
    wait_for(lambda: all(path.exists() and path.read_text() for path in paths), "start of two workers", parent)
    pids = [int(path.read_text()) for path in paths]
    parent.kill()
    parent.wait(timeout=60)
    wait_for(lambda: not any(map(runs, pids)), "end of the workers")


def test_ctrl_c_ends_in_one_line_and_ends_the_workers(tmp_path):
    module = tmp_path / "slow.py"
    module.write_text(
        "import sys, time\n"
        "from bert.core import cli\n"
        "from data.pipeline import workers\n"
        "def work(path):\n"
        "    open(path, 'w').close()\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    cli.main(lambda argv: print(list(workers.run(work, argv, 2))))\n"
    )
    line = [sys.executable, module, *(tmp_path / name for name in "abc")]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(), "start of two workers", process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = process.communicate(timeout=30)[1]  # all processes have ended: they hold standard error
    assert (process.returncode, said) == (75, "stopped (Ctrl-C); repeat the same command\n")
    assert not (tmp_path / "c").exists()


def test_ctrl_c_while_tasks_are_handed_over_ends_the_workers(tmp_path):
    """Once it waited for the tasks that had begun."""
    module = tmp_path / "slow.py"
    module.write_text(
        "import concurrent.futures, os, signal, sys, time\n"
        "from bert.core import cli\n"
        "from data.pipeline import workers\n"
        "def work(path):\n"
        "    open(path, 'w').close()\n"
        "    time.sleep(60)\n"
        "class Pool(concurrent.futures.ProcessPoolExecutor):\n"
        "    def submit(self, function, path):\n"
        "        future = super().submit(function, path)\n"
        "        while path == sys.argv[2] and not all(map(os.path.exists, sys.argv[1:])):\n"
        "            time.sleep(0.05)\n"
        "        if path == sys.argv[2]:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "        return future\n"
        "if __name__ == '__main__':\n"
        "    concurrent.futures.ProcessPoolExecutor = Pool\n"
        "    cli.main(lambda argv: print(list(workers.run(work, argv, 2))))\n"
    )
    line = [sys.executable, module, *(tmp_path / name for name in "ab")]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (75, "stopped (Ctrl-C); repeat the same command\n")
