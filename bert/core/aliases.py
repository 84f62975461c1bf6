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
    """What to give instead of a flag that means something else here, or nothing."""


class Set(str):
    """A switch: NAME=VALUE of our flag that it stands for."""


REMOVED = {"objective.embeddings": "shared"}  # flags that were removed, and the value of each that the program has

ACCUMULATION = Refused(
    "is computed here: give --batch.total, the sequences of an update over all ranks (their sequences per device x "
    "accumulation x devices), and --batch.per_device, those of a micro-batch"
)
NO_SWITCH = Refused("is not needed: the command itself says what is done; leave it out")
NO_SETTING = Refused("is not needed here; leave it out")
DISENTANGLED = Refused(
    "was removed: both models learn one table of words; leave it out, or use the version of the program that has it"
)
RECORDS_SAY = Refused("belongs to the data: give it to data.tfrecords, and its folder as --data.train; leave it out")
ARCHITECTURE = Refused(
    "is not needed: the architecture is that of --init.checkpoint, or of the recipe (--model.hidden_size and others); "
    "leave it out"
)
VOCABULARY_SAYS = Refused(
    "belongs to the vocabulary: tokenizer_config.json beside vocab.txt says it (--lower_case of data.vocab); leave it "
    "out"
)
RECIPE = Refused("is the recipe here, the first argument of the command; --help lists them")
IMPORT = Refused(
    "takes a file of TensorFlow 1: make a run of it with python -m bert.convert import google FOLDER RUN, and give "
    "--init.checkpoint RUN"
)
ADOPT = Refused(
    "takes records of other programs: make a folder of them with python -m data.adopt, and give it as --data.train"
)
DATA_SET = Refused("is a name on a server, from which nothing is fetched here: give the files of the data set")
OPTIMIZER = Refused("is --optimizer.name here: adam, adamw, stableadamw, lamb or nvlamb")
EVALUATIONS = Refused("is --run.evaluate_every here, a number of updates")
EVALUATION_BATCH = Refused("is not needed: evaluations have micro-batches of --batch.per_device; leave it out")
LAUNCHER = Refused("is not needed: scripts/launch.sh -np N starts the ranks; leave it out")
BOARD = Refused("is not needed: metrics.jsonl and files for TensorBoard are in --run.directory; leave it out")
PREDICTION = Refused("is --batch of tasks.predict and squad.predict; leave it out")
WARMUP = Refused("is a number of updates here: give --optimizer.warmup_steps, the share x --run.steps")

Names = Mapping[str, str]

