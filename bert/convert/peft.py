"""Folders of peft (github.com/huggingface/peft) with the low-rank updates of LoRA: adapter_config.json and tensors.

An adapter has the updates and the heads. It belongs to a base model, whose weights are not in it: an import takes them
from a run, and the new run has them, the updates and the heads.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bert.convert import architecture, joined, names, run
from bert.convert.families import Family
from bert.convert.huggingface import DTYPES
from bert.convert.names import Form, Shape, Weight
from bert.convert.run import Model
from bert.core import files
from bert.core.errors import InputError, UsageError
from bert.heads import ANSWER_SPAN, CLASSIFIER, KINDS, MULTILABEL, TAGS
from bert.model.low_rank import SCALE, A, B

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
TASKS = {
    CLASSIFIER.name: "SEQ_CLS",
    MULTILABEL.name: "SEQ_CLS",
    TAGS.name: "TOKEN_CLS",
    ANSWER_SPAN.name: "QUESTION_ANS",
}
# Settings that make another function of the tensors than W + alpha / r B A, where they have a value; peft has more in
# `*_config`. Initial values that change the base are refused, too.
OTHERS = {"use_dora", "use_qalora", "use_bdlora", "lora_bias", "fan_in_fan_out", "alpha_pattern", "rank_pattern"}
OTHERS |= {"layer_replication", "trainable_token_indices", "target_parameters", "alora_invocation_tokens"}
MOST = 10**6  # of r and lora_alpha: larger ones are damage
STARTS = (True, False, "gaussian", "orthogonal", "eva")


def input_files(folder: Path) -> list[Path]:
    """Return the files of an adapter. Raise InputError if one is not there."""
    if missing := [name for name in (CONFIG, WEIGHTS) if not (folder / name).exists()]:
        raise InputError(f"{folder}: no {missing[0]}; write it with save_pretrained of peft, safe_serialization=True")
    return [folder / CONFIG, folder / WEIGHTS]


def read_model(folder: Path, head_name: str, base: Path) -> Model:
    """Read an adapter, and the model of the run `base` that it belongs to.

    head_name: as in huggingface.py. Raise InputError if the adapter is damaged, is not LoRA as published, or is for
    another model; UsageError if the base has no family with such adapters.
    """
    model, path, fields = run.read_model(base), folder / CONFIG, files.read_object(folder / CONFIG)
    family, form = _family(model, base), model.form
    scale, rank = _scale(fields, path)
    tensors = _tensors(folder / WEIGHTS, family)
    kernels = {weight.name(form): weight for weight in names.encoder(model.config)}
    updates: dict[str, np.ndarray] = {}
    for name in sorted(name for name in tensors if re.search(r"\.lora_[AB]\.", name)):
        module, _, part = name.rpartition(".lora_")
        kernel, at = kernels.get(f"{module}.weight"), {"A.weight": A, "B.weight": B}.get(part)
        if kernel is None or at is None or not re.match(r"layer_\d+/.*/kernel$", kernel.ours):
            raise InputError(f"{folder / WEIGHTS}: {PREFIX}{name}: the base {base} has no such dense layer in a layer")
        ours, value = kernel.ours.removesuffix("/kernel"), np.ascontiguousarray(tensors.pop(name).T)
        shape = (kernel.shape[0], rank) if at == A else (rank, kernel.shape[1])
        if value.shape != shape or not np.isfinite(value).all():
            raise InputError(
                f"{folder / WEIGHTS}: {name} is not {list(shape[::-1])} finite numbers, as the base and r in {CONFIG} "
                "need it; give the base of this adapter"
            )
        updates |= {f"{ours}/{at}": value, f"{ours}/{SCALE}": np.array(scale, np.float32)}
    if not updates or any(f"{name.rsplit('/', 1)[0]}/{each}" not in updates for name in updates for each in (A, B)):
        raise InputError(f"{folder / WEIGHTS}: no pairs of lora_A and lora_B; give the folder of an adapter of LoRA")
    kind = next((head for head, task in TASKS.items() if task == fields.get("task_type")), None)
    return _with_heads(model, tensors, kind if head_name == names.AUTO else head_name, folder, family, form, updates)


def _with_heads(
    model: Model,
    tensors: dict[str, np.ndarray],
    kind: str | None,
    folder: Path,
    family: Family,
    form: Form,
    updates: dict[str, np.ndarray],
) -> Model:
    """Return the base with the heads that are left among the tensors, in place of its own, and with the updates."""
    if kind and (pooler := family.poolers.get(kind)):
        moved = f"{family.prefix}.pooler.dense."
        tensors = {re.sub(f"^{re.escape(pooler)}\\.", moved, name): value for name, value in tensors.items()}
    own = [weight for weight in model.match.weights if not _is_replaced(weight, tensors, family, form)]
    stored: dict[str, np.ndarray] = {weight.name(form): weight.write(form, model.values[weight.ours]) for weight in own}
    stored |= tensors
    shapes: dict[str, Shape] = {name: value.shape for name, value in stored.items()}
    absent = {name for name in names.SAME_NAME if name != kind}
    match = names.match(model.config, form, shapes, folder / WEIGHTS, (), absent)
    head = architecture.head(match.heads, {}, names.class_count(form, shapes, absent), folder / CONFIG)
    return dataclasses.replace(
        model,
        match=match,
        values=run.gather(match, form, stored.__getitem__, folder / WEIGHTS),
        updates=updates,
        settings=run.import_settings(f"peft {folder.name}", match),
        head=head,
    )


def _is_replaced(weight: Weight, tensors: dict[str, np.ndarray], family: Family, form: Form) -> bool:
    """Return whether a weight of the base belongs to a task's head, or to another head that the adapter has."""
    head = weight.ours.split("/")[0]
    return head in KINDS or weight.name(form) in tensors


