"""Weights in and out, exactly, between our run directories and the formats of others.

    python -m bert.convert import huggingface FOLDER RUN    # config.json, model.safetensors, vocab.txt
    python -m bert.convert import google FOLDER RUN         # bert_config.json, bert_model.ckpt.*, vocab.txt
    python -m bert.convert export huggingface RUN FOLDER
    python -m bert.convert export google RUN FOLDER

What is imported is a run directory for --init.checkpoint of the training commands, for bert.encode and, with a head for
questions, for squad.predict. Exported is the newest checkpoint of a run. Weights keep their bits; tensors of which a
model has no need are named and left aside, and all others that are missing, unknown or of another shape are refused.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bert import cli
from bert.convert import google, huggingface, names, run
from bert.convert.run import Model
from bert.hardware import devices
from bert.storage import manifest

FORMATS = {"google": google, "huggingface": huggingface}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.convert`."""

    direction: cli.Positional[Literal["import", "export"]]
    """import makes a run directory, export reads one"""
    format: cli.Positional[Literal["google", "huggingface"]]
    """the format of the other folder"""
    source: cli.Positional[Path]
    """folder to read"""
    target: cli.Positional[Path]
    """folder to write"""


def convert(way: str, form: str, source: Path, target: Path) -> None:
    """Makes `target` from `source`, whole or not at all."""
    before, after = (run, FORMATS[form]) if way == "export" else (FORMATS[form], run)

    def make(partial: Path) -> manifest.StageResult:
        model: Model = before.read(source)
        after.write(model, partial)
        _tell(model, f"{way} {form}: {target}")
        return manifest.StageResult(counts={"weights": len(model.values)})

    named = {"source": source.name, "heads": names.HEAD_NAMES}  # another version may know others
    manifest.build(target, stage=f"{way} {form}", parameters=named, inputs=before.parts(source), make=make)


def _tell(model: Model, what: str) -> None:
    aside = names.listed(model.found.aside)
    parts = ", ".join(["encoder", *model.found.heads])
    missing_heads = ", ".join(model.found.missing_heads)
    print(
        f"{what}: {parts}; not in it: {missing_heads or 'nothing'}; left aside: {aside or 'nothing'}", file=sys.stderr
    )


def main(argv: list[str]) -> None:
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m bert.convert", description=__doc__)
    devices.hide_gpus()  # it only moves weights from file to file
    convert(options.direction, options.format, options.source, options.target)


if __name__ == "__main__":
    cli.main(main)
