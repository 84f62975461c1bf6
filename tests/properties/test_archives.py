"""Damaged zip archives: each is unpacked or refused with one line, and nothing is written outside the folder."""

import functools
import io
import random
import shutil
import tempfile
import zipfile
from pathlib import Path

from hypothesis import example, given

from bert.core.errors import IntegrityError
from data.fetch import archives
from tests.properties import mutations
from tests.properties.fuzz import fuzz

MEMBERS = {"m/vocab.txt": b"[PAD]\n" * 37, "m/deep/weights": random.Random(5).randbytes(301), "m/empty": b""}
LARGEST = 1 << 20  # bytes that an archive of this size may become


@functools.cache
def whole() -> tuple[bytes, ...]:
    """Return one good archive for each method of compression, and two that `zipfile` writes with other headers."""
    made = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        for force in (False, True):
            stream = io.BytesIO()
            with zipfile.ZipFile(stream, "w", method) as archive:
                archive.comment = b"of this test" * force
                for name, body in MEMBERS.items():
                    info = zipfile.ZipInfo(name, (2020, 2, 20, 20, 20, 20))
                    info.compress_type = method
                    with archive.open(info, "w", force_zip64=force) as member:
                        member.write(body)
            made.append(stream.getvalue())
    return tuple(made)


def unpacked(content: bytes) -> dict[str, bytes] | None:
    """Return the files of an archive, or None if it is refused. Check that nothing else is there afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="archives"))
    try:
        inside = folder / "around" / "inside"
        inside.mkdir(parents=True)
        archive, target = inside / "a.zip", inside / "target"
        archive.write_bytes(content)
        before = {path: path.stat().st_size for path in folder.rglob("*")}
        files = None
        try:
            names = archives.unpack(archive, target)
        except IntegrityError as error:
            assert str(archive) in str(error) and len(str(error)) < 1000
            assert not target.exists()
        else:
            files = {name: (target / name).read_bytes() for name in names}
            assert sum(map(len, files.values())) < LARGEST
            shutil.rmtree(target)
        assert {path: path.stat().st_size for path in folder.rglob("*")} == before
        return files
    finally:
        shutil.rmtree(folder)


def test_the_archives_to_damage_are_good() -> None:
    stripped = {name.removeprefix("m/"): body for name, body in MEMBERS.items()}
    found = [unpacked(content) for content in whole()]
    assert found[:4] == [stripped] * 4 and found[4:] == [None] * 4


@fuzz
@given(mutations.damaged(whole()))
@example(b"")
@example(b"PK\5\6" + bytes(18))
@example(b"PK\5\6" + b"\xff" * 18)
def test_a_damaged_archive_is_unpacked_or_refused(content: bytes) -> None:
    unpacked(content)
