"""The model card (README.md) of an exported model: architecture, data, licence, recipe, scores, limits."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert.convert.run import Model
from bert.core.config import as_flags
from bert.embedding import KEY
from bert.heads import EMBEDDING, KINDS, REPLACED_TOKEN, HeadSpec

TASKS = {
    **{kind.transformers: kind.pipeline for kind in KINDS.values()},
    "BertForPreTraining": "fill-mask",
    "BertForMaskedLM": "fill-mask",
}
LICENCE = (
    "## Licence\n",
    "Not stated: a run does not know it. It depends on the licences of the texts, and of the weights that training "
    "began with. State it here, and as `license` in the first lines, before you pass the model on.\n",
)
LIMITS = {
    "encoder": "It is made to be fine-tuned, or to fill masked words; it does not write texts.",
    "causal": "It continues texts by what is likely, which may be wrong or harmful.",
}


def text(model: Model, kind: str) -> str:
    """Return the card in Markdown. kind: the transformers class of the model, or of BERT that corresponds to it."""
    parts = (
        _header(model, kind),
        _architecture(model),
        _data(model),
        LICENCE,
        _training(model),
        _scores(model),
        _limits(model),
    )
    card = "\n".join(line for part in parts for line in part) + "\n"
    return card.encode(errors="replace").decode()  # a path in the settings may be no UTF-8


def _row(model: Model) -> HeadSpec | None:
    """Return the row of the model's head, or the row of embeddings; None for a pretrained model without both."""
    if model.head:
        return KINDS[model.head.kind]
    return EMBEDDING if KEY in model.settings else None


def _plain(value: Any) -> str:
    """Return a name or a number of the run as Markdown that shows it, without HTML, links or line ends."""
    text = re.sub(r"([\\`*\[\]|~])", r"\\\1", _on_one_line(value)).replace("&", "&amp;")
    text = text.replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return text.replace("://", "&#58;//").replace("www.", "www&#46;")  # which renderers make links


def _code(value: Any) -> str:
    """Return a setting as inline code."""
    text = _on_one_line(value)
    ticks, space = _ticks(text, 1), " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _on_one_line(value: Any) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(value))


