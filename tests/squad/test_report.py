"""The report says what the runs' own files say, and fails when the journey led nowhere."""

import json
from pathlib import Path

import pytest

from bert.core.errors import InputError, IntegrityError
from squad import report

CONTEXT = "Mira led Torbank. Balda led Kenco."
QUESTIONS = {"a": ("Who led Torbank?", "Mira"), "b": ("Who led Kenco?", "Balda"), "c": ("Who led the Kenco?", "Balda")}


@pytest.fixture
def journey(tmp_path: Path) -> list[str]:
    """Arguments: phases of known figures; the pretrained model answers two questions of three, the random one none."""
    for name, steps in (("phase1", 60), ("phase2", 20)):
        lines = [
            {"step": step, "split": "train", "loss": 100 / step, "tokens_per_second": 1000.0 * step}
            for step in range(20, steps + 1, 20)
        ]
        figures = {"loss": 1.5, "mlm_accuracy": float(steps), "nsp_accuracy": 90.0}
        lines.append({"step": steps, "split": "heldout", "scale": 100} | figures)
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for run, answers in (("pretrained", ["Mira", "Balda", "Mira"]), ("random", ["led", "led", "led"])):
        (tmp_path / run).mkdir()
        (tmp_path / run / "predictions.json").write_text(json.dumps(dict(zip(QUESTIONS, answers, strict=True))))
    qas = [
        {"id": key, "question": question, "answers": [{"text": gold, "answer_start": CONTEXT.index(gold)}]}
        for key, (question, gold) in QUESTIONS.items()
    ]
    dataset = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(dataset))
    runs = ["--pretrained", "pretrained", "--random", "random", "--dataset", "dev.json", "--output", "out"]
    flags = ["--pretraining", str(tmp_path / "phase1"), str(tmp_path / "phase2")]
    return flags + [word if word.startswith("--") else str(tmp_path / word) for word in runs]


def test_json_table_and_picture_are_written_and_the_answer_is_marked_in_its_passage(journey, tmp_path, capsys):
    report.main(journey)
    first, second = json.loads((tmp_path / "out" / "report.json").read_text())["pretraining"]
    assert (first["steps"], first["mlm_accuracy"], first["nsp_accuracy"]) == (60, 60, 90)
    assert (first["tokens_per_second"], second["tokens_per_second"]) == (40_000, 20_000)  # the medians
    scores = json.loads((tmp_path / "out" / "report.json").read_text())["squad"]
    assert scores["pretrained"]["exact_match"] == pytest.approx(200 / 3)
    assert scores["random"]["f1"] == 0
    printed = capsys.readouterr().out
    assert all(figure in printed for figure in ("60.0", "40,000", "66.7", str(tmp_path / "out" / "curves.png")))
    assert "Who led Torbank?" in printed and "[[Mira]] led Torbank. Balda led Kenco." in printed
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(("floor", "reason"), [("--require_exact_match", "exact match"), ("--require_gain", "points")])
def test_a_journey_that_led_nowhere_fails_after_its_report_is_written(journey, tmp_path, floor, reason):
    with pytest.raises(IntegrityError, match=reason):
        report.main([*journey, floor, "70"])
    assert (tmp_path / "out" / "report.json").exists()
    report.main([*journey, floor, "60"])


def test_a_run_without_metrics_is_named(journey, tmp_path):
    (tmp_path / "phase2" / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match="phase2"):
        report.main(journey)
