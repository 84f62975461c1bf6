"""The GPUs that programs are compiled for: what XLA's compiler asks of one, and its maker's peak rates."""

from dataclasses import dataclass

CUDNN = (9, 10, 0)  # of the machines that the devices below are described on
# Bytes of a device that programs cannot have, an assumption: TensorFlow leaves 1.5 GiB, since Hopper 1.8, to libraries
# (MinSystemMemory of its gpu_device.cc), the CUDA context takes about half a GiB, and what is free is in pieces.
RESERVED = 3 << 30


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU. The fields down to `l2_bytes` are those that XLA reads from the driver, restated from the descriptions
    that OpenXLA publishes (openxla/xla, xla/backends/gpu/target_config/specs); the peaks are of NVIDIA's data sheets.
    """

    description: str
    capability: tuple[int, int]
    accelerated: bool
    """whether code may use instructions of this generation alone, as "sm_90a" """
    multiprocessors: int
    lanes: int
    """float32 units of a multiprocessor"""
    clock_ghz: float
    shared_memory: int
    """bytes, of a multiprocessor; a block may ask for 1 KiB less"""
    memory_bytes: int
    bandwidth: int
    """bytes a second"""
    l2_bytes: int
    peak: dict[str, float]
    """FLOP/s of products, by the type of their factors, without sparsity"""

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


HOPPER = {"bfloat16": 989e12, "float16": 989e12, "tf32": 494e12, "float32": 67e12}

DEVICES = {
    "a100": Device(
        description="NVIDIA A100-SXM4-80GB",
        capability=(8, 0),
        accelerated=False,
        multiprocessors=108,
        lanes=64,
        clock_ghz=1.41,
        shared_memory=167936,
        memory_bytes=85100068864,
        bandwidth=2039040000000,
        l2_bytes=41943040,
        peak={"bfloat16": 312e12, "float16": 312e12, "tf32": 156e12, "float32": 19.5e12},
    ),
    "h100": Device(
        description="NVIDIA H100 80GB HBM3",
        capability=(9, 0),
        accelerated=True,
        multiprocessors=132,
        lanes=128,
        clock_ghz=1.98,
        shared_memory=233472,
        memory_bytes=84942979072,
        bandwidth=3352320000000,
        l2_bytes=52428800,
        peak=HOPPER,
    ),
    "h200": Device(
        description="NVIDIA H200 141GB HBM3e",
        capability=(9, 0),
        accelerated=True,
        multiprocessors=132,
        lanes=128,
        clock_ghz=1.98,
        shared_memory=233472,
        memory_bytes=151397597184,
        bandwidth=4800000000000,
        l2_bytes=52428800,
        peak=HOPPER,
    ),
    "b200": Device(
        description="NVIDIA B200",
        capability=(10, 0),
        accelerated=True,
        multiprocessors=148,
        lanes=128,
        clock_ghz=1.965,
        shared_memory=233472,
        memory_bytes=191514411008,
        bandwidth=7672320000000,
        l2_bytes=132644864,
        peak={"bfloat16": 2250e12, "float16": 2250e12, "tf32": 1125e12, "float32": 75e12},
    ),
}
