"""What a causal model learns, and the samples that it is pretrained on."""

from pathlib import Path

from bert.core.config import PretrainConfig
from bert.core.errors import UsageError
from bert.pretraining import SPLITS, PretrainingObjective
from bert.text import token_file
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from extensions.gpt.task import CausalLM
from extensions.gpt.token_stream import TokenStream


def samples(folder: Path, config: PretrainConfig, comm: Communicator) -> tuple[TokenStream, TokenStream]:
    """Return the training and the held-out samples in `folder`; rank 0 looks at all files.

    Raise UsageError for a setting that has no effect on them.
    """
    if config.batch.pack:
        raise UsageError("batch.pack has no effect: the sequences of a causal model have no padding; leave it out")
    if config.data.skip_bad:
        raise UsageError("data.skip_bad has no effect: a stream of tokens has no records; leave it out")
    if config.data.mask_shares:
        raise UsageError("data.mask_shares has no effect: a causal model masks nothing; leave it out")
    described = on_rank_zero(lambda: token_file.checked(folder), comm)
    length = config.data.length or config.model.max_position_embeddings
    first, second = (TokenStream(folder, split, length, described) for split in SPLITS)
    return first, second


OBJECTIVE = PretrainingObjective(
    task=lambda config, data, parts: CausalLM(config.model, config.run.seed, parts),
    samples=samples,
    then=lambda run: ("bert.generate", run, "TEXT"),
)
