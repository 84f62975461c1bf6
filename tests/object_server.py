"""A real server of S3 on this machine (moto, in .venv-stores), and a client of its own that knows nothing of ours."""

import contextlib
import os
import re
import subprocess
import urllib.parse
import urllib.request
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for

SERVER = Path(__file__).resolve().parents[1] / ".venv-stores" / "bin" / "moto_server"
BUCKET = "bucket"
LISTENS = re.compile(r"Running on http://127\.0\.0\.1:(\d+)\s")
needs_server = pytest.mark.skipif(not SERVER.exists(), reason="needs moto: scripts/extra_venv.sh stores true")


class Server:
    """A server with one bucket."""

    def __init__(self, port: int, log: Path) -> None:
        self.address, self._log = f"http://127.0.0.1:{port}", log
        self.environment = {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "BERT_STORE_SECONDS": "3",
        }

    def ask(self, method: str, name: str = "", content: bytes | None = None) -> bytes:
        """Make one request."""
        # A form would be taken apart. The signature is not checked.
        headers = {"Content-Type": "application/octet-stream", "Authorization": "AWS key:signature"}
        request = urllib.request.Request(f"{self.address}/{BUCKET}/{name}", content, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            body: bytes = answer.read()
        return body

    def put(self, folder: Path, name: str) -> None:
        """Store all files of a folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.ask("PUT", f"{name}/{path.relative_to(folder)}", path.read_bytes())

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of the objects that begin with `prefix`."""
        listing = xml.etree.ElementTree.fromstring(self.ask("GET", f"?list-type=2&prefix={urllib.parse.quote(prefix)}"))
        return [each.text or "" for each in listing.iter() if each.tag.endswith("}Key")]

    def requests(self, words: str) -> int:
        """Return how many requests its log has with these words."""
        return self._log.read_text().count(words)


@contextlib.contextmanager
def served(folder: Path, **environment: str) -> Iterator[Server]:
    """Start a server on a free port, which its log in `folder` names."""
    log = folder / "server.log"
    with open(log, "w") as stream:
        line = [str(SERVER), "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(line, stdout=stream, stderr=stream, env=os.environ | environment)
    try:
        wait_for(lambda: LISTENS.search(log.read_text()), "server of S3", process)
        server = Server(int(LISTENS.findall(log.read_text())[0]), log)
        server.ask("PUT")
        yield server
    finally:
        process.terminate()
        process.wait()
