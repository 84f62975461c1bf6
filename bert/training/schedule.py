"""The learning rate as a function of the step."""


def polynomial(
    done: float, *, peak: float, warmup_steps: int, steps: int, power: float = 1.0, continuous: bool = False
) -> float:
    """Return the learning rate after `done` updates: linear warm-up from 0 to `peak`, then decay to 0 at `steps`.

    As in optimization.py of google-research/bert, the first update has rate 0, and the decay, peak * (1 - done / steps)
    ** power, counts from update 0. So the rate jumps down at the end of the warm-up, by 15 % in the first phase of
    NVIDIA's LAMB recipe. With `continuous` the decay starts at the peak.
    """
    if done < warmup_steps:
        return peak * done / warmup_steps
    left = max(0.0, 1 - done / steps)
    return peak * float((left / (1 - warmup_steps / steps) if continuous and left else left) ** power)
