"""The process of one command: python -m benchmarks.gpu_day.child MODULE ARGUMENT...

It ends when its parent is gone, so that it does not occupy the GPU, and prints last the most bytes of the GPU that
TensorFlow took at once, compiling included.
"""

import os
import runpy
import sys
import threading
import time

PEAK = "most bytes of the GPU: "


def _end_with_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Run the module as a command."""
    _end_with_parent()
    sys.argv = sys.argv[1:]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    finally:
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow and tensorflow.config.get_visible_devices("GPU"):
            print(f"{PEAK}{tensorflow.config.experimental.get_memory_info('GPU:0')['peak']}", flush=True)


if __name__ == "__main__":
    main()
