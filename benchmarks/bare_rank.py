"""Join the other ranks by Horovod's library alone, and print how long that took.

    scripts/launch.sh -np 32 --horovod-log debug -- python benchmarks/bare_rank.py 2>&1 | grep -E '^(rank|rendezvous)'

A rank that imports TensorFlow's Python needs seconds and 475 MB, which would hide how many ranks the start itself
bears. The launcher adds a line with the requests that it answered.
"""

import ctypes
import sysconfig
import time
from pathlib import Path


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):  # which Horovod's library needs
        ctypes.CDLL(str(site / "tensorflow" / name), mode=ctypes.RTLD_GLOBAL)
    horovod = ctypes.CDLL(str(next(site.glob("horovod/tensorflow/mpi_lib.*so"))))
    began = time.monotonic()
    if not horovod.horovod_init(None, 0, None, None, 0):
        raise SystemExit("error: Horovod did not start; its own messages are above")
    seconds = time.monotonic() - began
    place = f"rank {horovod.horovod_rank()} of {horovod.horovod_size()}"
    print(f"{place}: {seconds:.2f} s to join, {time.process_time():.2f} s of processor time in all", flush=True)
    horovod.horovod_shutdown()


if __name__ == "__main__":
    main()
