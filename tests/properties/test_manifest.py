"""No bytes in `manifest.json` give anything but a manifest or one of the documented errors."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core import checked_json, manifest, outputs
from bert.core.errors import InputError, IntegrityError
from data.fetch.download_dir import Downloaded
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished folder."""

    def make(partial: Path) -> outputs.StageResult:
        (partial / "a.txt").write_text("one\n")
        sources = {"a.txt": {"sha256": "0" * 64, "url": "https://example.org/a.txt"}}
        return outputs.StageResult(counts={"files": 1}, records={"a.txt": 1}, extra={"sources": sources})

    target = tmp_path_factory.mktemp("fuzz") / "out"
    outputs.build(target, stage="download", parameters={"name": "a"}, inputs=[], make=make)
    return target


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    return (folder / "manifest.json").read_bytes()


def read(folder: Path, content: bytes) -> manifest.Manifest | None:
    """The manifest with this content, or None if it is refused in one line."""
    (folder / "manifest.json").write_bytes(content)
    try:
        described = manifest.load(folder, "download")
        described.extra_as(Downloaded)
        described.count("files")
    except (InputError, IntegrityError) as error:
        assert str(folder) in str(error) and str(error).encode()
        return None
    return described


@fuzz
@given(data=st.data(), name=st.sampled_from([None, "n" * 300]) | st.text(max_size=300), signed=st.booleans())
def test_any_value_at_any_place(
    data: st.DataObject, name: str | None, signed: bool, folder: Path, whole: bytes
) -> None:
    """With a right checksum or without one: somebody made this manifest on purpose."""
    fields: dict[str, Any] = json.loads(whole)
    del fields[checked_json.KEY]
    if name is not None:
        fields["files"][name] = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest(), "records": 0}
    content = data.draw(damaged_json(fields))
    if signed:
        body = content.removeprefix(b"{")
        content = checked_json.head(body) + body
    described = read(folder, content)
    if described is not None:
        assert all((folder / name).is_file() for name in described.files)


def test_what_was_written_is_read(folder: Path, whole: bytes) -> None:
    assert read(folder, whole) is not None
