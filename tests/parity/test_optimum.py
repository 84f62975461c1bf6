"""optimum and the pipelines of transformers load the folder of an ONNX export alone, and answer as our commands do.

`make parity` installs optimum in an environment of its own; $OPTIMUM_PYTHON is another interpreter.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="it writes the model")

from bert import encode
from bert.export import onnx_files
from bert.labels import Head
from tasks import predict
from tests.bert.export.test_onnx import HEADS, a_run, exported
from tests.extensions.families import test_roberta as roberta

pytestmark = pytest.mark.parity

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("OPTIMUM_PYTHON", str(ROOT / ".venv-optimum/bin/python"))
TEXTS = ["a river", "(cafe) #river river", "Q"]
PLAIN: dict[str, Any] = {}
DISTILLED: dict[str, Any] = {"type_vocab_size": 0, "pooler_act": "relu"}
HEADS = HEADS | {"labels": ("multilabel", Head(kind="multilabel", labels=("dull", "long", "sad")))}
SEQUENCES, TOKENS = "ORTModelForSequenceClassification", "ORTModelForTokenClassification"
OTHERS = {
    "answers": "ORTModelForQuestionAnswering",
    "words": "ORTModelForMaskedLM",
    "nothing": "ORTModelForFeatureExtraction",
    "tags": TOKENS,
    "number": SEQUENCES,
}


def optimum(*jobs: tuple[Any, ...]) -> list[Any]:
    """Results of tests/parity/optimum_oracle.py."""
    done = subprocess.run(
        [PYTHON, str(ROOT / "tests/parity/optimum_oracle.py")],
        input=json.dumps(jobs, default=str),
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[Any] = json.loads(done.stdout)
    return results


def predicted(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines that tasks.predict prints."""
    capsys.readouterr()
    predict.main(arguments)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_pipeline_gives_our_labels_and_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bert.export.test_onnx.HEADS", HEADS)
    runs = {
        "classes": a_run(tmp_path / "classes", "classes"),
        "labels": a_run(tmp_path / "labels", "labels"),
        "distilbert": a_run(tmp_path / "distilbert", "classes", **DISTILLED),
        "roberta": tmp_path / "roberta",
    }
    roberta.a_folder(tmp_path / "theirs", "RobertaForSequenceClassification")
    roberta.imported(tmp_path / "theirs", runs["roberta"])
    folders = {name: exported(run, tmp_path / f"{name}_onnx") for name, run in runs.items()}
    found = optimum(*(("piped", "text-classification", SEQUENCES, folder, TEXTS) for folder in folders.values()))
    for (name, run), answers in zip(runs.items(), found, strict=True):
        for text, theirs in zip(TEXTS, answers, strict=True):
            (ours,) = predicted(["--model", str(run), text], capsys)
            scores = {one["label"]: one["score"] for one in theirs}
            assert ours["probabilities"] == pytest.approx(scores, abs=1e-5), name
            assert name == "labels" or ours["label"] == theirs[0]["label"]
        assert np.std([one["score"] for one in answers[0]]) > 0.01


def test_a_pipeline_gives_our_tags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "run", "tags")
    (found,) = optimum(("piped", "token-classification", TOKENS, exported(run, tmp_path / "onnx"), TEXTS))
    (tmp_path / "words.txt").write_text("\n\n".join("\n".join(text.split()) for text in TEXTS) + "\n")
    asked = ["--model", str(run), "--input", str(tmp_path / "words.txt"), "--output", "-"]
    for text, ours, theirs in zip(TEXTS, predicted(asked, capsys), found, strict=True):
        first = {text[: one["start"]].count(" "): one for one in reversed(theirs)}  # the first piece of each word
        assert ours["tags"] == [first[place]["entity"] for place in range(len(text.split()))]
        assert ours["probabilities"] == pytest.approx([first[n]["score"] for n in range(len(first))], abs=1e-5)


def test_every_class_of_optimum_gives_our_outputs(tmp_path: Path) -> None:
    runs = {
        (name, size): a_run(tmp_path / name / str(size), name, **changed)
        for name in OTHERS
        for size, changed in enumerate((PLAIN, DISTILLED))
    }
    jobs = [("computed", OTHERS[name], exported(run, run / "onnx"), TEXTS) for (name, _), run in runs.items()]
    for (name, run), (given, outputs) in zip(runs.items(), optimum(*jobs), strict=True):
        ids, mask = (np.array(given[key]) for key in ("input_ids", "attention_mask"))
        ours = onnx_files.load(run, "float32", 20).module.logits(ids, mask, np.zeros_like(ids))
        assert set(outputs) == set(onnx_names(run)) and mask.min() == 0, name
        for theirs, expected in zip(outputs.values(), ours, strict=True):
            inside = slice(None) if name[0] == "number" else mask > 0
            np.testing.assert_allclose(np.array(theirs)[inside], expected[inside], rtol=0, atol=1e-5)


def test_multiple_choice_has_our_probabilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [a_run(tmp_path / f"run_{n}", "choices", **changed) for n, changed in enumerate((PLAIN, DISTILLED))]
    questions = [("a river", ["Q", "(cafe) #river", "x y", "a"]), ("cafe", ["river river", "a", "z Q Q", "#"])]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"context": first, "choices": second}) + "\n" for first, second in questions))
    pairs = [[(first, one) for one in second] for first, second in questions]
    found = optimum(*(("chosen", exported(run, run / "onnx"), pairs) for run in runs))
    for run, logits in zip(runs, found, strict=True):
        assert json.loads((run / "onnx/config.json").read_text())["architectures"][0].endswith("ForMultipleChoice")
        ours = predicted(["--model", str(run), "--input", str(path), "--output", "-"], capsys)
        theirs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose([one["probabilities"] for one in ours], theirs, atol=1e-5)
        assert theirs.std() > 0.01


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_sentence_transformers_has_our_embeddings(backend: str, tmp_path: Path) -> None:
    pools = [("mean", True, None), ("cls", False, None), ("max", True, 5)]
    texts = [*TEXTS, "river " * 40]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    jobs, ours = [], []
    for number, (pool, normalize, length) in enumerate(pools):
        made = {"embedding": {"pool": pool, "normalize": normalize, "length": length}}
        run = a_run(tmp_path / f"run_{number}", "nothing", made, **(DISTILLED if number == 1 else PLAIN))
        jobs.append(("embedded", backend, exported(run, run / backend, form=backend), texts))
        output = tmp_path / f"{number}.npz"
        encode.main(["--model", str(run), "--input", str(tmp_path / "texts.txt"), "--output", str(output)])
        ours.append(np.load(output)["features"][:, 0])
    for theirs, expected in zip(optimum(*jobs), ours, strict=True):
        np.testing.assert_allclose(theirs, expected, rtol=0, atol=1e-5)
        assert expected.std(axis=0).min() > 1e-3


def onnx_names(run: Path) -> list[str]:
    """The outputs of the export of a run."""
    return list(json.loads((run / "onnx/model.json").read_text())["outputs"])
