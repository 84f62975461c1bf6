"""The download command against a local server that stands in for the publishers."""

import dataclasses
import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert.core import manifest
from data import download
from data.fetch import catalog
from data.fetch.transfer import File
from tests import hostile, pubmed_xml
from tests.downloads import PART, dump, policy
from tests.finished import sign
from tests.hostile import Site

Stage = Callable[..., tuple[int, list[str]]]
DAY, EARLIER = "20261101", "20261020"
NAME = PART.format(DAY, 1, "p1p1000")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "RETRY_POLICY", policy(connect=2))
    monkeypatch.delenv("BERT_CONTACT", raising=False)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def wikipedia(site: Site, output: Path, *more: object) -> list[object]:
    return ["wikipedia", "--dumps_url", site.url, "--mirror", f"{site.url}/mirror", "--output", output, *more]


def test_the_newest_dump_that_is_done_is_fetched(site: Site, stage: Stage, tmp_path: Path) -> None:
    parts = dump(site, DAY)
    dump(site, EARLIER)
    dump(site, "20261120", "in-progress")
    site.files["/enwiki/"] += b'<a href="20261121/">'  # of which there is no status yet
    code, said = stage("download", *wikipedia(site, tmp_path / "out", "--contact", "me@example.org"))
    assert code == 0, said
    assert names(tmp_path) == sorted(f"out/{name}" for name in [*parts, "manifest.json"])
    assert all((tmp_path / "out" / name).read_bytes() == body for name, body in parts.items())
    assert all("me@example.org" in str(agent) for agent in site.asked("User-Agent"))
    found = manifest.load(tmp_path / "out", "download")
    assert found.parameters == {"name": "wikipedia", "wiki": "enwiki", "date": DAY}
    assert found.counts == {"files": 3, "bytes": sum(map(len, parts.values()))}
    for name, body in parts.items():
        assert found.extra["sources"][name] == {
            "url": f"https://dumps.wikimedia.org/enwiki/{DAY}/{name}",
            "bytes": len(body),
            "sha256": sha256(body),
            "trust": "by dumpstatus.json",
        }


def test_a_finished_dump_is_up_to_date_without_a_network(site: Site, stage: Stage, tmp_path: Path) -> None:
    dump(site, DAY)
    assert stage("download", *wikipedia(site, tmp_path / "out"))[0] == 0
    dump(site, "20261120")
    site.requests.clear()
    for more in [], ["--date", DAY]:
        code, said = stage("download", *wikipedia(site, tmp_path / "out", *more))
        assert code == 0 and said[-2].endswith("is up to date")
    assert not site.requests


def test_the_dump_of_a_date_is_refused_until_it_is_done(site: Site, stage: Stage, tmp_path: Path) -> None:
    dump(site, DAY, "in-progress", "simplewiki")
    asked = wikipedia(site, tmp_path / "out", "--wiki", "simple", "--date")
    code, said = stage("download", *asked, DAY)
    assert code == 3 and f"{DAY} in-progress" in said[-1] and "wait" in said[-1]
    assert "not begun" in stage("download", *asked, "20261120")[1][-1]
    assert not (tmp_path / "out").exists()
    dump(site, DAY, "done", "simplewiki")
    assert stage("download", *asked, DAY)[0] == 0
    dump(site, EARLIER, "failed", "dewiki")
    code, said = stage("download", *wikipedia(site, tmp_path / "de", "--wiki", "de"))
    assert code == 3 and "no dump is done" in said[-1]


