"""The command `python -m bert.plan`."""

import dataclasses
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert.core.errors import UsageError
from bert.model import cost
from bert.plan import __main__ as command
from bert.plan import demand
from bert.recipes import RECIPES, SIZES

ROOT = Path(__file__).resolve().parents[3]


def run(*argv: str) -> None:
    command.main(list(argv))


def test_both_phases_of_a_recipe_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    run("bert_large", "--gpu", "h100-sxm", "--nodes", "8", "--price", "2.5", "--json")
    found = json.loads(capsys.readouterr().out)
    first, second = found["phases"]
    assert (first["sequence"], second["sequence"]) == (128, 512)
    for kind, end in itertools.product(("hours", "money", "kilowatt_hours"), ("low", "value", "high")):
        assert found[kind][end] == pytest.approx(first[kind][end] + second[kind][end]), (kind, end)
    assert found["money"]["value"] == pytest.approx(found["hours"]["value"] * 64 * 2.5)
    parts = first["update_parts"]
    total = parts["compute"] + parts["tensor"] + parts["optimizer"] + parts["reduction"] - parts["hidden"]
    assert first["update_seconds"]["value"] == pytest.approx(total)
    assert first["memory"]["state"] < first["memory"]["total"] <= first["memory"]["available"]
    assert first["sequences_per_second"] * first["update_seconds"]["value"] == pytest.approx(first["batch"])


def test_a_teacher_takes_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teacher = dataclasses.replace(SIZES["large"], vocab_size=30_522)
    teacher.save(tmp_path / "bert_config.json")
    words, memory = ["bert_base_phase1", "--gpu", "h100-sxm", "--batch.per_device", "8", "--json"], []
    for flags in ([], ["--distill.teacher", str(tmp_path)]):
        run(*words, *flags)
        memory.append(json.loads(capsys.readouterr().out)["phases"][0]["memory"])
    assert memory[1]["state"] - memory[0]["state"] == 4 * cost.teacher_parameters(teacher)
    assert memory[1]["total"] - memory[0]["total"] > 4 * cost.teacher_parameters(teacher)


def test_losses_of_layers_take_memory_and_the_teacher_takes_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The estimates grow by what NumPy arrays of those shapes would take, and by the teacher's products."""
    base = dataclasses.replace(SIZES["base"], vocab_size=30_522)
    base.save(tmp_path / "bert_config.json")
    batch, heads, tokens, layers = 8, 48, 512, 6

    def planned(*flags: str) -> tuple[dict[str, float], float]:
        words = ["minilm_6x384", "--gpu", "h100-sxm", "--batch.per_device", str(batch), "--json"]
        run(*words, "--distill.teacher", str(tmp_path), *flags)
        (phase,) = json.loads(capsys.readouterr().out)["phases"]
        return phase["memory"], phase["hours"]["value"]

    (few, short), (many, long) = (planned("--distill.relation_heads", count) for count in ("12", str(heads)))
    assert many["total"] - few["total"] >= 6 * 4 * batch * (heads - 12) * tokens**2 and long == short
    (projected, _), (equal, _) = planned("--distill.hidden", "1"), planned()
    assert projected["state"] - equal["state"] == 16 * (384 + 1) * 768
    assert projected["total"] - equal["total"] > 4 * batch * tokens * 768 * (layers + 1)
    first, last = (planned("--distill.relation_layer", layer)[1] for layer in ("0", "11"))
    assert last > 1.3 * first
    (phase,) = RECIPES["minilm_6x384"].phases
    model = dataclasses.replace(phase.config.model, vocab_size=30_522)
    flops = demand.update_flops(dataclasses.replace(phase.config, model=model), tokens, 77, base)
    of_relations = 3 * 2 * tokens**2 * (3 * 384 + 768)  # three products, of the student also with their gradients
    expected = cost.flops(model, tokens, 0, 78) + cost.flops(base, tokens, 0) / 3 + of_relations
    assert flops == pytest.approx(expected)
    with pytest.raises(UsageError, match="minilm_6x384 learns from a trained model"):
        run("minilm_6x384", "--gpu", "h100-sxm")


def test_the_table_says_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    run("bert_large_superpod_phase1", "--gpu", "v100-sxm3-32h", "--nodes", "92")
    shown = capsys.readouterr().out
    assert "66,240 sequences per update instead of 65,536 (+1.1%)" in shown and "total time" in shown
    assert "money" not in shown  # no price was given


