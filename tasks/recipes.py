"""Named fine-tuning runs: a recipe is a function that returns a configuration.

The architecture is that of the weights that a run starts from; `model` is for random weights only. Batches are made to
fit the number of ranks. The optimizer is AdamW with bias correction, because small sets fail without it more often
(Mosbach et al. 2021, Zhang et al. 2021).

Sources of the settings: Devlin et al. 2019, section 4.1 and appendix A.3 (GLUE, SWAG, CoNLL-2003: batch 32 or 16, three
epochs, warm-up over a tenth of the updates, weight decay 0.01, and of 5e-5, 4e-5, 3e-5, 2e-5 the rate that is best on
the development set); run_glue.py of transformers (2e-5 for all tasks; five epochs for MRPC and WNLI);
tasks/race of Megatron-LM (RACE). Embeddings: SimCSE (Gao et al. 2021, and its README: of BERT-Base, batch 64 and 3e-5
without labels, 512 and 5e-5 with; 32 tokens, temperature 0.05); training_nli_v2.py of sentence-transformers (`embed`:
batch 128, 2e-5, mean pooling, warm-up over a tenth, temperature 0.05). TSDAE (Wang et al. 2021): batch 8, a constant
rate of 3e-5, [CLS], 60% of the words deleted.
"""

import dataclasses
from collections.abc import Callable

from bert.core import cli
from bert.core.config import BatchConfig, EpochConfig, OptimizerConfig, RunConfig
from bert.recipes import AUTO, SIZES
from tasks.config import EMBED, TaskConfig, TaskData

CONSTANT = 1e-9  # power of the remaining share of updates with which the rate falls: it does not
RECIPES: dict[str, Callable[[], TaskConfig]] = {}  # by name
recipe = cli.registers(RECIPES)


def _fine_tuning(
    task: str, *, total: int = 32, rate: float = 2e-5, epochs: float = 3, length: int = 128, per_device: int = 32
) -> TaskConfig:
    return TaskConfig(
        model=SIZES["base"],
        data=TaskData(task=task, length=length),
        length=EpochConfig(epochs=epochs, evaluations=1),
        batch=BatchConfig(total=total, per_device=0, max_per_device=per_device, bucket_by_length=32, fit="nearest"),
        optimizer=OptimizerConfig(name="adamw", learning_rate=rate),
        precision=AUTO,
        run=RunConfig(log_every=50),
    )


@recipe
def cola() -> TaskConfig:
    """CoLA: is a sentence acceptable English? Matthews correlation."""
    return _fine_tuning("cola")


@recipe
def sst2() -> TaskConfig:
    """SST-2: is the opinion of a sentence positive? Accuracy."""
    return _fine_tuning("sst2")


@recipe
def mrpc() -> TaskConfig:
    """MRPC: do two sentences say the same? F1 and accuracy."""
    return _fine_tuning("mrpc", epochs=5)


@recipe
def qqp() -> TaskConfig:
    """QQP: do two questions ask the same? F1 and accuracy."""
    return _fine_tuning("qqp")


@recipe
def stsb() -> TaskConfig:
    """STS-B: how similar are two sentences, from 0 to 5? Pearson and Spearman correlation."""
    return _fine_tuning("stsb")


@recipe
def mnli() -> TaskConfig:
    """MNLI: does one sentence entail or contradict the other? Accuracy."""
    return _fine_tuning("mnli")


@recipe
def qnli() -> TaskConfig:
    """QNLI: does a sentence answer a question? Accuracy."""
    return _fine_tuning("qnli")


@recipe
def rte() -> TaskConfig:
    """RTE: does one sentence entail the other? Accuracy."""
    return _fine_tuning("rte")


@recipe
def wnli() -> TaskConfig:
    """WNLI: does one sentence entail the other, which replaces a pronoun? Accuracy."""
    return _fine_tuning("wnli", epochs=5)


@recipe
def race() -> TaskConfig:
    """RACE: which of four answers to a question about an article is right? Accuracy."""
    made = _fine_tuning("race", rate=1e-5, length=512, per_device=4)
    return dataclasses.replace(made, data=dataclasses.replace(made.data, first_length=128))


@recipe
def swag() -> TaskConfig:
    """SWAG: which of four endings continues a description? Accuracy."""
    return _fine_tuning("swag", total=16, per_device=16)


@recipe
def conll2003() -> TaskConfig:
    """CoNLL-2003: names of persons, places, organisations and others in newspaper text. F1 of entities."""
    return _fine_tuning("conll2003", rate=5e-5, length=256)


@recipe
def classify() -> TaskConfig:
    """Your own texts or pairs of texts with labels: .tsv, .csv or .jsonl."""
    return _fine_tuning("classify")


@recipe
def regress() -> TaskConfig:
    """Your own texts or pairs of texts with a number each: .tsv, .csv or .jsonl."""
    return _fine_tuning("regress")


@recipe
def multilabel() -> TaskConfig:
    """Your own texts or pairs of texts with any number of labels each: .tsv, .csv or .jsonl."""
    made = _fine_tuning("multilabel")
    return dataclasses.replace(made, data=dataclasses.replace(made.data, label="labels"))


@recipe
def choose() -> TaskConfig:
    """Your own multiple choice: .jsonl with context, choices and label."""
    return _fine_tuning("choose", per_device=8, length=256)


@recipe
def tag() -> TaskConfig:
    """Your own tagged sentences: columns with a word and its tag, an empty line after each sentence."""
    return _fine_tuning("tag", rate=5e-5, length=256)


@recipe
def embed() -> TaskConfig:
    """Embeddings of your own pairs, texts with negatives, or scored pairs: .tsv, .csv, .jsonl or .parquet."""
    return _embedding(TaskData(task=EMBED, text=("anchor", "positive"), label="score"), total=128, rate=2e-5)


@recipe
def simcse_unsupervised() -> TaskConfig:
    """Embeddings of your own texts without labels: SimCSE finds a text by itself, under another dropout mask."""
    data = TaskData(task=EMBED, label="score", length=32, pool="cls", projection=True)
    return _embedding(data, total=64, rate=3e-5, warmup=0.0)


@recipe
def simcse_supervised() -> TaskConfig:
    """Embeddings of sentences with an entailed and a contradicting one, such as those of SNLI and MNLI."""
    text = ("sent0", "sent1", "hard_neg")
    data = TaskData(task=EMBED, text=text, label="score", length=32, pool="cls", projection=True)
    return _embedding(data, total=512, rate=5e-5, epochs=3, warmup=0.0)


@recipe
def tsdae() -> TaskConfig:
    """Embeddings of your own texts without labels: TSDAE writes a text from the embedding of a part of its words."""
    made = _embedding(TaskData(task=EMBED, label="score", pool="cls", loss="tsdae"), total=8, rate=3e-5, warmup=0.0)
    return dataclasses.replace(made, optimizer=dataclasses.replace(made.optimizer, decay_power=CONSTANT))


def _embedding(data: TaskData, *, total: int, rate: float, epochs: float = 1, warmup: float = 0.1) -> TaskConfig:
    return TaskConfig(
        model=SIZES["base"],
        data=data,
        length=EpochConfig(epochs=epochs, warmup=warmup, evaluations=4),
        batch=BatchConfig(total=total, per_device=0, max_per_device=64, bucket_by_length=1, fit="nearest"),
        optimizer=OptimizerConfig(name="adamw", learning_rate=rate, weight_decay=0.0 if not warmup else 0.01),
        precision=AUTO,
        run=RunConfig(log_every=50),
    )
