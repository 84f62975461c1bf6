"""benchmarks/steps.py: it pairs turns, refuses what does not compute the same, names who dies; ours really runs."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cases, contender, report, steps
from bert.core.errors import IntegrityError, UsageError, UserError
from bert.model import cost

STAND_IN = [sys.executable, str(Path(__file__).parent / "stand_in.py")]


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where stand-ins note when they work."""
    monkeypatch.setenv("STAND_IN_TURNS", str(tmp_path / "turns"))
    return tmp_path / "turns"


def options(folder: Path, work: str = "finetune_384", repeats: int = 3) -> steps.Options:
    return steps.Options(
        models=("tiny",), work=(work,), compute=("float32",), repeats=repeats, seconds=0.0, output=folder / "out"
    )


def stand_ins(**kinds: str) -> steps.Commands:
    """Ours takes 2 s a lap, the others 3, 4 ... s, as they say."""
    return {name: [*STAND_IN, kind, str(2.0 + number)] for number, (name, kind) in enumerate(kinds.items())}


@pytest.mark.slow
def test_contenders_take_turns_and_are_compared_turn_by_turn(tmp_path: Path, turns: Path) -> None:
    found = steps.run(options(tmp_path), stand_ins(ours="agrees", eager="agrees", compile="agrees"))
    noted = turns.read_text().splitlines()
    assert noted[::2] == [line.replace("ends", "begins") for line in noted[1::2]]  # never two at once
    order = [float(line.split()[0]) for line in noted[::2]]
    assert order == [2.0] * 2 + [3.0] * 2 + [4.0] * 2 + [2.0, 3.0, 4.0] * 3  # two to warm up, then in turn
    assert [row["contender"] for row in found] == ["ours", "eager", "compile"]
    assert [row["ratio"] for row in found] == [1.0, 1.5, 2.0]
    assert [row["sequences_per_second"] for row in found] == [8 / 2, 8 / 3, 8 / 4]


@pytest.mark.slow
def test_figures_and_table_say_what_was_measured(tmp_path: Path, turns: Path) -> None:
    given = options(tmp_path)
    found = steps.run(given, stand_ins(ours="agrees", eager="agrees"))
    head, *lines = [json.loads(line) for line in (given.output / "steps.jsonl").read_text().splitlines()]
    assert lines == json.loads(json.dumps(found)) and head["options"]["models"] == ["tiny"] and head["commit"]
    assert all(
        row["threads"] == 3 and row["peak_mb"] == 1234 and row["seconds"] == [row["first_lap"]] * 3 for row in lines
    )
    table = (given.output / "steps.md").read_text()
    ours, theirs = [row for row in table.splitlines() if row.startswith("| tiny")]
    assert "| ours | 4.00 (4.00 - 4.00) |  |  | 2.0 s |" in ours
    assert "| transformers | 2.67 (2.67 - 2.67) | 1.50 (1.50 - 1.50) |  | 3.0 s |" in theirs
    assert "agrees 1.5" in table and "3 threads" in table and "differed by at most 0e+00" in table


def test_ours_alone_is_timed_without_a_comparison_on_as_many_sequences_as_asked(tmp_path: Path, turns: Path) -> None:
    given = dataclasses.replace(options(tmp_path), alone=True, sequences=3, peer_python=tmp_path / "python")
    assert list(steps.commands(given)) == ["ours"]
    (row,) = steps.run(given, stand_ins(ours="agrees"))
    assert (row["sequences"], row["apart"]) == (3, None)
    table = (given.output / "steps.md").read_text()
    assert "tiny, SQuAD step, 3 x 384, padded" in table and "differed" not in table


def test_contenders_see_a_gpu_only_if_they_are_to_compute_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert contender.environment(3, tmp_path)["CUDA_VISIBLE_DEVICES"] == ""
    assert contender.environment(3, tmp_path, gpu=True)["CUDA_VISIBLE_DEVICES"] == "1"
    on_gpu = steps.commands(dataclasses.replace(options(tmp_path), device="gpu", peer_python=Path(sys.executable)))
    assert {words[-1] for words in on_gpu.values()} == {"gpu"} and len(on_gpu) > 1


@pytest.mark.parametrize("seconds", [[1.0, 8.0, 3.0], [3.0, 1.0, 8.0]])
def test_a_ratio_is_the_median_of_pairs_not_of_medians(seconds: list[float]) -> None:
    case = cases.CASES[0]
    both = {"shapes": [[5, 7, 2], [3, 11, 2]], "peak_flops": 1e9, "peak_mb": 1.0, "laps": seconds}
    answers = {"ours": both | {"seconds": seconds}, "eager": both | {"seconds": [6.0, 8.0, 9.0]}}
    ours, theirs = report.rows(cases.MODELS["tiny"], case, answers)
    pairs = [theirs / own for own, theirs in zip(seconds, [6.0, 8.0, 9.0], strict=True)]
    assert theirs["ratio"] == sorted(pairs)[1] and theirs["ratios"] == pairs
    assert ours["sequences_per_second"] == 8 / 3 and theirs["sequences_per_second"] == 8 / 8
    work = 5 * cost.flops(cases.MODELS["tiny"], 7, 2) + 3 * cost.flops(cases.MODELS["tiny"], 11, 2)
    assert theirs["model_flops"] == pytest.approx(work / 8) and theirs["utilisation"] == pytest.approx(work / 8 / 1e9)


