"""Pretraining: the model and its objectives, the data, and the training of one phase or several."""

import dataclasses
import functools
import gc
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from bert import recipes
from bert.core import ending, rows, stores
from bert.core.config import ModelConfig, PretrainConfig
from bert.core.errors import InputError, Stopped, UsageError
from bert.core.objectives import OBJECTIVES
from bert.core.rows import Rows
from bert.core.stopping import stops
from bert.hardware.devices import Device
from bert.model import heads, losses
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.model_shard import UNSHARDED, Parts
from bert.recipes import Phase
from bert.text import records, sampler, vocabulary
from bert.text.instance_config import MASK_SHARES
from bert.text.sampler import Batch
from bert.training import checkpoint, loop, preflight, resume, stored_runs
from bert.training.communicator import Communicator
from bert.training.distributed import connect, on_rank_zero
from bert.training.objective import Objective
from bert.training.task import Task

SPLITS = ("train", "heldout")
SINGLE_PROCESS = Communicator()
CAUSAL = "extensions.gpt.pretraining:OBJECTIVE"  # what a causal model learns; no flag chooses another
PLAN = "bert.plan.demand:describe"  # what --print shows
TEACHING: Rows[Callable[..., Any]] = Rows(
    {
        "teacher_of": "extensions.distillation.pretraining:teacher_of",
        "with_teacher": "extensions.distillation.pretraining:with_teacher",
    }
)
"""what opens the run of a teacher, and what makes of a task one that learns from it too"""


class PretrainingModel(tf.Module):
    """Encoder and masked-LM head; unless `pairs` is "none", also the pooler and the head for pairs."""

    def __init__(self, config: ModelConfig, seed: int, pairs: str = "nsp", parts: Parts = UNSHARDED) -> None:
        super().__init__()
        self.encoder = Encoder(config, seed, parts)
        self.masked_lm = heads.MaskedLM(config, seed, parts)
        self.pooler = heads.Pooler(config, seed) if pairs != "none" else None
        self.next_sentence = heads.NextSentence(config, seed) if pairs != "none" else None

    def __call__(self, batch: Batch, mode: Mode) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the logits of the masked positions [B, P, U], without bias, in the compute dtype, and of pairs [B, 2].

        A packed batch (`packing.pack`) gives the same logits in the same order.
        """
        masked, first = read_indices(batch)
        tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"], batch.get("position_ids"))
        read = masked if self.pooler is None else tf.concat([masked, first], axis=0)
        hidden = self.encoder(tokens, mode, read)
        scores = self.masked_lm(hidden[: tf.size(masked)], self.encoder.embeddings.word, mode.dtype)
        words = tf.reshape(scores, [-1, tf.shape(batch["masked_lm_positions"])[1], scores.shape[1]])
        if self.pooler is None or self.next_sentence is None:
            return words, None
        return words, self.next_sentence(self.pooler(hidden[tf.size(masked) :, None]))


def read_indices(batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the places of the masked tokens [B*P] and of each instance's first token [B] in the flattened batch."""
    positions, tokens = batch["masked_lm_positions"], tf.shape(batch["input_ids"])[1]
    if "first_tokens" in batch:  # packed: they are such indices already
        return tf.reshape(positions, [-1]), batch["first_tokens"]
    first = tf.range(tf.shape(positions)[0]) * tokens
    return tf.reshape(first[:, None] + positions, [-1]), first


MASKED_WORDS = Objective(
    "mlm",
    learns_labels=False,
    no_figures="no word of the samples is masked, so there are no figures of {name}; make them with data.tfrecords",
)
PAIRS = Objective(
    "nsp",
    two_classes="next_sentence_labels",
    no_figures="all pairs that were evaluated have the same label, so there are no figures of {name}; evaluate more, "
    "or hold out more documents (python -m data.shards --held_out_fraction)",
)


