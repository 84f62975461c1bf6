"""What the tests of downloads share: a server on this machine, and pauses that are recorded and not made."""

from collections.abc import Iterator

import pytest

from data.fetch import connection
from tests.downloads import BODY
from tests.hostile import Site


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as running:
        running.files["/a.bin"] = BODY
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would have waited; it does not."""
    waited: list[float] = []
    monkeypatch.setattr(connection.Connections, "pause", lambda self, seconds: waited.append(seconds))
    return waited
