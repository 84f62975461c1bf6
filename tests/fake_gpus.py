"""GPUs that TensorFlow lists among the physical devices, and that no kernel runs on: everything is placed on the CPU.

    python -m tests.fake_gpus COUNT MODULE [ARGUMENTS...]

runs a command as on a machine with this many GPUs. What this shows: the order in which devices are chosen and tensors
made, the branches for GPUs, their precision and XLA's flags. What it cannot show: kernels, memory and speed.
"""

import runpy
import sys

NAME, CAPABILITY = "NVIDIA H100 80GB HBM3", "9.0"


def install(count: int) -> None:
    """Make TensorFlow list `count` GPUs; call it before TensorFlow lists its devices for the first time."""
    from tensorflow.python.eager import context

    listed = context.pywrap_tfe.TF_ListPhysicalDevices()
    fakes = [f"/physical_device:GPU:{number}".encode() for number in range(count)]
    context.pywrap_tfe.TF_ListPhysicalDevices = lambda: [*listed, *fakes]
    details = {"device_name": NAME, "compute_capability": CAPABILITY}
    context.pywrap_tfe.TF_GetDeviceDetails = lambda index: dict(details) if index >= len(listed) else {}


if __name__ == "__main__":
    install(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
