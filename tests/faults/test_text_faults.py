"""Strange text, hostile dumps and a killed run: time and memory have a bound, and every document is accounted for."""

import bz2
import gzip
import html
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]  # generous: the machine may be busy

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
PROSE = "Mr. Ash keeps seven bees. They fly far, and come back to the mill in the evening. "


class Ended(NamedTuple):
    code: int
    said: str
    peak: int  # bytes held by the largest of its processes
    seconds: float  # of CPU, all together


# A small process between: Linux counts what the caller held when it started a program as held by that program.
MEASURE = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime]))
"""


def run(module: str, *arguments: object) -> Ended:
    """Runs `python -m module` to its end."""
    command = [sys.executable, "-c", MEASURE, sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    code, peak, seconds = json.loads(done.stdout.splitlines()[-1])
    return Ended(code, done.stderr, peak, seconds)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def counts(folder: Path) -> dict[str, int]:
    return json.loads((folder / "manifest.json").read_text())["counts"]


STRANGE = {
    "empty": "",
    "one byte": "a",
    "spaces": "  \t\u00a0\u2003\n  " * 999,
    "no letter": "* * * --- !!! " * 99,
    "a word of 10 MB": "x" * 10_000_000,
    "mark": "\ufeff" + PROSE * 2 + "\ufeff",
    "carriage returns": (PROSE + "\r\n") * 3 + (PROSE + "\r") * 3,
    "NUL": f"\u0000{PROSE}\u0000{PROSE}\u0001\u001b[0m",
    "lone surrogates": f"\ud83d {PROSE} \udc1d{PROSE}",
    "right to left": "\u0627\u0644\u0646\u0647\u0631 \u064a\u0641\u064a\u0636 \u0641\u064a \u202bRTL\u202c. " * 9,
    "emoji": "\U0001f41d\u200d\U0001f468\U0001f3fd " * 99 + PROSE,
    "marks piled up": "a" + "\u0301\u0316" * 200_000 + PROSE,
    "separators": PROSE + "\u2028" + PROSE + "\u0085" + PROSE + "\f\v" + PROSE,
    "blank lines": "\n" * 1_000_000 + PROSE,
    "twice": "The same text stands here two times, and the second one is a duplicate of the first one.",
    "again": "The same text stands here two  times, and the second one is a duplicate\nof the first one. ",
}


def test_strange_text_passes_and_adds_up_with_any_workers(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in STRANGE.items()]
    (source / "a.jsonl").write_text("".join(lines), encoding="ascii")
    for number, content in enumerate(STRANGE.values()):
        (source / f"b{number}.txt").write_bytes(content.encode("utf-8", "surrogatepass"))
    (source / "mixed.txt").write_bytes(PROSE.encode() * 3 + "caf\u00e9 ".encode() * 9 + b"caf\xe9 \xff\n")
    (source / "windows.txt").write_bytes((PROSE + "\u201ccaf\u00e9\u201d").encode("cp1252"))
    found = []
    for workers in (1, 3):
        text, documents = tmp_path / f"text{workers}", tmp_path / f"documents{workers}"
        for module, taken, made in (("data.text", source, text), ("data.documents", text, documents)):
            ended = run(module, "--source", taken, "--output", made, "--workers", workers)
            assert ended.code == 0, ended.said
            assert ended.peak < 0.75 * GIB and ended.seconds < 120
        found.append(
            {
                f"{folder.name[:-1]}/{name}": content
                for folder in (text, documents)
                for name, content in contents(folder).items()
                if name != "manifest.json"
            }
        )
    assert found[0] == found[1]
    first = counts(tmp_path / "text1")
    assert first["files"] == 1 + len(STRANGE) + 2
    assert first["documents"] + first["empty"] + first["refused"] == 2 * len(STRANGE) + 2
    assert first["empty"] == 4 and first["refused"] == 1  # two empty, two of spaces; bytes of a surrogate
    second = counts(tmp_path / "documents1")
    assert second["read"] == first["pieces"]
    dropped = ("duplicates", "without a sentence", "too short")
    assert second["documents"] + sum(second[name] for name in dropped) == second["read"]
    assert second["duplicates"] >= 2 and second["without a sentence"] >= 1 and second["too short"] >= 1
    for name in STRANGE.keys() - {"empty", "one byte", "spaces", "no letter", "again"}:
        assert f'"text:in/a.jsonl:{name}"'.encode() in found[0]["documents/part-00000.jsonl"], name


@pytest.mark.parametrize("form", ["jsonl", pytest.param("txt", marks=pytest.mark.thorough)])
def test_a_line_of_100_megabytes_keeps_to_its_memory(tmp_path: Path, form: str) -> None:
    line = PROSE * (100_000_000 // len(PROSE)) + "caf\u00e9 "
    (tmp_path / f"a.{form}").write_text(line if form == "txt" else json.dumps({"text": line}), encoding="utf-8")
    ended = run("data.text", "--source", tmp_path / f"a.{form}", "--output", tmp_path / "text")
    assert ended.code == 0 and ended.peak < (0.35 * GIB if form == "txt" else 0.75 * GIB), ended
    assert counts(tmp_path / "text")["documents"] == 1 and counts(tmp_path / "text")["pieces"] == 13
    ended = run("data.documents", "--source", tmp_path / "text", "--output", tmp_path / "documents", "--workers", 2)
    assert ended.code == 0 and ended.peak < 0.75 * GIB, ended
    assert counts(tmp_path / "documents")["characters"] > 0.95 * len(line) / 12  # pieces that are equal are duplicates


def page(number: int, title: str, text: str) -> bytes:
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>0</ns>\n    <id>{number}</id>\n    <revision>\n"
        f"      <id>{number + 100}</id>\n      <text>{html.escape(text)}</text>\n    </revision>\n  </page>\n"
    ).encode()


HOSTILE = {
    "templates in templates": "{{a|" * 10_000 + "x" + "}}" * 10_000,
    "templates left open": "{{a|" * 10_000,
    "links left open": "[[a|" * 10_000,
    "tables left open": "{|\n|" * 10_000,
    "comments left open": "<!--" * 50_000,  # keeps wikiextractor busy for minutes
    "addresses left open": "[http://a.b " * 50_000,  # the same
    "code": "{{#expr: __import__('os').system('touch PWNED')}}{{#invoke:os|system|touch PWNED}}",
    "NUL": "\u0000 and \u0001",
    "entities": "&a; &#0; &#xD800; &lt;script&gt; &amp;lt;",
}


def test_hostile_pages_cost_bounded_time_and_memory_and_no_other_page(tmp_path: Path) -> None:
    dump = tmp_path / "dump.xml.gz"
    with gzip.open(dump, "wb", compresslevel=1) as stream:
        stream.write(b'<mediawiki version="0.10">\n')
        for number, (title, text) in enumerate(HOSTILE.items(), 1):
            stream.write(page(10 * number, f"Before {title}", PROSE))
            stream.write(page(10 * number + 1, title, f"{PROSE}\n\n{text}\n\n{PROSE}"))
        stream.write(page(1000, "Huge", "PLACEHOLDER").partition(b"PLACEHOLDER")[0])
        for _ in range(200):
            stream.write((PROSE.encode() + b"\n") * (1_000_000 // len(PROSE)))
        stream.write(page(1000, "Huge", "PLACEHOLDER").partition(b"PLACEHOLDER")[2])
        stream.write(page(1001, "Last", PROSE) + b"</mediawiki>\n")
    out = tmp_path / "out"
    ended = run("data.wikipedia", "--source", dump, "--output", out, "--workers", 1, "--page_seconds", 10)
    assert ended.code == 0, ended.said
    assert ended.peak < 0.5 * GIB and ended.seconds < 300
    found = counts(out)
    assert found["pages"] == 2 * len(HOSTILE) + 2 == found["articles"] + found["empty"] + found["rejected"]
    rejected = json.loads((out / "manifest.json").read_text())["extra"]["rejected"]
    assert rejected.pop("1000 Huge") == "more than 10,000,000 bytes of XML"
    assert {name.partition(" ")[2] for name in rejected} <= {"comments left open", "addresses left open"}
    assert found["rejected"] == len(rejected) + 1
    ids = {json.loads(line)["id"] for path in out.glob("part-*") for line in path.open(encoding="utf-8")}
    assert {f"wikipedia:{10 * number}" for number in range(1, len(HOSTILE) + 1)} | {"wikipedia:1001"} <= ids
    assert not list(ROOT.glob("PWNED")) and not list(tmp_path.rglob("PWNED"))


def compressed(path: Path, begin: bytes, repeated: bytes, size: int) -> Path:
    """Writes a file of bzip2 that becomes `size` bytes and is less than a thousandth of them."""
    block = repeated * (10_000_000 // len(repeated))
    path.write_bytes(bz2.compress(begin) + bz2.compress(block) * (size // len(block)))
    assert path.stat().st_size < size / 1000
    return path


@pytest.mark.parametrize(
    ("command", "name", "begin"),
    [
        ("data.text --source {} --output {}/out", "a.jsonl.bz2", b'{"text": "'),
        ("squad.metric {} {}/none", "a.json.bz2", b'{"data": "'),
        ("squad.metric {} {}/none", "a.jsonl.bz2", b'{"id": "'),
        ("data.vocab --vocab {} --output {}/out", "vocab.txt.bz2", b"[PAD]\n"),
        ("data.wikipedia --source {}/in --output {}/out", "in/wiki_00.bz2", b'<doc id="7" title="A">'),
        ("data.wikipedia --source {}/in --output {}/out", "in/wiki_00.bz2", b'<doc id="7" url="u" title="A">\n'),
    ],
)
def test_a_file_that_decompresses_to_gigabytes_is_refused_at_a_bound(
    command: str, name: str, begin: bytes, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    line_ends = name.startswith("in") and begin.endswith(b"\n")
    path = compressed(tmp_path / name, begin, b"a" * 99 + (b"\n" if line_ends else b"a"), 300_000_000)
    first = path.parent.parent if name.startswith("in") else path
    module, *arguments = command.split()
    places = iter([first, tmp_path])
    ended = run(module, *(part.format(next(places)) if "{}" in part else part for part in arguments))
    assert ended.code == 3, ended
    [*progress, error] = ended.said.splitlines()  # of a busy machine: it is printed from five seconds on
    assert error.startswith("error: ") and name in error, ended
    assert all(" MB in " in line for line in progress), ended
    assert ended.peak < 0.9 * GIB and not (tmp_path / "out").exists()


def limited(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module` with at most 64 open files."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=few_files)


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def test_sixty_four_open_files_are_enough_for_any_number_of_books_and_shards(tmp_path: Path) -> None:
    books = tmp_path / "in"
    books.mkdir()
    for number in range(150):
        (books / f"{number}.txt").write_text(f"Book {number}. {PROSE}")
    stages = (
        ("data.books", books, "books", ()),
        ("data.documents", tmp_path / "books", "documents", ("--workers", 2)),
        ("data.shards", tmp_path / "documents", "shards", ("--shards", 100)),
    )
    for module, source, name, more in stages:
        done = limited(module, "--source", source, "--output", tmp_path / name, *more)
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "shards").glob("train-*"))) == 100
