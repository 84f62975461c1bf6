"""benchmarks/gpu_check: it counts what a compiled program does, refuses what may not be, and really compiles."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check import check, hlo, kernels, roofline, store
from benchmarks.gpu_check.devices import DEVICES
from benchmarks.gpu_check.kernels import Kernel
from benchmarks.gpu_check.programs import PROGRAMS, TINY
from bert.core.errors import IntegrityError
from bert.model import cost
from bert.plan import demand

GEMM = (
    'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"beta":BETA,"epilogue":"DEFAULT",'
    '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]},'
    '"precision_config":{"operand_precision":["HIGHEST","HIGHEST"]}}}'
)
TEXT = """HloModule cluster, is_scheduled=true

%sliced (param_0: f32[7,5,3], param_1: s32[]) -> f32[5,3] {
  %param_0 = f32[7,5,3]{2,1,0} parameter(0)
  %param_1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %dynamic-slice = f32[1,5,3]{2,1,0} dynamic-slice(%param_0, %param_1, %zero, %zero), dynamic_slice_sizes={1,5,3}
  %bitcast = f32[5,3]{1,0} bitcast(%dynamic-slice)
  ROOT %negate = f32[5,3]{1,0} negate(%bitcast)
}

%added (param_0: f32[11,3], param_1: s32[5,1], param_2: f32[5,3]) -> f32[11,3] {
  %param_0 = f32[11,3]{1,0} parameter(0)
  %param_1 = s32[5,1]{1,0} parameter(1)
  %param_2 = f32[5,3]{1,0} parameter(2)
  ROOT %scatter = f32[11,3]{1,0} scatter(%param_0, %param_1, %param_2), update_window_dims={1}, to_apply=%sum
}

%body (arg: (s32[], f32[7,5,3], bf16[5,4], bf16[4,3], f32[5,3])) -> (s32[], f32[5,3]) {
  %arg = (s32[], f32[7,5,3]{2,1,0}, bf16[5,4]{1,0}, bf16[4,3]{1,0}, /*index=4*/f32[5,3]{1,0}) parameter(0)
  %number = s32[] get-tuple-element(%arg), index=0
  %stacked = f32[7,5,3]{2,1,0} get-tuple-element(%arg), index=1
  %x = bf16[5,4]{1,0} get-tuple-element(%arg), index=2
  %w = bf16[4,3]{1,0} get-tuple-element(%arg), index=3
  %loop_negate_fusion = f32[5,3]{1,0} fusion(%stacked, %number), kind=kLoop, calls=%sliced
  %gemm.1 = (f32[5,3]{1,0}, s8[4096]{0}) custom-call(%x, %w, %loop_negate_fusion), GEMM
  %sum.1 = f32[5,3]{1,0} get-tuple-element(%gemm.1), index=0
  ROOT %tuple = (s32[], f32[5,3]{1,0}) tuple(%number, %sum.1)
}

ENTRY %main (a: f32[7,5,3], b: f32[11,3], c: s32[5,1], d: f32[5,3]) -> f32[11,3] {
  %a = f32[7,5,3]{2,1,0} parameter(0)
  %b = f32[11,3]{1,0} parameter(1)
  %c = s32[5,1]{1,0} parameter(2)
  %d = f32[5,3]{1,0} parameter(3)
  %copy = f32[11,3]{1,0} copy(%b)
  %while = (s32[], f32[5,3]{1,0}) while(%a), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"6"}}
  ROOT %input_scatter_fusion = f32[11,3]{1,0} fusion(%copy, %c, %d), kind=kInput, calls=%added
}
"""


@pytest.fixture
def found() -> list[Kernel]:
    """The kernels of TEXT, whose product adds to what is there."""
    return kernels.kernels(hlo.parse(TEXT.replace("GEMM", GEMM.replace("BETA", "1"))))


def test_a_loop_launches_its_kernels_as_often_as_it_runs(found: list[Kernel]) -> None:
    assert [(kernel.kind, kernel.times, kernel.looped) for kernel in found] == [
        ("copy", 1, False),
        ("element-wise", 6, True),
        ("product, cuBLAS", 6, True),
        ("scatter", 1, False),
    ]


def test_traffic_is_what_is_touched_of_an_operand(found: list[Kernel]) -> None:
    copy, sliced, product, scatter = (kernel.bytes for kernel in found)
    assert copy == 2 * 11 * 3 * 4
    assert sliced == (1 * 5 * 3 + 1) * 4 + 5 * 3 * 4  # one of seven slices and its number, and the result
    assert product == (5 * 4 + 4 * 3) * 2 + 5 * 3 * 4 + 5 * 3 * 4  # what it adds to is read too; not the workspace
    assert scatter == (5 * 1 + 5 * 3) * 4 + 2 * 5 * 3 * 4  # the rows that change are read and written, no others


def test_products_are_counted_by_type(found: list[Kernel]) -> None:
    product = found[2]
    assert (product.flops, product.factors) == (2 * 5 * 4 * 3, "bfloat16")
    assert product.product == "bf16 x bf16 -> f32 added in place" and product.target == "__cublas$gemm"
    plain = kernels.kernels(hlo.parse(TEXT.replace("GEMM", GEMM.replace("BETA", "0"))))[2]
    assert plain.product == "bf16 x bf16 -> f32"


def test_our_own_kernels_are_counted_by_their_products_and_traffic() -> None:
    text = """HloModule one