def test_the_note_on_a_larger_micro_batch_says_what_that_plan_says(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "bert_domain",
        "--gpu",
        "rtx-a6000",
        "--gpus_per_node",
        "1",
        "--price",
        "0.4",
        "--currency",
        "EUR",
        "--json",
    ]
    run(*words)
    given = json.loads(capsys.readouterr().out)
    (note,) = given["phases"][0]["notes"]
    size = note.split("--batch.per_device ")[1].split()[0]
    run(*words, "--batch.per_device", size)
    larger = json.loads(capsys.readouterr().out)
    hours = [found["hours"]["value"] for found in (larger, given)]
    assert f"it is {hours[0]:,.1f} h instead of {hours[1]:,.1f} h, " in note and hours[0] < hours[1]
    assert note.endswith(f", {0.4 * hours[0]:,.0f} instead of {0.4 * hours[1]:,.0f} EUR")
    assert not larger["phases"][0]["notes"] and larger["currency"] == "EUR"


@pytest.mark.slow
def test_a_currency_stands_behind_sums_and_needs_a_price(capsys: pytest.CaptureFixture[str]) -> None:
    run("bert_large", "--gpu", "l40s", "--price", "1", "--currency", "EUR", "--target", "cost=900000")
    shown = capsys.readouterr().out
    assert re.search(r"^money  .*\) EUR$", shown, re.MULTILINE) and re.search(r"1 nodes .* h +[0-9,]+ EUR ", shown)
    with pytest.raises(UsageError, match="no effect without --price"):
        run("bert_large", "--gpu", "l40s", "--currency", "EUR")


def test_a_gpu_that_tensorflow_does_not_run_on_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    run("bert_domain", "--gpu", "rtx-5090")
    assert "does not run under TensorFlow's package of pip" in capsys.readouterr().out
    run("bert_domain", "--gpu", "rtx-4090")
    assert "does not run" not in capsys.readouterr().out


def test_flags_of_the_recipe_apply(capsys: pytest.CaptureFixture[str]) -> None:
    run("bert_1b3", "--gpu", "a100-sxm-80", "--nodes", "2", "--parallel.tensor", "2", "--json")
    phase = json.loads(capsys.readouterr().out)["phases"][0]
    assert phase["tensor_parts"] == 2 and phase["update_parts"]["tensor"] > 0 and phase["sequence"] == 512


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["bert_large", "--gpu", "h100"], "did you mean h100"),
        (["bert_lage", "--gpu", "h100-sxm"], "no recipe"),
        (["bert_large", "--gpu", "h100-sxm", "--nodes", "0"], "must be from 1"),
        (["bert_large", "--gpu", "h100-sxm", "--sequence", "4096"], "max_position_embeddings"),
    ],
)
def test_mistakes_end_in_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(*argv)


def test_it_needs_neither_tensorflow_nor_numpy() -> None:
    code = (
        "import sys; from bert.plan.__main__ import main; main(['bert_large', '--gpu', 'l4']); "
        "assert not {'tensorflow', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_help_lists_options_and_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    shown = capsys.readouterr().out
    assert "--gpus_per_node" in shown and "bert_large_phase1" in shown


@pytest.mark.slow
def test_a_target_chooses_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    run("bert_large", "--gpu", "a100-sxm-80", "--price", "1.5", "--target", "hours=24")
    shown = capsys.readouterr().out
    assert "\nplans\n" in shown and "\nmoney " in shown
    run("bert_large", "--gpu", "a100-sxm-80", "--target", "hours=24", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["hours"]["value"] <= 24
    assert found["hours"]["value"] in [plan["hours"] for plan in found["plans"]]


@pytest.mark.slow
def test_every_recipe_has_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataclasses.replace(SIZES["base"], vocab_size=30_522).save(tmp_path / "bert_config.json")
    for name, recipe in RECIPES.items():
        divided = ["--parallel.tensor", "8", "--parallel.shard_optimizer", "true"]
        flags = divided if name in ("bert_3b9", "gpt2_8b3") else []
        if recipe.phases[0].config.distill.distances:
            flags = ["--distill.teacher", str(tmp_path)]
        run(name, "--gpu", "a100-sxm-80", "--nodes", "46", "--batch.fit", "above", "--json", *flags)
        phase = json.loads(capsys.readouterr().out)["phases"][0]
        assert phase["batch"] % (46 * 8 // phase["tensor_parts"] * phase["per_device"]) == 0, name
        assert 0 < phase["share_of_peak"] < 0.7, name
