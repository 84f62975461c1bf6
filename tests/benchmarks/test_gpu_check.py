"""benchmarks/gpu_check: it adds up the memory of a program, refuses what may not be, and really compiles."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check import store
from benchmarks.gpu_check.programs import PROGRAMS, TINY
from bert.core.errors import IntegrityError
from bert.model import cost
from bert.plan import demand


def figures(peak: int, temporaries: int) -> command.Row:
    memory = {"peak": peak, "temporaries": temporaries, "device": 80 << 30, "reserved": 3 << 30}
    return {"program": "large_128", "device": "h100", "memory": memory}


def test_too_much_memory_and_more_temporaries_are_faults() -> None:
    assert command.faults(figures(77 << 30, 1050), {"temporaries": 1000}) == []
    assert command.faults(figures(77 << 30, 9000), None) == []
    (memory,) = command.faults(figures(78 << 30, 1050), {"temporaries": 1000})
    assert memory.startswith("large_128 on h100: needs 78.0 GiB, and 77.0 GiB are there; ")
    (grown,) = command.faults(figures(77 << 30, 1051), {"temporaries": 1000})
    assert "5.1% more than the reference" in grown


def test_the_peak_holds_moments_and_summed_gradients() -> None:
    gradients = 1000
    step = {"arguments": 2 * gradients + 30, "results": gradients + 4, "aliased": gradients, "temporaries": 500}
    assert command.memory(PROGRAMS["large_128"], step)["peak"] == 4 * gradients + 30 + 4 + 500
    update = {"arguments": 4 * gradients, "results": 3 * gradients, "aliased": 3 * gradients, "temporaries": 0}
    assert command.memory(PROGRAMS["large_lamb"], update)["peak"] == 5 * gradients


REFERENCE = command.load_reference(command.REFERENCE)
PRETRAINING = [key for key in REFERENCE if (PROGRAMS | TINY)[key.split()[0]].kind == "pretrain" and "tiny" not in key]


@pytest.mark.parametrize("key", PRETRAINING)
def test_the_plan_agrees_with_the_compiler(key: str) -> None:
    program = PROGRAMS[key.split()[0]]
    config = program.config()
    terms = demand.activations(config, program.tokens, program.predictions, program.rows)
    state = 16 * cost.parameters(config.model)  # the weight in float32, its two moments and its accumulated gradient
    assert sum(terms.values()) == pytest.approx(REFERENCE[key]["temporaries"], rel=0.10)
    assert sum(terms.values()) + state == pytest.approx(REFERENCE[key]["peak"], rel=0.10)


compiled = pytest.mark.skipif(
    not store.INTERPRETER.exists(), reason="needs scripts/extra_venv.sh gpu-check true, which installs"
)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder for the programs of these tests."""
    return tmp_path_factory.mktemp("gpu_check")


@compiled
@pytest.mark.slow
def test_a_program_compiles_and_needs_what_the_reference_says(run_module: Any, work: Path) -> None:
    names = ("tiny_128_fused", "tiny_128_flash_norm_gelu")
    done = run_module("benchmarks.gpu_check", "--programs", *names, timeout=580, BERT_WORKDIR=str(work))
    assert done.returncode == 0, done.stderr
    row, dropped = json.loads((work / "gpu_check" / "gpu_check.json").read_text())["rows"]
    for name, one in zip(names, (row, dropped), strict=True):
        assert one["memory"]["peak"] == pytest.approx(REFERENCE[f"{name} h100"]["peak"], rel=0.05)
    # Two layers: attention forwards and twice backwards; two norms, and GELU, both ways. In the last layer GELU has 84
    # rows, for which there is no kernel.
    assert dropped["custom_calls"]["__gpu$xla.gpu.triton"] == 2 * 3 + 2 * 2 * 2 + 2
    assert row["custom_calls"]["__cudnn$fmhaScaleBiasSoftmaxBackward"] == 2  # a layer


@compiled
@pytest.mark.thorough
def test_what_may_not_be_ends_in_one_line_with_its_exit_code(
    run_module: Any, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*flags: object, code: int = IntegrityError.exit_code) -> list[str]:
        done = run_module(
            "benchmarks.gpu_check",
            "--programs",
            "tiny_128_fused",
            "--output",
            tmp_path,
            *flags,
            timeout=580,
            BERT_WORKDIR=str(work),
        )
        assert done.returncode == code
        return [line for line in done.stderr.splitlines() if "error: " in line]

    (large,) = run("--batch", 30_000)
    assert "tiny_128_fused on h100: needs " in large and "take fewer sequences" in large
    run("--reference", tmp_path / "smaller.json", "--update", "true", code=0)
    smaller = json.loads((tmp_path / "smaller.json").read_text())
    smaller["tiny_128_fused h100"]["temporaries"] /= 1.06
    (tmp_path / "smaller.json").write_text(json.dumps(smaller))
    (grown,) = run("--reference", tmp_path / "smaller.json")
    assert "6.0% more than the reference" in grown

    (crashed,) = run("--xla_flags=--xla_gpu_enable_cublaslt=true")
    assert "could not be compiled: the compiler crashed: " in crashed and "Check failed: " in crashed

    planted = tmp_path / "planted.pb"  # of the same length, which is what a protocol buffer wants
    exported = store.Store(work / "gpu_check", "").exported(TINY["tiny_128_fused"])
    planted.write_bytes(exported.read_bytes().replace(b'"is_flash_attention"', b'"is_flash_attentioX"'))
    planted.with_suffix(".flags").write_text("")
    monkeypatch.setattr(store.Store, "exported", lambda self, program: planted)
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path))
    with pytest.raises(IntegrityError, match=r"tiny_128_fused on h100: could not be compiled: .*is_flash_attentioX"):
        command.main(["--programs", "tiny_128_fused", "--output", str(tmp_path)])
