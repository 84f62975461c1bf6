"""A forecast of a run whose teacher is in an object store."""

import json
from pathlib import Path

import pytest

from bert.core.errors import InputError
from bert.plan import __main__ as command
from bert.recipes import SIZES
from extensions.stores import object_store
from tests.object_server import BUCKET, needs_server, served


@pytest.mark.slow
@needs_server
def test_a_teacher_in_a_store_takes_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    SIZES["small"].save(tmp_path / "teacher" / "bert_config.json")
    words = ["bert_base_phase1", "--gpu", "h100-sxm", "--batch.per_device", "8", "--json", "--distill.teacher"]
    with served(tmp_path) as server:
        for name, value in (server.environment | {"BERT_WORKDIR": str(tmp_path / "work")}).items():
            monkeypatch.setenv(name, value)
        object_store._store.cache_clear()
        server.put(tmp_path / "teacher", "runs/teacher")
        server.ask("PUT", "runs/damaged/bert_config.json", b'{"hidden_size": "wide"}')
        figures = []
        for place in (str(tmp_path / "teacher"), f"s3://{BUCKET}/runs/teacher"):
            command.main([*words, place])
            figures.append(json.loads(capsys.readouterr().out))
        assert figures[0] == figures[1]
        for name, message in (("absent", "has no bert_config.json"), ("damaged", "json: not a BERT configuration")):
            with pytest.raises(InputError, match=f"s3://{BUCKET}/runs/{name}.*{message}"):
                command.main([*words, f"s3://{BUCKET}/runs/{name}"])
    object_store._store.cache_clear()