@pytest.mark.parametrize("count", [99, 100, 250])
def test_the_tail_is_the_99th_percentile_of_enough_laps_over_their_median(count: int) -> None:
    laps = np.random.default_rng(count).lognormal(size=count)
    told = {"shapes": [[1, 7, 0]], "peak_flops": 1e9, "seconds": [1.0], "laps": laps.tolist()}
    (row,) = report.rows(cases.MODELS["tiny"], cases.CASES[-1], {"ours": told})
    if count < 100:
        assert row["tail"] is None
    else:
        assert row["tail"] == pytest.approx(np.quantile(laps, 0.99, method="weibull") / np.median(laps))


@pytest.mark.slow
def test_what_does_not_compute_the_same_is_not_timed(tmp_path: Path, turns: Path) -> None:
    with pytest.raises(IntegrityError, match=r"tiny-finetune, finetune_384: .* between ours and compile") as caught:
        steps.run(options(tmp_path), stand_ins(ours="agrees", eager="agrees", compile="differs"))
    assert "\n" not in str(caught.value) and not turns.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("dies", r"eager failed to lap: it ended with code 17, its last line: Segmentation fault of sorts; "),
        pytest.param("fails", r"eager failed to setup: ValueError: no such weights; ", marks=pytest.mark.thorough),
    ],
)
def test_a_contender_that_dies_is_named_in_one_line(kind: str, said: str, tmp_path: Path, turns: Path) -> None:
    with pytest.raises(UserError, match=said) as caught:
        steps.run(options(tmp_path), stand_ins(ours="agrees", eager=kind))
    assert "\n" not in str(caught.value) and str(tmp_path / "out/eager.log") in str(caught.value)
    assert not list((tmp_path / "out").glob(".scratch-*"))


def test_a_contender_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    given = dataclasses.replace(options(tmp_path), peer_python=tmp_path / "python")
    with pytest.raises(UsageError, match="no such interpreter"):
        steps.commands(given)
    for wrong in ({"models": ("huge",)}, {"work": ("sleep",)}, {"peers": ("unknown",)}, {"repeats": 0}):
        with pytest.raises(UsageError):
            dataclasses.replace(given, **wrong)


def test_difference_is_not_fooled() -> None:
    two = np.array([2.0, -4.0])
    assert steps.difference(two, two * 1.5, relative=True) == 0.5
    assert steps.difference(two, two * 1.5, relative=False) == 2.0
    assert not steps.difference(two, np.array([2.0, np.nan]), relative=True) <= 1
    assert not steps.difference(two, two[:1], relative=True) <= 1


def test_lengths_are_like_those_of_squad_and_grouped() -> None:
    lengths = cases.question_lengths(512, 384)
    assert 165 < lengths.mean() < 175 and lengths.max() == 384 and lengths.min() >= 32
    grouped = next(case for case in cases.CASES if case.name == "finetune_lengths")
    batches = cases.batches(grouped)
    of_each = [batch["input_mask"].sum(axis=1) for batch in batches]
    assert len(batches) == cases.LAP and 160 < np.mean(of_each) < 180
    assert max(np.ptp(sizes) for sizes in of_each) < 30 < 60 < np.ptp(np.concatenate(of_each))
    for batch, sizes in zip(batches, of_each, strict=True):
        assert (batch["end_positions"][:, 0] < sizes).all() and (batch["start_positions"] > 0).all()


@pytest.mark.thorough
def test_ours_answers_what_is_asked(tmp_path: Path) -> None:
    """Losses begin near those of chance and fall; logits are of the real tokens; a lap and the peak take time."""
    given = options(tmp_path)
    given.output.mkdir()
    bench = steps.Bench(given, {"ours": [sys.executable, "-m", "benchmarks.ours_step", "cpu"]}, tmp_path)
    for name, count in (("pretrain_128", 3), ("infer_8", 2 * int(cases.question_lengths(8, 384).sum()))):
        case = next(case for case in cases.CASES if case.name == name)
        folder = bench.prepare("tiny", case.work, [case])
        with bench.start("ours") as ours:
            told = bench.setup(ours, folder, case, "float32", dropout=0.0)
            read = [20, 21] if case.work == "pretrain" else [0]
            assert told["shapes"] == [[case.batch, case.tokens, *read]]
            values = ours.ask("values")["values"]
            assert len(values) == count and np.isfinite(values).all() and np.std(values) > 1e-3
            if case.work == "pretrain":
                assert np.log(cases.WORDS) < values[0] < 2 * np.log(cases.WORDS) and values[2] < values[1] < values[0]
            assert ours.ask("lap", laps=1)["seconds"][0] > 0
            assert case.work == "pretrain" or ours.ask("peak")["flops"] > 1e6  # that of the machine