class Pretraining(Task):
    """The task with the objectives "mlm" (masked words) and, unless `pairs` is "none", "nsp" or "sop"."""

    def __init__(self, config: ModelConfig, seed: int, pairs: str = "nsp", parts: Parts = UNSHARDED) -> None:
        self.module = PretrainingModel(config, seed, pairs, parts)
        self.pairs = pairs
        self.objectives = (MASKED_WORDS,) if pairs == "none" else (MASKED_WORDS, PAIRS._replace(name=pairs))

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the number of masked positions and the number of sequences."""
        sequences = tf.cast(tf.shape(batch["next_sentence_labels"])[0], tf.float32)
        weights = {"mlm": tf.reduce_sum(batch["masked_lm_weights"]), self.pairs: sequences}
        return {name: weights[name] for name in self.names}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, losses.Measure]:
        """Return the summed losses and the numbers of correct predictions."""
        return self.measured(self.module(batch, mode), batch)

    def measured(self, outputs: tuple[tf.Tensor, tf.Tensor | None], batch: Batch) -> dict[str, losses.Measure]:
        """Do the same as `measure`, from the logits."""
        words, pair = outputs
        labels = batch["next_sentence_labels"][:, 0]
        measures = {"mlm": self.module.masked_lm.measure(words, batch["masked_lm_ids"], batch["masked_lm_weights"])}
        if pair is not None:
            measures[self.pairs] = losses.classification(pair, tf.zeros(2), labels, tf.ones_like(labels, tf.float32))
        return measures

    def soft(
        self, outputs: tuple[tf.Tensor, Any], taught: tf.Tensor, batch: Batch, temperature: float
    ) -> dict[str, tf.Tensor]:
        """Return the summed loss of masked words. taught: a teacher's scores [B, P, V], which serve as labels."""
        head = self.module.masked_lm
        scores = (tf.cast(outputs[0], tf.float32) + head.biases())[..., : head.vocab_size]
        return {"mlm": losses.soft_labels(scores, taught, batch["masked_lm_weights"], temperature)}


def masked_samples(folder: Path, config: PretrainConfig, comm: Communicator) -> tuple[loop.Data, loop.Data | None]:
    """Return the masked samples for training and, if any, the held-out ones, as `datasets` does.

    Raise InputError if all training pairs for next-sentence prediction have the same label. Raise UsageError for
    settings that have no effect on the samples.
    """
    if config.data.length:
        raise UsageError("data.length is for causal models; the data of other models have their length; leave it out")
    described = on_rank_zero(lambda: records.checked(folder), comm)
    how = config.run.seed, config.data.skip_bad, config.data.mask_shares, described
    train_split = records.samples(folder, "train", *how)
    heldout = records.samples(folder, "heldout", *how) if records.has_split(described, "heldout") else None
    _check_shares(config.data.mask_shares, train_split)
    if pairs_of(train_split) == "nsp" and (label := train_split.only_label()) is not None:
        raise InputError(
            f"{folder}: all training pairs have label {label}, from which next-sentence prediction learns nothing; "
            "make the data with --pairs sop or none, or from more documents"
        )
    return train_split, heldout


def _fine_tuning(run: Path) -> Sequence[object]:
    return "tasks.train", "RECIPE", "--init.checkpoint", run, "--data.train", "FILE"


@dataclass(frozen=True, kw_only=True)
class PretrainingObjective:
    """What a model learns: a row of `OBJECTIVES`, for masked samples, or `CAUSAL`."""

    task: Callable[[PretrainConfig, loop.Data, Parts], Task]
    """makes what is trained; the parts say which part of the model this device holds"""
    samples: Callable[[Path, PretrainConfig, Communicator], tuple[loop.Data, loop.Data | None]] = masked_samples
    """opens them, as `datasets`"""
    has_pairs: bool = False
    """whether the samples may have an objective on pairs of sentences"""
    new_heads: tuple[str, ...] = ()
    """heads that begin anew if the initial weights have none, as `checkpoint.OF_OBJECTIVE`, which nothing else reads"""
    then: Callable[[Path], Sequence[object]] = _fine_tuning
    """returns the words of a command that uses the trained model, which is in this run directory"""


WORDS_AND_PAIRS = PretrainingObjective(
    task=lambda config, data, parts: Pretraining(config.model, config.run.seed, pairs_of(data), parts), has_pairs=True
)


def objective_of(config: PretrainConfig) -> PretrainingObjective:
    """Return what a model with this configuration learns."""
    row: PretrainingObjective = rows.load(CAUSAL) if config.model.causal else OBJECTIVES[config.objective.name]
    return row