def test_a_stopped_download_goes_on_with_the_same_dump(site: Site, stage: Stage, tmp_path: Path) -> None:
    parts = dump(site, DAY)
    last = PART.format(DAY, 10, "p9001p12345")
    site.faults[f"/mirror/enwiki/{DAY}/{last}"] = [hostile.cut(0.37)] + [hostile.status(500)] * 5
    code, said = stage("download", *wikipedia(site, tmp_path / "out", "--connections", 1))
    assert code == 3 and "500" in said[-1] and not (tmp_path / "out").exists()
    assert "to copy the files by hand" in said[-3] and last in said[-2]
    dump(site, "20261120")  # a newer one appears
    site.requests.clear()
    code, said = stage("download", *wikipedia(site, tmp_path / "out"))
    assert code == 0, said
    assert [path for path, _ in site.requests] == [f"/mirror/enwiki/{DAY}/{last}"] and site.asked("Range")[0]
    assert names(tmp_path / "out") == sorted([*parts, "manifest.json"]) and not (tmp_path / "out.incoming").exists()


NO_STATUS, NO_FILES = "not a dumpstatus.json of Wikimedia", "is not done or lists no files"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", NO_STATUS),
        (b'{"jobs": {"articlesmultistreamdump": {"status": "done", "files": {}}}}', NO_FILES),
        (
            b'{"jobs": {"articlesmultistreamdump": {"status": "done", "files": {"../x.xml.bz2": {}}}}}',
            "lists no file of articles",
        ),
        (
            b'{"jobs": {"articlesmultistreamdump": {"status": "done", "files": {"%s": {"size": 9}}}}}' % NAME.encode(),
            "has no size or SHA-1 of",
        ),
    ],
)
def test_a_status_that_is_none_is_refused(
    site: Site, stage: Stage, tmp_path: Path, content: bytes, reason: str
) -> None:
    dump(site, DAY)
    site.files[f"/enwiki/{DAY}/dumpstatus.json"] = content
    code, said = stage("download", *wikipedia(site, tmp_path / "out", "--date", DAY))
    assert code == 4 and "dumpstatus.json" in said[-1] and reason in said[-1]


def test_without_a_network_it_is_said_what_to_carry_and_where(site: Site, stage: Stage, tmp_path: Path) -> None:
    parts = dump(site, DAY)
    offline = ["wikipedia", "--dumps_url", "http://127.0.0.1:9", "--mirror", "http://127.0.0.1:9"]
    asked = [*offline, "--output", tmp_path / "out"]
    incoming = tmp_path / "out.incoming"
    code, said = stage("download", *asked)
    assert code == 3 and said[-1].startswith("error: http://127.0.0.1:9/enwiki/") and "no connection" in said[-1]
    assert f"DATE/dumpstatus.json\t{incoming / 'dumpstatus.json'}" in said[-2]
    (incoming / "dumpstatus.json").write_bytes(site.files[f"/enwiki/{DAY}/dumpstatus.json"])
    code, said = stage("download", *asked)
    listed = dict(line.strip().split("\t") for line in said if "\t" in line)
    assert (
        code == 3
        and len(listed) == 3
        and listed == dict(line.split("\t") for line in (incoming / "urls.txt").read_text().splitlines())
    )
    for url, target in listed.items():
        Path(target).write_bytes(parts[url.rsplit("/", 1)[1]])
    code, said = stage("download", *asked)
    assert code == 0 and not incoming.exists() and not site.requests
    assert names(tmp_path / "out") == sorted([*parts, "manifest.json"])


def books(site: Site, split: str = "train", number: int = 5) -> None:
    listed = [f"{split}/{id}.txt" for id in range(30, 30 + number)]
    site.files[f"/lists/{split}_files.txt"] = ("\n".join(listed) + "\n").encode()
    site.files |= {f"/books/{name}": f"It was book {name}.\n".encode() * 99 for name in listed}


def pg19(site: Site, output: Path, *more: object) -> list[object]:
    return ["pg19", "--lists_url", f"{site.url}/lists", "--books_url", f"{site.url}/books", "--output", output, *more]