COMMON: Names = {
    "learning_rate": "optimizer.learning_rate",
    "weight_decay": "optimizer.weight_decay",
    "adam_beta1": "optimizer.beta_1",
    "adam_beta2": "optimizer.beta_2",
    "adam_epsilon": "optimizer.epsilon",
    "max_grad_norm": "optimizer.clip_norm",
    "warmup_steps": "optimizer.warmup_steps",
    "num_warmup_steps": "optimizer.warmup_steps",
    "max_steps": "run.steps",
    "max_train_steps": "run.steps",
    "num_train_steps": "run.steps",
    "train_batch_size": "batch.total",
    "per_device_train_batch_size": "batch.per_device",
    "per_gpu_train_batch_size": "batch.per_device",
    "seed": "run.seed",
    "output_dir": "run.directory",
    "model_dir": "run.directory",
    "model_name_or_path": "init.checkpoint",
    "logging_steps": "run.log_every",
    "log_freq": "run.log_every",
    "save_steps": "run.save_every",
    "save_checkpoints_steps": "run.save_every",
    "save_checkpoint_steps": "run.save_every",
    "num_steps_per_checkpoint": "run.save_every",
    "save_total_limit": "run.keep",
    "eval_steps": "run.evaluate_every",
    "gradient_checkpointing": Set("model.recompute_activations=true"),
    "checkpoint_activations": Set("model.recompute_activations=true"),
    "fp16": Set("precision.compute=float16"),
    "use_fp16": Set("precision.compute=float16"),
    "amp": Set("precision.compute=float16"),
    "bf16": Set("precision.compute=bfloat16"),
    "tf32": Set("precision.compute=tf32"),
    "use_xla": Set("precision.xla=true"),
    "enable_xla": Set("precision.xla=true"),
    "no_cuda": Set("run.device=cpu"),
    "use_cpu": Set("run.device=cpu"),
    "gradient_accumulation_steps": ACCUMULATION,
    "num_accumulation_steps": ACCUMULATION,
    "per_device_eval_batch_size": EVALUATION_BATCH,
    "eval_batch_size": EVALUATION_BATCH,
    "eval_strategy": EVALUATIONS,
    "evaluation_strategy": EVALUATIONS,
    "save_strategy": Refused("is --run.save_every here, a number of updates"),
    "load_best_model_at_end": Refused(
        "is not needed: with a development set the best checkpoint is kept; leave it out"
    ),
    "init_checkpoint": IMPORT,
    "bert_config_file": ARCHITECTURE,
    "config_file": Refused("is --config here, for a file of flags; a file of the architecture is not needed"),
    "config_name": ARCHITECTURE,
    "model_type": ARCHITECTURE,
    "do_lower_case": VOCABULARY_SAYS,
    "do_train": NO_SWITCH,
    "do_eval": NO_SWITCH,
    "dataset_name": DATA_SET,
    "dataset_config_name": DATA_SET,
    "lr_scheduler_type": Refused(
        "is --optimizer.schedule here: polynomial (for linear also --optimizer.continuous true), cosine or stable"
    ),
    "optim": OPTIMIZER,
    "optimizer_type": OPTIMIZER,
    "group_by_length": Refused("is --batch.bucket_by_length here, a number of updates, such as 32"),
    "resume_from_checkpoint": Refused("is not needed: the same command resumes a stopped run; leave it out"),
    "overwrite_output_dir": Refused("has no equal: nothing is overwritten; give another --run.directory"),
    "report_to": BOARD,
    "logging_dir": BOARD,
    "horovod": LAUNCHER,
    "use_horovod": LAUNCHER,
    "local_rank": LAUNCHER,
    "num_gpus": LAUNCHER,
    "cache_dir": NO_SETTING,
    "overwrite_cache": NO_SETTING,
    "preprocessing_num_workers": NO_SETTING,
    "dataloader_num_workers": NO_SETTING,
    "pad_to_max_length": NO_SETTING,
}
PRETRAINING: Names = {
    "num_train_epochs": Refused(
        "is a number of updates here: give --run.steps, the epochs x the sequences of the data / --batch.total"
    ),
    "num_steps_per_epoch": Refused("is --run.steps here, the updates of all epochs together"),
    "warmup_ratio": WARMUP,
    "warmup_proportion": WARMUP,
    "input_file": ADOPT,
    "input_files": ADOPT,
    "input_files_dir": ADOPT,
    "input_dir": ADOPT,
    "train_file": Refused("takes text: make records of it, as docs/data.md shows, and give them as --data.train"),
    "validation_file": Refused("belongs to the data: --held_out_fraction of data.shards; leave it out"),
    "max_seq_length": RECORDS_SAY,
    "max_predictions_per_seq": RECORDS_SAY,
    "line_by_line": RECORDS_SAY,
    "mlm_probability": Refused("belongs to the data: --masked_lm_prob of data.tfrecords; leave it out"),
    "vocab_file": RECORDS_SAY,
    "tokenizer_name": RECORDS_SAY,
    **dict.fromkeys(REMOVED, DISENTANGLED),
}
FINE_TUNING: Names = {
    "num_train_epochs": "length.epochs",
    "warmup_ratio": "length.warmup",
    "warmup_proportion": "length.warmup",
    "vocab_file": "data.vocab",
    "tokenizer_name": Refused("is the vocabulary of --init.checkpoint here, or the file of --data.vocab"),
    "task_name": RECIPE,
    "do_predict": Refused("is a command of its own: python -m tasks.predict, or squad.predict; leave it out"),
    "test_file": Refused("is --input of tasks.predict, and --dataset of squad.predict; leave it out"),
    "predict_batch_size": PREDICTION,
}
TASKS: Names = {
    "max_seq_length": "data.length",
    "max_length": "data.length",
    "max_train_samples": "data.limit",
    "train_file": "data.train",
    "validation_file": "data.dev",
    "data_dir": "data.folder",
}
QUESTIONS: Names = {
    "max_seq_length": "windows.max_seq_length",
    "max_query_length": "windows.max_query_length",
    "doc_stride": "windows.doc_stride",
    "train_file": "data.train_file",
    "validation_file": "data.dev_file",
    "predict_file": Refused("is --dataset of squad.predict; --data.dev_file is scored during training"),
    "version_2_with_negative": Refused("is not needed: the data say whether questions are impossible; leave it out"),
    "n_best_size": Refused("is --n_best of squad.predict; leave it out"),
    "max_answer_length": Refused("is a flag of squad.predict; leave it out"),
    "null_score_diff_threshold": Refused("is --null_threshold of squad.predict; leave it out"),
}
OURS: Names = {"data.train": "data.train_file", "data.dev": "data.dev_file"}  # as tasks.train names the files