def resolve(config: PretrainConfig, data: loop.Data, device: Device, replicas: int) -> PretrainConfig:
    """Return the configuration with all values filled in that depend on the data, the device or the ranks.

    replicas: number of replicas of the model; one per rank, unless several ranks hold one model. Raise UsageError if
    the configuration does not fit the data or the ranks.
    """
    vocab_size, length = data.description.vocab_size, loop.sequence_length(config.model, data)
    if 0 < config.model.vocab_size < vocab_size:
        raise UsageError(
            f"model.vocab_size is {config.model.vocab_size}, but {data.manifest.path} was made with {vocab_size} "
            "entries; make the data with the vocabulary of the weights, or leave --model.vocab_size out"
        )
    if length > config.model.max_position_embeddings:
        raise UsageError(
            f"{data.manifest.path} has sequences of {length} tokens, more than model.max_position_embeddings "
            f"{config.model.max_position_embeddings}; raise that, or make the data with shorter sequences"
        )
    if config.run.steps == 0:
        raise UsageError("run.steps is 0; give the number of updates with --run.steps")
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocab_size=config.model.vocab_size or vocab_size),
        batch=config.batch.divided(replicas),
        precision=config.precision.resolved(device.is_gpu, device.has_bfloat16),
    )


def datasets(
    folder: Path, config: PretrainConfig, comm: Communicator = SINGLE_PROCESS
) -> tuple[loop.Data, loop.Data | None]:
    """Return the training samples in `folder` and, if there are any, the held-out samples.

    Rank 0 checks all files; the other ranks open those that they read. Raise UsageError for a setting without effect on
    the samples.
    """
    return objective_of(config).samples(folder, config, comm)


def _check_shares(shares: tuple[float, ...], data: loop.Data) -> None:
    """Raise UsageError if shares are given and the samples were masked in advance with other shares."""
    made = data.description.instances
    theirs = made.mask_shares if made else MASK_SHARES  # other programs use the published ones
    if shares and data.description.kind == "instances" and theirs != shares:
        requested, made_with = (" ".join(f"{share:g}" for share in each) for each in (shares, theirs))
        raise UsageError(
            f"data.mask_shares {requested}: the samples in {data.manifest.path} were masked with {made_with}; give "
            f"these, or make the data with --kind documents or --mask_shares {requested}"
        )


def pairs_of(data: loop.Data) -> str:
    """Return the objective on pairs that the samples have: other programs' samples "nsp", a stream of tokens "none"."""
    if data.description.kind == "tokens":
        return "none"
    made = data.description.instances
    return made.pairs if made else "nsp"


def task_for(config: PretrainConfig, data: loop.Data, parts: Parts) -> Task:
    """Return the model's task for these data. parts: which part of the model this device holds."""
    _check_pairs(config, data)
    return objective_of(config).task(config, data, parts)


def _check_pairs(config: PretrainConfig, data: loop.Data) -> None:
    """Raise UsageError if the data have an objective on pairs, but the run has none."""
    if not objective_of(config).has_pairs and (pairs := pairs_of(data)) != "none":
        raise UsageError(
            f"{data.manifest.path}: was made with --pairs {pairs}, and objective.name {config.objective.name} has no "
            "objective on pairs; make the data with --pairs none"
        )


