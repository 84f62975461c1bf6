"""benchmarks/slow_network: the link has the rate and the delay that it says, and the figures follow from the turns."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.slow_network import __main__ as command
from benchmarks.slow_network import collectives, link, updates, updates_rank
from benchmarks.slow_network.link import Link
from benchmarks.slow_network.updates import Setting
from benchmarks.slow_network.work import ALONE, WAYS
from bert.config import ModelConfig
from bert.errors import IntegrityError, ResourceError, UsageError
from bert.plan import model_cost

ROOT = Path(__file__).resolve().parents[2]


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
        assert set(both) == {updates.ring_bytes(count, ranks, compress, sharded=False) / width}
        gathered = 4 * half[0]  # new weights are float32
        assert updates.ring_bytes(count, ranks, compress, sharded=True) == width * half[0] + gathered


def test_what_could_be_hidden_follows_from_when_the_buckets_are_complete() -> None:
    # 10 s of backward pass. 4 s leave at 2.5 s and arrive at 6.5 s; 2 s wait and arrive at 8.5 s; 2 s leave at the end.
    assert updates.could_be_hidden(8.0, [4, 2, 2], [0.25, 0.5, 1.0], 10.0) == 8.0 - 2.0
    # All of the network's time but the backward pass, less the wait for the first bucket.
    assert updates.could_be_hidden(80.0, [4, 2, 2], [0.25, 0.5, 1.0], 10.0) == 10.0 - 2.5
    assert updates.could_be_hidden(8.0, [8], [1.0], 10.0) == 0


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 2)), min_size=1, max_size=7),
    st.floats(0.01, 5),
)
def test_neither_more_than_the_backward_pass_nor_the_last_bucket_could_be_hidden(
    buckets: list[tuple[float, float]], backward: float
) -> None:
    ready, sizes = [*sorted(share for share, _ in buckets)[:-1], 1.0], [size for _, size in buckets]
    hidden = updates.could_be_hidden(sum(sizes), sizes, ready, backward)
    assert -1e-9 <= hidden <= min(backward, sum(sizes[:-1])) + 1e-9
    if all(share == 0 for share in ready[:-1]):
        assert hidden == pytest.approx(min(backward, sum(sizes[:-1])))


def test_gradients_are_complete_after_the_operations_of_their_layers_and_the_deeper_ones() -> None:
    model = ModelConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=17,
    )
    tokens, predictions = 13, 5
    layer = 2 * tokens * 32 * (4 * 32 + 2 * 37) + 4 * tokens**2 * 32
    last = layer - 2 * (tokens - 6) * 32 * (32 + 2 * 37)  # after its attention, for 5 masked tokens and [CLS] only
    heads = 2 * predictions * 32 * (99 + 32)
    whole = heads + last + 2 * layer
    found = [updates_rank.complete(model, tokens, predictions, at) for at in (3, 2, 1, 0)]
    assert found == pytest.approx([(whole - 2 * layer) / whole, (whole - layer) / whole, 1, 1])
    # Of a last layer that is computed in part, what is left out is taken from the heads: never too late.
    assert 0 <= updates_rank.complete(model, tokens, predictions, float("inf")) <= heads / whole


def told(accumulation: int = 3, **changed: Any) -> list[list[dict[str, Any]]]:
    """What two ranks tell: an update takes 10 s alone, 18 s with the exchange, 13 s with overlap."""
    facts = {"parameters": 1000, "buckets": {way: [3000, 1000] for way in WAYS}, "forward": 1.0}
    facts |= {"ready": {way: [0.25, 1.0] for way in WAYS}}
    same = {"accumulation": accumulation, "micro_batch": [3.0] * 3, "losses": [7.0, 6.5], "sent": 4100.0}
    times = {ALONE: (10.0, 4.0), "summed": (18.0, 5.5), "overlap": (13.0, 6.0)}
    ranks = []
    for slower in (0.0, 0.25):
        turns: list[dict[str, Any]] = [{"turn": turn, "way": way} for turn in (0, 1) for way in times]
        for turn in turns:
            seconds, cpu = times[turn["way"]]
            turn |= same | {"seconds": [seconds - 1, seconds + slower, seconds + slower], "cpu": cpu}
            turn |= changed if turn["way"] == "overlap" else {}
        ranks.append([facts, *turns])
    return ranks


def test_figures_follow_from_the_turns_of_the_slowest_rank() -> None:
    summed, overlap = updates.rows(Setting("tiny", 100, 5, 2, 16), told())
    assert (summed["update"], summed["compute"], summed["exposed"]) == (18.25, 10.25, 8.0)
    assert summed["scaling"] == 10.25 / 18.25 and summed["transfer"] == 1.5 and "hidden" not in summed
    # The backward pass of one micro-batch takes 3 s less 1. The first bucket leaves after a quarter of it, for 6 s.
    assert overlap["could_be_hidden"] == 1.5 and overlap["hidden"] == (18.25 - 13.25) / 1.5
    assert overlap["in_theory"] == 4000 and overlap["ranks"] == 2
    header, shown = updates.HEADER.splitlines()[0], updates.line(overlap)
    assert header.count("|") == shown.count("|") and "333 % of 1.50 s" in shown and "100 Mb/s, 5 ms" in shown


def test_ways_that_give_other_losses_are_refused() -> None:
    setting = Setting("tiny", 100, 5, 2, 16)
    updates.rows(setting, told(losses=[7.0, 6.5 * (1 + 5e-7)]))
    for loss in (6.5 * (1 + 2e-6), float("nan")):
        with pytest.raises(IntegrityError, match="overlap gives a loss of"):
            updates.rows(setting, told(losses=[7.0, loss]))


def test_the_rows_of_collectives_are_those_of_the_slowest_rank() -> None:
    ranks = [
        [
            {"way": way, "seconds": [2.0 + rank, 5.0 - rank], "cpu": 1.0, "sent": 9.0, "error": 0.1 * rank}
            for way in collectives.WAYS
        ]
        for rank in (0, 1)
    ]
    first = collectives.rows(ranks)[0]
    assert (first["seconds"], first["fastest"], first["slowest"], first["error"]) == (4.0, 3.0, 5.0, 0.1)
    shown = collectives.line(first | {"megabits": 100.0, "milliseconds": 0.0})
    assert collectives.HEADER.splitlines()[0].count("|") == shown.count("|")


def test_a_wrong_way_is_one_line() -> None:
    with pytest.raises(UsageError, match="--ways quick: one of summed"):
        command.Options(what="updates", ways=("quick",))
    with pytest.raises(UsageError, match="--models huge: one of"):
        command.Options(what="updates", models=("huge",))


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


@pytest.mark.slow
@pytest.mark.parametrize("joined", [0.0, 15.0], indirect=True)
def test_a_link_has_its_rate_and_delay_and_counts_its_bytes(joined: Link) -> None:
    measured = joined.measure()
    assert all(0.85 * 80 <= rate <= 1.02 * 80 for rate in measured.megabits)
    assert 2 * joined.milliseconds <= measured.round_trip < 2 * joined.milliseconds + 10
    # 10 MB there and back, and the headers: 40 to 66 bytes for 1,448 or more.
    code = "from benchmarks.slow_network import link; print(*link.traffic())"
    counted = joined.command(0, [sys.executable, "-c", code])
    received, sent = map(int, subprocess.run(counted, cwd=ROOT, capture_output=True, text=True).stdout.split())
    assert received > 10e6 and sent > 10e6
    name = subprocess.run(joined.command(1, ["uname", "-n"]), capture_output=True, text=True).stdout
    assert name == "second\n"


@pytest.mark.slow
@pytest.mark.parametrize("joined", [0.0], indirect=True)
def test_a_link_of_another_rate_is_refused(joined: Link) -> None:
    joined.megabits = 160
    began = time.monotonic()
    with pytest.raises(ResourceError, match="instead of 160"):
        joined.measure()
    assert time.monotonic() - began < 60


@pytest.mark.multiprocess
def test_the_command_measures_updates_on_two_hosts(tmp_path: Path) -> None:
    try:
        with Link(100):
            pass
    except UsageError as error:
        pytest.skip(str(error))
    options = ["--models", "tiny", "--megabits", "100", "--accumulation", "1", "--ways", "summed", "overlap", "--turns"]
    options += ["1", "--updates", "1", "--sequences", "2", "--tokens", "16", "--bucket_megabytes", "0.7"]
    words = [sys.executable, "-m", "benchmarks.slow_network", "updates", *options, "--output", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    _, measured, *rows = [json.loads(text) for text in (tmp_path / "updates.jsonl").read_text().splitlines()]
    assert len(measured["link"]["megabits"]) == 2 and [row["way"] for row in rows] == ["summed", "overlap"]
    bytes_of_gradients = 4 * model_cost.parameters(command.TINY)
    for row in rows:
        assert row["in_theory"] == bytes_of_gradients  # 2 ranks: half of them twice
        assert bytes_of_gradients <= row["sent"] <= 1.15 * bytes_of_gradients  # headers, and Horovod's own messages
        assert row["update"] > bytes_of_gradients * 8 / 100e6
    assert not [name for name in tmp_path.iterdir() if name.name.startswith(".scratch")]
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    owners = re.findall(rf"{link.PREFIX}-(\d+)-", left)  # another test may be running
    assert all(Path("/proc", owner).exists() for owner in owners)