def _family(model: Model, where: Path) -> Family:
    if model.config.causal or model.form in ("modernbert", "neobert"):
        raise UsageError(
            f"{where}: peft's adapters are for the families of BERT, whose queries, keys and values are separate; use "
            "the merged model"
        )
    return model.family


def _scale(fields: dict[str, Any], path: Path) -> tuple[float, int]:
    """Return alpha / r and r. Raise InputError if the adapter is another function of its tensors than LoRA's."""
    rank, alpha = fields.get("r"), fields.get("lora_alpha")
    is_lora = fields.get("peft_type") == "LORA" and type(rank) is int and 0 < rank < MOST
    if not is_lora or type(alpha) not in (int, float) or not abs(alpha) < MOST:  # type: ignore[arg-type]
        raise InputError(f"{path}: not the settings of LoRA (peft_type, r, lora_alpha)")
    wrong = [name for name in fields if (name in OTHERS or name.endswith("_config")) and fields[name]]
    wrong += ["bias"] if fields.get("bias", "none") != "none" else []
    wrong += ["init_lora_weights"] if fields.get("init_lora_weights", True) not in STARTS else []
    if wrong:
        raise InputError(
            f"{path}: {wrong[0]} is {str(fields[wrong[0]])[:60]}, which is not supported; merge it in peft"
        )
    rank = cast(int, rank)
    return float(cast(float, alpha)) / (rank**0.5 if fields.get("use_rslora") else rank), rank


def _tensors(path: Path, family: Family) -> dict[str, np.ndarray]:
    """Return the tensors by their names in a model of transformers with a head."""
    files.check_regular(path)
    found = {}
    try:
        with safe_open(path, framework="numpy") as opened:
            for name in opened.keys():  # noqa: SIM118 it is not a dict
                inner, dtype = name.removeprefix(PREFIX), opened.get_slice(name).get_dtype()
                if inner == name or dtype not in DTYPES:
                    raise InputError(f"{path}: {name}, {dtype}, is no tensor of an adapter; save it again with peft")
                inner = f"{family.prefix}.{inner}" if inner.split(".")[0] in family.unprefixed else inner
                found[inner] = opened.get_tensor(name).astype(np.float32)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a complete safetensors file ({error!s:.200}); write it again") from error
    return found


def write_model(model: Model, folder: Path) -> None:
    """Write an adapter: the low-rank updates and the heads of a run. Raise InputError if it has no updates."""
    if not model.updates:
        raise InputError("the run has no low-rank updates; train with --lora.rank, or export huggingface")
    family, form = _family(model, folder), model.form
    modules = {weight.ours: weight.name(form) for weight in names.encoder(model.config)}
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
    of_heads = {}
    for weight in model.match.weights:
        if weight.ours.split("/")[0] in names.HEAD_NAMES:
            name = weight.name(form)
            name = name.replace(pooler, f"{moved}.") if moved else name
            of_heads[name] = weight.write(form, model.values[weight.ours])
    saved = {name.removeprefix(f"{family.prefix}.").split(".")[0] for name in of_heads}
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
        stream.write(save(joined.joined(every, model.config.num_attention_heads), metadata={"format": "pt"}))
    files.write_json(folder / CONFIG, settings)
