"""Flags by the names that they have elsewhere, for the commands that train: `--num_train_epochs 3`, or `fp16: true`.

Elsewhere is: run_mlm.py, run_glue.py and run_qa.py of transformers, google-research/bert, and NVIDIA's
DeepLearningExamples. A name whose meaning is that of a flag of ours is taken, and a note says which flag it is. A name
whose meaning differs is refused with a message that says what to give instead. The flags of this project are in
`bert/core/config.py`; docs/training.md lists the names that are taken.
"""

import itertools
import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from bert.core.errors import UsageError
from bert.core.progress import is_first_rank

PHASE = re.compile(r"phase[1-9]\.")  # before the name of a flag of one phase of a recipe


class Refused(str):
    """What to give instead of another program's flag. The flag has another meaning here, or none."""


class Set(str):
    """NAME=VALUE of our flag. Another program's switch, such as --fp16, stands for it."""


Names = Mapping[str, str]


def _table(rows: str) -> dict[str, str]:
    """Return our flag or a `Refused`, by each name of other programs.

    rows: our flag, or `?` and what to give instead; then a colon and its names in other programs.
    """
    table = dict[str, str]()
    for row in rows.strip().splitlines():
        ours, _, names = row.strip().rpartition(":")
        instead, kind = ours.removeprefix("?").strip(), Set if "=" in ours else str
        if ours.startswith("?"):
            ours, kind = f"is no flag here; {f'give {instead}' if instead else 'leave it out'}", Refused
        table |= {name: kind(ours) for name in names.split()}
    return table


REMOVED = {"objective.embeddings": "shared"}  # flags that were removed, and the value of each that the program has
DISENTANGLED = Refused(
    "was removed: both models learn one table of words; leave it out, or use the version of the program that has it"
)
COMMON: Names = _table("""
    optimizer.learning_rate: learning_rate
    optimizer.weight_decay: weight_decay
    optimizer.beta_1: adam_beta1
    optimizer.beta_2: adam_beta2
    optimizer.epsilon: adam_epsilon
    optimizer.clip_norm: max_grad_norm
    optimizer.warmup_steps: warmup_steps num_warmup_steps
    run.steps: max_steps max_train_steps num_train_steps
    batch.total: train_batch_size
    batch.per_device: per_device_train_batch_size per_gpu_train_batch_size
    run.seed: seed
    run.directory: output_dir model_dir
    init.checkpoint: model_name_or_path
    run.log_every: logging_steps log_freq
    run.save_every: save_steps save_checkpoints_steps save_checkpoint_steps num_steps_per_checkpoint
    run.keep: save_total_limit
    run.evaluate_every: eval_steps
    model.recompute_activations=true: gradient_checkpointing checkpoint_activations
    precision.compute=float16: fp16 use_fp16 amp
    precision.compute=bfloat16: bf16
    precision.compute=tf32: tf32
    precision.xla=true: use_xla enable_xla
    run.device=cpu: no_cuda use_cpu
    ? --batch.total, of all ranks, and --batch.per_device: gradient_accumulation_steps num_accumulation_steps
    ? --run.evaluate_every, a number of updates: eval_strategy evaluation_strategy
    ? --run.save_every, a number of updates: save_strategy
    ? --init.checkpoint RUN, made of it by python -m bert.convert import google: init_checkpoint
    ? the recipe, or --init.checkpoint: bert_config_file config_name model_type
    ? --config, a file of flags: config_file
    ? --lower_case of data.vocab: do_lower_case
    ? the files of the data set: dataset_name dataset_config_name
    ? --optimizer.schedule: lr_scheduler_type
    ? --optimizer.name: optim optimizer_type
    ? --batch.bucket_by_length: group_by_length
    ? another --run.directory: overwrite_output_dir
    ?: per_device_eval_batch_size eval_batch_size load_best_model_at_end do_train do_eval report_to logging_dir
    ?: resume_from_checkpoint horovod use_horovod local_rank num_gpus cache_dir overwrite_cache pad_to_max_length
    ?: preprocessing_num_workers dataloader_num_workers
""")
PRETRAINING: Names = dict.fromkeys(REMOVED, DISENTANGLED) | _table("""
    ? --run.steps, the number of updates of all epochs: num_train_epochs num_steps_per_epoch
    ? --optimizer.warmup_steps, a number of updates: warmup_ratio warmup_proportion
    ? --data.train, a folder that python -m data.adopt makes of it: input_file input_files input_files_dir input_dir
    ? --data.train, records that are made of it (docs/data.md): train_file
    ? --held_out_fraction of data.shards: validation_file
    ? it to data.tfrecords: max_seq_length max_predictions_per_seq line_by_line vocab_file tokenizer_name
    ? --masked_lm_prob of data.tfrecords: mlm_probability
""")
FINE_TUNING: Names = _table("""
    length.epochs: num_train_epochs
    length.warmup: warmup_ratio warmup_proportion
    data.vocab: vocab_file
    ? --data.vocab: tokenizer_name
    ? the recipe, the first argument: task_name
    ? it to tasks.predict or squad.predict: do_predict test_file predict_batch_size
""")
TASKS: Names = _table("""
    data.length: max_seq_length max_length
    data.limit: max_train_samples
    data.train: train_file
    data.dev: validation_file
    data.folder: data_dir
""")
QUESTIONS: Names = _table("""
    windows.max_seq_length: max_seq_length
    windows.max_query_length: max_query_length
    windows.doc_stride: doc_stride
    data.train_file: train_file
    data.dev_file: validation_file
    ? it to squad.predict: predict_file n_best_size max_answer_length null_score_diff_threshold
    ?: version_2_with_negative
""")
OURS: Names = {"data.train": "data.train_file", "data.dev": "data.dev_file"}  # as tasks.train names the files

