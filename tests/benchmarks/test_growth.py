"""The curves of cost over size: their fit, the bounds that fail, and that each command runs."""

from pathlib import Path

import pytest

from benchmarks.growth import __main__ as growth
from benchmarks.growth import child, page
from benchmarks.growth.curves import CURVES, Curve, Sizes
from benchmarks.growth.fit import Bound, broken, fit

SIZES = (20, 200, 2000)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found_after_the_base_is_subtracted(exponent: float) -> None:
    values = {size: 7.0 + 3 * size**exponent for size in SIZES}
    assert fit(values, 7.0, 0.5).exponent == pytest.approx(exponent)
    assert fit(values, 7.0, 0.5).above == 3


def test_noise_is_flat_whatever_its_shape() -> None:
    assert fit({20: 7.1, 200: 7.4, 2000: 7.2}, 7.0, 0.5).text() == "flat"
    assert fit({20: 9.0, 200: 7.4, 2000: 7.2}, 7.0, 0.5).text() == "flat"  # a larger size costs nothing


def test_a_growth_that_shows_at_the_largest_size_only_has_a_lower_limit() -> None:
    found = fit({20: 7.0, 200: 7.1, 2000: 57.0}, 7.0, 0.5)  # at most 0.5 at 200, and 50 at 2,000
    assert found.exponent == pytest.approx(2.0) and found.text() == ">= 2.00"


def test_each_kind_of_bound_fails_alone() -> None:
    linear = {size: 1.0 + 0.01 * size for size in SIZES}
    said = {
        name: list(broken(bound, linear, 1.0))
        for name, bound in {
            "none": Bound(measure="seconds", exponent=1.2, each=0.02, most=30, first=2),
            "exponent": Bound(measure="seconds", exponent=0.9),
            "each": Bound(measure="seconds", exponent=1.2, each=0.005),
            "most": Bound(measure="seconds", exponent=1.2, most=10),
            "first": Bound(measure="seconds", exponent=1.2, first=1.1),
        }.items()
    }
    assert said == {
        "none": [],
        "exponent": ["seconds grow with exponent 1.00, the bound is 0.9"],
        "each": ["0.01 s for each, the bound is 0.005"],
        "most": ["21 s at 2,000, the bound is 10"],
        "first": ["1.2 s at 20, the bound is 1.1"],
    }


def a_curve(name: str = "crooked", exponent: float = 1.2) -> Curve:
    bound = Bound(measure="seconds", exponent=exponent)
    return Curve(
        name=name,
        what="N things",
        sizes=Sizes((20, 200, 1000), (2, 3), 1),
        input="nothing",
        words=("x",),
        bounds=(bound,),
    )


def quadratic(size: int) -> dict[str, float]:
    return {"seconds": 5.0 + size**2 / 1000, "megabytes": 50.0}


def test_a_curve_beyond_its_bound_ends_the_command_with_code_1_and_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = (a_curve(), a_curve("allowed", 2.5), a_curve("silent"))

    def run(words: list[str], log: Path, limit: float, trace: str = "") -> dict[str, float]:
        if "benchmarks.growth.inputs" in words:
            return {}
        if "silent" in str(log) and words[-1] == "200":
            raise child.Failed("ended with code 3: no such thing")
        return quadratic(int(words[-1]))

    monkeypatch.setattr(growth, "CURVES", curves)
    monkeypatch.setattr(growth, "command", lambda curve, size, *_: [str(size)])
    monkeypatch.setattr(growth.child, "run", run)
    where = ["--output", str(tmp_path), "--page", str(tmp_path / "found.md")]
    with pytest.raises(growth.Exceeded, match="2 bounds of 3 curves") as raised:
        growth.main(where)
    assert raised.value.exit_code == 1
    said = capsys.readouterr()
    assert "exceeded: crooked: seconds grow with exponent 2.00, the bound is 1.2" in said.err
    assert "exceeded: silent: not measured: at 200: ended with code 3: no such thing" in said.err
    assert "allowed" not in [line.split(":")[1].strip() for line in said.err.splitlines() if "exceeded" in line]
    assert [line.split()[:3] for line in said.out.splitlines()] == [
        ["2.00", "seconds", "crooked:"],
        ["2.00", "seconds", "allowed:"],
    ]
    text = (tmp_path / "found.md").read_text()
    assert "**2.00**" in text and "no such thing" in text
    assert "| silent | 20 | s | 5.001 | 5.4 | flat, not at all N |" in text
    growth.main([*where, "--curves", "allowed"])  # the others keep their figures
    assert "| crooked | 20 / 200 / 1,000 | s | 5.001 | 5.4 / 45 / 1005 |" in (tmp_path / "found.md").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_each_curve_has_figures_at_small_sizes(curve: Curve, tmp_path: Path) -> None:
    result = growth.measure(curve, tmp_path / "curve", small=True, limit=240)
    if "strace is not installed" in result["why"]:
        pytest.skip(result["why"])
    assert result["why"] == ""
    for bound in curve.bounds:
        assert len(page.values(result, bound)[0]) == 2
