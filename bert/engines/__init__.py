"""What computes a trained encoder for inference: TensorFlow, or OpenVINO on CPUs. Heads are TensorFlow's in both."""
