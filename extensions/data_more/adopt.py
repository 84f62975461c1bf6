"""Take over TFRecords that other programs made for pretraining BERT: check every record, index them, write a manifest.

    python -m data.adopt --source FOLDER --vocab vocab.txt --output workdir/tfrecords/seq128

google-research/bert and NVIDIA's recipes write tf.train.Examples with input_ids, input_mask, segment_ids,
masked_lm_positions, masked_lm_ids, masked_lm_weights and next_sentence_labels, plain or compressed with gzip, without a
manifest. The trainer reads the folder that this stage writes as it reads one of data.tfrecords.

The bytes of the records stay as they are. Plain files are not copied where the file system allows a hard link; then
source and output are the same file on the disk, so do not change the source later. Each source file is one task.
"""

import dataclasses
import gzip
import os
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from bert.core import cli, files, outputs
from bert.core.errors import InputError
from bert.core.ranges import Range
from bert.core.workspace import Work
from bert.text import frames, instance_config, instances, vocabulary
from bert.text.vocabulary import SPECIAL, load_vocab
from data.audit import checks
from data.audit.checks import RecordFormat
from data.pipeline import document_files, tasks, workers
from data.pipeline.tasks import TaskResult
from data.vocab import check_case

GZIP = b"\x1f\x8b\x08"  # with the method: two bytes alone can be a record's length
OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
SUFFIXES = (".tfrecord", ".tf_record", ".tfrecords", ".tfrecord.gz", ".tf_record.gz", ".tfrecords.gz")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.adopt`."""

    source: cli.Stored[tuple[Path, ...]]
    """files of records, or folders with .tfrecord, .tf_record or .tfrecords files, also .gz"""
    vocab: cli.Stored[Path]
    """the vocabulary that the records were made with, vocab.txt"""
    output: cli.Stored[Path]
    """folder to write"""
    heldout_files: Annotated[int, Range(1, 100_000)] = 1
    """number of files, the last ones, on which a run is evaluated; the others are trained on"""
    lower_case: bool = True
    """whether the text was lower-cased"""
    link: bool = True
    """use hard links instead of copies where possible"""


class FileTask(NamedTuple):
    """One file to take over."""

    source: Path
    target: Path
    format: RecordFormat
    link: bool


def take(task: FileTask) -> Counter[str]:
    """Bring one file to its place, check its records and index them. Return counts of their content.

    Raise InputError, naming the record, if one is damaged or is no sample for the vocabulary.
    """
    _place(task.source, task.target, task.link)
    offsets, counts = [0], Counter[str]()
    for batch in frames.batches(task.target):
        if damaged := next((frame for frame in batch if frame.damage), None):
            raise InputError(f"{task.source}: record {damaged.number} at byte {damaged.offset}: {damaged.damage}")
        checked = checks.check_instances([frame.payload for frame in batch], task.format)
        if checked.wrong:
            row, reason = checked.wrong[0]
            remedy = "give the vocabulary of these records, and files of one length"
            raise InputError(f"{task.source}: record {batch[row].number}: {reason}; {remedy}")
        offsets += [frame.offset + frames.HEADER + len(frame.payload) + frames.FOOTER for frame in batch]
        counts.update(checked.counts)
    frames.write_index(task.target, offsets)
    return counts


def _place(source: Path, target: Path, link: bool) -> None:
    """Make `target` the uncompressed content of `source`."""
    target.unlink(missing_ok=True)
    with _opened(source) as packed:
        if isinstance(packed, gzip.GzipFile):
            try:
                with open(target, "wb") as plain:
                    shutil.copyfileobj(packed, plain, 1 << 20)
            except DAMAGE as error:
                raise InputError(f"{source}: damaged ({error}); copy it again") from error
            return
    if link:
        try:
            os.link(source.resolve(), target)
            return
        except OSError:  # another file system, or one without links
            pass
    shutil.copyfile(source, target)


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    """Return the uncompressed content of a file. Raise InputError for a compression that is not read."""
    with open(path, "rb") as stream:
        begin = stream.read(1 << 12)
    if begin.startswith(GZIP):
        return gzip.open(path, "rb")
    kind = next((name for mark, name in OTHERS.items() if begin.startswith(mark)), "ZLIB" if _is_zlib(begin) else "")
    if kind and not frames.begins(begin):
        raise InputError(f"{path}: compressed with {kind}, which is not read; write it again plain, or with GZIP")
    return open(path, "rb")


def _is_zlib(begin: bytes) -> bool:
    """Return whether a file that begins so is records compressed by TensorFlow's ZLIB."""
    try:
        text = zlib.decompressobj().decompress(begin)
    except zlib.error:
        return False
    return bool(begin) and (not text or frames.begins(text))


class AdoptStage(tasks.Stage[FileTask]):
    """Files of records to a dataset. sources: the training files, then the held-out ones."""

    name = "adopt"
    not_parameters = ("link",)

    def __init__(self, options: Options, sources: Sequence[Path]) -> None:
        self.options, self.sources = options, sources

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | vocabulary.rules_parameter(self.options.vocab)

    def inputs(self) -> list[Path]:
        return [*self.sources, self.options.vocab]

    def tasks(self, work: Work) -> list[FileTask]:
        """Check the vocabulary and copy it. Return one task for each file."""
        vocab = load_vocab(self.options.vocab)
        check_case(self.options.vocab, self.options.lower_case)
        vocabulary.copy(self.options.vocab, work.output)
        self.shape = _shape_of(self.sources[0])
        special = {token: vocab.index(token) for token in SPECIAL}
        expected = RecordFormat(instances.feature_spec(self.shape), len(vocab), special, may_lack_predictions=True)
        heldout = self.options.heldout_files
        counts = {"train": len(self.sources) - heldout, "heldout": heldout}
        names = [f"{split}-{n:05d}-of-{count:05d}.tfrecord" for split, count in counts.items() for n in range(count)]
        return [
            FileTask(source, work.output / name, expected, self.options.link)
            for source, name in zip(self.sources, names, strict=True)
        ]

    @classmethod
    def run(cls, task: FileTask) -> TaskResult:
        return take(task)

    @classmethod
    def written(cls, task: FileTask, result: TaskResult) -> Sequence[Path]:
        return [task.target, frames.index_path(task.target)]

    def finish(self, tasks: Sequence[FileTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        for task, result in zip(tasks, results, strict=True):
            if not result.get("instances"):
                raise InputError(f"{task.source}: has no records; leave it out")
            if not result.get("predictions"):
                raise InputError(f"{task.source}: no prediction in its records; give records of pretraining")
        counts = {
            split: document_files.total(of_split) for split, of_split in document_files.by_split(tasks, results).items()
        }
        total = document_files.total(counts.values())
        print(
            f"adopt: {total['instances']:,} instances, {total['predictions']:,} predictions",
            file=sys.stderr,
        )
        extra = {
            "kind": "instances",
            "features": instances.feature_spec(self.shape),
            "max_seq_length": self.shape.max_seq_length,
            "max_predictions_per_seq": self.shape.max_predictions_per_seq,
            "vocab_sha256": files.sha256(self.options.vocab),
            "vocab_size": len(load_vocab(self.options.vocab)),
            "lower_case": self.options.lower_case,
        }
        written = {task.target.name: result["instances"] for task, result in zip(tasks, results, strict=True)}
        return outputs.StageResult(counts=counts, records=written, extra=extra)

    def then(self, made: Path) -> Sequence[object]:
        return ("python", "-m", "bert.pretrain", "RECIPE", "--data.train", made)

    def size(self, task: FileTask) -> int:
        return task.source.stat().st_size


def _shape_of(path: Path) -> instance_config.InstanceConfig:
    """Return the sizes of the first record of a file. Raise InputError if it is no sample of pretraining."""
    import tensorflow as tf  # takes seconds to load and is needed only for this record

    opened = _opened(path)
    try:
        with opened as stream:
            first = frames.first(stream)
    except (*DAMAGE, ValueError) as error:
        raise InputError(f"{path}: not a file of TFRecords, or damaged ({error}); copy it again") from error
    if first is None:
        raise InputError(f"{path}: has no records; leave it out")
    try:
        example = tf.train.Example.FromString(first)
    except Exception as error:  # protobuf's DecodeError is in no public module
        raise InputError(f"{path}: its first record is no tf.train.Example; give files of records") from error
    sizes = {name: len(value.int64_list.value) for name, value in example.features.feature.items()}
    sizes |= {name: len(value.float_list.value) for name, value in example.features.feature.items() if not sizes[name]}
    needed = instances.feature_spec(instance_config.InstanceConfig(max_seq_length=8, max_predictions_per_seq=1))
    if missing := [name for name in needed if not sizes.get(name)]:
        existing = ", ".join(sorted(sizes)[:10]) or "none"
        raise InputError(
            f"{path}: its records have no {missing[0]} (they have {existing}); give records of pretraining"
        )
    return instance_config.InstanceConfig(
        max_seq_length=sizes["input_ids"], max_predictions_per_seq=sizes["masked_lm_positions"]
    )


def sources(options: Options) -> list[Path]:
    """Return the files to take over, in order. Raise InputError if there are too few."""
    paths: list[Path] = []
    for path in options.source:
        if path.is_dir():
            inside = sorted(file for file in files.below(path) if file.name.endswith(SUFFIXES))
            if not inside:
                raise InputError(
                    f"{path}: has no file that ends in {', '.join(SUFFIXES[:3])}; give the files themselves"
                )
            paths += inside
        elif path.is_file():
            paths.append(path)
        else:
            raise InputError(f"{path}: no such file; give files of records or their folder")
    times_given = Counter(path.resolve() for path in paths)
    if twice := next((path for path, number in times_given.items() if number > 1), None):
        raise InputError(f"{twice}: given twice, so a run might be evaluated on what it was trained on; give it once")
    if len(paths) <= options.heldout_files:
        raise InputError(
            f"{options.source[0]}: {len(paths)} files, and --heldout_files keeps {options.heldout_files} of them for "
            "evaluation; give more files"
        )
    return paths


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.adopt", description=__doc__)
    os.environ.update(workers.NO_GPU)  # inherited by the workers: otherwise each allocates a GPU's whole memory
    tasks.build(AdoptStage(options, sources(options)), options.output, options)
