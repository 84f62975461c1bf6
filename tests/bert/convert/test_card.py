"""The model card describes the run."""

import dataclasses
import html.parser
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bert.convert import __main__ as convert
from bert.convert import card
from bert.convert.names import Match
from bert.convert.run import Model
from bert.labels import Head
from bert.pretrain import PretrainingModel
from tests.bert.convert.folders import (
    SMALL,
    a_run,
)
from tests.training import sign


def test_the_card_says_what_the_run_was(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, PretrainingModel(SMALL, 0))
    settings = {"data.train": "some folder/seq128", "batch.total": 24, "precision.xla": False, "run.directory": "/x"}
    about = {"config": settings, "versions": {"tensorflow": "2.21.0"}}
    (tmp_path / "run/config.json").write_text(json.dumps(about))
    sign(tmp_path / "run")
    lines = [{"step": step, "split": "heldout", "loss": 3.0 - step, "mlm_accuracy": 0.51 + step} for step in (0, 7)]
    (tmp_path / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 8, "spl')
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    card = (tmp_path / "theirs/README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n")
    assert "--data.train 'some folder/seq128' \\\n    --batch.total 24 \\\n    --precision.xla false\n" in card
    assert "| heldout | 7 | -4.0000 | 7.5100 |" in card and "/x" not in card


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
