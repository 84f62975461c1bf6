"""One update after another: the loop, the step, the optimizer, the ranks and the checkpoints."""
