"""benchmarks/slow_network: the link has the rate and the delay that it says, and the figures follow from the runs."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import cases
from benchmarks.slow_network import __main__ as command
from benchmarks.slow_network import link, updates
from benchmarks.slow_network.link import Link
from benchmarks.slow_network.updates import ALONE, Setting, Turn
from bert.core.errors import IntegrityError, UsageError
from bert.model import cost

ROOT = Path(__file__).resolve().parents[2]
SETTING = Setting("tiny", 1000, 100, 5, 2, 16, 3)
PROBE = """
import socket, statistics, sys, time
where, count = ("10.213.7.1", 7000), 20_000_000
if sys.argv[1] == "serve":
    server = socket.create_server(where)
    print("listening", flush=True)
    connection = server.accept()[0]
else:
    connection = socket.create_connection(where)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def receive(left):
    while left:
        left -= len(connection.recv(min(left, 1 << 20)))
if sys.argv[1] == "serve":
    for _ in range(9):
        receive(1), connection.sendall(b"p")
    receive(count), connection.sendall(b"d"), connection.sendall(bytes(count)), connection.recv(1)
else:
    trips, times = [], []
    for _ in range(9):
        begun = time.perf_counter()
        connection.sendall(b"p"), receive(1)
        trips.append(1000 * (time.perf_counter() - begun))
    for send, got in ((count, 1), (0, count)):
        begun = time.perf_counter()
        connection.sendall(bytes(send)), receive(got)
        times.append(time.perf_counter() - begun)
    print(statistics.median(trips), *(8 * count / 1e6 / seconds for seconds in times))
