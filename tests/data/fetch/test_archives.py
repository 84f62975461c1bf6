"""Archives by a hostile hand: refused by the member's name, nothing written; good ones come out as they went in."""

import io
import random
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bert.errors import IntegrityError
from data.fetch import archives
from data.fetch.archives import Limits

GOOD = {"m/vocab.txt": b"[PAD]\n" * 37, "m/deep/weights": random.Random(5).randbytes(70_001), "m/empty": b""}
MODES = ["w", "w:gz", "w:bz2", "w:xz"]


def zipped(path: Path, members: dict[str, bytes], *more: zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as content:
        for name, body in members.items():
            content.writestr(name, body)
        for info in more:
            content.writestr(info, b"body")
    return path


def tarred(path: Path, members: dict[str, bytes], *more: tarfile.TarInfo, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as content:  # type: ignore[call-overload]
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            content.addfile(info, io.BytesIO(body))
        for info in more:
            content.addfile(info, io.BytesIO(bytes(info.size)))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


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


@pytest.mark.parametrize("make", [zipped, *(lambda path, members, m=m: tarred(path, members, mode=m) for m in MODES)])
def test_a_good_archive_comes_out_as_it_went_in(inside: Path, make: Callable[..., Path]) -> None:
    names = archives.unpack(make(inside / "a", GOOD), inside / "target")
    assert sorted(names) == ["deep/weights", "empty", "vocab.txt"]  # the one folder at the top is left out
    for name, body in GOOD.items():
        path = inside / "target" / name.removeprefix("m/")
        assert path.read_bytes() == body
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_IXUSR)


def test_two_folders_at_the_top_both_stay(inside: Path) -> None:
    assert archives.unpack(zipped(inside / "a", {"a/x": b"1", "b/x": b"2"}), inside / "target") == ["a/x", "b/x"]


def test_a_tar_of_the_current_folder_is_a_good_one(inside: Path) -> None:
    archive = tarred(inside / "a", {"./x": b"1", "./y/z": b"2"}, entry(".", tarfile.DIRTYPE))
    assert archives.unpack(archive, inside / "target") == ["x", "y/z"]


@pytest.mark.parametrize(
    "name, reason",
    [
        ("../x", "leads out"),
        ("a/../../x", "leads out"),
        ("..", "leads out"),
        ("/abs", "absolute"),
        ("//abs", "absolute"),
        ("C:/x", "another system's"),
        ("a\\..\\x", "another system's"),
        ("a//b", "no file should have"),
        ("a/./b", "no file should have"),
        ("new\nline", "no file should have"),
        ("\x1b[2J", "no file should have"),
        ("\u202etxt.exe", "no file should have"),
        ("n" * 256, "no file should have"),
    ],
)
@pytest.mark.parametrize("make", [zipped, tarred])
def test_names_that_lead_elsewhere_are_refused(inside: Path, make: Callable[..., Path], name: str, reason: str) -> None:
    said = refused(make(inside / "a", {"vocab.txt": b"good", name: b"evil"}))
    assert reason in said and repr(name)[:100] in said


def test_names_that_are_no_text_are_refused(inside: Path) -> None:
    archive = tarred(inside / "a", {"bad\udcff": b""})
    assert "no file should have" in refused(archive)
    content = zipped(inside / "b", {"nul?.txt": b"", "long": b""}).read_bytes()
    (inside / "b").write_bytes(content.replace(b"nul?.txt", b"nul\0.txt"))
    assert "no file should have" in refused(inside / "b")
    content = zipped(inside / "c", {"caf\u00e9": b""}).read_bytes()
    (inside / "c").write_bytes(content.replace("caf\u00e9".encode(), b"caf\xc3\xc3"))
    assert "damaged" in refused(inside / "c")


@pytest.mark.parametrize(
    "member, reason",
    [
        (entry("x", tarfile.SYMTYPE, "/etc/passwd"), "a link"),
        (entry("x", tarfile.SYMTYPE, "vocab.txt"), "a link"),
        (entry("x", tarfile.LNKTYPE, "../../x"), "a link"),
        (entry("x", tarfile.CHRTYPE), "a device"),
        (entry("x", tarfile.BLKTYPE), "a device"),
        (entry("x", tarfile.FIFOTYPE), "a pipe"),
    ],
)
def test_links_and_devices_of_a_tar_are_refused(inside: Path, member: tarfile.TarInfo, reason: str) -> None:
    assert reason in refused(tarred(inside / "a", {"vocab.txt": b"good"}, member))


@pytest.mark.parametrize("bits", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
def test_links_and_devices_of_a_zip_are_refused(inside: Path, bits: int) -> None:
    assert "member 'x' is a" in refused(zipped(inside / "a", {"vocab.txt": b"good"}, mode("x", bits)))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("make, kind", [(zipped, zipfile.ZipInfo), (tarred, entry)])
def test_a_place_is_taken_once(inside: Path, make: Callable[..., Path], kind: Callable[[str], object]) -> None:
    assert "is there twice" in refused(make(inside / "a", {"x": b"good"}, kind("x")))
    assert "is below 'x', a file" in refused(make(inside / "b", {"x/y": b"evil", "x": b"good"}))
    assert "no files" in refused(make(inside / "c", {}))


def test_a_bomb_is_refused_before_it_goes_off(inside: Path) -> None:
    bomb = {"zeros": bytes(5_000_000)}
    assert "'zeros' claims 5,000,000 bytes from" in refused(zipped(inside / "a", bomb))
    assert "past 200 times the archive's" in refused(tarred(inside / "b", bomb, mode="w:gz"))
    assert "past 99,999 bytes" in refused(tarred(inside / "c", {"x": bytes(100_001)}), Limits(bytes=99_999))
    assert archives.unpack(tarred(inside / "d", bomb), inside / "target") == ["zeros"]  # it was that large already


def test_a_crowd_is_refused(inside: Path) -> None:
    crowd = {f"{number:03}": b"" for number in range(12)}
    assert "more than 11 members" in refused(zipped(inside / "a", crowd), Limits(members=11))
    assert "more than 11 members" in refused(tarred(inside / "b", crowd), Limits(members=11))


def test_a_million_members_are_not_even_read(inside: Path) -> None:
    one = struct.pack("<4s6H3I5H2I", b"PK\1\2", *(20, 20, 0, 0, 0, 0), *(0, 0, 0), *(1, 0, 0, 0, 0), *(0, 0)) + b"x"
    directory = one * 1_000_000
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    (inside / "a").write_bytes(b"PK" + directory + end)
    assert "its directory has 47,000,000 bytes" in refused(inside / "a")


def test_a_giant_header_of_a_tar_is_not_read_into_memory(inside: Path) -> None:
    header = entry("long", tarfile.GNUTYPE_LONGNAME)
    header.size = 3 << 30
    (inside / "a").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(20_000))
    assert "a header of 3,221,225,472 bytes" in refused(inside / "a")


def test_an_encrypted_member_is_refused(inside: Path) -> None:
    content = bytearray(zipped(inside / "a", {"x": b"secret"}).read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    (inside / "a").write_bytes(content)
    assert "is encrypted" in refused(inside / "a")


@pytest.mark.parametrize("make", [zipped, *(lambda path, members, m=m: tarred(path, members, mode=m) for m in MODES)])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_cut_archive_leaves_nothing(inside: Path, make: Callable[..., Path], keep: float) -> None:
    content = make(inside / "a", {"big": random.Random(3).randbytes(50_000)}).read_bytes()
    (inside / "a").write_bytes(content[: int(len(content[:50_500]) * keep)])
    refused(inside / "a")


def test_a_flipped_bit_is_found_by_the_zips_own_checksum(inside: Path) -> None:
    archive = inside / "a"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("x", bytes(1000))
        content.writestr("y", b"7" * 1000)
    archive.write_bytes(archive.read_bytes().replace(b"7777", b"7877", 1))
    assert "damaged" in refused(archive) and "CRC" in refused(archive)
