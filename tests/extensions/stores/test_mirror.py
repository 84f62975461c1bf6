"""A run directory in an object store: sent while it trains, whole after a kill, taken up by another machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bert.core import object_urls
from bert.core.config import RunConfig
from bert.core.errors import InputError, UsageError
from bert.training import checkpoint
from extensions.stores import mirror, object_store
from tests.object_server import BUCKET, SERVER, Server, served
from tests.training import errors, losses, measured, pretrain, same_bits, train_here, weights, write_dataset

STEPS, EVERY = 12, 4
LENGTH = ["--run.steps", str(STEPS), "--run.save_every", str(EVERY), "--run.keep", "2"]
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not SERVER.exists():
        pytest.skip("needs moto: scripts/extra_venv.sh stores true")
    with served(tmp_path_factory.mktemp("server")) as running:
        running.put(write_dataset(tmp_path_factory.mktemp("data") / "records"), "records")
        yield running


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run without a stop, in a local directory with local records."""
    folder = tmp_path_factory.mktemp("undisturbed")
    train_here(write_dataset(folder / "records"), folder / "run", *LENGTH)
    return folder / "run"


def train(server: Server, host: Path, name: str, *more: str, ranks: int = 1, patch: str | None = None) -> str:
    """Train on a machine whose work folder is `host`; return what it says, with the exit code as the last line."""
    flags = ["--data.train", f"s3://{BUCKET}/records", "--run.directory", f"s3://{BUCKET}/{name}"]
    environment: dict[str, Any] = server.environment | {"BERT_WORKDIR": str(host)}
    if ranks > 1:  # launchers pass no secrets to the ranks
        (host / ".aws").mkdir(parents=True, exist_ok=True)
        keys = {key.lower(): environment.pop(key) for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        lines = "\n".join(f"{key} = {value}" for key, value in keys.items())
        (host / ".aws" / "credentials").write_text(f"[default]\n{lines}\n")
        environment["HOME"] = str(host)
    # The flags that come last count.
    done = pretrain(Path("x"), Path("y"), *LENGTH, *flags, *more, ranks=ranks, patch=patch, **environment)
    return f"{done.stderr}\n{done.returncode}"


def local(host: Path, name: str) -> Path:
    return host / "stores" / "s3" / BUCKET / name


def whole(server: Server, name: str) -> list[int]:
    """Return the steps of the checkpoints of a run in the store that have a manifest and all files that it lists."""
    steps = []
    for found in server.names(f"{name}/checkpoints/"):
        folder, _, file = found.rpartition("/")
        if file == "manifest.json":
            listed = json.loads(server.ask("GET", found))["files"]
            for each, entry in listed.items():
                assert len(server.ask("GET", f"{folder}/{each}")) == entry["bytes"]
            steps.append(int(folder.rpartition("-")[2]))
    return sorted(steps)


# The process is killed while it sends this file of the second checkpoint: the store has asked for more of it.
KILLED = """
    import os, signal
    from bert.training import saver
    from extensions.stores import mirror, object_store
    mirror.EVERY = 0.05
    put = object_store.Place.put
    def cut(place, name, content, size):
        if name == "checkpoints/step-00000008/{file}":
            def pieces():
                yield bytes(6_000_000)
                os.kill(os.getpid(), signal.SIGKILL)
                yield b""
            content = pieces()
        put(place, name, content, size)
    object_store.Place.put = cut
    # Each checkpoint is sent before the next one is made.
    wait = saver.Saver.wait
    def sent(self):
        wait(self)
        import time
        time.sleep(1.5)
    saver.Saver.wait = sent
"""


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_a_run_that_is_killed_within_an_upload_goes_on_elsewhere_to_the_same_bits(
    server: Server, undisturbed: Path, tmp_path: Path
) -> None:
    name, last = "killed", tmp_path / "last"
    for file in ("variables.data-00000-of-00001", "manifest.json"):
        said = train(server, tmp_path / file, name, patch=KILLED.format(file=file))
        assert said.endswith("-9"), said
        assert whole(server, name) == [4]
        assert checkpoint.newest(local(tmp_path / file, name)) >= 8
    said = train(server, last, name)
    assert said.endswith("\n0") and "after step 4" in said, said
    run = local(last, name)
    same_bits(weights(run, STEPS), weights(undisturbed, STEPS))
    assert measured(run) == measured(undisturbed)
    assert whole(server, name) == [8, STEPS]
    for path in [run / "metrics.jsonl", run / "config.json", *(run / "checkpoints").glob("step-*/*")]:
        assert server.ask("GET", f"{name}/{path.relative_to(run)}") == path.read_bytes()
    recorded = json.loads((run / "config.json").read_text())["config"]
    assert recorded["data.train"] == f"s3://{BUCKET}/records"


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.timeout(900)
def test_two_ranks_fetch_once_and_go_on_on_another_machine(server: Server, tmp_path: Path) -> None:
    first = "GET /bucket/records/train-00000.tfrecord "
    before = server.requests(first)
    said = train(server, tmp_path / "one", "ranks", "--run.stop_at", "8", ranks=2)
    assert said.endswith("\n75"), said
    assert server.requests(first) == before + 1 and whole(server, "ranks") == [4, 8]
    said = train(server, tmp_path / "two", "ranks", ranks=2)
    assert said.endswith("\n0") and "after step 8" in said, said
    # That two ranks go on to the same bits is shown by test_hosts.py.
    updates = [step for step, split in losses(local(tmp_path / "two", "ranks")) if split == "train"]
    assert updates == [*range(1, STEPS + 1)]


@pytest.mark.slow
@pytest.mark.multiprocess
def test_what_is_not_there_is_one_line_of_all_ranks(server: Server, tmp_path: Path) -> None:
    said = train(server, tmp_path, "nothing", "--data.train", f"s3://{BUCKET}/absent", ranks=2)
    assert said.endswith("\n3"), said
    assert {line for line in errors(said)} == {
        "error: s3://bucket/absent: nothing has this name, and no name begins with it; correct it"
    }
    assert server.names("nothing") == []


@pytest.fixture
def host(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, value in (server.environment | {"BERT_WORKDIR": str(tmp_path / "one")}).items():
        monkeypatch.setenv(name, value)
    object_store._store.cache_clear()
    yield tmp_path
    object_store._store.cache_clear()


def save(run: Path, *steps: int) -> None:
    """Write checkpoints of one small variable."""
    import tensorflow as tf

    (run / "config.json").parent.mkdir(parents=True, exist_ok=True)
    (run / "config.json").write_text(f"{{}} {run.name}")
    for step in steps:
        checkpoint.save(run, step, {"w": tf.constant([float(step)])}, keep=2)


def test_old_checkpoints_go_when_a_newer_one_is_whole(
    server: Server, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunConfig(directory=object_urls.local(f"s3://{BUCKET}/kept"), keep=2, keep_every=3)
    sender = mirror.Mirror(run, f"s3://{BUCKET}/kept")
    save(run.path, 3, 4)
    sender.send()
    save(run.path, 5, 6)  # locally, with another rule, step 3 is gone
    put, seen = object_store.Place.put, list[list[int]]()

    def look(place: object_store.Place, *arguments: object) -> None:
        seen.append(whole(server, "kept"))
        put(place, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(object_store.Place, "put", look)
    sender.send()
    assert whole(server, "kept") == [3, 5, 6]
    assert all({3, 4} <= {*steps} for steps in seen), "an old one went before the new ones were whole"
    # Another machine has only the newest one, and what is kept for ever stays in the store.
    monkeypatch.setenv("BERT_WORKDIR", str(host / "two"))
    mirror.fetch(there := object_urls.local(f"s3://{BUCKET}/kept"))
    assert [path.name for path in checkpoint.steps(there)] == ["step-00000006"]
    save(there, 7)
    mirror.Mirror(RunConfig(directory=there, keep=2, keep_every=3), f"s3://{BUCKET}/kept").send()
    assert whole(server, "kept") == [3, 6, 7]


def test_what_a_killed_process_had_sent_is_removed(server: Server, host: Path) -> None:
    run = RunConfig(directory=object_urls.local(f"s3://{BUCKET}/rest"))
    save(run.path, 4)
    server.ask("PUT", "rest/checkpoints/step-00000003/variables.index", b"1")
    mirror.Mirror(run, f"s3://{BUCKET}/rest").send()
    assert not server.names("rest/checkpoints/step-00000003") and whole(server, "rest") == [4]


def test_the_newer_of_both_counts(server: Server, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"s3://{BUCKET}/newer"
    run = RunConfig(directory=object_urls.local(url))
    save(run.path, 1)
    mirror.Mirror(run, url).send()
    save(run.path, 2)
    mirror.fetch(run.path)  # here is a newer one
    assert checkpoint.newest(run.path) == 2 and whole(server, "newer") == [1]
    mirror.Mirror(run, url).send()
    monkeypatch.setenv("BERT_WORKDIR", str(host / "two"))
    mirror.fetch(there := object_urls.local(url))
    (there / "metrics.jsonl").write_text("old")
    monkeypatch.setenv("BERT_WORKDIR", str(host / "one"))
    save(run.path, 3)
    (run.path / "metrics.jsonl").write_text("new")
    mirror.Mirror(run, url).send()
    monkeypatch.setenv("BERT_WORKDIR", str(host / "two"))
    mirror.fetch(there)
    assert checkpoint.newest(there) == 3 and (there / "metrics.jsonl").read_text() == "new"


def test_a_damaged_checkpoint_in_the_store_gives_way_to_the_one_before(
    server: Server, host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://{BUCKET}/damaged"
    run = RunConfig(directory=object_urls.local(url))
    save(run.path, 1, 2)
    mirror.Mirror(run, url).send()
    broken = "damaged/checkpoints/step-00000002/variables.index"
    server.ask("PUT", broken, bytes(len(server.ask("GET", broken))))
    monkeypatch.setenv("BERT_WORKDIR", str(host / "two"))
    mirror.fetch(there := object_urls.local(url))
    assert checkpoint.newest(there) == 1 and "variables.index: not the file" in capsys.readouterr().err


def test_two_runs_do_not_mix(server: Server, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"s3://{BUCKET}/mixed"
    run = RunConfig(directory=object_urls.local(url))
    save(run.path, 1)
    mirror.Mirror(run, url).send()
    (run.path / "config.json").write_text("another")
    server.ask("PUT", "mixed/checkpoints/step-00000009/manifest.json", b"{}")
    with pytest.raises(UsageError, match="is of another run"):
        mirror.fetch(run.path)
    with pytest.raises(InputError, match="s3://bucket/none: no run directory with a checkpoint"):
        mirror.fetch(object_urls.local(f"s3://{BUCKET}/none"))


def test_a_long_log_is_not_sent_whole_each_minute(server: Server, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"s3://{BUCKET}/long"
    run = RunConfig(directory=object_urls.local(url))
    save(run.path, 1)
    log, put, sent = run.path / "metrics.jsonl", object_store.Place.put, list[int]()
    monkeypatch.setattr(mirror, "SMALL", 2000)

    def count(place: object_store.Place, name: str, content: Any, size: int) -> None:
        sent.append(size if name == log.name else 0)
        put(place, name, content, size)

    monkeypatch.setattr(object_store.Place, "put", count)
    sender = mirror.Mirror(run, url)
    for minute in range(300):
        with open(log, "a") as stream:
            stream.write(f"{minute:099}\n")
        sender._try(mirror.GROWTH)
        if minute < 20:
            assert server.ask("GET", "long/metrics.jsonl") == log.read_bytes()
    size = log.stat().st_size
    assert size == 30_000 and size * 7 < sum(sent) < size * 9 + 20 * 2000
    assert size / (1 + mirror.GROWTH) <= len(server.ask("GET", "long/metrics.jsonl")) < size
    save(run.path, 2)  # with a checkpoint all is sent that belongs to it
    sender._try(mirror.GROWTH)
    assert server.ask("GET", "long/metrics.jsonl") == log.read_bytes()


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_a_warning_until_the_end(
    server: Server, host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://{BUCKET}/away"
    run = RunConfig(directory=object_urls.local(url))
    save(run.path, 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    sender = mirror.Mirror(run, url)
    sender._try()
    sender._try()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "not sent yet, the run goes on" in said[0] and "no answer from the store" in said[0]
    sender.start()
    with pytest.raises(InputError, match="no answer from the store"):
        sender.finish()
    assert checkpoint.newest(run.path) == 1
