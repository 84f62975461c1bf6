"""The download stage as a real command that is interrupted, starved of disk, lied to, and given again."""

import hashlib
import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bert.core import manifest
from tests.hostile import Site

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
DAY = "20261101"
BODIES = {
    f"simplewiki-{DAY}-pages-articles-multistream{at}.xml-p{at}p{at}.bz2": random.Random(at).randbytes(size)
    for at, size in [(1, 900_001), (2, 700_003), (3, 1_100_009)]
}
PATHS = {name: f"/simplewiki/{DAY}/{name}" for name in BODIES}


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
