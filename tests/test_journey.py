"""The whole journey in miniature, by the commands that a user gives: from a dump, books and questions to a score.

No command reaches a network, where namespaces are allowed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import offline

TINY = """
    --model.hidden_size 24 --model.num_attention_heads 3 --model.intermediate_size 40 --model.num_hidden_layers 1
    --batch.total 12 --batch.per_device 6
"""


@pytest.mark.slow
def test_without_a_network_a_dump_books_and_questions_become_a_score(tmp_path: Path) -> None:
    at = tmp_path

    def run(module: str, *arguments: object) -> str:
        line = [*offline.words(), sys.executable, "-m", module, *map(str, arguments)]
        variables = os.environ | {"BERT_WORKDIR": str(at / "work")}
        done = subprocess.run(line, cwd=offline.ROOT, env=variables, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, f"{module}: {done.stderr[-2000:]}"
        return done.stdout

    sizes = ["--articles", 40, "--books", 4, "--train_questions", 60, "--dev_questions", 17]
    run("data.synthetic", "--output", at / "source", *sizes)
    run("data.wikipedia", "--source", at / "source" / "wiki.xml.bz2", "--output", at / "wikipedia")
    run("data.books", "--source", at / "source" / "books", "--output", at / "books")
    run("data.documents", "--source", at / "wikipedia", at / "books", "--output", at / "documents", "--workers", 1)
    run("data.shards", "--source", at / "documents", "--output", at / "shards", "--held_out_fraction", 0.2)
    run("data.vocab", "--source", at / "shards", "--output", at / "vocab", "--size", 300)
    vocab = at / "vocab" / "vocab.txt"
    for length in (32, 48):
        shape = f"--max_seq_length {length} --max_predictions_per_seq 5 --dupe_factor 1 --workers 1"
        made = ("--vocab", vocab, "--output", at / f"seq{length}", *shape.split())
        run("data.tfrecords", "--source", at / "shards", *made)
    short = [*TINY.split(), "--run.steps", 6, "--run.log_every", 2, "--run.evaluate_every", 3]
    run("bert.pretrain", "demo_phase1", "--data.train", at / "seq32", "--run.directory", at / "one", *short)
    begun = ("--data.train", at / "seq48", "--run.directory", at / "two", "--init.checkpoint", at / "one")
    run("bert.pretrain", "demo_phase2", *begun, *short)
    tuned = ("--data.train_file", at / "source" / "train.json", "--init.checkpoint", at / "two")
    batch = "--run.steps 5 --batch.total 12 --batch.per_device 6"
    run("squad.train", "squad_tiny", *tuned, "--run.directory", at / "squad", *batch.split())
    dev, predictions = at / "source" / "dev.json", at / "squad" / "predictions.json"
    run("squad.predict", "--model", at / "squad", "--dataset", dev, "--output", predictions)
    score = json.loads(run("squad.metric", dev, predictions))

    assert score["total"] == 17 and 0 <= score["exact_match"] <= score["f1"] <= 100
    answers = json.loads(predictions.read_text())
    for title in json.loads(dev.read_text())["data"]:
        for paragraph in title["paragraphs"]:
            for question in paragraph["qas"]:
                assert answers[question["id"]] in paragraph["context"]
    metrics = [json.loads(line) for line in (at / "two" / "metrics.jsonl").read_text().splitlines()]
    assert {line["split"] for line in metrics} == {"train", "heldout", "fed"}