def test_some_books_then_more_are_fetched_once_each(site: Site, stage: Stage, tmp_path: Path, read: Any) -> None:
    books(site)
    assert stage("download", *pg19(site, tmp_path / "out", "--books", 2))[0] == 0
    assert names(tmp_path / "out") == ["manifest.json", "train/30.txt", "train/31.txt", "train_files.list"]
    assert stage("download", *pg19(site, tmp_path / "out"))[0] == 0
    asked = [path for path, _ in site.requests]
    assert len(asked) == len(set(asked)) == 6
    found = manifest.load(tmp_path / "out")
    assert found.counts["files"] == 6 and found.parameters == {"name": "pg19", "books": None, "splits": ["train"]}
    assert found.files["train/34.txt"].sha256 == sha256(site.files["/books/train/34.txt"])
    assert stage("books", "--source", tmp_path / "out", "--output", tmp_path / "books")[0] == 0
    assert len(read(tmp_path / "books")) == 5  # the list is no book


def test_splits_are_as_asked(site: Site, stage: Stage, tmp_path: Path) -> None:
    books(site, "validation", 3)
    books(site, "test", 2)
    assert stage("download", *pg19(site, tmp_path / "out", "--splits", "validation", "test"))[0] == 0
    assert len(list((tmp_path / "out" / "test").iterdir())) == 2 and not (tmp_path / "out" / "train").exists()
    site.files["/lists/train_files.txt"] = b"train/1.txt\n<html>\n"
    code, said = stage("download", *pg19(site, tmp_path / "b"))
    assert code == 4 and "line 2" in said[-1]


def baseline(site: Site, year: int, count: int) -> dict[str, bytes]:
    """Publishes the files of a baseline of PubMed, as NLM's page lists them; returns them."""
    bodies = {
        f"pubmed{year % 100}n{number:04d}.xml.gz": gzip.compress(pubmed_xml.xml(pubmed_xml.record(number)).encode())
        for number in range(1, count + 1)
    }
    page = "".join(f'<a href="{name}">{name}</a> 19M\n<a href="{name}.md5">{name}.md5</a> 60\n' for name in bodies)
    site.files["/baseline/"] = f"<html><a href='README.txt'>README.txt</a>\n{page}".encode()
    for name, body in bodies.items():
        site.files[f"/baseline/{name}"] = body
        site.files[f"/baseline/{name}.md5"] = f"MD5({name})= {hashlib.md5(body).hexdigest()}\n".encode()
    return bodies


def pubmed(site: Site, output: Path, *more: object) -> list[object]:
    return ["pubmed", "--baseline_url", f"{site.url}/baseline", "--output", output, *more]


@pytest.mark.slow
def test_the_last_files_of_pubmed_then_all_are_fetched_once_each(
    site: Site, stage: Stage, tmp_path: Path, read: Any
) -> None:
    bodies = baseline(site, 2026, 5)
    assert stage("download", *pubmed(site, tmp_path / "out", "--files", 2))[0] == 0
    last = [name for name in bodies if "n0004" in name or "n0005" in name]
    assert names(tmp_path / "out") == sorted(["baseline.list", "manifest.json", *last, *(f"{n}.md5" for n in last)])
    assert stage("download", *pubmed(site, tmp_path / "out", "--year", 2026))[0] == 0
    asked = [path for path, _ in site.requests]
    assert len(asked) == len(set(asked)) == 11 and not (tmp_path / "out.incoming").exists()
    found = manifest.load(tmp_path / "out")
    assert found.parameters == {"name": "pubmed", "year": 2026, "files": None}
    assert "name NLM as the source" in found.extra["licence"]
    assert found.extra["sources"][last[0]]["trust"] == f"by {last[0]}.md5"
    assert stage("pubmed", "--source", tmp_path / "out", "--output", tmp_path / "pubmed")[0] == 0
    assert len(read(tmp_path / "pubmed")) == 5
    site.files.clear()
    assert stage("download", *pubmed(site, tmp_path / "out", "--year", 2026))[0] == 0  # without a network


