"""Named fine-tuning runs: a recipe is a function that returns a configuration.

The architecture is that of the weights that a run starts from; `model` is for random weights only. Batches are made to
fit the number of ranks. The optimizer is AdamW with bias correction, because small sets fail without it more often
(Mosbach et al. 2021, Zhang et al. 2021).

Sources of the settings: Devlin et al. 2019, section 4.1 and appendix A.3 (GLUE, SWAG, CoNLL-2003: batch 32 or 16, three
epochs, warm-up over a tenth of the updates, weight decay 0.01, and of 5e-5, 4e-5, 3e-5, 2e-5 the rate that is best on
the development set); run_glue.py of transformers (2e-5 for all tasks; five epochs for MRPC and WNLI);
tasks/race of Megatron-LM (RACE).
"""

import dataclasses
from collections.abc import Callable

from bert.core.config import BatchConfig, EpochConfig, OptimizerConfig, RunConfig
from bert.core.rows import Rows
from bert.recipes import AUTO, SIZES
from tasks.config import TaskConfig, TaskData

RECIPES: Rows[Callable[[], TaskConfig]] = Rows(
    {
        "cola": "tasks.recipes:cola",
        "sst2": "tasks.recipes:sst2",
        "mrpc": "tasks.recipes:mrpc",
        "qqp": "tasks.recipes:qqp",
        "stsb": "tasks.recipes:stsb",
        "mnli": "tasks.recipes:mnli",
        "qnli": "tasks.recipes:qnli",
        "rte": "tasks.recipes:rte",
        "wnli": "tasks.recipes:wnli",
        "race": "tasks.recipes:race",
        "swag": "tasks.recipes:swag",
        "conll2003": "tasks.recipes:conll2003",
        "classify": "tasks.recipes:classify",
        "regress": "tasks.recipes:regress",
        "multilabel": "tasks.recipes:multilabel",
        "choose": "tasks.recipes:choose",
        "tag": "tasks.recipes:tag",
        "embed": "extensions.embeddings.recipes:embed",
        "simcse_unsupervised": "extensions.embeddings.recipes:simcse_unsupervised",
        "simcse_supervised": "extensions.embeddings.recipes:simcse_supervised",
        "tsdae": "extensions.embeddings.recipes:tsdae",
    }
)


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


def cola() -> TaskConfig:
    """CoLA: is a sentence acceptable English? Matthews correlation."""
    return _fine_tuning("cola")


def sst2() -> TaskConfig:
    """SST-2: is the opinion of a sentence positive? Accuracy."""
    return _fine_tuning("sst2")


def mrpc() -> TaskConfig:
    """MRPC: do two sentences say the same? F1 and accuracy."""
    return _fine_tuning("mrpc", epochs=5)


def qqp() -> TaskConfig:
    """QQP: do two questions ask the same? F1 and accuracy."""
    return _fine_tuning("qqp")


def stsb() -> TaskConfig:
    """STS-B: how similar are two sentences, from 0 to 5? Pearson and Spearman correlation."""
    return _fine_tuning("stsb")


def mnli() -> TaskConfig:
    """MNLI: does one sentence entail or contradict the other? Accuracy."""
    return _fine_tuning("mnli")


def qnli() -> TaskConfig:
    """QNLI: does a sentence answer a question? Accuracy."""
    return _fine_tuning("qnli")


def rte() -> TaskConfig:
    """RTE: does one sentence entail the other? Accuracy."""
    return _fine_tuning("rte")


def wnli() -> TaskConfig:
    """WNLI: does one sentence entail the other, which replaces a pronoun? Accuracy."""
    return _fine_tuning("wnli", epochs=5)


def race() -> TaskConfig:
    """RACE: which of four answers to a question about an article is right? Accuracy."""
    made = _fine_tuning("race", rate=1e-5, length=512, per_device=4)
    return dataclasses.replace(made, data=dataclasses.replace(made.data, first_length=128))


def swag() -> TaskConfig:
    """SWAG: which of four endings continues a description? Accuracy."""
    return _fine_tuning("swag", total=16, per_device=16)


def conll2003() -> TaskConfig:
    """CoNLL-2003: names of persons, places, organisations and others in newspaper text. F1 of entities."""
    return _fine_tuning("conll2003", rate=5e-5, length=256)


def classify() -> TaskConfig:
    """Your own texts or pairs of texts with labels: .tsv, .csv or .jsonl."""
    return _fine_tuning("classify")


def regress() -> TaskConfig:
    """Your own texts or pairs of texts with a number each: .tsv, .csv or .jsonl."""
    return _fine_tuning("regress")


def multilabel() -> TaskConfig:
    """Your own texts or pairs of texts with any number of labels each: .tsv, .csv or .jsonl."""
    made = _fine_tuning("multilabel")
    return dataclasses.replace(made, data=dataclasses.replace(made.data, label="labels"))


def choose() -> TaskConfig:
    """Your own multiple choice: .jsonl with context, choices and label."""
    return _fine_tuning("choose", per_device=8, length=256)


def tag() -> TaskConfig:
    """Your own tagged sentences: columns with a word and its tag, an empty line after each sentence."""
    return _fine_tuning("tag", rate=5e-5, length=256)
