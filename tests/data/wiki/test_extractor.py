"""wikiextractor is not trusted: lost articles are noticed, stalled extractors killed, failures reported."""

import json
import subprocess
import sys
import time

import pytest

from bert.core.errors import InputError
from data.wiki import dump, extractor
from tests.waiting import runs, wait_for
from tests.wiki_dump import PROSE, xml


def test_a_lost_article_is_noticed(tmp_path, stage, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    answer = json.dumps({"id": "1", "title": "River 1", "text": PROSE})
    program = f"import sys; sys.stdin.read(); print({answer!r})"
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", program])
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")
    assert code == 4 and "gave no article for page 2 'River 2'" in lines[0]


def test_a_stalled_extractor_is_killed_with_its_workers(tmp_path, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    child = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = f"import os, time; os.fork(); {child}"
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", program])
    begin = time.monotonic()
    with pytest.raises(InputError, match="gave no answer for 1 s, 3 times in a row, at page 3"):
        list(extractor.extract(dump.Reader(tmp_path / "dump.xml"), 1, 1.0))
    assert time.monotonic() - begin < 50
    wait_for(lambda: not runs(int((tmp_path / "pid").read_text())), "end of its worker")


HOLDS = """
import json, re, sys, time
held = []
for line in sys.stdin:
    if found := re.match(" {4}<id>([0-9]+)", line):
        if found[1] in ("2", "5"):
            time.sleep(60)
        print(*held, sep="", end="", flush=True)
        held = [json.dumps({"id": found[1], "title": "", "text": ""}) + "\\n"]
print(*held, sep="", end="")
"""


def test_the_page_that_stalls_alone_is_rejected_and_not_one_whose_answer_waits_behind_it(tmp_path, monkeypatch):
    # In wikiextractor itself a thread sends the answers; a page that keeps the interpreter busy lets it wait.
    (tmp_path / "dump.xml").write_text(xml())
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", HOLDS])
    reader = dump.Reader(tmp_path / "dump.xml")
    assert [found.id for found in extractor.extract(reader, 1, 2.5)] == ["1", "3", "4", "6", "7", "20", "23"]
    assert reader.rejected == dict.fromkeys(["2 River 2", "5 River 5"], "wikiextractor had no answer in 2.5 s")


def test_the_extractor_does_not_outlive_a_killed_stage(tmp_path):
    (tmp_path / "dump.xml").write_text(xml())
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = (
        f"import sys; from pathlib import Path; from data.wiki import dump, extractor;"
        f"extractor.COMMAND = [sys.executable, '-c', {child!r}];"
        f"list(extractor.extract(dump.Reader(Path({str(tmp_path / 'dump.xml')!r})), 1, 60.0))"
    )
    stage = subprocess.Popen([sys.executable, "-c", program])
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "extractor", stage)
    stage.kill()
    stage.wait(timeout=60)
    wait_for(lambda: not runs(int((tmp_path / "pid").read_text())), "end of the extractor")


def test_a_failing_extractor_is_quoted(tmp_path, stage, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", "raise SystemExit('no space for templates')"])
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")
    assert code == 3 and "exit code 1: no space for templates" in lines[0]
