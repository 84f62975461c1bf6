"""Folders and files go to a real server of S3 and come back with the same bytes; each failure is one line."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bert.core import files, manifest, object_urls, outputs
from bert.core.errors import InputError, IntegrityError, ResourceError, UsageError
from extensions.stores import object_store
from tests.object_server import BUCKET, SERVER, Server, as_google, needs_server, served

ROOT = Path(__file__).resolve().parents[3]
LARGE = object_store.PIECE + 12_345


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not SERVER.exists():
        pytest.skip("needs moto: scripts/extra_venv.sh stores true")
    with served(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def host(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server, from a machine with an empty work folder."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    at_host(tmp_path / "one", monkeypatch)
    object_store._store.cache_clear()
    yield server
    object_store._store.cache_clear()


def at_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(folder))


def build(folder: Path, **contents: bytes) -> Path:
    def make(partial: Path) -> outputs.StageResult:
        for name, content in contents.items():
            path = partial / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        return outputs.StageResult(counts={})

    outputs.build(folder, stage="text", parameters={"of": sorted(contents)}, inputs=[], make=make)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def noise(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def there_and_back(scheme: str, host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{scheme}://{BUCKET}/{scheme}/and/back"
    here = object_urls.local(url)
    made = contents(build(here, large=noise(LARGE), empty=b"", below__small=noise(777)))
    object_store.send(here)
    assert sorted(host.names(f"{scheme}/")) == sorted(f"{scheme}/and/back/{name}" for name in made)
    assert host.ask("GET", f"{scheme}/and/back/large") == made["large"]
    at_host(tmp_path / "two", monkeypatch)
    object_store.fetch(other := object_urls.local(f"{url}/"))
    assert other != here and contents(other) == made


def test_a_folder_goes_to_the_store_and_comes_to_another_machine_with_the_same_bytes(
    host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_and_back("s3", host, tmp_path, monkeypatch)


def test_a_folder_goes_to_google_and_comes_back(host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with as_google(host) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        there_and_back("gs", host, tmp_path, monkeypatch)
        for url, words in (("gs://absent/x", "there is no bucket"), (f"gs://{BUCKET}/x", "nothing has this name")):
            with pytest.raises(InputError, match=f"{url}: {words}"):
                object_store.fetch(object_urls.local(url))


def test_what_is_there_is_not_transferred_again(host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = build(object_urls.local(f"s3://{BUCKET}/again"), a=b"1", b=b"2")
    object_store.send(here)
    object_store.send(here)
    assert host.requests("PUT /bucket/again/a ") == 1
    host.ask("PUT", "raw-again/a.txt", b"text")
    at_host(tmp_path / "two", monkeypatch)
    for name, file in (("again", "again/a"), ("raw-again", "raw-again/a.txt")):
        object_store.fetch(object_urls.local(f"s3://{BUCKET}/{name}"))
        object_store.fetch(object_urls.local(f"s3://{BUCKET}/{name}"))
        assert host.requests(f"GET /bucket/{file} ") == 1


def test_a_stopped_fetch_goes_on_with_what_it_has(
    host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = contents(build(object_urls.local(f"s3://{BUCKET}/cut"), a=noise(LARGE), b=noise(99)))
    object_store.send(object_urls.local(f"s3://{BUCKET}/cut"))
    at_host(tmp_path / "two", monkeypatch)
    get, pieces = object_store.Place.get, []

    def stopped(*arguments: object) -> Iterator[int]:
        for size in get(*arguments):  # type: ignore[arg-type]
            pieces.append(size)
            yield size
            if size == object_store.PIECE:
                raise KeyboardInterrupt

    monkeypatch.setattr(object_store.Place, "get", stopped)
    here = object_urls.local(f"s3://{BUCKET}/cut")
    with pytest.raises(KeyboardInterrupt):
        object_store.fetch(here)
    assert not here.exists()
    pieces.clear()
    monkeypatch.setattr(object_store, "PIECE", object_store.PIECE - 1)  # `stopped` does not stop again
    object_store.fetch(here)
    assert LARGE - object_store.PIECE - 1 in pieces and object_store.PIECE not in pieces
    assert contents(here) == made


def test_a_stopped_send_is_no_folder_and_goes_on(host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = build(object_urls.local(f"s3://{BUCKET}/half"), a=b"1", b=b"22", c=b"333")
    made, put = contents(here), object_store.Place.put

    def stop(place: object_store.Place, name: str, content: object, size: int) -> None:
        if name == "b":
            raise KeyboardInterrupt
        put(place, name, content, size)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(object_store.Place, "put", stop)
        patched.setattr(object_store, "AT_ONCE", 1)
        object_store.send(here)
    assert manifest.NAME not in {name.rpartition("/")[2] for name in host.names("half/")}
    with monkeypatch.context() as patched:
        at_host(tmp_path / "two", patched)
        with pytest.raises(InputError, match="is being sent"):
            object_store.fetch(object_urls.local(f"s3://{BUCKET}/half"))
    object_store.check_output(here, "text")
    object_store.send(here)
    assert host.requests("PUT /bucket/half/a ") == 1 and host.requests("PUT /bucket/half/c ") == 1
    assert {name: host.ask("GET", f"half/{name}") for name in made} == made
    assert len(host.names("half/")) == len(made)


def test_a_new_output_replaces_the_old_one_and_its_files(
    host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = build(object_urls.local(f"s3://{BUCKET}/new"), old=b"1", same=b"2")
    object_store.send(here)
    at_host(tmp_path / "two", monkeypatch)
    object_store.fetch(copy := object_urls.local(f"s3://{BUCKET}/new"))
    at_host(tmp_path / "one", monkeypatch)
    object_store.send(build(here, same=b"3", other=b"4"))
    assert sorted(host.names("new/")) == ["new/manifest.json", "new/other", "new/same"]
    at_host(tmp_path / "two", monkeypatch)
    object_store.fetch(copy)
    assert contents(copy) == contents(here)


def test_a_changed_byte_in_the_store_is_named_and_the_file_gets_no_name(
    host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_store.send(build(object_urls.local(f"s3://{BUCKET}/bad"), a=b"right", b=b"2"))
    host.ask("PUT", "bad/a", b"wrong")
    at_host(tmp_path / "two", monkeypatch)
    here = object_urls.local(f"s3://{BUCKET}/bad")
    with pytest.raises(IntegrityError, match="s3://bucket/bad/a: not the file that its manifest records"):
        object_store.fetch(here)
    assert not here.exists()


def test_texts_are_fetched_again_when_they_have_changed(host: Server) -> None:
    here = object_urls.local(f"s3://{BUCKET}/texts")
    host.ask("PUT", "texts/a.txt", b"one")
    host.ask("PUT", "texts/below/b.txt", b"two")
    object_store.fetch(here)
    hashed = manifest.content_hash(here)
    host.ask("PUT", "texts/a.txt", b"new")
    host.ask("DELETE", "texts/below/b.txt")
    object_store.fetch(here)
    assert contents(here) == {"a.txt": b"new"} and manifest.content_hash(here) != hashed
    object_store.fetch(single := object_urls.local(f"s3://{BUCKET}/texts/a.txt"))
    assert single.read_bytes() == b"new"
    hashed = manifest.content_hash(here)  # what is remembered of the single file is no part of the folder
    host.ask("DELETE", "texts/a.txt")
    host.ask("PUT", "texts/c.txt", b"new")
    (here / "mine").write_bytes(b"not of the store")
    with pytest.raises(UsageError, match="mine: is not of the present content"):
        object_store.fetch(here)


def test_too_little_room_is_said_before_anything_is_fetched(host: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    host.ask("PUT", "room/a.txt", b"12345")
    monkeypatch.setattr(files, "free_bytes", lambda folder: object_store.SPARE + 4)
    with pytest.raises(ResourceError, match="needs 67,108,869 bytes, and 67,108,868 are free"):
        object_store.fetch(object_urls.local(f"s3://{BUCKET}/room"))
    assert host.requests("GET /bucket/room/a.txt") == 0


def test_what_others_have_stored_is_not_replaced(host: Server) -> None:
    host.ask("PUT", "theirs/x", b"1")
    object_store.send(build(object_urls.local(f"s3://{BUCKET}/ours"), a=b"1"))
    object_store.check_output(object_urls.local(f"s3://{BUCKET}/ours"), "text")
    object_store.check_output(object_urls.local(f"s3://{BUCKET}/nothing"), "text")
    for name, stage in (("theirs", "text"), ("ours", "vocab"), ("theirs/x", "text")):
        with pytest.raises(UsageError, match="choose another output folder"):
            object_store.check_output(object_urls.local(f"s3://{BUCKET}/{name}"), stage)


@pytest.mark.parametrize(
    "url, changes, kind, words",
    [
        ("s3://absent/x", {}, InputError, "there is no bucket 'absent'"),
        ("s3://bucket/absent", {}, InputError, "nothing has this name"),
        ("s3://bucket/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, InputError, "no answer from the store"),
        ("az://bucket/x", {}, UsageError, "refuses the credentials, or there are none; give AZURE_STORAGE_ACCOUNT"),
    ],
)
def test_each_failure_is_one_line(
    url: str, changes: dict[str, str], kind: type[Exception], words: str, host: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(kind, match=words) as raised:
        object_store.fetch(object_urls.local(url))
    assert str(raised.value).startswith(url) and "\n" not in str(raised.value)
    assert not object_urls.local(url).exists()


@pytest.mark.slow
@needs_server
def test_wrong_credentials_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, INITIAL_NO_AUTH_ACTION_COUNT="1") as strict:
        for name, value in (strict.environment | {"BERT_WORKDIR": str(tmp_path)}).items():
            monkeypatch.setenv(name, value)
        object_store._store.cache_clear()
        with pytest.raises(UsageError, match="refuses the credentials, or there are none; give AWS_ACCESS_KEY_ID"):
            object_store.fetch(object_urls.local(f"s3://{BUCKET}/x"))
    object_store._store.cache_clear()


def test_without_obstore_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "obstore", None)
    object_store._obstore.cache_clear()
    try:
        with pytest.raises(UsageError, match="need the package obstore; pip install obstore"):
            object_store.fetch(object_urls.local("s3://bucket/x"))
    finally:
        object_store._obstore.cache_clear()


def test_a_connection_that_breaks_is_tried_again(host: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    content, breaks = noise(3_000_000), [1_000_000, 2_000_000]  # bytes after which a connection is closed
    host.ask("PUT", "breaks/a.txt", content)

    def forward(taken: socket.socket) -> None:
        with taken, socket.create_connection(("127.0.0.1", int(host.address.rpartition(":")[2]))) as server:
            pairs, passed = {taken: server, server: taken}, 0
            while True:
                for source in select.select(list(pairs), [], [])[0]:
                    block = source.recv(1 << 16)
                    passed += len(block) * (source is server)
                    if not block or (breaks and passed > breaks[0]):
                        if passed > 500_000 and breaks:
                            breaks.pop(0)
                        return
                    pairs[source].sendall(block)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=forward, args=[listener.accept()[0]], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        object_store.fetch(here := object_urls.local(f"s3://{BUCKET}/breaks"))
    assert contents(here) == {"a.txt": content} and not breaks


def test_keys_of_a_profile_are_taken_and_those_of_the_environment_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = a\n[w]\naws_access_key_id = b%\n")
    (tmp_path / "config").write_text("[default]\nregion = x\n[profile w]\nregion = y\noutput = json\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert object_store._aws_profile() == {"region": "x", "aws_access_key_id": "a"}
    monkeypatch.setenv("AWS_PROFILE", "w")
    assert object_store._aws_profile() == {"region": "y", "aws_access_key_id": "b%"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "c")
    monkeypatch.setenv("AWS_REGION", "z")
    assert object_store._aws_profile() == {}
    (tmp_path / "config").write_text("no section")
    with pytest.raises(UsageError, match="not a file of credentials"):
        object_store._aws_profile()


@pytest.mark.slow
def test_of_several_processes_of_a_machine_one_fetches(host: Server, tmp_path: Path) -> None:
    host.ask("PUT", "once/a.txt", noise(2_000_000))
    code = "import sys\nfrom bert.core import stores, object_urls as urls\n"
    code += "stores.fetch(urls.local(sys.argv[1]))"
    line = [sys.executable, "-c", code, f"s3://{BUCKET}/once"]
    started = [subprocess.Popen(line, cwd=ROOT, env=os.environ) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert host.requests("GET /bucket/once/a.txt") == 1


@pytest.mark.slow
def test_a_stage_reads_from_a_store_and_writes_to_one(host: Server, tmp_path: Path) -> None:
    text = b"A first sentence. And a second one.\n\nThe next paragraph.\n"
    host.ask("PUT", "stage/raw/a.txt", text)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.txt").write_bytes(text)

    def made(source: str, output: str) -> str:
        line = [sys.executable, "-m", "data.text", "--source", source, "--output", output]
        done = subprocess.run(line, cwd=ROOT, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()[-1]

    said = made(f"s3://{BUCKET}/stage/raw", f"s3://{BUCKET}/stage/text")
    assert said.startswith(f"s3://{BUCKET}/stage/text: ") and f"--source s3://{BUCKET}/stage/text" in said
    made(str(tmp_path / "raw"), str(tmp_path / "text"))
    expected = contents(tmp_path / "text")
    assert {name: host.ask("GET", f"stage/text/{name}") for name in expected if name != manifest.NAME} == {
        name: content for name, content in expected.items() if name != manifest.NAME
    }
    sent = json.loads(host.ask("GET", "stage/text/manifest.json"))
    assert sent["files"] == json.loads(expected[manifest.NAME])["files"]


OBJECTS: dict[str, tuple[dict[str, bytes], list[str] | str]] = {
    "a folder's marker": ({"sub/": b"", "sub/x": b"1", "empty": b""}, ["empty", "sub/x"]),
    "markers of nested folders": ({"sub/": b"", "sub/deep/": b"", "sub/deep/x": b"1"}, ["sub/deep/x"]),
    "the marker of an empty folder": ({"sub/": b"", "x": b"1"}, ["x"]),
    "nothing but a marker": ({"sub/": b""}, "nothing has this name"),
    "an object with objects below it": (
        {"sub": b"1", "sub/x": b"1"},
        "/sub: is an object, and others have names below",
    ),
    "a name with two slashes": (
        {"sub//x": b"1", "x": b"1"},
        "sub//x.* contained empty path segment.*; rename that obj",
    ),
}


@needs_server
@pytest.mark.parametrize("case", OBJECTS)
def test_what_names_of_objects_mean(case: str, host: Server) -> None:
    """Keys are flat; consoles make an empty object `sub/` for a folder (Amazon S3 User Guide, "Organizing objects")."""
    objects, expected = OBJECTS[case]
    url = f"s3://{BUCKET}/names/{case.replace(' ', '-')}"
    for name, content in objects.items():
        host.ask("PUT", f"{url.partition(BUCKET)[2][1:]}/{name}", content)
    path = object_urls.local(url)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            object_store.fetch(path)
        return
    for _ in range(2):  # the second time there is nothing to do
        object_store.fetch(path)
    assert sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()) == expected
