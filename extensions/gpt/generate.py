"""Continue texts by a causal model.

    python -m bert.generate RUN "The meaning of life is" [--max_tokens 100] [--temperature 0.8] [--top_k 40]
    python -m bert.generate RUN "First text" "Second text" --count 3 --json

RUN is a run directory of bert.pretrain with a recipe such as gpt2_117m, or one created by bert.convert. Each prompt is
printed with what follows it; --json prints one line of JSON for each text. An empty prompt is the beginning of
a document. The same command prints the same texts: each random number belongs to a seed, a text and a place in it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from bert.core import cli, ranges
from bert.core.errors import UsageError
from bert.core.progress import Progress
from bert.core.ranges import BatchSize, Range, Seed
from bert.hardware.choices import DeviceName

if TYPE_CHECKING:
    from bert.hardware.devices import Device
    from extensions.gpt.generation import Generator
    from extensions.gpt.trained import Trained

SEPARATOR = "-----"  # between texts


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.generate`."""

    run: cli.Run
    """run directory of a causal model"""
    prompts: cli.Positional[tuple[str, ...]]
    """texts to continue"""
    max_tokens: Annotated[int, Range(1, 65_536)] = 100
    """largest number of new tokens"""
    temperature: Annotated[float, Range(0, 100)] = 1.0
    """divides the scores: below 1 likely tokens become likelier; 0 always takes the likeliest"""
    top_k: Annotated[int, Range(0, 10_000_000)] = 0
    """choose among this number of likeliest tokens; 0: all"""
    top_p: Annotated[float, Range(0, 1, above=True)] = 1.0
    """choose among the likeliest tokens that have this probability together"""
    seed: Seed = 0
    """of the random numbers"""
    count: Annotated[int, Range(1, 100_000)] = 1
    """texts for each prompt"""
    batch: BatchSize = 8
    """texts that are continued at once"""
    cut: cli.Switch = False
    """of a prompt with too many tokens keep the last ones, so that max_tokens can follow"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""
    json: cli.Switch = False
    """print a line of JSON for each text"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.count > 1 and self.temperature == 0:
            raise UsageError(f"--count {self.count}: with --temperature 0 all texts are the same; give another one")


def encode(model: Trained, options: Options) -> list[list[int]]:
    """Return the token ids of each prompt. Raise UsageError for one that is too long."""
    positions = model.encoder.config.max_position_embeddings
    room = max(1, positions + 1 - options.max_tokens)
    prompts = []
    for number, ids in enumerate(model.tokenizer.encode_batch(options.prompts), 1):
        if len(ids) > positions and not options.cut:
            raise UsageError(
                f"prompt {number} has {len(ids):,} tokens, but the model has {positions:,} positions; shorten it, or "
                "give --cut to keep its last tokens"
            )
        prompts.append((ids[-room:] if options.cut else ids) or [model.tokenizer.end])
    return prompts


def generator_for(model: Trained, options: Options) -> Generator:
    """Return what continues texts as the options say."""
    from extensions.gpt.generation import Generator
    from extensions.gpt.sampling import Choice

    choice = Choice(options.temperature, options.top_k, options.top_p)
    return Generator(model, choice, seed=options.seed, batch=options.batch)


def texts(model: Trained, generator: Generator, options: Options, device: Device) -> Iterator[dict[str, Any]]:
    """Yield what --json prints of each text, in order. Raise as `encode` and `Generator.generate` do."""
    memory = device.memory if device.is_gpu else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    prompts = [ids for ids in encode(model, options) for _ in range(options.count)]
    for number, text in enumerate(generator.generate(prompts, options.max_tokens, memory)):
        prompt, sample = options.prompts[number // options.count], number % options.count
        new = model.tokenizer.decode(token for token in text.ids if token < model.tokenizer.size)  # others have no text
        yield {"prompt": prompt, "sample": sample, "text": new, "tokens": text.ids, "end": text.end}


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.generate", description=__doc__)
    from bert.hardware import devices
    from extensions.gpt import trained

    device = devices.choose(options.device)
    model = trained.load(options.run)
    generator = generator_for(model, options)
    ends: list[str] = []
    with Progress("generate", "texts", len(options.prompts) * options.count) as progress:
        for line in progress.each(texts(model, generator, options, device)):
            if options.json:
                print(json.dumps(line, ensure_ascii=False), flush=True)
            else:
                print(*([SEPARATOR] if ends else []), line["prompt"] + line["text"], sep="\n", flush=True)
            ends.append(line["end"])
    if reached := ends.count("positions"):
        positions = model.encoder.config.max_position_embeddings
        print(f"note: {reached} of {len(ends)} texts ended at the model's {positions:,} positions", file=sys.stderr)
    timing = generator.timing
    rate = f", then {timing.tokens / timing.seconds:,.1f} tokens/s" if timing.tokens else ""
    print(f"{len(ends)} texts; their first tokens in {timing.prompts:.2f} s{rate}", file=sys.stderr)
