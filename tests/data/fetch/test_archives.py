"""Hostile archives are refused with the name of the member and nothing is written; good ones are unpacked unchanged."""

import random
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from bert.errors import IntegrityError
from data.fetch import archives
from data.fetch.archives import Limits

GOOD = {"m/vocab.txt": b"[PAD]\n" * 37, "m/deep/weights": random.Random(5).randbytes(70_001), "m/empty": b""}
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]


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
    assert str(archive) in str(error.value)
    return str(error.value)


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A folder with room around it to break out into."""
    path = tmp_path / "around" / "inside"
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize("method", METHODS)
def test_a_good_archive_comes_out_as_it_went_in(inside: Path, method: int) -> None:
    names = archives.unpack(zipped(inside / "a", GOOD, method=method), inside / "target")
    assert sorted(names) == ["deep/weights", "empty", "vocab.txt"]  # the single top folder is left out
    for name, body in GOOD.items():
        path = inside / "target" / name.removeprefix("m/")
        assert path.read_bytes() == body
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_IXUSR)


def test_two_folders_at_the_top_both_stay(inside: Path) -> None:
    assert archives.unpack(zipped(inside / "a", {"a/x": b"1", "b/x": b"2"}), inside / "target") == ["a/x", "b/x"]


@pytest.mark.parametrize(
    "name, reason",
    [
        ("../x", "outside the target"),
        ("a/../../x", "outside the target"),
        ("..", "outside the target"),
        ("/abs", "absolute"),
        ("//abs", "absolute"),
        ("C:/x", "another system"),
        ("a\\..\\x", "another system"),
        ("a//b", "an invalid name"),
        ("a/./b", "an invalid name"),
        ("new\nline", "an invalid name"),
        ("\x1b[2J", "an invalid name"),
        ("\u202etxt.exe", "an invalid name"),
        ("n" * 256, "an invalid name"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(inside: Path, name: str, reason: str) -> None:
    said = refused(zipped(inside / "a", {"vocab.txt": b"good", name: b"evil"}))
    assert reason in said and repr(name)[:100] in said


def test_names_that_are_no_text_are_refused(inside: Path) -> None:
    content = zipped(inside / "b", {"nul?.txt": b"", "long": b""}).read_bytes()
    (inside / "b").write_bytes(content.replace(b"nul?.txt", b"nul\0.txt"))
    assert "an invalid name" in refused(inside / "b")
    content = zipped(inside / "c", {"caf\u00e9": b""}).read_bytes()
    (inside / "c").write_bytes(content.replace("caf\u00e9".encode(), b"caf\xc3\xc3"))
    assert "damaged" in refused(inside / "c")


@pytest.mark.parametrize("bits", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
def test_links_and_devices_are_refused(inside: Path, bits: int) -> None:
    assert "member 'x' is a" in refused(zipped(inside / "a", {"vocab.txt": b"good"}, mode("x", bits)))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_with_the_same_path_are_refused(inside: Path) -> None:
    assert "occurs twice" in refused(zipped(inside / "a", {"x": b"good"}, zipfile.ZipInfo("x")))
    assert "is below 'x', which is a file" in refused(zipped(inside / "b", {"x/y": b"evil", "x": b"good"}))
    assert "no files" in refused(zipped(inside / "c", {}))


def test_a_bomb_is_refused_before_it_is_unpacked(inside: Path) -> None:
    assert "'zeros' claims to unpack" in refused(zipped(inside / "a", {"zeros": bytes(5_000_000)}))
    archive = zipped(inside / "b", {"x": bytes(100_001)})
    assert "above 99,999 bytes" in refused(archive, Limits(bytes=99_999))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_that_python_unpacks_without_a_bound_on_memory_is_refused(inside: Path, method: int) -> None:
    assert "neither stored nor deflated" in refused(zipped(inside / "a", {"x": bytes(100)}, method=method))


def test_a_directory_that_stands_elsewhere_is_refused(inside: Path) -> None:
    content = zipped(inside / "a", GOOD).read_bytes()
    end = content.rfind(b"PK\5\6")
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, 0, 1)
    (inside / "a").write_bytes(content[:end] + locator + content[end:])
    assert "zip64" in refused(inside / "a")


@pytest.mark.parametrize("name", ["a/" * 1500 + "x", ("b" * 200 + "/") * 10 + "x"])
def test_a_path_that_no_folder_can_hold_is_refused(inside: Path, name: str) -> None:
    assert "a path that is too long" in refused(zipped(inside / "a", {name: b"1"}))


def test_too_many_members_are_refused(inside: Path) -> None:
    members = {f"{number:03}": b"" for number in range(12)}
    assert "more than 11 members" in refused(zipped(inside / "a", members), Limits(members=11))


def test_a_million_members_are_not_even_read(inside: Path) -> None:
    one = struct.pack("<4s6H3I5H2I", b"PK\1\2", *(20, 20, 0, 0, 0, 0), *(0, 0, 0), *(1, 0, 0, 0, 0), *(0, 0)) + b"x"
    directory = one * 1_000_000
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    (inside / "a").write_bytes(b"PK" + directory + end)
    assert "its directory has 47,000,000 bytes" in refused(inside / "a")


def test_an_encrypted_member_is_refused(inside: Path) -> None:
    content = bytearray(zipped(inside / "a", {"x": b"secret"}).read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    (inside / "a").write_bytes(content)
    assert "is encrypted" in refused(inside / "a")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_cut_archive_leaves_nothing(inside: Path, method: int, keep: float) -> None:
    content = zipped(inside / "a", {"big": random.Random(3).randbytes(50_000)}, method=method).read_bytes()
    (inside / "a").write_bytes(content[: int(len(content[:50_500]) * keep)])
    refused(inside / "a")


def test_a_flipped_bit_is_found_by_the_zips_own_checksum(inside: Path) -> None:
    archive = inside / "a"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("x", bytes(1000))
        content.writestr("y", b"7" * 1000)
    archive.write_bytes(archive.read_bytes().replace(b"7777", b"7877", 1))
    assert "damaged" in refused(archive) and "CRC" in refused(archive)
