"""The model card describes the run."""

import dataclasses
import html.parser
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.convert import __main__ as convert
from bert.convert import card
from bert.convert.names import Match
from bert.convert.run import Model, input_files, read_model
from bert.core import outputs
from bert.labels import Head
from bert.pretraining import PretrainingModel
from bert.text.normalization import UNCASED
from bert.text.vocabulary import write
from bert.training import selection
from tests.bert.convert.folders import SMALL, a_run, vocabulary
from tests.training import sign


def test_the_card_says_what_the_run_was(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, PretrainingModel(SMALL, 0))
    settings = {"data.train": "some folder/seq128", "batch.total": 24, "precision.xla": False, "run.directory": "/x"}
    about = {"config": settings, "versions": {"tensorflow": "2.21.0"}}
    (tmp_path / "run/config.json").write_text(json.dumps(about))
    write(vocabulary(SMALL), UNCASED, tmp_path / "run")
    sign(tmp_path / "run")
    lines: list[dict[str, Any]] = [
        {"step": step, "split": "heldout", "loss": 3.0 - step, "mlm_accuracy": 0.51 + step, "matthews": 0.25}
        for step in (0, 7, 9)  # the weights are of step 7
    ]
    lines.append({"step": 7, "split": "train", "loss": 1.5, "learning_rate": 0.125})
    (tmp_path / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 8, "spl')
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    card = (tmp_path / "theirs/README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\nlicense: unknown\npipeline_tag: fill-mask\n")
    assert re.findall("^## (.*)$", card, re.MULTILINE) == ["Data", "Licence", "Training", "Scores", "Limits"]
    assert "- `data.train`: `some folder/seq128`" in card and "the folder is not there any more" in card
    assert "- recipe: not stated" in card and "- first weights: random" in card and "reads 17 tokens at once" in card
    assert "--data.train 'some folder/seq128' \\\n    --batch.total 24 \\\n    --precision.xla false\n" in card
    assert "| heldout | 7 | -4 | 751 | 25 |" in card and "/x" not in card
    assert "| train | 7 | 1.5 |  |  |" in card and "learning" not in card


def test_the_card_has_what_the_records_and_the_best_evaluation_say(tmp_path: Path) -> None:
    def make(folder: Path) -> outputs.StageResult:
        (folder / "a.tfrecord").write_text("a")
        counts = {"train": {"instances": 23}, "documents": 5}
        return outputs.StageResult(counts=counts, records={"a.tfrecord": 23}, extra={"language": "zh-hant"})

    outputs.build(tmp_path / "seq", stage="data.tfrecords", parameters={"dupe|": 3}, inputs=[], make=make)
    run = tmp_path / "run"
    a_run(run, SMALL, PretrainingModel(SMALL, 0))
    config = {"data.train": str(tmp_path / "seq"), "init.checkpoint": "some/run"}
    (run / "config.json").write_text(json.dumps({"config": config, "recipe": "bert_tiny", "versions": {"a": "1"}}))
    write(vocabulary(SMALL), UNCASED, run)
    sign(run)
    selection.write(run, selection.Best(step=7, measure="accuracy", value=62.5, scale=100))
    assert {path.name for path in input_files(run)} >= {"seq", "best.json"}
    text = card.text(read_model(run), "BertForPreTraining")
    for line in (
        "- made by: `data.tfrecords`",
        r"- dupe\|: `3`",
        "- number of train: `instances 23`",
        "- number of documents: `5`",
        "- language: zh-hant",
        "language: zh",
        "- recipe: `bert_tiny`",
        "- first weights: `some/run`",
        "The weights are those of update 7, the best of the run by accuracy: 62.5.",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(
    ("head", "limit"),
    [
        (Head(kind="answer_span"), "Whether the text is true"),
        (Head(kind="tags", labels=("O", "B-X")), "knows the tags above only"),
        (Head(kind="classifier", labels=("a", "b")), "to any text"),
        (Head(kind="choice", labels=("0", "1")), "is assumed"),
        (None, "made to be fine-tuned"),
    ],
)
def test_an_imported_model_states_nothing_that_is_not_known(head: Head | None, limit: str) -> None:
    settings = {"imported": {"origin": "a stranger"}, "config": {"model.hidden_size": 20}}
    model = Model(config=SMALL, vocab=["a"], match=Match([], [], [], []), values={}, settings=settings, head=head)
    text = card.text(model, "BertModel")
    parts = dict(re.findall(r"^## (.*)\n\n((?:(?!## ).*\n)*)", text, re.MULTILINE))
    assert parts["Data"].strip() == "Not stated." and parts["Scores"].strip() == "Not stated."
    assert parts["Licence"].startswith("Not stated: ") and parts["Training"].startswith("Not stated: ")
    assert "a stranger" in parts["Training"] and limit in parts["Limits"]


HOSTILE = [
    "<script>alert(1)</script>",
    "a|b\n\n<img src=x>",
    "[x](javascript:1)",
    "![](//a.b/c)",
    "```\n<b>",
    "`<i>`",
    "x; rm -rf /",
    "\udcff",
    "https://a.b",
]


class Tags(html.parser.HTMLParser):
    """Collect the tags of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_and_never_markup(name: str) -> None:
    settings = {"config": {"data.train": name, name: name}, "recipe": name, "versions": {name: name}}
    scores = [{"step": 7, "split": name, f"{name}_loss": 2.0}]
    weight = np.zeros((2, 2), np.float32)
    match = Match([], [name], [], [])
    model = Model(
        config=SMALL,
        vocab=["a"],
        match=match,
        values={"a": weight},
        settings=settings,
        head=Head(kind="classifier", labels=(name, "b")),
        scores=scores,
    )
    imported = dataclasses.replace(model, settings={"imported": {"origin": name}})
    for text in (card.text(model, "BertModel"), card.text(imported, "BertModel")):
        assert text.encode()
        outside, fence = [], ""
        for line in text.splitlines():
            if fence or line.startswith("```"):
                fence = "" if line == fence else fence or line
            else:
                outside.append(re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line.replace(r"\`", "")))
        assert not fence
        shown = Tags()
        shown.feed("\n".join(outside))
        assert not shown.tags and not re.search(r"(?<!\\)\]\(|://", "\n".join(outside))
    commands = re.findall(r"python -m (.*?)\n`{3,}\n", card.text(model, "BertModel"), re.DOTALL)
    words = subprocess.run(["bash", "-c", f"printf '%s\\n' {commands[0]}"], capture_output=True, text=True, check=True)
    assert words.stdout.splitlines()[1 : 1 + len(name.split())] == name.encode(errors="replace").decode().split()
