"""Folders of peft (github.com/huggingface/peft) with the low-rank updates of LoRA: adapter_config.json and tensors.

An adapter has the updates and the heads. It belongs to a base model, whose weights are not in it: an import takes them
from a run, and the new run has them, the updates and the heads. Updates of what has none here (the pooler, embeddings)
are added to the weights of the base.

Source: peft 0.21 (tuners/lora: model.py, layer.py; utils/other.py).
"""

import dataclasses
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bert import embedding
from bert.convert import architecture, foreign, names, run, sentence, stacked_tensors
from bert.convert.families import Family
from bert.convert.huggingface import DTYPES
from bert.convert.names import Shape
from bert.convert.run import Format, Model
from bert.core import files
from bert.core.errors import InputError, UsageError
from bert.heads import ANSWER_SPAN, CLASSIFIER, KINDS, MULTILABEL, TAGS
from bert.labels import SIGMOID, Head
from bert.model.weights import WORDS
from extensions.lora.model import SCALE, A, B

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
SETTINGS = "tokenizer_config.json"
TASKS = {
    CLASSIFIER.name: "SEQ_CLS",
    MULTILABEL.name: "SEQ_CLS",
    TAGS.name: "TOKEN_CLS",
    ANSWER_SPAN.name: "QUESTION_ANS",
}
# Settings that make another function of the tensors than W + alpha / r B A, where they have a value; peft has more in
# `*_config`. Initial values that change the base are refused, too.
OTHERS = {"use_dora", "use_qalora", "use_bdlora", "lora_bias"}  # not fan_in_fan_out, which is for layers of GPT-2 only
OTHERS |= {"layer_replication", "trainable_token_indices", "target_parameters", "alora_invocation_tokens"}
MOST = 10**6  # of r and lora_alpha: larger ones are damage
STARTS = (True, False, "gaussian", "orthogonal", "eva")
REPEATED = ("pissa", "olora")  # initial values that change the base, which peft changes again as it loads the adapter
MERGE = "merge it in peft (merge_and_unload, save_pretrained), and import that with huggingface"
PLAIN = "merge it at the end of its training, before it is saved (merge_and_unload, save_pretrained), and import that"
PAIR = re.compile(r"(.+)\.lora_(embedding_)?([AB])(?:\.weight)?")  # name of a tensor of an update
CHANGED = "changed"  # of an imported run's settings: the weights of the encoder that the base has otherwise


def input_files(folder: Path) -> list[Path]:
    """Return the files of an adapter. Raise InputError if one is not there."""
    foreign.check(folder, "peft")
    if missing := [name for name in (CONFIG, WEIGHTS) if not (folder / name).exists()]:
        raise InputError(f"{folder}: no {missing[0]}; write it with save_pretrained of peft, safe_serialization=True")
    return [folder / CONFIG, folder / WEIGHTS]


def read_model(folder: Path, head_name: str, base: Path) -> Model:
    """Read an adapter, and the model of the run `base` that it belongs to.

    head_name: as in huggingface.py. Raise InputError if the adapter is damaged, is not LoRA as published, or is for
    another model; UsageError if the base has no family with such adapters.
    """
    model, path, fields = run.read_model(base), folder / CONFIG, files.read_object(folder / CONFIG)
    if (method := fields.get("peft_type")) != "LORA":
        raise InputError(
            f"{path}: peft_type is {method!a:.60}; supported: LORA. What changes weights alone (IA3, LoHa) can be "
            "merged in peft (merge_and_unload, save_pretrained), prompts and prefixes cannot"
        )
    family = _family(model, base)
    tensors, added = _tensors(folder / WEIGHTS, family)
    kind = _kind(fields, model.head) if head_name == names.AUTO else head_name
    kept = not added and kind in (None, model.head and model.head.kind) and not _has_head(tensors, family)
    kind = model.head.kind if kept and model.head else kind  # the adapter has nothing of this head
    model = _of_task(model, kind, tensors, added, family)
    tied = not kind and not added and "masked_lm" in model.match.heads and _has_words(tensors, family)
    settings = _Settings(fields, path, f"{family.prefix}." if added else "", tied)
    updates: dict[str, np.ndarray] = {}
    known = {weight.name(family): weight for weight in model.match.weights}
    for module, pair in _pairs(tensors, folder / WEIGHTS).items():
        weight = known.get(f"{module}.weight")
        if weight is None or len(weight.shape) != 2:
            raise InputError(
                f"{folder / WEIGHTS}: {module}: the base {base} has no such layer; give the base of this adapter, or "
                f"{MERGE}"
            )
        rank, scale = settings.of(module)
        kernel = weight.ours.endswith("/kernel")
        outputs, inputs = weight.shape_in(family) if kernel else weight.shape_in(family)[::-1]
        (a, b), shapes = pair, [[rank, inputs], [outputs, rank]]
        if [[*a.shape], [*b.shape]] != shapes or not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise InputError(
                f"{folder / WEIGHTS}: {module}: lora_A and lora_B are not {shapes[0]} and {shapes[1]} finite numbers, "
                f"as the base and r in {CONFIG} need it; give the base of this adapter"
            )
        if kernel and weight.ours.startswith("layer_"):
            ours = weight.ours.removesuffix("/kernel")
            updates |= {f"{ours}/{A}": np.ascontiguousarray(a.T), f"{ours}/{B}": np.ascontiguousarray(b.T)}
            updates[f"{ours}/{SCALE}"] = np.array(scale, np.float32)
        else:
            name = weight.name(family)
            value = tensors.get(name, weight.write(family, model.values[weight.ours]))
            tensors[name] = value + np.float32(scale) * (b @ a if kernel else (b @ a).T)
    made = _with_heads(model, tensors, kind, folder, family, updates, kept)
    return _of_sentences(dataclasses.replace(made, head=_head(made, model, folder)), folder)


