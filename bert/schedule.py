"""The learning rate as a function of the step."""


def linear(step: int, *, peak: float, warmup_steps: int, steps: int) -> float:
    """Rate of update `step` (from 1): a rise from 0 to `peak` over the warm-up, on a line that falls to 0 after
    `steps`.

    As google-research/bert's optimization.py, where the decay line starts at step 0, so the rate jumps down by
    warmup_steps / steps at the end of the warm-up; updates are counted from 0 there, so update 1 has rate 0 here too.
    """
    done = step - 1
    if done < warmup_steps:
        return peak * done / warmup_steps
    return peak * max(0.0, 1 - done / steps)
