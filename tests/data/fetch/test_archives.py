"""Hostile archives are refused with the name of the member and nothing is written; good ones are unpacked unchanged."""

import random
import shutil
import stat
import struct
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from bert.core.errors import IntegrityError, ResourceError
from data.fetch import archives
from data.fetch.archives import Limits

GOOD = {"m/vocab.txt": b"[PAD]\n" * 37, "m/deep/weights": random.Random(5).randbytes(70_001), "m/empty": b""}


def zipped(path: Path, members: dict[str, bytes], *more: zipfile.ZipInfo, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as content:
        for name, body in members.items():
            content.writestr(name, body)
        for info in more:
            content.writestr(info, b"body")
    return path


def mode(name: str, bits: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (bits | 0o644) << 16
    return info


def refused(archive: Path, limits: Limits | None = None) -> str:
    """Why it was refused; nothing but the archive is there afterwards."""
    around = archive.parent
    before = sorted(around.parent.rglob("*"))
    with pytest.raises(IntegrityError) as error:
        archives.unpack(archive, around / "target", limits)
    assert sorted(around.parent.rglob("*")) == before
    assert str(error.value).startswith(f"{archive}: ")
    return str(error.value)


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A folder with room around it to break out into."""
    path = tmp_path / "around" / "inside"
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_good_archive_comes_out_as_it_went_in(inside: Path, method: int) -> None:
    folders = [zipfile.ZipInfo("m/"), zipfile.ZipInfo("m/deep/")]
    names = archives.unpack(zipped(inside / "a", GOOD, *folders, method=method), inside / "target")
    assert sorted(names) == ["deep/weights", "empty", "vocab.txt"]  # the single top folder is left out
    for name, body in GOOD.items():
        path = inside / "target" / name.removeprefix("m/")
        assert path.read_bytes() == body
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_IXUSR)
    two = zipped(inside / "b", {"a/x": b"1", "b/x": b"2"})
    assert archives.unpack(two, inside / "two") == ["a/x", "b/x"]


@pytest.mark.parametrize(
    "name, reason",
    [
        *((name, "outside the target") for name in ("../x", "a/../../x", "..", "/abs", "//abs")),
        *((name, "an invalid name") for name in ("C:/x", "a\\..\\x", "a//b", "a/./b", ".", "a\n", "\x1b[2J")),
        *((name, "an invalid name") for name in ("\u202etxt.exe", "caf\u00e9")),
        ("n" * 256, "a path that is too long"),
        ("a/" * 1500 + "x", "a path that is too long"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(inside: Path, name: str, reason: str) -> None:
    said = refused(zipped(inside / "a", {"vocab.txt": b"good", name: b"evil"}))
    assert reason in said and repr(name)[:100] in said


@pytest.mark.parametrize("bits", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_are_refused(inside: Path, bits: int) -> None:
    assert "member 'x' is a link" in refused(zipped(inside / "a", {"vocab.txt": b"good"}, mode("x", bits)))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_with_the_same_path_are_refused(inside: Path) -> None:
    assert "'x' occurs twice" in refused(zipped(inside / "a", {"x": b"good"}, zipfile.ZipInfo("x")))
    assert "'x' occurs twice" in refused(zipped(inside / "b", {"x/y/z": b"evil", "x": b"good"}))
    assert "'x' occurs twice" in refused(zipped(inside / "c", {}, zipfile.ZipInfo("x/"), zipfile.ZipInfo("x")))
    assert "no files" in refused(zipped(inside / "d", {}))


def test_a_bomb_is_refused_before_it_is_unpacked(inside: Path) -> None:
    assert "'zeros' claims to unpack" in refused(zipped(inside / "a", {"zeros": bytes(5_000_000)}))
    archive = zipped(inside / "b", {"x": bytes(50_001), "y": bytes(50_000)})
    assert "'y' brings the unpacked size above 100,000 bytes" in refused(archive, Limits(bytes=100_000))
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert "neither stored nor deflated" in refused(zipped(inside / "c", {"x": bytes(100)}, method=method))


def test_an_archive_larger_than_the_disk_is_refused(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 1000))
    with pytest.raises(ResourceError, match="67,179,087 bytes are needed"):
        archives.unpack(zipped(inside / "a", GOOD), inside / "target")
    assert not (inside / "target").exists()


@pytest.mark.parametrize("zip64", [False, True])
def test_a_million_members_are_not_even_read(inside: Path, zip64: bool) -> None:
    one = struct.pack("<4s6H3I5H2I", b"PK\1\2", *(20, 20, 0, 0, 0, 0), *(0, 0, 0), *(1, 0, 0, 0, 0), *(0, 0)) + b"x"
    directory = one * 1_000_000
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    if zip64:  # the size stands elsewhere
        record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 10**6, 10**6, len(directory), 2)
        locator = struct.pack("<4sIQI", b"PK\6\7", 0, 2 + len(directory), 1)
        end = record + locator + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    (inside / "a").write_bytes(b"PK" + directory + end)
    assert "its directory has 47,000,000 bytes" in refused(inside / "a")
    few = zipped(inside / "b", {f"{number:03}": b"" for number in range(12)})
    assert "more than 11 members" in refused(few, Limits(members=11))


def test_an_encrypted_member_is_refused(inside: Path) -> None:
    content = bytearray(zipped(inside / "a", {"x": b"secret"}).read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    (inside / "a").write_bytes(content)
    assert "member 'x' is encrypted" in refused(inside / "a")


def test_damage_is_found_by_the_zips_own_checksum_and_leaves_nothing(inside: Path) -> None:
    archive = zipped(inside / "a", {"x": bytes(1000), "y": b"7" * 1000}, method=zipfile.ZIP_STORED)
    archive.write_bytes(archive.read_bytes().replace(b"7777", b"7877", 1))
    assert "damaged" in refused(archive) and "CRC" in refused(archive)
    archive.write_bytes(archive.read_bytes()[:-30])
    assert "not a zip file" in refused(archive)
    nul = zipped(inside / "b", {"nul?.txt": b""})
    nul.write_bytes(nul.read_bytes().replace(b"nul?.txt", b"nul\0.txt"))
    assert "an invalid name" in refused(nul)
