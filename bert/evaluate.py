"""Evaluate a masked language model: masked words and sentence pairs of held-out samples, or pseudo-perplexity of texts.

    python -m bert.evaluate RUN --data DIR [--split heldout]
    python -m bert.evaluate RUN --text texts.txt

RUN is a run directory of bert.pretrain, or an import with a head for masked words. DIR is made by data.tfrecords with
the vocabulary of the run; its samples are masked as in training. Runs that were masked by different shares are
compared with --mask_shares 1 0 0: words that stay lower the loss of a model that has learned to copy them. All samples
are evaluated; --sequences takes some of them, with the number of run.evaluate_sequences those of the evaluations in
training. If they are of several sources, the figures of each follow those of the whole ("mlm_accuracy/books").

With --text each token of each line is masked in turn, and predicted from all others (Salazar et al. 2020, "Masked
Language Model Scoring"): pseudo_perplexity is exp of minus the mean log probability of the tokens, and
pseudo_perplexity_per_word the same for the words between spaces, by which models of different vocabularies can be
compared. Prints one line of JSON.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from bert.core import cli, ending, ranges
from bert.core.errors import UsageError
from bert.core.ranges import BatchSize, Range, Share
from bert.hardware.choices import Compute, DeviceName


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.evaluate`."""

    run: cli.Run
    """run directory"""
    data: Path | None = None
    """folder of python -m data.tfrecords"""
    text: Path | None = None
    """texts, one per line, plain or compressed (.gz, .bz2, .xz), instead of --data"""
    split: Literal["heldout", "train"] = "heldout"
    """part of the data"""
    sequences: Annotated[int, Range(0, 10**9)] = 0
    """number of samples, spread over all and always the same ones, as in training; 0: all"""
    mask_shares: tuple[Share, ...] = ()
    """of the selected tokens of documents, the shares that become [MASK], become a random token, or stay unchanged;
    default: those of the run's training"""
    batch: BatchSize = 32
    """maximum samples per batch"""
    compute: Compute = "float32"
    """data type of matrix products"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.data is None) == (self.text is None):
            raise UsageError("give either --data or --text")
        if self.text is not None and self.sequences:
            raise UsageError("--sequences is for --data: with --text each line is scored; leave it out")
        if self.text is not None and self.split != "heldout":
            raise UsageError("--split is for --data; leave it out")
        if self.mask_shares:
            if self.text is not None:
                raise UsageError("--mask_shares is for --data: with --text each token is masked")
            ranges.check_mask_shares(self.mask_shares, "mask_shares")


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.evaluate", description=__doc__)
    from bert import masked_evaluation
    from bert.hardware import devices
    from bert.runs import Run

    devices.choose(options.device)
    run = Run.open(options.run)
    if options.data is not None:
        how = options.split, options.sequences, options.batch, options.compute, options.mask_shares
        print(json.dumps(masked_evaluation.of_samples(run, options.data, *how)), flush=True)
    elif options.text is not None:
        print(json.dumps(masked_evaluation.of_texts(run, options.text, options.batch, options.compute)), flush=True)
    ending.print_next_command(f"evaluated {options.run} on {options.data or options.text}")


if __name__ == "__main__":
    cli.main(main)