def describe(config: PretrainConfig, data: loop.Data, ranks: int) -> str:
    """Return, as lines of text, what the run would be on `ranks` ranks with a GPU each. Nothing is trained."""
    if ranks % (parts := config.parallel.tensor):
        raise UsageError(f"--parallel.tensor {parts} does not divide --print {ranks}; give a multiple of it")
    requested, config = config, resolve(config, data, Device(kind="GPU"), ranks // parts)
    sequence = loop.sequence_length(config.model, data)
    predictions = data.spec.get("masked_lm_ids", {"shape": [sequence]})["shape"][0]  # of a stream, all are predicted
    teacher = TEACHING["teacher_of"](config, sequence, SINGLE_PROCESS).config if config.distill.teacher else None
    planned: Callable[..., dict[str, str]] = rows.load(PLAN)
    lines = planned(config, ranks, sequence=sequence, predictions=predictions, available=len(data), teacher=teacher)
    if change := config.batch.change(requested.batch):
        lines["note"] = change
    return "\n".join(f"{label:<18} {value}" for label, value in lines.items())


def describe_all(phases: Sequence[Phase], ranks: int) -> str:
    """Return what each phase would be, after its name if there are several."""
    shown = []
    for fetch in _fetches(phases):
        fetch()
    for phase in with_architectures(phases):
        data, _ = datasets(_folder(phase), phase.config)
        shown.append(f"{phase.name}\n" * (len(phases) > 1) + describe(phase.config, data, ranks))
    return "\n\n".join(shown)


def with_architectures(phases: Sequence[Phase]) -> list[Phase]:
    """Return the phases, each with the architecture of the weights that it starts from or that its run already has.

    Raise as `recipes.with_architectures` does. Raise IntegrityError if a file that describes the weights has changed.
    """
    first = phases[0].config
    if isinstance(first.init.checkpoint, Path) and not checkpoint.steps(first.run.path):
        checkpoint.check_trained(first.init.checkpoint)
    return recipes.with_architectures(phases, begun=lambda run: bool(checkpoint.steps(run)))


def train(phase: Phase, comm: Communicator, recipe: str) -> None:
    """Train one phase or continue it. recipe: entry of `config.json`."""
    config = phase.config
    data, heldout = datasets(_folder(phase), config, comm)
    requested, config = config, resolve(config, data, comm.device, comm.replicas.size)
    loop.print_on_first_rank(config.batch.change(requested.batch), comm)
    if heldout is None:
        loop.print_on_first_rank(
            f"warning: {_folder(phase)}: nothing is held out, so there are no held-out figures; make the data from "
            "more documents, or with a larger --held_out_fraction of data.shards",
            comm,
        )
    tokens = loop.sequence_length(config.model, data)
    teacher = TEACHING["teacher_of"](config, tokens, comm) if config.distill.teacher else None
    preflight.before_weights(config, comm, teacher=teacher.config if teacher else None)
    task, taught = task_for(config, data, comm.parts), dict[str, str]()
    if teacher:
        task, taught = TEACHING["with_teacher"](task, teacher, config, _vocab(phase), comm)
    training = loop.Training(
        task=task,
        config=config,
        comm=comm,
        data=data,
        heldout=heldout,
        vocab=_vocab(phase),
        start_from=config.init.source,
        new_heads=objective_of(config).new_heads,
        entries={"recipe": recipe, **taught},
    )
    loop.train(training)


def _folder(phase: Phase) -> Path:
    assert phase.config.data.train is not None, "`placed` checks it"
    return phase.config.data.train


def _vocab(phase: Phase) -> Path:
    return vocabulary.path_in(_folder(phase))


class _PhaseStart(NamedTuple):
    """What a phase starts with: its name, its resolved configuration, and its data."""

    name: str
    config: PretrainConfig
    data: loop.Data


def check_phases(phases: Sequence[Phase], comm: Communicator) -> None:
    """Raise now the errors that any phase would raise at its start. A later phase may start only after days."""
    begun: list[_PhaseStart] = []
    for phase in phases:
        data, heldout = datasets(_folder(phase), phase.config, comm)
        loop.check_early_end(phase.config, heldout)
        config = resolve(phase.config, data, comm.device, comm.replicas.size)
        resume.check_vocabulary(_vocab(phases[0]), _vocab(phase), config.model.causal)
        begun.append(_PhaseStart(phase.name, config, data))
    for before, later in itertools.pairwise(begun):
        _check_later(later, comm)
        _check_heads(before, later)


def _check_later(begin: _PhaseStart, comm: Communicator) -> None:
    """Raise the errors that a later phase would raise at its start, except those that its data alone cause."""
    _, config, data = begin
    tokens, replicas = loop.sequence_length(config.model, data), comm.replicas
    sampler.BatchSampler(data, config.batch, config.run.seed, replicas.rank, replicas.size)
    teacher = TEACHING["teacher_of"](config, tokens, comm).config if config.distill.teacher else None
    preflight.before_weights(config, comm, teacher=teacher)
    preflight.before_updates(config, comm, data.manifest.path, tokens)
    _check_pairs(config, data)


def _check_heads(before: _PhaseStart, later: _PhaseStart) -> None:
    """Raise UsageError if a phase needs a head that the phase before it does not have."""
    if objective_of(later.config).new_heads:
        return
    if before.config.objective.name != later.config.objective.name:
        learned = later.config.objective.name.replace("_", " ")
        raise UsageError(
            f"{later.name} learns {learned}, for which the weights of {before.name} have no head: that has "
            f"objective.name {before.config.objective.name}; give both the same"
        )
    pairs, theirs = pairs_of(later.data), pairs_of(before.data)
    if theirs == "none" != pairs:
        raise UsageError(
            f"{later.data.manifest.path}: was made with --pairs {pairs}, but the data of {before.name} with --pairs "
            "none, so that its weights have no head for pairs; make both with the same --pairs"
        )


def _runs_fit(phases: Sequence[Phase]) -> bool:
    """Return True. Raise UsageError if the run of a phase has begun from other weights than the phase before will make.

    This is so if the phase before is to begin anew or to become longer. Raise it also if both have the same directory.
    """
    for phase, later in itertools.pairwise(phases):
        if phase.config.run.path == later.config.run.path:
            raise UsageError(f"{phase.name} and {later.name} have one run.directory {phase.config.run.path}; give two")
        if not checkpoint.steps(later.config.run.path):
            continue
        if not checkpoint.steps(phase.config.run.path):
            raise UsageError(
                f"{later.config.run.path}: has begun, but not from the weights that {phase.name} would make now: "
                f"{phase.config.run.path} has no checkpoint; give --run.directory for new runs, or run {later.name} "
                "alone to go on with it"
            )
        if resume.will_be_extended(phase.config.run):
            raise UsageError(
                f"{phase.config.run.path}: cannot become longer (run.steps {phase.config.run.steps}), because "
                f"{later.config.run.path} has begun from its weights; give --run.directory for new runs, or "
                f"{later.name} more updates alone"
            )
    return True


def _tell_schedule(phases: Sequence[Phase], comm: Communicator) -> None:
    """Report a phase whose place in a schedule over all phases is not where the phase before it ends."""
    for number, (phase, later) in enumerate(itertools.pairwise(phases), start=2):
        first, end = later.config.optimizer.first_step, phase.config.optimizer.first_step + phase.config.run.steps
        if first not in (0, end) and not phase.config.budget.hours:
            loop.print_on_first_rank(
                f"note: the learning rate of {later.name} goes on from update {first} of the schedule, but "
                f"{phase.name} ends after update {end}; --phase{number}.optimizer.first_step {end} goes on there",
                comm,
            )


def train_all(phases: Sequence[Phase], comm: Communicator, recorded: str) -> None:
    """Train several phases one after the other. Of finished phases, only check that they are the same run.

    recorded: appended to the names of the phases in `config.json`. Raise Stopped if a signal asks for it, also between
    phases.
    """
    check_phases(phases, comm)
    on_rank_zero(lambda: _runs_fit(phases), comm)
    _tell_schedule(phases, comm)
    with stops() as requested:
        for number, phase in enumerate(phases, start=1):
            if comm.broadcast_object(bool(requested)):
                raise Stopped(f"stopped before phase {number}; the same command goes on with it")
            loop.print_on_first_rank(f"phase {number} of {len(phases)}: {phase.name} in {phase.config.run.path}", comm)
            train(phase, comm, phase.name + recorded)
            gc.collect()  # variables and programs of the phase, whose references are cyclic


def _fetches(phases: Sequence[Phase]) -> list[Callable[[], None]]:
    """Return functions that fetch the data and the first phase's initial weights from object stores."""
    folders = dict.fromkeys(_folder(phase) for phase in phases)
    fetches: list[Callable[[], None]] = [functools.partial(stores.fetch, folder) for folder in folders]
    if isinstance(weights := phases[0].config.init.checkpoint, Path):
        fetches.append(functools.partial(stores.fetch_run, weights))
    return fetches


def start(phases: Sequence[Phase], recorded: str) -> None:
    """Train phases that `placed` returned. recorded: appended to the names of the phases in `config.json`."""
    first, *later = phases
    # Before any tensor, which would allocate memory on all GPUs.
    comm = connect(first.config.run, first.config.parallel)
    stored_runs.fetch_on_each_host(comm, *_fetches(phases))
    for phase in phases:
        stored_runs.take_up(phase.config.run.path, comm)
    phases = on_rank_zero(lambda: with_architectures(phases), comm)
    if later:
        train_all(phases, comm, recorded)
    else:
        train(phases[0], comm, phases[0].name + recorded)
    if comm.rank == 0:
        _tell_end(phases[-1])


def _tell_end(phase: Phase) -> None:
    """Print what was made, and a command that uses this kind of model."""
    run, every = phase.config.run.path, (each for recipe in recipes.RECIPES.values() for each in recipe.phases)
    then = objective_of(phase.config).then(run)
    if after := next((each.name for each in every if each.after == phase.name), None):
        then = ["bert.pretrain", after, "--init.checkpoint", run, "--data.train", "DIR"]
    ending.print_next_command(run, f"{checkpoint.newest(run):,} updates", "python", "-m", *then)
