"""Write run directories with random weights, and export and import them."""

import json
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.model.encoder import Encoder, variables
from bert.model.heads import Pooler
from bert.training import checkpoint

Values = dict[str, np.ndarray]


class Bare(tf.Module):
    """An encoder with a pooler, as MiniLM is."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder, self.pooler = Encoder(config, 1), Pooler(config, 1)


def write_run(folder: Path, module: tf.Module, config: ModelConfig, dataset: Path) -> Values:
    """Write a run directory with random weights; return them."""
    random = np.random.default_rng(1)
    values = {name: random.normal(0, 0.1, v.shape).astype(np.float32) for name, v in variables(module).items()}
    folder.mkdir()
    config.save(folder / "bert_config.json")
    shutil.copy(dataset / "vocab.txt", folder)
    (folder / "config.json").write_text(json.dumps({"config": {}}))
    checkpoint.save(folder, 7, values, keep=1)
    return values


def export_and_import(run: Path) -> Path:
    """Export a run and import it again; return the new run directory."""
    theirs, back = run.with_name("theirs"), run.with_name("back")
    convert.main(["export", "huggingface", str(run), str(theirs)])
    convert.main(["import", "huggingface", str(theirs), str(back)])
    return back
