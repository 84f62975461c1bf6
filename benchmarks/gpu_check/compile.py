"""Compile HLO for a GPU that is not there, with jaxlib's XLA, in the environment of `scripts/extra_venv.sh gpu-check`.

    python -m benchmarks.gpu_check.compile DEVICE FILE.pb FOLDER

Writes FOLDER/memory.json: XLA's figures of memory, and how often the optimised program calls each library. Ends with 1
and XLA's reason, its first line, on standard error where XLA refuses the program, a custom call among its reasons.
"""

import json
import os
import re
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.devices import DEVICES, Device
from bert.core import files

PACKAGES = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12")


def versions() -> dict[str, str]:
    """Return the versions of the packages that compile."""
    return {name: version(name) for name in PACKAGES}


def executable(hlo: bytes, device: Device) -> Any:
    """XLA's executable, which nothing here can run. Raises JaxRuntimeError with XLA's reason if it refuses."""
    os.environ |= {"JAX_PLATFORMS": "cuda", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}  # before jax is imported
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    topology = topologies.get_topology_desc("", platform="cuda", target_config=device.target_config(), topology="1x1x1")
    gpu = topology.devices[0]
    stablehlo = _jax.mlir.hlo_to_stablehlo(hlo)
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(stablehlo)
        return gpu.client.compile(module, _jax.DeviceList((gpu,)), xla_client.CompileOptions())


def custom_calls(compiled: Any) -> dict[str, int]:
    """How often the program calls each library or kernel of our own after XLA's optimisations; a loop counts once."""
    from jax._src.lib import _jax

    options = _jax.HloPrintOptions()
    options.print_metadata = False
    options.print_large_constants = False
    text = "\n".join(module.to_string(options) for module in compiled.hlo_modules())
    return dict(sorted(Counter(re.findall(r'custom_call_target="([^"]+)"', text)).items()))


def memory(compiled: Any) -> dict[str, int]:
    """Bytes of the program's arguments, results, results that share an argument's place, and temporaries."""
    stats = compiled.get_compiled_memory_stats()
    return {
        "arguments": stats.argument_size_in_bytes,
        "results": stats.output_size_in_bytes,
        "aliased": stats.alias_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
    }


def main(arguments: list[str]) -> None:
    """Run the command."""
    device, source, folder = DEVICES[arguments[0]], Path(arguments[1]), Path(arguments[2])
    begun = time.perf_counter()
    try:
        compiled = executable(source.read_bytes(), device)
    except Exception as error:  # XLA's errors have no public class
        if type(error).__name__ != "JaxRuntimeError":
            raise
        sys.stderr.write(f"refused: {str(error).splitlines()[0]}\n")
        sys.stderr.flush()
        os._exit(1)
    seconds = time.perf_counter() - begun
    report = {
        "memory": memory(compiled),
        "custom_calls": custom_calls(compiled),
        "seconds": round(seconds, 1),
        "versions": versions(),
    }
    files.write_json(folder / "memory.json", report)
    sys.stdout.write(f"{json.dumps(report)}\n")
    sys.stdout.flush()
    os._exit(0)  # jaxlib's clients of devices that are not there end with a crash when Python does


if __name__ == "__main__":
    main(sys.argv[1:])