# Values with which a name of those programs says what is done here anyway, or asks for nothing. `none` does so for all.
OFF = ("false", "0", "no")
NOTHING: Mapping[str, tuple[str, ...]] = {
    **{name: (value,) for name, value in REMOVED.items()},
    **{name: OFF for name, ours in COMMON.items() if isinstance(ours, Set)},
    **dict.fromkeys(("do_predict", "overwrite_output_dir", "horovod", "use_horovod"), OFF),
    **dict.fromkeys(("overwrite_cache", "pad_to_max_length"), ("true", *OFF)),
    **dict.fromkeys(("do_train", "do_eval", "load_best_model_at_end"), ("true",)),
    **dict.fromkeys(("eval_strategy", "evaluation_strategy", "save_strategy"), ("steps",)),
    **dict.fromkeys(("gradient_accumulation_steps", "num_accumulation_steps", "num_gpus"), ("1",)),
    **dict.fromkeys(("preprocessing_num_workers", "dataloader_num_workers"), ("0",)),
    "max_steps": ("-1",),
    "resume_from_checkpoint": ("true", "false", "auto"),
    "report_to": ("tensorboard", "[]", ""),
    "local_rank": ("-1", "0"),
}
SHARES = ("warmup_ratio", "warmup_proportion", "length.warmup")  # names of the share of updates with warm-up
STEPS = ("warmup_steps", "num_warmup_steps")  # below 1 a share of the updates, as in transformers 5
EVERY = ("logging_steps", "save_steps", "eval_steps")  # below 1 a share of the updates, too
KEPT = dict.fromkeys(("model_name_or_path", *OURS), ("none",))  # values that say something

# What a note adds for a flag whose name some of those programs use for something similar.
ALSO: Names = {
    "optimizer.learning_rate": ", for any number of ranks",  # NVIDIA's for TensorFlow 2 multiplies it by their number
    "batch.total": ", over all ranks",
    "batch.per_device": "; an update has --batch.total sequences on any number of devices",
    "init.checkpoint": ", the directory of a run; python -m bert.convert import makes one of other weights",
    "windows.doc_stride": ", tokens between the starts of two windows; in transformers' run_qa.py it is their overlap",
}


def table(flags: Collection[str]) -> Names:
    """Return what each name of other programs means in a command with these flags. One of `flags` keeps its meaning."""
    if "windows.max_seq_length" in flags:
        names = {**COMMON, **FINE_TUNING, **QUESTIONS, **OURS}
    elif "length.epochs" in flags:
        names = {**COMMON, **FINE_TUNING, **TASKS}
    else:
        names = {**COMMON, **PRETRAINING}
    return {name: ours for name, ours in names.items() if name not in flags}


