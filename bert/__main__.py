"""Print the version of this program.

    python -m bert --version

Prints the version, the commit of the checkout if git knows it, and the versions of what it stands on. What there is to
run is listed in README.md, and by `make help`.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bert import __version__
from bert.core import cli, outputs
from bert.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert`."""

    version: cli.Switch = False
    """print the version"""


def commit() -> str:
    """Return the short hash of the checkout's commit, with `+` if files differ from it; "" without git.

    Return "" also for an installed package: it is not in a checkout of this project.
    """
    root, printed = Path(__file__).resolve().parents[1], []
    if not (root / ".git").exists():
        return ""
    for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        try:
            command = ("git", "-C", str(root), *words)
            printed.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        except (OSError, subprocess.CalledProcessError):
            return ""
    return printed[0] + ("+" if printed[1] else "")


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert", description=__doc__)
    if not options.version:
        raise UsageError("give --version; the commands are python -m bert.pretrain and others, see README.md")
    hash_of_commit = commit()
    print(f"{__version__}{f' ({hash_of_commit})' if hash_of_commit else ''}")
    print(", ".join(f"{name} {version}" for name, version in outputs.versions().items()))


if __name__ == "__main__":
    cli.main(main)
