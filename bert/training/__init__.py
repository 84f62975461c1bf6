"""Training: the loop, the step, the optimizer, communication between ranks, and checkpoints."""