def _of_sentences(model: Model, folder: Path) -> Model:
    """Return the model with the settings of sentence-transformers in the adapter's folder, if it has any.

    Raise InputError, naming the setting, for what is not supported.
    """
    if not (folder / sentence.MODULES).exists():
        return model
    head, settings = model.head, {key: value for key, value in model.settings.items() if key != embedding.KEY}
    if head is None:
        made = sentence.read(folder, model.rules.lower_case, model.config)
        return dataclasses.replace(model, settings=settings | (made.entries() if made else {}))
    several = head.kind == MULTILABEL.name
    fields = {"num_labels": head.outputs} | ({"problem_type": sentence.SEVERAL} if several else {})
    scored = sentence.cross_encoder(folder, fields, model.rules.lower_case, model.config)
    if scored and scored.activation == SIGMOID and not (head.regression or several):
        raise InputError(f"{folder}: its scores are the sigmoids of several outputs; give --head multilabel")
    entries = scored.entries() if scored else {}
    return dataclasses.replace(model, settings=settings | entries, head=scored.of(head) if scored else head)


def _kind(fields: Mapping[str, Any], head: Head | None) -> str | None:
    """Return the kind of head that the adapter's task needs; None if no kind fits.

    If the base's head fits, return its kind, as peft does.
    """
    of_task = [name for name, task in TASKS.items() if task == fields.get("task_type")]
    return head.kind if head and head.kind in of_task else next(iter(of_task), None)


