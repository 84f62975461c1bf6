"""The learning rate as a function of the step."""

import math

from bert.config import OptimizerConfig


def learning_rate(done: float, optimizer: OptimizerConfig, steps: int) -> float:
    """Return the learning rate after `done` updates of a run of `steps` updates."""
    peak, minimum, warmup_steps = optimizer.learning_rate, optimizer.minimum_rate, optimizer.warmup_steps
    end = optimizer.decay_steps or steps
    if optimizer.schedule == "cosine":
        return cosine(done, peak=peak, minimum=minimum, warmup_steps=warmup_steps, steps=end)
    power, continuous = optimizer.decay_power, optimizer.continuous
    return polynomial(
        done, peak=peak, minimum=minimum, warmup_steps=warmup_steps, steps=end, power=power, continuous=continuous
    )


def cosine(done: float, *, peak: float, warmup_steps: int, steps: int, minimum: float = 0.0) -> float:
    """Return the learning rate after `done` updates: warm-up as in `polynomial`, then half a cosine down to `minimum`.

    It reaches `minimum` at `steps` and stays there (Loshchilov and Hutter 2017, "SGDR", equation 5). Megatron-LM trains
    GPT-2 with it, over 320,000 of 500,000 updates.
    """
    if done < warmup_steps:
        return peak * done / warmup_steps
    share = min(1.0, (done - warmup_steps) / max(steps - warmup_steps, 1))
    return minimum + (peak - minimum) * (1 + math.cos(math.pi * share)) / 2


def polynomial(
    done: float,
    *,
    peak: float,
    warmup_steps: int,
    steps: int,
    power: float = 1.0,
    continuous: bool = False,
    minimum: float = 0.0,
) -> float:
    """Return the learning rate after `done` updates: warm-up from 0 to `peak`, then decay to `minimum` at `steps`.

    As in optimization.py of google-research/bert, the first update has rate 0, and the decay, peak * (1 - done / steps)
    ** power for a minimum of 0, counts from update 0. So the rate jumps down at the end of the warm-up, by 15 % in the
    first phase of NVIDIA's LAMB recipe. With `continuous` the decay starts at the peak.
    """
    if done < warmup_steps:
        return peak * done / warmup_steps
    left = max(0.0, 1 - done / steps)
    share = float((left / (1 - warmup_steps / steps) if continuous and left else left) ** power)
    return minimum + (peak - minimum) * share
