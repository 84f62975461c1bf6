"""What the flags of many commands choose about computing; without TensorFlow, because flags are read before it."""

from typing import Literal

DeviceName = Literal["auto", "gpu", "cpu"]  # of device
Compute = Literal["float32", "bfloat16", "float16"]  # of matrix products
EngineName = Literal["auto", "tensorflow", "openvino", "openvino_int8"]  # of inference