def translated(argv: Sequence[str], flags: Collection[str]) -> list[str]:
    """Replace other programs' names by our flags in the arguments; report each such name on stderr, on one rank.

    flags: of the command. Raise UsageError for a name with another meaning here, and for two names of one flag.
    """
    names, words = table(flags), list[str]()
    notes, refusals, typed = list[str](), list[str](), dict[str, str]()
    skip, given = False, {PHASE.sub("", word.removeprefix("--").partition("=")[0], count=1) for word in argv}
    for word, following in itertools.zip_longest(argv, argv[1:], fillvalue="--"):
        flag, assigned, value = word.partition("=")
        name = PHASE.sub("", flag.removeprefix("--"), count=1)
        if skip:
            skip = False
            continue
        of_name = value if assigned else "true" if following.startswith("--") else following
        ours = by_value(name, of_name, names) if flag.startswith("--") else None
        if ours is not None and changes_nothing(name, of_name, given):
            skip = not assigned and not following.startswith("--")
            notes.append(unchanged(flag, of_name))
            continue
        if isinstance(ours, Refused):
            refusals.append(f"{flag} {ours}")
            continue
        target = flag
        if ours is not None:
            target = flag.removesuffix(name) + ours.partition("=")[0]
            if isinstance(ours, Set):
                skip = not assigned and not following.startswith("-")
                assigned, value = "=", switched(flag, value if assigned else following if skip else "true", ours)
            notes += note(flag, target, name, ours)
        if flag.startswith("--") and typed.setdefault(target, flag) != flag:
            raise UsageError(f"{typed[target]} and {flag} are one setting; give one of them")
        words.append(f"{target}{assigned}{value}")
    if refusals:
        raise UsageError(". ".join(dict.fromkeys(refusals)))
    tell(notes)
    return words


def changes_nothing(name: str, value: str, others: Collection[str]) -> bool:
    """Return whether this value of another program's flag asks for nothing, or for what this program does anyway.

    others: the other names that are given. With a warm-up given as a share of the updates, 0 warm-up steps ask for
    nothing.
    """
    if name in STEPS and _number(value) == 0:
        return any(share in others for share in SHARES)
    values = NOTHING.get(name, ())
    return value.lower() in ({*values, "none"} - {*KEPT.get(name, ())}) or f"{_number(value):g}" in values


def by_value(name: str, value: str, names: Names) -> str | None:
    """Return what a name with this value means; None if it is no name of another program."""
    share = names.get(SHARES[0], "")
    if name in STEPS and name in names and (0 < _number(value) < 1 or (_number(value) == 0 and share == SHARES[-1])):
        return share
    if name in EVERY and name in names and 0 < _number(value) < 1:
        return Refused(f"below 1 is a share of the updates in transformers: give --{names[name]}, a number of them")
    return names.get(name)


def unchanged(given: str, value: str) -> str:
    """Return the note that a name with this value changes nothing."""
    return f"{given} {value or '[]'} changes nothing here"


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def switched(given: str, value: str, ours: Set) -> str:
    """Return the value of our flag that a switch stands for. Raise UsageError unless the switch's value is true.

    given: the switch, as it was written.
    """
    flag, _, meant = ours.partition("=")
    if value.lower() != "true":
        raise UsageError(f"{given} {value}: only true is taken, for --{flag} {meant}; leave it out")
    return meant


def note(given: str, target: str, name: str, ours: str) -> list[str]:
    """Return the note that another program's name means our flag `target`; [] if no note is needed.

    given: the name as it was written.
    """
    _, assigned, value = ours.partition("=")
    return [] if name in OURS else [f"{given} is {target}{' ' * len(assigned)}{value} here{ALSO.get(ours, '')}"]


def tell(notes: Iterable[str]) -> None:
    """Print each different note on stderr, on one rank."""
    for line in dict.fromkeys(notes if is_first_rank() else ()):
        print(f"note: {line}", file=sys.stderr)
