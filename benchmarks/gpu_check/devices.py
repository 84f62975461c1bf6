"""The GPUs that programs are compiled for: what XLA's compiler asks of one."""

from typing import NamedTuple

CUDNN = (9, 10, 0)  # of the machines that the devices below are described on
# Bytes of a device that programs cannot have, an assumption: TensorFlow leaves 1.5 GiB, since Hopper 1.8, to libraries
# (MinSystemMemory of its gpu_device.cc), the CUDA context takes about half a GiB, and what is free is in pieces.
RESERVED = 3 << 30


class Device(NamedTuple):
    """A GPU, with the fields that XLA reads from the driver, restated from the descriptions that OpenXLA publishes
    (openxla/xla, xla/backends/gpu/target_config/specs).
    """

    description: str
    capability: tuple[int, int]
    accelerated: bool  # whether code may use instructions of this generation alone, as "sm_90a"
    multiprocessors: int
    lanes: int  # float32 units of a multiprocessor
    clock_ghz: float
    shared_memory: int  # bytes, of a multiprocessor; a block may ask for 1 KiB less
    memory_bytes: int
    bandwidth: int  # bytes a second
    l2_bytes: int

    def target_config(self) -> str:
        """The description as XLA's compiler reads it, a GpuTargetConfigProto in text form."""
        feature = "ACCELERATED_FEATURES" if self.accelerated else "NONE"
        major, minor, patch = CUDNN
        info = {
            "threads_per_block_limit": 1024,
            "threads_per_warp": 32,
            "shared_memory_per_block": 49152,
            "shared_memory_per_core": self.shared_memory,
            "threads_per_core_limit": 2048,
            "core_count": self.multiprocessors,
            "fpus_per_core": self.lanes,
            "block_dim_limit_x": 2**31 - 1,
            "block_dim_limit_y": 65535,
            "block_dim_limit_z": 65535,
            "memory_bandwidth": self.bandwidth,
            "l2_cache_size": self.l2_bytes,
            "clock_rate_ghz": self.clock_ghz,
            "device_memory_size": self.memory_bytes,
            "shared_memory_per_block_optin": self.shared_memory - 1024,
            "registers_per_core_limit": 65536,
            "registers_per_block_limit": 65536,
        }
        fields = " ".join(f"{name}: {value}" for name, value in info.items())
        capability = f"major: {self.capability[0]} minor: {self.capability[1]} feature_extension: {feature}"
        return (
            f"gpu_device_info {{ {fields} cuda_compute_capability {{ {capability} }} }}\n"
            f'platform_name: "CUDA"\ndnn_version_info {{ major: {major} minor: {minor} patch: {patch} }}\n'
            f'device_description_str: "{self.description}"\n'
        )


DEVICES = {
    "a100": Device("NVIDIA A100-SXM4-80GB", (8, 0), False, 108, 64, 1.41, 167936, 85100068864, 2039040000000, 41943040),
    "h100": Device("NVIDIA H100 80GB HBM3", (9, 0), True, 132, 128, 1.98, 233472, 84942979072, 3352320000000, 52428800),
    "h200": Device(
        "NVIDIA H200 141GB HBM3e", (9, 0), True, 132, 128, 1.98, 233472, 151397597184, 4800000000000, 52428800
    ),
    "b200": Device("NVIDIA B200", (10, 0), True, 148, 128, 1.965, 233472, 191514411008, 7672320000000, 132644864),
}