# Values with which a name of those programs says what is done here anyway, or asks for nothing. `none` does so for all.
OFF = ("false", "0", "no")
NOTHING: Mapping[str, tuple[str, ...]] = {
    **{name: (value,) for name, value in REMOVED.items()},
    **{name: OFF for names in (COMMON, FINE_TUNING) for name, ours in names.items() if isinstance(ours, Set)},
    "max_steps": ("-1",),
    "gradient_accumulation_steps": ("1",),
    "num_accumulation_steps": ("1",),
    "do_train": ("true",),
    "do_eval": ("true",),
    "do_predict": OFF,
    "load_best_model_at_end": ("true",),
    "eval_strategy": ("steps",),
    "evaluation_strategy": ("steps",),
    "save_strategy": ("steps",),
    "resume_from_checkpoint": ("true", "false", "auto"),
    "overwrite_output_dir": OFF,
    "overwrite_cache": ("true", *OFF),
    "pad_to_max_length": ("true", *OFF),
    "preprocessing_num_workers": ("0",),
    "dataloader_num_workers": ("0",),
    "report_to": ("tensorboard", "[]", ""),
    "horovod": OFF,
    "use_horovod": OFF,
    "local_rank": ("-1", "0"),
    "num_gpus": ("1",),
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
    """Return what each name is in a command that has these flags; a flag of its own keeps its meaning."""
    if "windows.max_seq_length" in flags:
        names = {**COMMON, **FINE_TUNING, **QUESTIONS, **OURS}
    elif "length.epochs" in flags:
        names = {**COMMON, **FINE_TUNING, **TASKS}
    else:
        names = {**COMMON, **PRETRAINING}
    return {name: ours for name, ours in names.items() if name not in flags}


def translated(argv: Sequence[str], flags: Collection[str]) -> list[str]:
    """Return the arguments of a command with our names for flags; report each other name on stderr, on one rank.

    flags: of the command. Raise UsageError for names whose meaning differs, and for two names of one flag.
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
    """Return whether a name of another program has a value that asks for nothing, or for what is done here anyway.

    others: names that are given too: beside a share of the updates for the warm-up, 0 of them is none.
    """
    if name in STEPS and _number(value) == 0:
        return any(share in others for share in SHARES)
    values = NOTHING.get(name, ())
    return value.lower() in ({*values, "none"} - {*KEPT.get(name, ())}) or f"{_number(value):g}" in values


def by_value(name: str, value: str, names: Names) -> str | None:
    """Return what a name is, if it has this value; None: it is none of another program's."""
    share = names.get(SHARES[0], "")
    if name in STEPS and name in names and (0 < _number(value) < 1 or (_number(value) == 0 and share == SHARES[-1])):
        return share
    if name in EVERY and name in names and 0 < _number(value) < 1:
        return Refused(f"below 1 is a share of the updates in transformers: give --{names[name]}, a number of them")
    return names.get(name)


def unchanged(given: str, value: str) -> str:
    """Return the note about a name with a value that changes nothing."""
    return f"{given} {value or '[]'} changes nothing here"


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def switched(given: str, value: str, ours: Set) -> str:
    """Return the value of our flag that a switch stands for. given: its name. Raise UsageError if it is not true."""
    flag, _, meant = ours.partition("=")
    if value.lower() != "true":
        raise UsageError(f"{given} {value}: only true is taken, for --{flag} {meant}; leave it out")
    return meant


def note(given: str, target: str, name: str, ours: str) -> list[str]:
    """Return the note about a name as it was given, which is that of our flag `target`, if it needs one."""
    _, assigned, value = ours.partition("=")
    return [] if name in OURS else [f"{given} is {target}{' ' * len(assigned)}{value} here{ALSO.get(ours, '')}"]


def tell(notes: Iterable[str]) -> None:
    """Print notes on stderr, each once, on one rank."""
    for line in dict.fromkeys(notes if is_first_rank() else ()):
        print(f"note: {line}", file=sys.stderr)
