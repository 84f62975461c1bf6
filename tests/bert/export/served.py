"""Small fine-tuned runs with random weights, and what their exports answer."""

import functools
import string
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert.core import files
from bert.core.config import ModelConfig
from bert.export import __main__ as export
from bert.labels import Head
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.heads import TaskModel
from bert.text.tokenization import Tokenizer, tokenizer_for
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from tasks import inputs

LETTERS = string.digits + string.ascii_letters + string.punctuation + "\u6771\u4eac\u2044"
VOCAB = [*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), "river", "cafe", "##ly"]
CONFIG = ModelConfig(
    vocab_size=len(VOCAB),
    hidden_size=24,
    num_attention_heads=3,
    num_hidden_layers=2,
    intermediate_size=40,
    max_position_embeddings=73,
    initializer_range=0.5,  # large, so that probabilities are far apart
)
HOSTILE = [
    "",
    " \n\t\u3000",
    "river",
    " river\n",
    "[CLS] river [SEP] [PAD]",
    "caf\u00e9 nai\u0308ve \u0301",
    "\u6771\u4eac\u6771",
    "\U0001f389 a \U0001f468\u200d\U0001f469 b",
    "x\u2026y \ufb01ne H\u00b2O \u00bd",
    "\u0130zmir \u00dfs \ufeffbom nul\x00nul",
    "\uffff \ue000",
    "z" * 300,
    "".join(f"\u6771\u4eac \u00e9 \U0001f389 river {number}, " for number in range(29)),
]
Answers = dict[str, np.ndarray]


def a_run(folder: Path, head: Head | None, facts: dict[str, Any] | None = None, **inputs: Any) -> Path:
    """A run directory; inputs: settings of its training. facts: other entries of config.json."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    CONFIG.save(folder / "bert_config.json")
    described = (head.entries() if head else {}) | ({"inputs": inputs} if inputs else {})
    files.write_json(folder / "config.json", described | (facts or {}))
    module = TaskModel(CONFIG, 0, head) if head else Encoder(CONFIG, seed=0)
    weights = {name: tf.identity(x) for name, x in variables(module).items()}
    checkpoint.save(folder, 3, weights, keep=1)
    return folder


def exported(run: Path, output: Path, *more: object) -> Path:
    export.main(["savedmodel", str(run), str(output), *map(str, more)])
    return output / "1"


def ask(folder: Path, signature: str = "serving_default", **texts: Any) -> Answers:
    """The answers of a SavedModel's signature."""
    given = {name: tf.constant(value, tf.string) for name, value in texts.items()}
    return {name: value.numpy() for name, value in _loaded(folder).signatures[signature](**given).items()}


@functools.lru_cache(maxsize=1)
def _loaded(folder: Path) -> Any:
    return tf.saved_model.load(str(folder))


class Python:
    """The same model without a graph, for arrays of ids, mask and segments as tasks has them."""

    def __init__(self, run: Path, head: Head | None) -> None:
        config = ModelConfig.load(run / "bert_config.json")
        self.tokenizer: Tokenizer = tokenizer_for(run / "vocab.txt", config)
        self.model = TaskModel(config, 0, head) if head else None
        self.encoder = self.model.encoder if self.model else Encoder(config, seed=0)
        checkpoint.load_weights(run, variables(self.model or self.encoder))

    def states(self, arrays: dict[str, np.ndarray]) -> tf.Tensor:
        """Last hidden states [n, S, D]."""
        ids, mask, segments = (tf.constant(arrays[name], tf.int32) for name in inputs.NAMES)
        return self.encoder(TokenBatch(ids, mask, segments), Mode(tf.float32, DropoutRng(None)))

    def logits(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Logits [n, C] of the pooled states or, of tags, [n, S, C]."""
        assert self.model is not None
        found: np.ndarray = self.model.head(self.states(arrays), tf.constant(arrays[inputs.NAMES[1]], tf.int32)).numpy()
        return found


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits.astype(float) - logits.max(axis=-1, keepdims=True))
    probabilities: np.ndarray = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities
