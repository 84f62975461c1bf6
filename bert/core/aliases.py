"""Flags by the names that they have in transformers and in google-research/bert, for the commands that train.

A name whose meaning is that of a flag of ours is taken, and a note says which flag it is. A name whose meaning differs
is refused with a message that says what to give instead. The flags of this project are in `bert/core/config.py`.
"""

import itertools
import sys
from collections.abc import Collection, Mapping, Sequence

from bert.core.errors import UsageError
from bert.core.progress import is_first_rank


class Refused(str):
    """What to give instead of a flag that means something else here, or nothing."""


class Set(str):
    """A switch: NAME=VALUE of our flag that it stands for."""


PER_DEVICE = "batch.per_device"
ACCUMULATION = Refused(
    "is computed here: give --batch.total, the sequences of an update over all ranks (their sequences per device x "
    "accumulation x devices), and --batch.per_device, those of a micro-batch"
)
NO_SWITCH = Refused("is not needed: the command itself says what is done; leave it out")
RECORDS_SAY = Refused("belongs to the data: give it to data.tfrecords, and its folder as --data.train; leave it out")
ARCHITECTURE = Refused("is not needed: the architecture is that of --init.checkpoint; leave it out")
VOCABULARY_SAYS = Refused(
    "belongs to the vocabulary: tokenizer_config.json beside vocab.txt says it (--lower_case of data.vocab); leave it "
    "out"
)
RECIPE = Refused("is the recipe here, the first argument of the command; --help lists them")
IMPORT = Refused(
    "takes a file of TensorFlow 1: make a run of it with python -m bert.convert import google FOLDER RUN, and give "
    "--init.checkpoint RUN"
)

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
    "num_train_steps": "run.steps",
    "train_batch_size": "batch.total",
    "per_device_train_batch_size": PER_DEVICE,
    "per_gpu_train_batch_size": PER_DEVICE,
    "seed": "run.seed",
    "output_dir": "run.directory",
    "model_name_or_path": "init.checkpoint",
    "logging_steps": "run.log_every",
    "save_steps": "run.save_every",
    "save_checkpoints_steps": "run.save_every",
    "save_total_limit": "run.keep",
    "eval_steps": "run.evaluate_every",
    "gradient_checkpointing": Set("model.recompute_activations=true"),
    "fp16": Set("precision.compute=float16"),
    "bf16": Set("precision.compute=bfloat16"),
    "tf32": Set("precision.compute=tf32"),
    "no_cuda": Set("run.device=cpu"),
    "use_cpu": Set("run.device=cpu"),
    "gradient_accumulation_steps": ACCUMULATION,
    "num_accumulation_steps": ACCUMULATION,
    "init_checkpoint": IMPORT,
    "bert_config_file": ARCHITECTURE,
    "config_name": ARCHITECTURE,
    "do_lower_case": VOCABULARY_SAYS,
    "do_train": NO_SWITCH,
    "do_eval": NO_SWITCH,
    "lr_scheduler_type": Refused(
        "is --optimizer.schedule here: polynomial (linear, with decay_power 1), cosine or stable"
    ),
    "optim": Refused("is --optimizer.name here: adam, adamw, stableadamw, lamb or nvlamb"),
    "resume_from_checkpoint": Refused("is not needed: the same command resumes a stopped run; leave it out"),
    "overwrite_output_dir": Refused("has no equal: nothing is overwritten; give another --run.directory"),
}
PRETRAINING: Names = {
    "num_train_epochs": Refused(
        "is a number of updates here: give --run.steps, the epochs x the sequences of the data / --batch.total"
    ),
    "input_file": Refused(
        "takes records of other programs: make a folder of them with python -m data.adopt, and give it as --data.train"
    ),
    "max_seq_length": RECORDS_SAY,
    "max_predictions_per_seq": RECORDS_SAY,
    "mlm_probability": Refused("belongs to the data: --masked_lm_prob of data.tfrecords; leave it out"),
    "vocab_file": RECORDS_SAY,
}
FINE_TUNING: Names = {
    "num_train_epochs": "length.epochs",
    "warmup_ratio": "length.warmup",
    "warmup_proportion": "length.warmup",
    "vocab_file": "data.vocab",
    "task_name": RECIPE,
    "do_predict": Refused("is a command of its own: python -m tasks.predict, or squad.predict; leave it out"),
    "predict_batch_size": Refused("is a flag of tasks.predict and squad.predict; leave it out"),
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
}
OURS: Names = {"data.train": "data.train_file", "data.dev": "data.dev_file"}  # as tasks.train names the files


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

    flags: of the command. Raise UsageError for a name whose meaning differs.
    """
    names, words = table(flags), list[str]()
    skip = False
    for word, following in itertools.zip_longest(argv, argv[1:], fillvalue="--"):
        if skip:
            skip = False
            continue
        flag, assigned, value = word.partition("=")
        name = flag.removeprefix("--")
        ours = names.get(name) if flag.startswith("--") else None
        if ours is None:
            words.append(word)
        elif isinstance(ours, Refused):
            raise UsageError(f"--{name} {ours}")
        elif isinstance(ours, Set):
            skip = not assigned and not following.startswith("-")
            _check_switch(name, value if assigned else following if skip else "true", ours)
            words.append(f"--{ours}")
            _tell(name, ours.replace("=", " "))
        else:
            words.append(f"--{ours}{assigned}{value}")
            if name not in OURS:
                _tell(name, ours)
    return words


def _check_switch(name: str, value: str, ours: str) -> None:
    if value.lower() != "true":
        raise UsageError(f"--{name} {value}: only true is taken, for --{ours.replace('=', ' ')}; leave it out")


def _tell(name: str, ours: str) -> None:
    more = "; an update has --batch.total sequences on any number of devices" * (ours == PER_DEVICE)
    if is_first_rank():
        print(f"note: --{name} is --{ours} here{more}", file=sys.stderr)
