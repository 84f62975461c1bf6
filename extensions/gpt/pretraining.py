"""The samples that a causal model is pretrained on."""

from pathlib import Path

from bert.core.config import PretrainConfig
from bert.core.errors import UsageError
from bert.text import token_file
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from extensions.gpt.token_stream import TokenStream


def datasets(
    folder: Path, config: PretrainConfig, splits: tuple[str, str], comm: Communicator
) -> tuple[TokenStream, TokenStream]:
    """Return the samples of two splits in `folder`; rank 0 looks at all files.

    Raise UsageError for a setting that has no effect on them.
    """
    if config.data.skip_bad:
        raise UsageError("data.skip_bad has no effect: a stream of tokens has no records; leave it out")
    if config.data.mask_shares:
        raise UsageError("data.mask_shares has no effect: a causal model masks nothing; leave it out")
    described = on_rank_zero(lambda: token_file.checked(folder), comm)
    length = config.data.length or config.model.max_position_embeddings
    first, second = (TokenStream(folder, split, length, described) for split in splits)
    return first, second
