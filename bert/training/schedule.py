"""The learning rate as a function of the step."""

import math

from bert.core.config import OptimizerConfig


def learning_rate(done: float, optimizer: OptimizerConfig, steps: int) -> float:
    """Return the learning rate after `done` updates of a run of `steps` updates.

    The run's first update is update `optimizer.first_step` of the schedule, counted from 0.
    """
    peak, minimum = optimizer.learning_rate, optimizer.minimum_rate
    start, warmup = optimizer.warmup_start, optimizer.warmup_steps
    done, end = optimizer.first_step + done, optimizer.decay_steps or optimizer.first_step + steps
    if optimizer.schedule == "cosine":
        return cosine(done, peak=peak, minimum=minimum, warmup_start=start, warmup_steps=warmup, steps=end)
    if optimizer.schedule == "stable":
        return stable(
            done,
            peak=peak,
            minimum=minimum,
            warmup_start=start,
            warmup_steps=warmup,
            decay_start=optimizer.decay_start,
            steps=end,
            power=optimizer.decay_power,
        )
    return polynomial(
        done,
        peak=peak,
        minimum=minimum,
        warmup_start=start,
        warmup_steps=warmup,
        steps=end,
        power=optimizer.decay_power,
        continuous=optimizer.continuous,
    )


def unfinished(optimizer: OptimizerConfig, steps: int) -> str:
    """Return one line if the warm-up does not end within a run of `steps` updates, else ""."""
    if optimizer.warmup_start + optimizer.warmup_steps <= optimizer.first_step + steps:
        return ""
    return (
        f"optimizer.warmup_steps {optimizer.warmup_steps} are not over when the run ends, after update {steps}: its "
        f"highest learning rate is {learning_rate(steps - 1, optimizer, steps):.4g} instead of "
        f"{optimizer.learning_rate:g}; give fewer"
    )


def unspent(budget: float, spent: float, rate: float, steps: int) -> str:
    """Return one line if `steps` updates ended a run with a tenth or more of its budget of hours left, else "".

    rate: the learning rate of the last update, which followed the hours spent.
    """
    if spent > 0.9 * budget:
        return ""
    return (
        f"run.steps {steps} ended the run after {spent:.3g} of budget.hours {budget:g}, which the learning rate "
        f"follows: it was {rate:.4g} at the end; the same command with more --run.steps goes on"
    )


def cosine(
    done: float, *, peak: float, warmup_steps: int, steps: int, minimum: float = 0.0, warmup_start: int = 0
) -> float:
    """Return the learning rate after `done` updates: warm-up as in `polynomial`, then half a cosine down to `minimum`.

    It reaches `minimum` at `steps` and stays there (Loshchilov and Hutter 2017, "SGDR", equation 5). Megatron-LM trains
    GPT-2 with it, over 320,000 of 500,000 updates.
    """
    warmup_end = warmup_start + warmup_steps
    if done < warmup_end:
        return peak * (done - warmup_start) / warmup_steps
    share = min(1.0, (done - warmup_end) / max(steps - warmup_end, 1))
    return minimum + (peak - minimum) * (1 + math.cos(math.pi * share)) / 2


def stable(
    done: float,
    *,
    peak: float,
    warmup_steps: int,
    decay_start: int,
    steps: int,
    power: float = 1.0,
    minimum: float = 0.0,
    warmup_start: int = 0,
) -> float:
    """Return the learning rate after `done` updates: warm-up as in `polynomial`, then `peak` until `decay_start`.

    After that it decays to `minimum` at `steps`: it is peak - (peak - minimum) * share ** power, where share is the
    part of the decay that is done (Hagele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations"; 1 - sqrt is power 0.5). If `decay_start` is 0, it never decays.
    """
    warmup_end = warmup_start + warmup_steps
    if done < warmup_end:
        return peak * (done - warmup_start) / warmup_steps
    if decay_start == 0 or done <= decay_start:
        return peak
    share = min(1.0, (done - decay_start) / (steps - decay_start))
    return float(peak - (peak - minimum) * share**power)


def polynomial(
    done: float,
    *,
    peak: float,
    warmup_steps: int,
    steps: int,
    power: float = 1.0,
    continuous: bool = False,
    minimum: float = 0.0,
    warmup_start: int = 0,
) -> float:
    """Return the learning rate after `done` updates: warm-up from 0 to `peak`, then decay to `minimum` at `steps`.

    As in optimization.py of google-research/bert, the first update has rate 0. The decay counts from update 0; for a
    minimum of 0 it is peak * (1 - done / steps) ** power. So the rate jumps down at the end of the warm-up, by 15 % in
    the first phase of NVIDIA's LAMB recipe. With `continuous` the decay starts at the peak. As in optimization.py of
    MLPerf's reference, the warm-up may start before the first update, at update `warmup_start`.
    """
    warmup_end = warmup_start + warmup_steps
    if done < warmup_end:
        return peak * (done - warmup_start) / warmup_steps
    left = max(0.0, 1 - done / steps)
    share = float((left / (1 - warmup_end / steps) if continuous and left else left) ** power)
    return minimum + (peak - minimum) * share
