"""A run starts from weights that were learnt for its own words."""

from pathlib import Path

import pytest

from bert.config import PretrainConfig
from bert.errors import UsageError
from bert.storage import manifest
from bert.training import resume
from bert.training.distributed import Communicator


def test_weights_of_another_vocabulary_of_the_same_size_are_refused(
    config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    words = (dataset / "vocab.txt").read_text().split("\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "vocab.txt").write_text("\n".join([*words[:-3], words[-2], words[-3], ""]))
    data, vocab = manifest.load(dataset), dataset / "vocab.txt"
    with pytest.raises(UsageError, match=r"other/vocab\.txt and .*/vocab\.txt differ; make the data with"):
        resume.begin(config, Communicator(), {}, data, vocab, tmp_path / "other", new_heads=())
    assert not config.run.path.exists()
