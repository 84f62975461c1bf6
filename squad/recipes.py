"""Named fine-tuning runs: a recipe is a function that returns a configuration.

Base and Large are as published (google-research/bert, README, "SQuAD 1.1"): Adam with peak 3e-5, batches of 24, two
epochs, a tenth of the updates for the warm-up, windows of 384 tokens every 128, questions of at most 64 tokens.
Published scores on the development set: EM 81.25, F1 88.41 for Base; EM 84.39, F1 90.87 for Large. There are two
differences: windows of similar length share a batch (most are far shorter than 384 tokens), and Base has the batch size
of Large instead of 12, which 8 ranks do not divide. Other numbers of ranks take the nearest batch that they divide.
"""

from collections.abc import Callable

from bert.core import cli
from bert.core.config import BatchConfig, EpochConfig, OptimizerConfig, RunConfig
from bert.recipes import AUTO, SIZES
from bert.small_recipes import DEMO_MODEL, MINI
from squad.config import SquadConfig, Windowing

RECIPES: dict[str, Callable[[], SquadConfig]] = {}  # by name
recipe = cli.registers(RECIPES)


@recipe
def squad_tiny() -> SquadConfig:
    """The model of the demo on short passages: a minute on one CPU core."""
    return SquadConfig(
        model=DEMO_MODEL,
        windows=Windowing(max_seq_length=64, doc_stride=24, max_query_length=20),
        length=EpochConfig(epochs=6),
        batch=BatchConfig(total=32, per_device=0, max_per_device=32, fit="nearest"),
        optimizer=OptimizerConfig(learning_rate=1e-3, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(log_every=20),
    )


@recipe
def squad_mini() -> SquadConfig:
    """4 layers x 256 on SQuAD, in windows that hold most passages: an hour per epoch on one CPU core."""
    return SquadConfig(
        model=MINI,
        windows=Windowing(max_seq_length=192, doc_stride=96),
        batch=BatchConfig(total=32, per_device=0, max_per_device=16, bucket_by_length=64, fit="nearest"),
        optimizer=OptimizerConfig(learning_rate=3e-4, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(log_every=50),
    )


@recipe
def squad_base() -> SquadConfig:
    """BERT-Base, as published except for the batch size."""
    return SquadConfig(
        model=SIZES["base"],
        batch=BatchConfig(total=24, per_device=0, max_per_device=12, bucket_by_length=64, fit="nearest"),
        optimizer=OptimizerConfig(learning_rate=3e-5),
        precision=AUTO,
    )


@recipe
def squad_large() -> SquadConfig:
    """BERT-Large, as published; on SQuAD 2.0 it reaches an F1 of about 83 at the best threshold."""
    return SquadConfig(
        model=SIZES["large"],
        batch=BatchConfig(total=24, per_device=0, max_per_device=12, bucket_by_length=64, fit="nearest"),
        optimizer=OptimizerConfig(learning_rate=3e-5),
        precision=AUTO,
    )
