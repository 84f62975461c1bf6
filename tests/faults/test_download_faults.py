"""The download stage as a real command that is killed, interrupted, starved of disk, lied to, and given again."""

import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bert.core import manifest
from tests import hostile
from tests.hostile import Site
from tests.waiting import wait_for

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
DAY = "20261101"
BODIES = {
    f"simplewiki-{DAY}-pages-articles-multistream{at}.xml-p{at}p{at}.bz2": random.Random(at).randbytes(size)
    for at, size in [(1, 900_001), (2, 700_003), (3, 1_100_009)]
}
PATHS = {name: f"/simplewiki/{DAY}/{name}" for name in BODIES}


def slowly(handler: hostile.Handler, body: bytes) -> None:
    """Keeps the rules at about a megabyte a second."""
    write = handler.wfile.write

    class Slow:
        @staticmethod
        def write(data: bytes) -> None:
            for at in range(0, len(data), 20_000):
                write(data[at : at + 20_000])
                time.sleep(0.02)

    original, handler.wfile = handler.wfile, Slow  # type: ignore[assignment]
    try:
        hostile.plain(handler, body)
    finally:
        handler.wfile = original


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as running:
        facts = {n: {"size": len(b), "sha1": hashlib.sha1(b).hexdigest()} for n, b in BODIES.items()}
        job = {"articlesmultistreamdump": {"status": "done", "files": facts}}
        running.files = {PATHS[name]: body for name, body in BODIES.items()}
        running.files["/simplewiki/"] = f'<a href="{DAY}/">{DAY}/</a>'.encode()
        running.files[f"/simplewiki/{DAY}/dumpstatus.json"] = json.dumps({"jobs": job}).encode()
        yield running


def start(site: Site, output: Path, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "data.download", "wikipedia", "--wiki", "simple", "--dumps_url", site.url]
    command += ["--mirror", site.url, "--output", str(output)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str]:
    return process.wait(timeout), process.communicate()[1]


def assert_whole(output: Path) -> None:
    found = manifest.load(output, "download")
    manifest.verify(found)
    assert {name: (output / name).read_bytes() for name in found.files} == BODIES
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_killed_at_any_moment_it_goes_on_and_ends_with_the_same_bytes(site: Site, tmp_path: Path) -> None:
    assert finish(start(site, tmp_path / "a" / "out"))[0] == 0
    straight = (tmp_path / "a" / "out" / manifest.NAME).read_bytes()
    site.requests.clear()
    output, draw = tmp_path / "b" / "out", random.Random(11)
    for _ in range(5):
        for path in PATHS.values():
            site.faults[path] = [slowly]
        asked = len(site.requests)
        process = start(site, output)

        def is_under_way(asked: int = asked, process: subprocess.Popen[str] = process) -> bool:
            return len(site.requests) > asked or process.poll() is not None

        wait_for(is_under_way, "request")
        time.sleep(draw.uniform(0, 0.6))
        process.kill()
        process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0)
        assert not output.exists() or process.returncode == 0
    site.faults.clear()
    assert finish(start(site, output))[0] == 0
    assert_whole(output)
    assert (output / manifest.NAME).read_bytes() == straight
    assert any("Range" in headers for _, headers in site.requests)


def test_without_room_it_says_how_much_is_needed_and_goes_on_when_there_is(site: Site, tmp_path: Path) -> None:
    def tight() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, 800_000))

    code, said = finish(start(site, tmp_path / "out", preexec_fn=tight))
    assert code == 5 and "more bytes are needed" in said.splitlines()[-1] and "Traceback" not in said
    assert not (tmp_path / "out").exists()
    site.requests.clear()
    assert finish(start(site, tmp_path / "out"))[0] == 0
    assert_whole(tmp_path / "out")
    assert any(headers.get("Range") == "bytes=800000-" for _, headers in site.requests)