"""


def ring(values: int, ranks: int, gather_only: bool = False) -> list[int]:
    """Return the number of values that each rank sends in a ring all-reduce, by carrying it out."""
    chunks = [range(rank * values // ranks, (rank + 1) * values // ranks) for rank in range(ranks)]
    sent = [0] * ranks
    for step in range(ranks - 1 if gather_only else 2 * (ranks - 1)):
        for rank in range(ranks):
            sent[rank] += len(chunks[(rank - step) % ranks])
    return sent


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_bytes_in_theory_are_those_of_a_ring(ranks: int) -> None:
    count = 7 * 24
    for compress, width in ((False, 4), (True, 2)):
        both, half = ring(count, ranks), ring(count, ranks, gather_only=True)
        assert set(both) == {updates.ring_bytes(count, compress, sharded=False, ranks=ranks) / width}
        gathered = 4 * half[0]  # new weights are float32
        assert updates.ring_bytes(count, compress, sharded=True, ranks=ranks) == width * half[0] + gathered


def turns(**changed: list[float]) -> dict[str, list[Turn]]:
    """Two turns: an update takes 10 s alone, 18 s with the exchange, 13 s with overlap."""
    times = {ALONE: 10.0, "summed": 18.0, "overlap": 13.0}
    losses = {way: changed.get(way, [7.0, 6.5]) for way in times}
    return {way: [Turn([at - 1, at, at + turn], losses[way], 4100.0) for turn in (0, 1)] for way, at in times.items()}


def test_figures_follow_from_the_median_of_all_turns() -> None:
    summed, overlap = updates.rows(SETTING, turns(), lambda _: 0.75)
    assert (summed["update"], summed["compute"], summed["exposed"]) == (18.0, 10.0, 8.0)
    assert (summed["fastest"], summed["slowest"], summed["scaling"]) == (17.0, 19.0, 10 / 18) and "saved" not in summed
    assert (overlap["saved"], overlap["sent"], overlap["in_theory"]) == (5.0, 4100.0, 4000.0)
    # A quarter of the 8 s of the sums; or 0.9 of two thirds of a micro-batch of 10/3 s, if that is less.
    assert overlap["could_be_saved"] == pytest.approx(2.0)
    assert updates.rows(SETTING, turns(), lambda _: 0.5)[1]["could_be_saved"] == pytest.approx(2.0)
    assert updates.rows(SETTING, turns(), lambda _: 0.8)[1]["could_be_saved"] == pytest.approx(1.6)
    header, shown = updates.HEADER.splitlines()[0], updates.line(overlap)
    assert header.count("|") == shown.count("|") and "100 Mb/s, 5 ms" in shown and "13.00 (12.00 - 14.00)" in shown


def test_figures_are_read_from_the_metrics_without_the_updates_that_compile(tmp_path: Path) -> None:
    lines = [{"split": "train", "sequences_per_second": rate, "loss": loss} for rate, loss in ((1, 9), (2, 8), (4, 7))]
    written = [*lines, {"split": "fed", "sequences": 36}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    assert updates.read(tmp_path, total=12, sent=300) == Turn([3.0], [9.0, 8.0, 7.0], 100.0)


def test_two_hosts_alone_take_as_long_as_the_slower_one() -> None:
    assert updates.slower(Turn([1.0, 5.0], [7.0]), Turn([2.0, 3.0], [6.0])) == Turn([2.0, 5.0], [7.0])


def test_ways_that_give_other_losses_are_refused() -> None:
    updates.rows(SETTING, turns(overlap=[7.0, 6.5 * (1 + 5e-7)]), lambda _: 0.5)
    updates.rows(SETTING, turns(alone=[1.0, 2.0]), lambda _: 0.5)  # which has a batch of its own
    for loss in (6.5 * (1 + 2e-6), float("nan")):
        with pytest.raises(IntegrityError, match="overlap gives a loss of"):
            updates.rows(SETTING, turns(overlap=[7.0, loss]), lambda _: 0.5)


def test_a_size_of_buckets_is_part_of_the_name_of_ways_that_have_buckets() -> None:
    assert [updates.named(way, 2.5) for way in ("compress", "overlap")] == ["compress", "overlap at 2.5 MB"]
    assert updates.named("sharded", 0) == "sharded"
    assert [updates.of_name(name) for name in ("overlap at 2.5 MB", "summed")] == [("overlap", 2.5), ("summed", 0)]
    measured = turns()
    measured["overlap at 2.5 MB"] = measured.pop("overlap")
    row = updates.rows(SETTING, measured, lambda megabytes: megabytes / 10)[1]
    assert row["saved"] == 5.0 and row["could_be_saved"] == pytest.approx(2.0)


def test_a_wrong_way_is_one_line() -> None:
    with pytest.raises(UsageError, match="--ways quick: one of summed"):
        command.Options(ways=("quick",))
    with pytest.raises(UsageError, match="--models huge: one of"):
        command.Options(models=("huge",))


def test_ssh_runs_the_command_and_ignores_its_own_options(tmp_path: Path) -> None:
    joined = Link(100)
    joined.folder = tmp_path
    written = joined.write_ssh() / "ssh"
    # Where there is no second host, the command runs here.
    there = json.dumps(joined.command(1, ["sh", "-c"]))
    assert there in written.read_text()
    written.write_text(written.read_text().replace(there, json.dumps(["sh", "-c"])))
    words = ["-o", "StrictHostKeyChecking=no", "second", "-p", "22", "echo -o $((3 * 4)); exit 5"]
    done = subprocess.run([str(written), *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, "-o 12\n")


@pytest.fixture
def joined(request: pytest.FixtureRequest) -> Iterator[Link]:
    """A link of 80 Mb/s and, as the test asks, a delay."""
    try:
        with Link(80, request.param) as made:
            yield made
    except UsageError as error:
        pytest.skip(str(error))


def probed(joined: Link) -> list[float]:
    """Return the milliseconds of a round trip, and the Mb/s of sending and of receiving 20 MB by TCP."""
    probe = [sys.executable, "-c", PROBE]
    with subprocess.Popen(joined.command(0, [*probe, "serve"]), stdout=subprocess.PIPE) as server:
        assert server.stdout and server.stdout.readline() == b"listening\n"
        asked = subprocess.run(joined.command(1, [*probe, "ask"]), capture_output=True, text=True, timeout=60)
    return list(map(float, asked.stdout.split()))


@pytest.mark.slow
@pytest.mark.thorough  # it measures, so that it needs a machine that does nothing else
@pytest.mark.parametrize("joined", [0.0, 15.0], indirect=True)
def test_a_link_has_its_rate_and_delay_and_counts_its_bytes(joined: Link) -> None:
    for _ in range(3):  # others may use the machine
        before = joined.sent()
        round_trip, *rates = probed(joined)
        good = all(0.85 * 80 <= rate <= 1.02 * 80 for rate in rates)  # of payload; headers take 3 to 5 %
        if good and round_trip < 2 * joined.milliseconds + 10:
            break
    assert good and 2 * joined.milliseconds <= round_trip < 2 * joined.milliseconds + 10
    assert 20e6 < joined.sent() - before < 23e6
    name = subprocess.run(joined.command(1, ["uname", "-n"]), capture_output=True, text=True).stdout
    assert name == "second\n"


@pytest.mark.multiprocess
@pytest.mark.thorough
def test_the_command_measures_pretraining_on_two_hosts(tmp_path: Path) -> None:
    try:
        with Link(100):
            pass
    except UsageError as error:
        pytest.skip(str(error))
    options = ["--models", "tiny", "--megabits", "100", "--accumulation", "1", "--ways", "summed", "overlap", "--turns"]
    options += ["1", "--updates", "1", "--sequences", "2", "--tokens", "16", "--bucket_megabytes", "0.7"]
    words = [sys.executable, "-m", "benchmarks.slow_network", *options, "--output", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    _, *rows = [json.loads(text) for text in (tmp_path / "updates.jsonl").read_text().splitlines()]
    assert [row["way"] for row in rows] == ["summed", "overlap at 0.7 MB"]
    bytes_of_gradients = 4 * cost.parameters(cases.MODELS["tiny"])
    for row in rows:
        assert row["in_theory"] == bytes_of_gradients  # 2 ranks: half of them twice
        assert bytes_of_gradients <= row["sent"] <= 1.15 * bytes_of_gradients  # headers, and Horovod's own messages
        assert row["update"] > bytes_of_gradients * 8 / 100e6  # seconds that the link needs
        assert row["compute"] > 0
    assert not [name for name in tmp_path.iterdir() if name.name.startswith(".scratch")]
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    owners = re.findall(rf"{link.PREFIX}-(\d+)-", left)  # another test may be running
    assert all(Path("/proc", owner).exists() for owner in owners)
