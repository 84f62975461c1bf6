"""The commands of the tutorial run one after the other, as they stand there but with smaller numbers, from raw text to
answers of a service. None reaches a network, where namespaces are allowed.
"""

import json
import re
from pathlib import Path

import pytest

from tests import page_scripts

TUTORIAL = page_scripts.Page(
    "docs/tutorial.md",
    changes={
        "--articles 600 --books 60 --train_questions 2000 --dev_questions 200": "--articles 40 --books 20 "
        "--train_questions 40 --dev_questions 11",
        "--run.steps 400": "--run.steps 4 --model.num_hidden_layers 1",
        "--run.steps 200 --optimizer.warmup_steps 12": "--run.steps 4 --optimizer.warmup_steps 1",
        "--run.log_every 20 --run.evaluate_every 50": "--run.log_every 2 --run.evaluate_every 2",
        "squad_tiny": "squad_tiny --run.steps 4",
    },
    left_out={"make setup": "it makes the environment"},
)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute of processor time
def test_without_a_network_the_tutorial_leads_from_a_dump_and_books_to_a_service(tmp_path: Path) -> None:
    done = page_scripts.run(TUTORIAL, tmp_path)
    assert done.returncode == 0, page_scripts.failures(done.stderr)
    work = tmp_path / "workdir"

    before, after = (json.loads(line) for line in re.findall(r'^\{"samples".*', done.stdout, re.MULTILINE))
    assert before["samples"] == after["samples"] > 10 and before["mlm_loss"] != after["mlm_loss"]
    metrics = [json.loads(line) for line in (work / "domain_model/metrics.jsonl").read_text().splitlines()]
    assert {line["split"] for line in metrics} == {"train", "heldout", "fed"}
    new = (work / "words/words.txt").read_text().split()
    assert new and {*new} <= {*(work / "answers/vocab.txt").read_text().splitlines()}

    score = json.loads(re.findall(r'^\{"exact_match".*', done.stdout, re.MULTILINE)[0])
    assert score["total"] == 11 and 0 <= score["exact_match"] <= score["f1"] <= 100
    answers = json.loads((work / "answers.json").read_text())
    for title in json.loads((work / "example/dev.json").read_text())["data"]:
        for paragraph in title["paragraphs"]:
            for question in paragraph["qas"]:
                assert answers[question["id"]] in paragraph["context"]
    answer = re.findall(r'^\{.*"answer".*', done.stdout, re.MULTILINE)[-1]
    served = json.JSONDecoder().raw_decode(answer)[0]["answer"]  # what comes next is in the same line
    assert f"Answer(text={served['text']!r}, start={served['start']}, end={served['end']}, " in done.stdout
