"""A manifest that is missing, damaged or of another stage is refused with the right error."""

from pathlib import Path

import pytest

from bert.errors import InputError, IntegrityError
from bert.storage import manifest


def test_a_missing_or_damaged_manifest_is_an_error_of_its_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        manifest.load(tmp_path / "nowhere", "shards")
    with pytest.raises(InputError, match=r"no manifest.json.* run python -m data.shards"):
        manifest.load(tmp_path, "shards")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(IntegrityError, match="not a manifest of ours"):
        manifest.load(tmp_path)
