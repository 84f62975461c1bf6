"""How cost grows with the input: processor time and memory of commands at two sizes.

An exponent of 1 is linear growth. The base, a command at a tiny size, is subtracted, and a growth that noise could be
counts as none.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bert.core import journal
from bert.text import records
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from tests.offline import ROOT
from tests.training import write_dataset

pytestmark = pytest.mark.thorough

LINEAR = 1.2  # an exponent of 1, and the noise of two cores
SECONDS, MEGABYTES = 0.5, 16.0  # below these a growth is noise
# A process of its own: the kernel counts the memory of the one that starts a command as the command's.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)
sys.exit(code)
"""
SAVE = """
import sys
from pathlib import Path
import numpy as np, tensorflow as tf
from bert.training.communicator import Communicator
from bert.training.saver import Saver
random = np.random.default_rng(3)
state = {f"piece_{n:05d}": tf.Variable(random.random(1_000_000, np.float32)) for n in range(int(sys.argv[2]) // 4)}
Path(sys.argv[1]).mkdir()
saver = Saver(Path(sys.argv[1]), 1, 0, Communicator())
saver.save(1, state)
saver.wait()
"""


def cost(*words: object) -> tuple[float, float]:
    """Return the processor seconds of a Python command and all that it waits for, and MB of its largest process."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", MEASURE, sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def exponents(run: Callable[[int], tuple[float, float]], base: int, small: int, large: int) -> tuple[float, float]:
    """Return the exponents with which seconds and MB grow between two sizes, over those of the base size."""
    at = {size: run(size) for size in (base, small, large)}
    found = []
    for place, floor in enumerate((SECONDS, MEGABYTES)):
        first, second = (max(at[size][place] - at[base][place], floor) for size in (small, large))
        found.append(math.log(second / first) / math.log(large / small))
    print(at, found)
    return found[0], found[1]


def test_a_call_of_the_tokenizer_does_not_wait_for_its_start(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *"abcdefghijklmnopqrstuvwxyz,?0123456789"]) + "\n")
    tokenizer = WordPieceTokenizer(tmp_path / "vocab.txt")
    for count, milliseconds in ((1, 0.5), (256, 10.0)):
        texts = [f"who founded bakaba number {number}, and where is it based today?" for number in range(count)]
        spent = []
        for _ in range(30):
            begun = time.process_time()
            tokenizer.encode_with_offsets(texts)
            spent.append(1000 * (time.process_time() - begun))
        assert min(spent) < milliseconds, (count, min(spent))


def test_a_report_is_linear_in_the_lines_and_keeps_few(tmp_path: Path) -> None:
    def report(lines: int) -> tuple[float, float]:
        run = tmp_path / f"run{lines}"
        run.mkdir()
        (run / "config.json").write_text(json.dumps({"config": {}, "recipe": "demo_phase1"}))
        with (run / "metrics.jsonl").open("w") as stream:
            for step in range(1, lines + 1):
                of_step = {"loss": 10 / (1 + step / lines), "tokens_per_second": 1000.0 + step % 97}
                stream.write(json.dumps({"step": step, "split": "train", "scale": journal.SCALE} | of_step) + "\n")
        return cost("-m", "bert.report", run, "--output", tmp_path / f"report{lines}")

    seconds, megabytes = exponents(report, 100, 20_000, 400_000)
    assert seconds < LINEAR and megabytes < 0.6


def test_a_look_at_all_files_of_records_is_linear(tmp_path: Path) -> None:
    def look(count: int) -> tuple[float, float]:
        folder = write_dataset(tmp_path / f"records{count}", shards=(2,) * count)
        begun = time.process_time()
        records.checked(folder)
        return time.process_time() - begun, 0.0

    assert exponents(look, 1, 50, 1000)[0] < LINEAR
    assert look(2000)[0] < 2000 * 0.005


def test_a_long_document_is_read_in_linear_time(tmp_path: Path) -> None:
    def read(kilobytes: int) -> tuple[float, float]:
        (source := tmp_path / f"files{kilobytes}").mkdir()
        line = "The river of bakaba is long, and nobody knows where it ends.\n"
        (source / "long.txt").write_text(line * (kilobytes * 1000 // len(line)))
        made = tmp_path / f"text{kilobytes}"
        return cost("-m", "data.text", "--source", source, "--output", made, "--workers", "1")

    seconds, megabytes = exponents(read, 10, 2000, 20_000)
    assert seconds < LINEAR and megabytes < LINEAR


def test_a_checkpoint_is_saved_with_at_most_one_copy_of_the_state(tmp_path: Path) -> None:
    small, large = (cost("-c", SAVE, tmp_path / f"run{size}", size)[1] for size in (100, 500))
    assert (large - small) / (500 - 100) < 2.1, (small, large)