def test_a_file_of_pubmed_must_have_its_md5(site: Site, stage: Stage, tmp_path: Path) -> None:
    name = list(baseline(site, 2026, 3))[1]
    site.files[f"/baseline/{name}"] += b"more"
    code, said = stage("download", *pubmed(site, tmp_path / "out"))
    assert code == 4 and "md5" in said[-1] and f"{name}.bad" in said[-1] and not (tmp_path / "out").exists()
    site.files[f"/baseline/{name}.md5"] = b"moved"
    code, said = stage("download", *pubmed(site, tmp_path / "other"))
    assert code == 4 and "is not the MD5 of" in said[-1]


def test_a_baseline_that_is_gone_is_one_line(site: Site, stage: Stage, tmp_path: Path) -> None:
    baseline(site, 2026, 2)
    code, said = stage("download", *pubmed(site, tmp_path / "out", "--year", 2025))
    assert code == 3 and "but that of 2026; give --year 2026" in said[-1]
    site.files["/baseline/"] = b"<html>"
    code, said = stage("download", *pubmed(site, tmp_path / "other"))
    assert code == 3 and "lists no pubmed" in said[-1]


def known(monkeypatch: pytest.MonkeyPatch, name: str, found: catalog.Set, bodies: dict[str, bytes]) -> None:
    """Puts a set into the catalogue whose files are `bodies`."""
    files = [
        File(
            name=key,
            url=f"http://127.0.0.1:9/{key}",
            limit=1 << 20,
            digests={"sha256": sha256(body)} if not key.endswith(".zip") else {},
        )
        for key, body in bodies.items()
    ]
    monkeypatch.setitem(catalog.SETS, name, dataclasses.replace(found, files=tuple(files)))


