"""The commands: `bert NAME ...` is `python -m MODULE ...`.

    bert pretrain bert_mini --data.train DIR1 DIR2  # python -m bert.pretrain ...
    bert tasks.train classify --data.train FILE     # python -m tasks.train ...

The name of a command is that of its module, without `bert.`. What one does is the first line of its module.
"""

import ast
import difflib
import importlib.util
import runpy
import sys
from pathlib import Path

from bert.core import cli, rows
from bert.core.errors import UsageError

GROUPS: dict[str, tuple[str, ...]] = {
    "Data": (
        "data.download",
        "data.wikipedia",
        "data.books",
        "data.pubmed",
        "data.text",
        "data.documents",
        "data.shards",
        "data.vocab",
        "data.words",
        "data.tfrecords",
        "data.bpe",
        "data.tokens",
        "data.adopt",
        "data.verify",
        "data.stats",
        "data.synthetic",
    ),
    "Pretraining": (
        "bert.plan",
        "bert.doctor",
        "bert.pretrain",
        "bert.adapt",
        "bert.average",
        "bert.report",
    ),
    "What a pretrained model knows": (
        "bert.evaluate",
        "bert.fill_mask",
        "bert.minimal_pairs",
        "bert.encode",
        "bert.search",
        "bert.generate",
        "bert.evaluate_lm",
    ),
    "Questions": (
        "squad.train",
        "squad.predict",
        "squad.metric",
        "squad.threshold",
        "squad.export",
        "squad.report",
    ),
    "Classes, labels, numbers, choices, tags": ("tasks.train", "tasks.predict", "tasks.evaluate", "tasks.thresholds"),
    "Other formats, and serving": ("bert.convert", "bert.export", "serve"),
}
MODULES: dict[str, str] = {module.removeprefix("bert."): module for group in GROUPS.values() for module in group}
"""the module of each command, by the command's name"""
EXTENSIONS: dict[str, str] = {
    "bert.evaluate_lm": "extensions.gpt.evaluate_lm",
    "bert.generate": "extensions.gpt.generate",
    "bert.minimal_pairs": "extensions.minimal_pairs.minimal_pairs",
    "bert.search": "extensions.search.search",
    "data.adopt": "extensions.data_more.adopt",
    "data.bpe": "extensions.tokenizers.bpe",
    "data.pubmed": "extensions.pubmed.pubmed",
    "data.words": "extensions.data_more.words",
}
"""where a command is that an extension has, by the module that forwards to it"""


def about(module: str) -> str:
    """Return the first line of the docstring of a command's module. The module is parsed, not imported."""
    module = EXTENSIONS.get(module, module)
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
    assert spec is not None and spec.origin is not None, f"{module}: a command is a module with a file"
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def listed() -> str:
    """Return a list of all commands and what they do, as text."""
    width = max(map(len, MODULES))
    lines = ["usage: bert COMMAND ...", "", "bert COMMAND --help says what a command takes."]
    for title, modules in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {module.removeprefix('bert.'):<{width}}  {about(module)}" for module in modules]
    return "\n".join(lines)


def run(argv: list[str]) -> None:
    """Run the command that the first argument names with the other arguments."""
    name, *rest = argv or [""]
    if name in ("-h", "--help"):
        print(listed())
    elif name in MODULES or name == "--version":
        module, sys.argv[1:] = (MODULES[name], rest) if name in MODULES else ("bert", argv)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        near = difflib.get_close_matches(name, MODULES, n=3)
        remedy = f"did you mean {' or '.join(near)}?" if near else "bert --help lists the commands"
        raise UsageError(f"bert: no command {name!r}; {remedy}" if name else f"bert: no command given; {remedy}")


def forward() -> None:
    """Run an extension's command for the module of the same name that Python runs here; end the process."""
    cli.main(rows.load(f"{EXTENSIONS[cli.running()]}:main"))


def main() -> None:
    """Run the entry point `bert` of an installation."""
    try:
        run(sys.argv[1:])  # which ends the process as `cli.main` does
    except UsageError as error:
        cli.fail(error)
