"""Convert weights between run directories and the formats of google-research/bert and Hugging Face transformers.

    python -m bert.convert import huggingface FOLDER RUN    # config.json, model.safetensors, and a tokenizer's files
    python -m bert.convert import google FOLDER RUN         # bert_config.json, bert_model.ckpt.*, vocab.txt
    python -m bert.convert export huggingface RUN FOLDER
    python -m bert.convert export google RUN FOLDER
    python -m bert.convert import peft ADAPTER RUN --base BASE_RUN    # and export peft RUN ADAPTER

Hugging Face's folders are those of BERT, MegatronBert, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, ELECTRA,
ModernBERT, NeoBERT and GPT-2, and of sentence-transformers; peft's are adapters of LoRA. An import creates a run
directory. It can be given to --init.checkpoint of the training commands, to bert.encode and, if it has a head for it,
to squad.predict or bert.export. An export writes the newest checkpoint of a run. Values are copied exactly, and the
names of classes are kept; --labels gives an import the names that its source does not have. Tensors that the model does
not need, such as optimizer state, are reported and ignored. A missing tensor, an unknown tensor or a wrong shape is an
error.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bert.convert import names
from bert.core import cli, ending, outputs, rows
from bert.core.config import ModelConfig
from bert.core.errors import UsageError

if TYPE_CHECKING:
    from bert.convert.run import Model

PEFT = "extensions.lora.peft:FORMAT"  # a `bert.convert.run.Format`


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.convert`."""

    direction: cli.Positional[Literal["import", "export"]]
    """import makes a run directory, export reads one"""
    format: cli.Positional[Literal["google", "huggingface", "peft"]]
    """the format of the other folder; peft: the low-rank updates of LoRA and the heads, without the model's weights"""
    source: cli.Positional[Path]
    """folder to read"""
    target: cli.Positional[Path]
    """folder to write"""
    labels: tuple[str, ...] = ()
    """import: names of the classes, in the order of the logits, instead of those of the source"""
    head: Literal["auto", "none", "classifier", "multilabel", "choice", "tags"] = names.AUTO
    """import from huggingface: what the tensors `classifier` are, where config.json does not say it; none imports the
    encoder alone and names what is left aside"""
    prefix: str = ""
    """import from huggingface: what the names of tensors have before those of transformers, such as _orig_mod. of
    torch.compile; it is taken off the names that begin with it"""
    base: Path | None = None
    """import from peft: the run directory of the model that the adapter was trained on"""

    def __post_init__(self) -> None:
        if (self.base is not None) != ((self.direction, self.format) == ("import", "peft")):
            raise UsageError("--base RUN is what an import from peft needs, and nothing else")
        if self.labels and self.direction == "export":
            raise UsageError("--labels has no effect on an export, which has the names of the run; leave it out")
        if self.head != names.AUTO and (self.direction == "export" or self.format == "google"):
            raise UsageError("--head is for an import from huggingface or peft; leave it out")
        if self.prefix and (self.direction, self.format) != ("import", "huggingface"):
            raise UsageError("--prefix is for an import from huggingface; leave it out")


def convert(
    direction: str,
    form: str,
    source: Path,
    target: Path,
    labels: tuple[str, ...] = (),
    head: str = names.AUTO,
    base: Path | None = None,
    prefix: str = "",
) -> None:
    """Create the folder `target` from `source`, complete or not at all.

    direction: "import" or "export". labels: names of the classes, instead of the names in the source of an import.
    head: the head that `classifier` is in an import from transformers. base: the run that an import from peft belongs
    to. prefix: as in `huggingface.read_model`.
    """
    from bert.convert import google, huggingface, run

    other: Any = rows.load(PEFT) if form == "peft" else {"google": google, "huggingface": huggingface}[form]
    more = ({} if head == names.AUTO else {"head": head}) | ({"prefix": prefix} if prefix else {})
    reader, writer = (run, other) if direction == "export" else (other, run)

    def make(partial: Path) -> outputs.StageResult:
        if direction == "export":
            run.check_form(source)
        arguments: dict[str, Any] = {"head_name" if name == "head" else name: value for name, value in more.items()}
        arguments |= {"head_name": head, "base": base} if base else {}
        model: Model = reader.read_model(source, **arguments)
        model = run.named(model, labels) if labels else model
        writer.write_model(model, partial)
        _print_summary(model, direction, f"{direction} {form}: {target}")
        return outputs.StageResult(counts={"weights": len(model.values)})

    # The names of the heads are part of the key: a later version may know more of them.
    parameters = {"source": source.name, "heads": names.HEAD_NAMES, "labels": labels} | more
    inputs = reader.input_files(source) + (run.input_files(base) if base else [])
    outputs.build(target, stage=f"{direction} {form}", parameters=parameters, inputs=inputs, make=make)


def _print_summary(model: Model, direction: str, title: str) -> None:
    parts = [f"converted: {', '.join(['encoder', *model.match.heads])}"]
    if direction == "import":
        parts.append(f"missing heads: {', '.join(model.match.missing_heads) or 'none'}")
        parts.append(f"ignored tensors: {names.shortened(model.match.ignored) or 'none'}")
    elif model.match.ignored:
        parts.append("without the state of the training, for which the format has no place")
    print(f"{title}: {'; '.join(parts)}", file=sys.stderr)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.convert", description=__doc__)
    from bert.hardware import devices

    devices.hide_gpus()  # nothing is computed
    convert(
        options.direction,
        options.format,
        options.source,
        options.target,
        options.labels,
        options.head,
        options.base,
        options.prefix,
    )
    ending.print_next_command(options.target, "", *(_next(options.target) if options.direction == "import" else ()))


def _next(run: Path) -> tuple[object, ...]:
    """Return the words of a command that uses an imported run."""
    if ModelConfig.load(run / "bert_config.json").causal:
        return "python", "-m", "bert.generate", run, "PROMPT"
    return "python", "-m", "tasks.train", "RECIPE", "--init.checkpoint", run, "--data.train", "FILE"


if __name__ == "__main__":
    cli.main(main)
