"""A real server of S3 on this machine (moto, in .venv-stores), and a client of its own that knows nothing of ours."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import threading
import urllib.parse
import urllib.request
import xml.etree.ElementTree
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


@contextlib.contextmanager
def as_google(server: Server) -> Iterator[dict[str, str]]:
    """Show a server of S3 as one of Google's XML API, which has the same requests; yield the environment for it.

    What differs: requests are not signed, and an object has a generation.
    """

    class Passed(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def passed(self) -> None:
            """Answer with what the server of S3 answers."""
            content = self.rfile.read(int(self.headers["Content-Length"] or 0))
            ours = {"Authorization": "AWS key:signature"}
            kept = {name: self.headers[name] for name in ("Content-Type", "Range") if self.headers[name]}
            connection = http.client.HTTPConnection(server.address.removeprefix("http://"))
            connection.request(self.command, self.path, content, kept | ours)
            answer = connection.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Length", "Content-Range", "ETag", "Last-Modified"):
                if answer.headers[name]:
                    self.send_header(name, answer.headers[name])
            self.send_header("x-goog-generation", "1")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = passed

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Passed) as google:
        threading.Thread(target=google.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{google.server_port}"
            # obstore's own way to leave out signatures, for servers of tests
            account = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
            yield {"GOOGLE_BASE_URL": address, "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}
        finally:
            google.shutdown()