def _ticks(text: str, shortest: int) -> str:
    """Return a fence of backquotes, at least `shortest`, that the text cannot end: it has no run as long as that."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * (longest + 1 if longest >= shortest else shortest)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _header(model: Model, kind: str) -> Iterator[str]:
    embeds = _row(model) is EMBEDDING
    task = None if REPLACED_TOKEN in model.match.heads else model.family.pipeline or TASKS.get(kind)
    pipeline = EMBEDDING.pipeline if embeds else task or "feature-extraction"
    library = "sentence-transformers" if embeds else "transformers"
    yield "---"
    if language := _language(model):
        yield f"language: {language.partition('-')[0]}"  # a code of ISO 639
    yield from (f"library_name: {library}", "license: unknown", f"pipeline_tag: {pipeline}")
    yield from ("tags:", f"- {model.family.model_type}", "---", f"# {model.family.class_of(kind)}", "")


def _language(model: Model) -> str:
    """Return the code of the language of the texts that training read; "" if their folder does not name it."""
    code = model.records.extra.get("language") if model.records else None
    return code if isinstance(code, str) and re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]+)*", code) else ""


def _architecture(model: Model) -> Iterator[str]:
    config = model.config
    kind = "lower-cased" if model.rules.lower_case else "cased"
    kind = {"byte pairs": "byte-level BPE", "unigram": "Unigram"}.get(model.tokens, kind)
    rows = {
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "attention heads": config.num_attention_heads,
        "feed-forward width": config.intermediate_size,
        "longest sequence": f"{config.max_position_embeddings} tokens",
        "vocabulary": f"{config.vocab_size:,} entries, {kind}",
        "heads": ", ".join(model.match.heads) or "none",
        **_output(model),
        "weights": f"{sum(np.size(value) for value in model.values.values()):,}, float32",
    }
    yield from _table((model.family.title, ""), [(key, value) for key, value in rows.items()])


def _output(model: Model) -> dict[str, str]:
    """Return the rows that say what the outputs of a fine-tuned model mean."""
    head, kind = model.head, _row(model)
    if kind is None:
        return {}
    if head is None:
        made = model.settings[KEY]
        return {"output": kind.meaning, "pooling": f"{made['pool']}{', of length 1' if made['normalize'] else ''}"}
    number = f"the {head.activation} of a number" if head.activation else "a number"
    meaning = f"{number} for a text, or for a pair of texts" if head.regression else kind.meaning
    # The names of choices are their numbers.
    return {"output": meaning} | ({"classes": ", ".join(head.labels)} if head.labels and kind.has_classes else {})


def _origin(model: Model) -> str:
    """Return where weights come from that were not trained here; empty if they were."""
    origin = _mapping(model.settings.get("imported")).get("origin")
    return str(origin or ("" if _mapping(model.settings.get("config")) else "another format"))


def _data(model: Model) -> Iterator[str]:
    settings = _mapping(model.settings.get("config"))
    keys = ("data.task", "data.folder", "data.train", "data.train_file", "data.dev_file", "data.heldout")
    stated = [key for key in keys if settings.get(key) is not None]
    yield "## Data\n"
    if _origin(model) or not stated:
        yield "Not stated.\n"
        return
    yield from (f"- `{key}`: {_code(settings[key])}" for key in stated)
    if records := model.records:
        yield f"- made by: {_code(records.stage)}"
        yield from (f"- {_plain(name)}: {_code(value)}" for name, value in sorted(records.parameters.items()))
        yield from (f"- number of {_plain(name)}: {_code(_count(number))}" for name, number in records.counts.items())
    elif "data.train" in stated:
        yield "- what these records were made of: not stated, since the folder is not there any more"
    yield f"- language: {_language(model) or 'not stated'}"
    yield "- dates and sources of the texts: not stated\n"


def _count(number: int | dict[str, int]) -> str:
    return str(number) if isinstance(number, int) else ", ".join(f"{name} {count}" for name, count in number.items())


def _training(model: Model) -> Iterator[str]:
    settings = _mapping(model.settings.get("config"))
    yield "## Training\n"
    if origin := _origin(model):
        yield f"Not stated: the weights were converted from {_plain(origin)}.\n"
        return
    yield f"- recipe: {_code(model.settings['recipe']) if model.settings.get('recipe') else 'not stated'}"
    start = settings.get("init.checkpoint")
    yield f"- first weights: {'random' if start is None else _code(start)}"
    row = _row(model)
    module = row.command if row else "bert.pretrain"
    recipe = model.settings.get("recipe") or "RECIPE"  # earlier versions did not store it
    words = " ".join(map(shlex.quote, str(recipe).split()))  # of the recipe, and --smoke
    # With a checkpoint, fine-tuning takes the architecture from it: model.* must not be given.
    has_checkpoint = row is not None and settings.get("init.checkpoint") is not None
    left_out = ("run.directory", "run.stop_at", *(("model.",) if has_checkpoint else ()))
    keys = [key for key in settings if not key.startswith(left_out)]
    flags = [f"    {flag}" for flag in as_flags({key: settings[key] for key in keys})]
    command = " \\\n".join([f"python -m {module} {words}", *flags])
    fence = _ticks(command, 3)
    yield f"\nThe command, with every setting written out:\n\n{fence}\n{command}\n{fence}\n"
    for change in model.settings.get("longer", ()):
        yield f"After update {change['after']} the run became longer, with `--run.steps {change['steps']}`.\n"
    versions = _mapping(model.settings.get("versions"))
    yield f"Versions: {_plain(', '.join(f'{tool} {number}' for tool, number in versions.items()))}.\n"


def _scores(model: Model) -> Iterator[str]:
    lines = model.scores
    yield "## Scores\n"
    if model.best:
        measure, value = _plain(model.best.measure), _rounded(model.best.value)
        yield f"The weights are those of update {model.best.step}, the best of the run by {measure}: {value}.\n"
    if not lines:
        yield "Not stated.\n"
        return
    keys = list(dict.fromkeys(key for line in lines for key, value in line.items() if _is_score(key, value, line)))
    rows = [(line["split"], line["step"], *(_rounded(line.get(key, "")) for key in keys)) for line in lines]
    yield from _table(("split", "step", *keys), rows)


def _limits(model: Model) -> Iterator[str]:
    config = model.config
    yield "## Limits\n"
    yield f"- It reads {config.max_position_embeddings} tokens at once. Longer texts must be cut or divided."
    if model.vocab and model.rules.lower_case:
        yield f"- It does not know upper case{' or accents' if model.rules.strip_accents else ''}."
    row = _row(model)
    yield f"- {row.limits if row else LIMITS['causal' if config.causal else 'encoder']}"
    yield "- Nothing but the scores above has been measured. Bias and harmful output: not stated.\n"


def _is_score(key: str, value: Any, line: dict[str, Any]) -> bool:
    """Return whether an entry of a line is a score, not a rate that training measures."""
    if key == "loss" or key.endswith(("_loss", "_accuracy")):
        return True
    return line["split"] != "train" and key != "step" and isinstance(value, float)


def _rounded(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(head: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(map(_plain, row))} |"
    yield ""
