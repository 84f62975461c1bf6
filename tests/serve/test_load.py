"""A minute of more requests than the service can answer: all endpoints, small and large bodies, clients that leave."""

import collections
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the service needs it")

from tests.serve.process import Service, service
from tests.waiting import wait_for

pytestmark = pytest.mark.faults
SECONDS = 60
CLIENTS = 32  # each asks again at once
BODY, ANSWER, CONNECTIONS, QUEUE = 1 << 17, 1 << 20, 64, 512
PER_ROW = 64 << 10  # bytes that a row may take: 64 positions of this model, as Python and NumPy hold them
LIMITS = ("--body", BODY, "--answer", ANSWER, "--connections", CONNECTIONS, "--queue", QUEUE, "--receive_seconds", 2)
DOCUMENTED = {200, 503, 504}  # of a request that is in order

# Asks /healthz again and again, in a process of its own; prints the seconds of each answer.
HEALTH = """
import json, sys, time, urllib.request
took, end = [], time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    begun = time.monotonic()
    with urllib.request.urlopen(sys.argv[1] + "/healthz", timeout=60) as answer:
        assert answer.status == 200
    took.append(time.monotonic() - begun)
    time.sleep(0.1)
print(json.dumps(took))
"""


TEXT = "a river b c d cafe "
KINDS: list[tuple[str, dict[str, Any], set[int]]] = [  # the endpoint, the fields, the statuses that are documented
    ("answer", {"question": "Who?", "context": "a river"}, DOCUMENTED),
    ("answer", {"question": "Who?", "context": TEXT * 60}, DOCUMENTED),
    ("answer", {"question": "Who?", "context": TEXT * 6000}, {400}),  # too many windows
    ("classify", {"inputs": [{"text": TEXT}] * 64}, DOCUMENTED),
    ("tag", {"text": "a river"}, DOCUMENTED),
    ("tag", {"inputs": [{"text": TEXT * 20}] * 16}, DOCUMENTED),
    ("fill", {"inputs": [{"text": "[MASK] " * 20}] * 16, "top": 100}, DOCUMENTED | {400}),  # a large answer
    ("embed", {"inputs": [{"text": TEXT}] * 200}, DOCUMENTED),
    ("tag", {"text": 7}, {400}),
    ("classify", {"text": "x" * (BODY + 1)}, {413}),
]


def leave(port: int, chance: random.Random) -> None:
    """Send a part of a request, or a whole one, and go away without an answer."""
    body = json.dumps({"question": "Who?", "context": "a river " * 500}).encode()
    head = (
        f"POST /v1/answer HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    )
    sent = head.encode() + b"\r\n\r\n" + body
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(sent[: chance.choice([30, len(sent) // 2, len(sent)])])
        time.sleep(chance.random() / 10)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1500)
def test_a_minute_of_too_many_requests_of_all_kinds(folders: dict[str, Path]) -> None:
    names = ("answer", "classify", "tag", "fill")
    with service("--model", *(folders[name] for name in names), *LIMITS) as found:
        for route, fields, documented in KINDS:  # so that programs are compiled
            assert found.ask(route, **fields).status_code in documented, (route, str(fields)[:99])
        before, counts, wrong = found.memory(), collections.Counter[str](), list[tuple[str, int | str]]()
        end = time.monotonic() + SECONDS
        health = subprocess.Popen(
            [sys.executable, "-c", HEALTH, found.address, str(SECONDS)], stdout=subprocess.PIPE, text=True
        )

        def ask(seed: int) -> None:
            chance = random.Random(seed)
            with httpx.Client(base_url=found.address, timeout=120) as client:
                while time.monotonic() < end:
                    route, fields, documented = chance.choice(KINDS)
                    if chance.random() < 0.1:
                        counts["left"] += 1
                        leave(found.port, chance)
                        continue
                    try:
                        status = client.post(f"/v1/{route}", json=fields).status_code
                    except httpx.HTTPError as error:
                        # A refused body is not read to its end, and then the connection is closed.
                        counts["closed"] += 1
                        if 413 not in documented:
                            wrong.append((route, repr(error)))
                        continue
                    counts[str(status)] += 1
                    if status not in documented | {503}:
                        wrong.append((route, status))

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = np.array(json.loads(health.communicate(timeout=90)[0]))
        grown = _peak(found) - before
        wait_for(lambda: found.metric("bert_waiting_rows") == 0, "an empty queue")
        stopped = time.monotonic()
        assert found.stop() == 0
        stopped = time.monotonic() - stopped
        print(
            f"\n{dict(counts)}, /healthz {np.median(took):.3f} s, at most {took.max():.3f}, {len(took)} times;", end=" "
        )
        print(f"{before:.0f} MB and {grown:.0f} more, stopped in {stopped:.1f} s")
        assert not wrong
        assert counts["200"] > 100 and counts["503"] and counts["413"] and counts["left"]
        # What the limits allow: requests and answers, and rows in the queue and in two threads that encode.
        assert grown * 1e6 < CONNECTIONS * (BODY + ANSWER) + 3 * QUEUE * PER_ROW
        assert len(took) > SECONDS and np.median(took) < 0.5 and took.max() < 10
        assert "Traceback" not in "".join(found.said)


def _peak(found: Service) -> float:
    """The largest resident memory until now, in MB."""
    status = Path(f"/proc/{found.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1e3  # type: ignore[index]
