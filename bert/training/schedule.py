"""The learning rate as a function of the step."""


def polynomial(
    done: float, *, peak: float, warmup_steps: int, steps: int, power: float = 1.0, continuous: bool = False
) -> float:
    """Rate when `done` updates are behind: a line from 0 to `peak` over the warm-up, then down to 0 after `steps`.

    As google-research/bert's optimization.py: the first update has rate 0, and the falling curve, peak * (1 - done /
    steps) ** power, starts at 0 updates: the rate jumps down to it at the end of the warm-up, by 15 % in the first
    phase of NVIDIA's LAMB recipe. With `continuous` the curve starts at the peak.
    """
    if done < warmup_steps:
        return peak * done / warmup_steps
    left = max(0.0, 1 - done / steps)
    return peak * float((left / (1 - warmup_steps / steps) if continuous and left else left) ** power)
