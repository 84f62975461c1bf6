"""The commands of the tutorial run one after the other, as they stand there but with smaller numbers, from raw text to
answers of a service. None reaches a network, where namespaces are allowed.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import offline, test_pages

SMALLER = {
    "--articles 600 --books 60 --train_questions 2000 --dev_questions 200": "--articles 40 --books 20 "
    "--train_questions 40 --dev_questions 11",
    "--run.steps 400": "--run.steps 4",
    "--run.steps 200 --optimizer.warmup_steps 12": "--run.steps 4 --optimizer.warmup_steps 1",
    "--run.log_every 20 --run.evaluate_every 50": "--run.log_every 2 --run.evaluate_every 2",
    "squad_tiny": "squad_tiny --run.steps 4",
    "make setup\n. .venv/bin/activate\n": "",  # this environment
    "make ": "make -o setup ",
}
SERVED = """
trap 'kill $service' EXIT
until curl -fs 127.0.0.1:{port}/readyz; do kill -0 $service; sleep 0.5; done
"""


def script(work: Path, port: int) -> str:
    """The blocks of the tutorial as one script of bash, with the work folder and the port given."""
    changed = SMALLER | {"workdir/": f"{work}/", ":8000": f":{port}", "serve --model": f"serve --port {port} --model"}
    blocks = test_pages.blocks(offline.ROOT / "docs" / "tutorial.md")
    for words in SMALLER:
        assert any(words in text for _, text in blocks), words
    lines = ["set -euxo pipefail"]
    for language, text in blocks:
        for words, other in changed.items():
            text = text.replace(words, other)
        if text.startswith("python -m serve"):
            text = f"{text.strip()} &\nservice=$!{SERVED.format(port=port)}"
        lines += [f"python - <<'CODE'\n{text}CODE" if language else text, "echo"]
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute of processor time
def test_without_a_network_the_tutorial_leads_from_a_dump_and_books_to_a_service(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = [*offline.words(), "bash", "-c", script(tmp_path, port)]
    done = subprocess.run(command, cwd=offline.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]

    before, after = (json.loads(line) for line in re.findall(r'^\{"samples".*', done.stdout, re.MULTILINE))
    assert before["samples"] == after["samples"] > 10 and before["mlm_loss"] != after["mlm_loss"]
    metrics = [json.loads(line) for line in (tmp_path / "domain_model/metrics.jsonl").read_text().splitlines()]
    assert {line["split"] for line in metrics} == {"train", "heldout", "fed"}
    new = (tmp_path / "words/words.txt").read_text().split()
    assert new and {*new} <= {*(tmp_path / "answers/vocab.txt").read_text().splitlines()}

    score = json.loads(re.findall(r'^\{"exact_match".*', done.stdout, re.MULTILINE)[0])
    assert score["total"] == 11 and 0 <= score["exact_match"] <= score["f1"] <= 100
    answers = json.loads((tmp_path / "answers.json").read_text())
    for title in json.loads((tmp_path / "example/dev.json").read_text())["data"]:
        for paragraph in title["paragraphs"]:
            for question in paragraph["qas"]:
                assert answers[question["id"]] in paragraph["context"]
    served = json.loads(re.findall(r'^\{.*"answer".*', done.stdout, re.MULTILINE)[-1])["answer"]
    assert f"Answer(text={served['text']!r}, start={served['start']}, end={served['end']}, " in done.stdout