def test_pinned_files_are_taken_from_anywhere_and_only_as_pinned(
    site: Site, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = {"train-v1.1.json": b'{"data": []}', "dev-v1.1.json": b'{"data": [ ]}'}
    known(monkeypatch, "squad1", catalog.SETS["squad1"], bodies)
    site.files |= {f"/here/{name}": body for name, body in bodies.items()}
    asked = ["squad1", "--mirror", f"{site.url}/gone", f"{site.url}/here/", "--output", tmp_path / "out"]
    assert stage("download", *asked)[0] == 0
    assert names(tmp_path / "out") == ["dev-v1.1.json", "manifest.json", "train-v1.1.json"]
    assert manifest.load(tmp_path / "out").extra["licence"] == "CC BY-SA 4.0"
    site.files["/here/dev-v1.1.json"] = b'{"data": [!]}'
    code, said = stage("download", *asked[:-1], tmp_path / "b")
    assert code == 4 and "dev-v1.1.json.bad" in said[-1] and not (tmp_path / "b").exists()
    site.files["/here/dev-v1.1.json"] = bodies["dev-v1.1.json"]
    assert stage("download", *asked[:-1], tmp_path / "b")[0] == 0 and not (tmp_path / "b.incoming").exists()


@pytest.mark.parametrize("name", ["../victim", "../../victim", "/{}/victim", "link/victim", "a/../../victim", ""])
def test_a_crafted_manifest_removes_nothing_elsewhere(
    name: str, site: Site, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of a stranger, with a folder `.incoming` beside it, as a download that was stopped leaves one."""
    bodies = {"train-v1.1.json": b'{"data": []}', "dev-v1.1.json": b'{"data": [ ]}'}
    known(monkeypatch, "squad1", catalog.SETS["squad1"], bodies)
    site.files |= {f"/{name}": body for name, body in bodies.items()}
    output = tmp_path / "deep" / "out"
    asked = ["squad1", "--mirror", site.url, "--output", output]
    assert stage("download", *asked)[0] == 0
    victims = [tmp_path / "victim", tmp_path / "deep" / "victim", tmp_path / "there" / "victim"]
    for victim in victims:
        victim.parent.mkdir(exist_ok=True)
        victim.touch()
    (tmp_path / "deep" / "out.incoming").mkdir()
    (tmp_path / "deep" / "out.incoming" / "link").symlink_to(tmp_path / "there")
    extra = manifest.load(output).extra
    sign(output, extra=extra | {"sources": {**extra["sources"], name.format(tmp_path): {"sha256": "0" * 64}}})
    code, said = stage("download", *asked)
    assert code == 4 and len([line for line in said if line.startswith("error: ")]) == 1
    assert all(victim.exists() for victim in victims)


def test_a_file_copied_by_hand_may_be_a_link(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = {"train-v1.1.json": b'{"data": []}', "dev-v1.1.json": b'{"data": [ ]}'}
    known(monkeypatch, "squad1", catalog.SETS["squad1"], bodies)
    (tmp_path / "out.incoming").mkdir()
    for name, body in bodies.items():
        (tmp_path / name).write_bytes(body)
        (tmp_path / "out.incoming" / name).symlink_to(tmp_path / name)
    assert stage("download", "squad1", "--output", tmp_path / "out")[0] == 0
    assert names(tmp_path) == [
        "dev-v1.1.json",
        "out/dev-v1.1.json",
        "out/manifest.json",
        "out/train-v1.1.json",
        "train-v1.1.json",
    ]


def checkpoint(vocab: bytes, **more: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as content:
        content.writestr("uncased/vocab.txt", vocab)
        for name, body in more.items():
            content.writestr(name.replace("__", "/").replace("_dot_", "."), body)
    return stream.getvalue()


def test_a_checkpoint_is_unpacked_when_its_vocabulary_is_the_known_one(
    site: Site, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocab = b"[PAD]\n[UNK]\n"
    members = {"vocab.txt": sha256(vocab), "bert_config.json": None}
    good = checkpoint(vocab, uncased__bert_config_dot_json=b"{}")
    bad = [
        (checkpoint(vocab + b"x\n", uncased__bert_config_dot_json=b"{}"), "vocab.txt has sha256"),
        (checkpoint(vocab), "no bert_config.json"),
        (
            checkpoint(vocab, uncased__bert_config_dot_json=b"{}", **{"..__..__x": b"evil"}),
            "'../../x' has a path outside",
        ),
        (b"PK" + bytes(99), "not a zip"),
    ]
    name = "uncased_L-12_H-768_A-12.zip"
    known(monkeypatch, "bert-base-uncased", catalog.SETS["bert-base-uncased"], {name: good})
    changed = dataclasses.replace(catalog.SETS["bert-base-uncased"], members=members)
    monkeypatch.setitem(catalog.SETS, "bert-base-uncased", changed)
    asked = ["bert-base-uncased", "--mirror", f"{site.url}", "--output", tmp_path / "out"]
    for body, reason in bad:
        site.files[f"/{name}"] = body
        code, said = stage("download", *asked)
        assert code == 4 and reason in said[-1] and f"{name}.bad" in said[-1]
        assert names(tmp_path) == ["out.incoming/fetched.jsonl", f"out.incoming/{name}.bad"]
    site.files[f"/{name}"] = good
    assert stage("download", *asked)[0] == 0
    assert names(tmp_path) == ["out/bert_config.json", "out/manifest.json", "out/vocab.txt"]
    assert manifest.load(tmp_path / "out").extra["sources"][name]["sha256"] == sha256(good)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "one of wikipedia pg19 pubmed squad1"),
        (["wikipedai"], "did you mean wikipedia"),
        (["pg19", "--books", "0"], "--books 0"),
        (["squad1", "--connections", "3"], "from 1 to 2"),
        (["squad1", "--contact", "a\r\nX: y"], "--contact"),
        (["wikipedia", "--wiki", "../x"], "--wiki"),
        (["wikipedia", "--date", "20261301"], "--date"),
        (["wikipedia", "--date", "latest"], "--date"),
        (["pg19", "--splits", "dev"], "splits"),
        (["pubmed", "--year", "26"], "--year 26"),
        (["squad2", "--books", "3"], "--books"),
    ],
)
def test_a_wrong_command_is_one_line(stage: Stage, tmp_path: Path, arguments: list[str], said: str) -> None:
    code, lines = stage("download", *arguments, *(["--output", tmp_path / "out"] if arguments else []))
    assert (code, len(lines)) == (2, 1) and said in lines[0], lines
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_ours_is_left_alone(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").touch()
    code, lines = stage("download", "squad1", "--output", tmp_path / "out")
    assert code == 2 and "not made by this program" in lines[-1] and names(tmp_path) == ["out/thesis.txt"]


SECRET = "s3cr3t"


def with_login(url: str) -> str:
    return url.replace("://", f"://ada:{SECRET}%40%2F@")


@pytest.mark.parametrize("ending", ["done", "broken", "refused", "wrong", "moved", "unsafe", "offline"])
def test_a_password_is_used_and_neither_printed_nor_kept(
    ending: str, site: Site, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = dump(site, DAY)
    path = f"/mirror/enwiki/{DAY}/{min(parts)}"
    signed = f"{with_login(site.url)}/elsewhere?token={SECRET}"
    faults = {
        "broken": [hostile.cut(0.5)] * 9,
        "refused": [hostile.status(403)],
        "wrong": [lambda handler, body: hostile.plain(handler, body[::-1])],
        "moved": [hostile.status(302, Location=signed)],
        "unsafe": [hostile.status(302, Location=f"ftp://ada:{SECRET}@x/?{SECRET}")],
    }
    site.faults[path] = list(faults.get(ending, []))
    mirror = with_login("http://127.0.0.1:9" if ending == "offline" else site.url) + "/mirror"
    command = ["wikipedia", "--dumps_url", with_login(site.url), "--mirror", mirror, "--output", tmp_path / "out"]
    code, said = stage("download", *command)
    assert (code == 0) == (ending == "done"), said
    assert set(site.asked("Authorization")) == {"Basic YWRhOnMzY3IzdEAv"}  # ada:s3cr3t@/
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept and SECRET not in "".join(said) and not [content for content in kept if SECRET.encode() in content]


def test_the_password_of_a_publisher_is_not_kept_either(site: Site, stage: Stage, tmp_path: Path) -> None:
    books(site)
    site.faults["/books/train/31.txt"] = [hostile.cut(0.5), *[hostile.status(404)] * 2]
    command = pg19(site, tmp_path / "out")
    command[2], command[4] = with_login(f"{site.url}/lists"), with_login(f"{site.url}/books")
    for expected in (3, 3, 0):
        code, said = stage("download", *command)
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert code == expected and SECRET not in "".join(said) and SECRET.encode() not in kept
    assert None not in site.asked("Authorization")


def test_a_password_stays_with_its_server(site: Site, stage: Stage, tmp_path: Path) -> None:
    dump(site, DAY)
    with Site().running() as other:
        other.files = {path: body for path, body in site.files.items() if path.startswith("/mirror")}
        for path in other.files:
            site.faults[path] = [hostile.status(302, Location=other.url + path)]
        command = wikipedia(site, tmp_path / "out")
        command[2], command[4] = with_login(site.url), with_login(f"{site.url}/mirror")
        assert stage("download", *command)[0] == 0
        assert None not in site.asked("Authorization") and {*other.asked("Authorization")} == {None}


@pytest.mark.parametrize("path", ["/a?key=s3cr3t", "/a#s3cr3t", ":1:s3cr3t/", ":0/", ""])
def test_an_address_that_cannot_be_used_is_refused_without_its_secret(path: str, stage: Stage, tmp_path: Path) -> None:
    for start in ("https://ada:s3cr3t@h", "https://s3cr3t@h", "https://[", "ada:s3cr3t@h", "ftp://ada:s3cr3t@h"):
        if path or not start.startswith("https://ada"):
            code, said = stage("download", "squad1", "--mirror", start + path, "--output", tmp_path / "out")
            assert (code, len(said)) == (2, 1) and SECRET not in said[0] and not list(tmp_path.iterdir()), said