ENTRY %main (q: bf16[2,32,3,16], bits: u8[2,3,32,4]) -> (bf16[2,32,3,16], f32[2,3,32]) {
  %q = bf16[2,32,3,16]{3,2,1,0} parameter(0)
  %bits = u8[2,3,32,4]{3,2,1,0} parameter(1)
  ROOT %call = (bf16[2,32,3,16]{3,2,1,0}, f32[2,3,32]{2,1,0}) custom-call(%q, %bits), CONFIG
}
"""
    config = (
        'custom_call_target="__gpu$xla.gpu.triton", backend_config={ir = "{\\0A}", name = "NAME", num_warps = 4 : i32}'
    )
    for name, products in (("attention_forward", 2), ("attention_by_queries", 3), ("attention_by_keys", 4)):
        (kernel,) = kernels.kernels(hlo.parse(text.replace("CONFIG", config.replace("NAME", name))))
        assert (kernel.kind, kernel.flops) == ("attention, Triton", products * 2 * 2 * 3 * 32 * 32 * 16)
        assert kernel.bytes == 2 * (2 * 32 * 3 * 16) * 2 + 2 * 3 * 32 * (4 + 4)

    text = """HloModule one

ENTRY %main (x: bf16[32,16], w: bf16[16,48]) -> (bf16[32,48], f32[3]) {
  %x = bf16[32,16]{1,0} parameter(0)
  %w = bf16[16,48]{1,0} parameter(1)
  ROOT %call = (bf16[32,48]{1,0}, f32[3]{0}) custom-call(%x, %w), CONFIG
}
"""
    for name, kind, flops in (
        ("gelu_forward", "product with GELU, Triton", 2 * 32 * 16 * 48),
        ("gelu_backward", "product with GELU, Triton", 2 * 32 * 16 * 48),
        ("norm_forward", "norm, Triton", 0),
        ("norm_backward", "norm, Triton", 0),
    ):
        (kernel,) = kernels.kernels(hlo.parse(text.replace("CONFIG", config.replace("NAME", name))))
        assert (kernel.kind, kernel.flops) == (kind, flops)
        assert kernel.bytes == (32 * 16 + 16 * 48 + 32 * 48) * 2 + 3 * 4


def test_the_roofline_is_the_slower_of_arithmetic_and_traffic() -> None:
    h100 = DEVICES["h100"]
    traffic = Kernel(kind="copy", result="", bytes=int(3.35232e12 * 0.85), flops=1.0, times=2)
    arithmetic = Kernel(kind="product", result="", bytes=1, flops=989e12 * 0.7 * 3, factors="float16")
    single = Kernel(kind="product", result="", bytes=1, flops=67e12 * 0.7, factors="float32")
    assert roofline.seconds(traffic, h100) == pytest.approx(2 * (1 + 2e-6))
    assert roofline.seconds(arithmetic, h100) == pytest.approx(3 + 2e-6)
    listed = roofline.items([traffic, arithmetic, single], h100, by_kind=True)
    assert [(item.what, item.launches, round(item.milliseconds)) for item in listed] == [
        ("product", 2, 4000),
        ("copy", 2, 2000),
    ]


def figures(peak: int, moved: int) -> check.Row:
    memory = {"peak": peak, "device": 80 << 30, "reserved": 3 << 30}
    return {"program": "large_128", "device": "h100", "memory": memory, "bytes": moved}


def test_too_much_memory_and_more_traffic_are_faults() -> None:
    assert check.faults(figures(77 << 30, 1050), {"bytes": 1000}) == []
    assert check.faults(figures(77 << 30, 9000), None) == []
    (memory,) = check.faults(figures(78 << 30, 1050), {"bytes": 1000})
    assert memory.startswith("large_128 on h100: needs 78.0 GiB, and 77.0 GiB are there; ")
    (traffic,) = check.faults(figures(77 << 30, 1051), {"bytes": 1000})
    assert "5.1% more than the reference" in traffic


def test_the_peak_holds_moments_and_summed_gradients() -> None:
    gradients = 1000
    step = {"arguments": 2 * gradients + 30, "results": gradients + 4, "aliased": gradients, "temporaries": 500}
    assert check.memory(PROGRAMS["large_128"], step)["peak"] == 4 * gradients + 30 + 4 + 500
    update = {"arguments": 4 * gradients, "results": 3 * gradients, "aliased": 3 * gradients, "temporaries": 0}
    assert check.memory(PROGRAMS["large_lamb"], update)["peak"] == 5 * gradients


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
def test_a_program_compiles_and_moves_what_the_reference_says(run_module: Any, work: Path) -> None:
    names = ("tiny_128_fused", "tiny_128_flash_norm_gelu")
    done = run_module("benchmarks.gpu_check", "--programs", *names, timeout=580, BERT_WORKDIR=str(work))
    assert done.returncode == 0, done.stderr
    row, dropped = json.loads((work / "gpu_check" / "gpu_check.json").read_text())["rows"]
    for name, one in zip(names, (row, dropped), strict=True):
        assert one["bytes"] == pytest.approx(REFERENCE[f"{name} h100"]["bytes"], rel=0.05)
    # Two layers: attention forwards and twice backwards; two norms, and GELU, both ways. In the last layer GELU has 84
    # rows, for which there is no kernel.
    assert dropped["custom_calls"]["__gpu$xla.gpu.triton"] == 2 * 3 + 2 * 2 * 2 + 2
    assert row["custom_calls"]["__cudnn$fmhaScaleBiasSoftmaxBackward"] == 2  # a layer
    config = TINY["tiny_128_fused"].config()
    products = 2 * cost.flops(config.model, 128, 20, cost.states_read(20)) / 2  # of one sequence
    assert row["flops"] / row["sequences"] == pytest.approx(products, rel=0.15)


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
    smaller["tiny_128_fused h100"]["bytes"] /= 1.06
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