def _head(made: Model, base: Model, folder: Path) -> Head | None:
    """Return what the adapter's outputs mean, with the names of the base's classes if they fit, as in peft."""
    head, own = made.head, base.head
    if head is None:
        return None
    if own and own.kind == head.kind:
        return own if own.outputs == head.outputs else dataclasses.replace(head, spaced=own.spaced)
    has_prefix = made.family.tokenizers[made.tokens].has_prefix if made.tokenizer else None
    if head.kind != TAGS.name or has_prefix is None or has_prefix(made.tokenizer):
        return head
    settings = files.read_object(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    if type(spaced := settings.get("add_prefix_space")) is not bool:
        spaced = True
        print(
            f"note: {folder}: no {SETTINGS} with add_prefix_space; words are read with a space before them",
            file=sys.stderr,
        )
    return dataclasses.replace(head, spaced=spaced)


def _has_head(tensors: Mapping[str, np.ndarray], family: Family) -> bool:
    """Return whether an adapter has tensors of the head of a task."""
    places = {family.names.get(kind.name, kind.huggingface).split(".")[0] for kind in KINDS.values()}
    return any(name.split(".")[0] in places for name in tensors)


def _of_task(model: Model, kind: str | None, tensors: Mapping[str, np.ndarray], added: bool, family: Family) -> Model:
    """Return the base without its head of masked words, if the adapter has no such head and changes the word table.

    added: whether the adapter's names come from a model without a head.
    """
    if not (kind or added) or not _has_words(tensors, family):
        return model
    match = model.match
    kept = [weight for weight in match.weights if weight.ours.split("/")[0] != "masked_lm"]
    heads = [name for name in match.heads if name != "masked_lm"]
    return dataclasses.replace(model, match=match._replace(weights=kept, heads=heads))


def _has_words(tensors: Mapping[str, np.ndarray], family: Family) -> bool:
    """Return whether an adapter changes the table of words."""
    words = family.name(WORDS, "bert.embeddings.word_embeddings")
    return any(name.startswith(f"{words}.") for name in tensors)


def _pairs(tensors: dict[str, np.ndarray], path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Take the pairs lora_A, lora_B out of the tensors; return them by their module.

    Raise InputError if there are none, or if a part is missing.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for name in [name for name in tensors if PAIR.fullmatch(name)]:
        module, _, part = PAIR.fullmatch(name).groups()  # type: ignore[union-attr]
        found.setdefault(module, {})[part] = tensors.pop(name)
    if not found or any(len(pair) < 2 for pair in found.values()):
        raise InputError(f"{path}: no pairs of lora_A and lora_B; give the folder of an adapter of LoRA")
    return {module: (found[module]["A"], found[module]["B"]) for module in sorted(found)}


def _with_heads(
    model: Model,
    tensors: dict[str, np.ndarray],
    kind: str | None,
    folder: Path,
    family: Family,
    updates: dict[str, np.ndarray],
    kept: bool,
) -> Model:
    """Return the base with the adapter's tensors instead of the base's, and with the updates.

    kept: whether the base keeps the head of its task.
    """
    if kind and (pooler := family.poolers.get(kind)):
        moved = f"{family.prefix}.pooler.dense."
        tensors = {re.sub(f"^{re.escape(pooler)}\\.", moved, name): value for name, value in tensors.items()}
    own = [weight for weight in model.match.weights if kept or weight.ours.split("/")[0] not in KINDS]
    stored: dict[str, np.ndarray] = {
        weight.name(family): weight.write(family, model.values[weight.ours]) for weight in own
    }
    stored |= tensors
    shapes: dict[str, Shape] = {name: value.shape for name, value in stored.items()}
    absent = {name for name in names.SAME_NAME if name != kind}
    match = names.match(model.config, family, shapes, folder / WEIGHTS, (), absent, MERGE)
    head = architecture.head(match.heads, {}, names.class_count(family, shapes, absent), folder / CONFIG)
    settings = run.import_settings(f"peft {folder.name}", match)
    is_same = (head and head.kind) == (model.head and model.head.kind)
    settings |= run.of_texts(model.settings) if is_same else {}  # another task reads texts otherwise
    settings["imported"][CHANGED] = [w.ours for w in names.encoder(model.config) if w.name(family) in tensors]
    return dataclasses.replace(
        model,
        match=match,
        values=run.gather(match, family, stored.__getitem__, folder / WEIGHTS),
        updates=updates,
        settings=settings,
        head=head,
    )


def _family(model: Model, where: Path) -> Family:
    if not model.family.adapters:
        raise UsageError(
            f"{where}: peft's adapters are for the families of BERT, whose queries, keys and values are separate; use "
            "the merged model"
        )
    return model.family


class _Settings:
    """The rank and the factor of each update of an adapter."""

    def __init__(self, fields: Mapping[str, Any], path: Path, added: str, tied: bool) -> None:
        """Take the settings of an adapter. Raise InputError if it computes something else than LoRA from its tensors.

        added: what module names begin with here, but not in the adapter. tied: whether the head of masked words reads a
        table that the adapter changes.
        """
        self._fields, self._path, self._added = fields, path, added
        rank, alpha = fields.get("r"), fields.get("lora_alpha")
        if not _is_rank(rank) or not _is_alpha(alpha):
            raise InputError(f"{path}: not the settings of LoRA (r, lora_alpha)")
        if tied:  # merged by peft 0.21 they are one table, of another model: its head has still the table of the base
            raise InputError(
                f"{path}: changes the word_embeddings, but not the table of the head of masked words, which is the "
                "same here; --head none imports the encoder alone"
            )
        start = fields.get("init_lora_weights", True)
        configs = {name for name in fields if name.endswith("_config")} - ({"eva_config"} if start == "eva" else set())
        wrong = [name for name in fields if name in OTHERS | configs and fields[name]]
        wrong += ["bias"] if fields.get("bias", "none") != "none" else []
        if start not in STARTS:
            remedy = MERGE if start in REPEATED else PLAIN
            raise InputError(f"{path}: init_lora_weights is {start!a:.60}, which changes the base; {remedy}")
        if wrong:
            raise InputError(f"{path}: {wrong[0]} is {fields[wrong[0]]!a:.60}, which is not supported; {MERGE}")
        for key, is_valid in (("rank_pattern", _is_rank), ("alpha_pattern", _is_alpha)):
            pattern = fields.get(key) or {}
            if not isinstance(pattern, dict) or not all(map(is_valid, pattern.values())):
                raise InputError(f"{path}: {key} does not give modules a number; write it again with peft")

    def of(self, module: str) -> tuple[int, float]:
        """Return r and alpha / r of a module. Raise InputError for a pattern that is no regular expression."""
        name = module.removeprefix(self._added)
        rank = self._matching("rank_pattern", name, self._fields["r"])
        alpha = self._matching("alpha_pattern", name, self._fields["lora_alpha"])
        return int(rank), float(alpha) / (rank**0.5 if self._fields.get("use_rslora") else rank)

    def _matching(self, key: str, module: str, usual: float) -> float:
        try:
            patterns: dict[str, float] = self._fields.get(key) or {}
            return next((value for name, value in patterns.items() if re.match(rf"(.*\.)?({name})$", module)), usual)
        except re.error as error:
            raise InputError(f"{self._path}: {key} is not made of regular expressions ({error})") from error


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 < value < MOST


def _is_alpha(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < MOST  # type: ignore[arg-type]


def _tensors(path: Path, family: Family) -> tuple[dict[str, np.ndarray], bool]:
    """Return the tensors by their names in a transformers model with a head, and whether theirs has none."""
    files.check_regular(path)
    found, added = {}, False
    try:
        with safe_open(path, framework="numpy") as opened:
            for name in opened.keys():  # noqa: SIM118 it is not a dict
                inner, dtype = name.removeprefix(PREFIX), opened.get_slice(name).get_dtype()
                if inner == name or dtype not in DTYPES:
                    raise InputError(f"{path}: {name}, {dtype}, is no tensor of an adapter; save it again with peft")
                if inner.split(".")[0] in family.unprefixed:
                    inner, added = f"{family.prefix}.{inner}", True
                found[inner] = opened.get_tensor(name).astype(np.float32)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a complete safetensors file ({error!s:.200}); write it again") from error
    return found, added


def write_model(model: Model, folder: Path) -> None:
    """Write an adapter: the low-rank updates and the heads of a run. Raise InputError if it has no updates."""
    if not model.updates:
        raise InputError("the run has no low-rank updates; train with --lora.rank, or export huggingface")
    family = _family(model, folder)
    modules = {weight.ours: weight.name(family) for weight in names.encoder(model.config)}
    tensors: dict[str, np.ndarray] = {}
    targets, ranks, scales = set[str](), set[int](), set[float]()
    for name, value in model.updates.items():
        layer, part = name.rsplit("/", 1)
        module = modules[f"{layer}/kernel"].removesuffix(".weight")
        targets.add(re.sub(r"^.*?layer\.", "layer.", module))  # with its number: a suffix of one module
        if part == SCALE:
            scales.add(float(value))
        else:
            ranks.add(value.shape[1] if part == A else value.shape[0])
            tensors[f"{module}.lora_{'A' if part == A else 'B'}.weight"] = np.ascontiguousarray(value.T)
    if len(ranks) != 1 or len(scales) != 1:
        raise InputError("the low-rank updates of the run have several ranks or factors; export huggingface")
    head = model.head.kind if model.head else ""
    pooler, moved = f"{family.prefix}.pooler.dense.", family.poolers.get(head)
    of_heads, saved = {}, set[str]()
    # A module is saved as a whole, also where only its bias differs from the base's.
    differing = model.settings.get("imported", {}).get(CHANGED, ())
    changed = {weight.name(family).rpartition(".")[0] for weight in model.match.weights if weight.ours in differing}
    for weight in model.match.weights:
        if (module := weight.name(family).rpartition(".")[0]) in changed:
            of_heads[weight.name(family)] = weight.write(family, model.values[weight.ours])
            saved.add(module.removeprefix(f"{family.prefix}."))
        elif weight.ours.split("/")[0] in names.HEAD_NAMES:
            name = weight.name(family)
            name = name.replace(pooler, f"{moved}.") if moved else name
            of_heads[name] = weight.write(family, model.values[weight.ours])
            saved.add(name.removeprefix(f"{family.prefix}.").split(".")[0])
    bare = "" if head else f"{family.prefix}."  # of a model without a head
    every = {f"{PREFIX}{name.removeprefix(bare)}": value for name, value in (tensors | of_heads).items()}
    (rank,), (scale,) = ranks, scales
    settings = {
        "peft_type": "LORA",
        "task_type": TASKS.get(head),
        "r": rank,
        "lora_alpha": round(scale * rank, 6),
        "target_modules": sorted(targets),
        "modules_to_save": sorted(saved) or None,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "base_model_name_or_path": None,
    }
    with files.atomic_write(folder / WEIGHTS, "wb") as stream:
        stream.write(save(stacked_tensors.joined(every, model.config.num_attention_heads), metadata={"format": "pt"}))
    files.write_json(folder / CONFIG, settings)


FORMAT = Format(input_files, read_model, write_model)
