"""The kinds of heads of fine-tuned models: one table, whose rows everything asks that depends on a head.

A new kind is a row here, which names its classes, also those that read its data and serve it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MASKED_LM = "masked_lm"
REPLACED_TOKEN, GENERATOR = "replaced_token", "generator"  # of ELECTRA's objective; the generator is a second model
# Heads of pretraining: first parts of their variables' names.
PRETRAINED = ("pooler", MASKED_LM, "next_sentence", REPLACED_TOKEN, GENERATOR)


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """A kind of head: what it reads, what its outputs mean, and which modules belong to it."""

    name: str
    """first part of the names of its variables; `head` in config.json of a run"""
    module: str
    """its module, made of the configuration, a seed and the number of outputs; as "package.module:name" """
    pooled: bool = False
    """whether it reads the pooled output and gives one row for a sequence; otherwise it gives one for each token"""
    outputs: int = 0
    """number of its outputs; 0: as many as it has classes, which have names"""
    number: bool = False
    """whether a single class means a number"""
    several: bool = False
    """whether any number of its classes are right, each with a probability of its own"""
    logits: tuple[str, ...] = ("logits",)
    """names of its outputs in ONNX; several are parts of its last axis"""
    export: str
    """what serves it as a SavedModel, as `module`; or the command that exports it instead, such as squad.export"""
    command: str = "tasks.train"
    """the command that trains it"""
    scores: str
    """what gives its scores, the one that counts first, of a run, of labelled data as its command reads it, and of a
    function of ids, mask and segments [B, T] that gives its outputs; as `module`"""
    layouts: Mapping[str, str] = field(default_factory=dict, hash=False)
    """by `data.task`, the layouts of one's own files that it is trained on: a `tasks.known.KnownData`, as `module`"""
    python: str
    """what `bert.load` gives for it, made of an opened run and bert.api.Settings; as `module`"""
    served: str
    """a `serve.heads.Head`, which answers in the service, as `module`"""
    meaning: str
    """of its outputs, in the model card"""
    limits: str
    """of its use, in the model card"""
    google: str = ""
    """its dense layer in Google's format; empty: that has no name for it"""
    huggingface: str
    """its dense layer in Hugging Face's format"""
    transformers: str
    """the class of transformers that has it"""
    problem_type: str = ""
    """what its config.json says there, if it is not the usual meaning of that class"""
    pipeline: str
    """the task of that class, in the model card"""

    @property
    def has_classes(self) -> bool:
        """Whether its outputs are named classes, or a number."""
        return self.outputs == 0


_ROWS = (
    HeadSpec(
        name="answer_span",
        module="bert.model.heads:AnswerSpan",
        outputs=2,
        logits=("start_logits", "end_logits"),
        export="squad.export",
        command="squad.train",
        scores="squad.development:scores",
        python="squad.api:Answering",
        served="serve.heads:Answering",
        meaning="first and last token of the answer in a passage",
        limits="An answer is a part of the given text. Whether the text is true is not checked.",
        google="cls/squad/output",
        huggingface="qa_outputs",
        transformers="BertForQuestionAnswering",
        pipeline="question-answering",
    ),
    HeadSpec(
        name="classifier",
        module="bert.model.heads:Classifier",
        pooled=True,
        number=True,
        export="bert.export.texts:Classifying",
        scores="tasks.scoring:scores",
        layouts={"classify": "tasks.known.of_tables:CLASSIFY", "regress": "tasks.known.of_tables:REGRESS"},
        python="tasks.api:Classifying",
        served="serve.heads:Classifying",
        meaning="class of a text, or of a pair of texts",
        limits="It gives one of its classes, or a number, to any text, also to one unlike those of its data.",
        google="output",
        huggingface="classifier",
        transformers="BertForSequenceClassification",
        pipeline="text-classification",
    ),
    HeadSpec(
        name="multilabel",
        module="bert.model.heads:MultiLabel",
        pooled=True,
        several=True,
        export="bert.export.texts:Labelling",
        scores="tasks.scoring:scores",
        layouts={"multilabel": "tasks.known.of_tables:MULTILABEL"},
        python="tasks.api:Labelling",
        served="serve.heads:Labelling",
        meaning="probability of each label of a text, or of a pair of texts; any number of labels are right",
        limits="It knows the labels above only.",
        huggingface="classifier",
        transformers="BertForSequenceClassification",
        problem_type="multi_label_classification",
        pipeline="text-classification",
    ),
    HeadSpec(
        name="choice",
        module="bert.model.heads:Choice",
        pooled=True,
        outputs=1,
        export="bert.export.texts:Choosing",
        scores="tasks.scoring:scores",
        layouts={"choose": "tasks.known.of_choices:CHOOSE"},
        python="tasks.api:Choosing",
        served="serve.heads:Choosing",
        meaning="score of a choice, compared with those of the other choices",
        limits="It compares the given choices; that one of them is right is assumed.",
        huggingface="classifier",
        transformers="BertForMultipleChoice",
        pipeline="multiple-choice",
    ),
    HeadSpec(
        name="tags",
        module="bert.model.heads:Tags",
        export="bert.export.words:Tagging",
        scores="tasks.scoring:scores",
        layouts={"tag": "tasks.known.of_tags:TAG"},
        python="tasks.api:Tagging",
        served="serve.heads:Tagging",
        meaning="class of each word, read at its first piece",
        limits="It knows the tags above only.",
        huggingface="classifier",
        transformers="BertForTokenClassification",
        pipeline="token-classification",
    ),
)
EMBEDDING = HeadSpec(
    name="embedding",
    module="extensions.embeddings.model:Projection",
    pooled=True,
    outputs=1,
    logits=("embedding",),
    export="bert.export.texts:Encoding",
    scores="extensions.embeddings.scores:scores",
    python="bert.api:Pretrained",
    served="serve.heads:Embedding",
    meaning="embedding of a text, to compare with those of other texts by their cosine",
    limits="Texts are near each other as those of its training data were; a cosine is no probability.",
    huggingface="",
    transformers="BertModel",
    pipeline="sentence-similarity",
)
"""What `tasks.train embed` trains. It is no row of the table: such a run has no head, and its config.json says how an
embedding is made of the states (bert/embedding.py)."""
KINDS: dict[str, HeadSpec] = {row.name: row for row in _ROWS}
ANSWER_SPAN, CLASSIFIER, MULTILABEL, CHOICE, TAGS = _ROWS
