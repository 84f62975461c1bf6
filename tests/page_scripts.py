"""A page of the documentation as a script of bash that runs its commands in order, with smaller numbers."""

import dataclasses
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import offline, test_pages

FAILED = "failed: "
STARTED = """[ -z "$service" ] || {{ kill $service; wait $service; }}
{command} &
service=$!
trap 'kill $service; wait $service' EXIT
until curl -fs 127.0.0.1:{port}/readyz > ready; do kill -0 $service || break; sleep 0.5; done; kill -0 $service"""

PROGRAM = "bert() { python -c 'from bert import commands; commands.main()' \"$@\"; }"  # of an installation


@dataclasses.dataclass(frozen=True)
class Page:
    """What it takes to run the commands of a page."""

    name: str
    changes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """words of the page, and what stands for them here"""
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """the beginning of a command, or of a block of Python, that is not run; and why"""
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """what the page expects to be there: a path, and of what in the folder `made` it is a link"""
    first: str = ""
    """lines of shell that come before the commands"""

    @property
    def path(self) -> Path:
        """The file of the page."""
        return offline.ROOT / self.name


def script(page: Page) -> str:
    """Return the script. It goes on after a command that fails, prints a line that begins with `FAILED`, and ends so.

    Commands are those of this repository, of curl, and settings of variables; all other lines, such as output, are
    left out. Python and YAML are run and written.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    used: set[str] = set()
    lines = ["set -uo pipefail", "failures=0", "service=", PROGRAM, page.first]
    blocks = [(language, text) for language, text in test_pages.blocks(page.path) if "at commit" not in text]
    for language, text in sorted(blocks, key=lambda block: block[0] != "yaml"):  # files are there before all commands
        text = _changed(text, {**page.changes, ":8000": f":{port}", ":8001": f":{port}"}, used)
        for shown, line in _commands(language, text, port):
            without = next((words for words in page.left_out if shown.startswith(words)), None)
            if without is None:
                failed = f"echo {shlex.quote(FAILED + shown.splitlines()[0])} >&2; failures=1"
                lines.append(f"echo {shlex.quote('+ ' + shown)} >&2\n{{ {line}\n}} || {{ {failed}; }}")
            else:
                used.add(without)
    unused = {*page.changes, *page.left_out} - used
    assert not unused, f"{page.name} has no {unused}"
    return "\n".join([*lines, "exit $failures"])


def _changed(text: str, changes: Mapping[str, str], used: set[str]) -> str:
    for words, other in changes.items():
        if words in text:
            used.add(words)
            text = text.replace(words, other)
    return text


def _commands(language: str, text: str, port: int) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block: what the page shows, and the line of shell that runs it."""
    if language == "python" or (not language and text.startswith(("import ", "from "))):
        yield text, f"python - <<'CODE'\n{text}CODE"
    elif language == "yaml":
        yield text, f"cat > {text.split()[1]} <<'CODE'\n{text}CODE"
    elif not language:
        for line in test_pages.joined(text):
            words = next(test_pages.parts(line), [])
            plain = re.sub(r" --port \d+| +#.*", "", line)
            if words[:3] == ["python", "-m", "serve"]:
                yield line, STARTED.format(command=f"{plain} --port {port}", port=port)
            elif words[:2] == ["make", "serve"]:
                yield line, STARTED.format(command=f"{_here(plain)} FLAGS='--port {port}'", port=port)
            elif words[:1] == ["curl"]:
                yield line, line.replace("curl", "curl -fsS", 1)
            elif words and (words[0] == "export" or re.match(r"\w+=", words[0]) or test_pages.is_ours(words)):
                yield line, _here(line)


def _here(line: str) -> str:
    return line.replace("make ", "make -o setup ")  # in this environment


def run(
    page: Page, folder: Path, made: Path | None = None, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script in a folder that has links to all files of the repository. more: environment variables."""
    prepare(page, folder, made)
    return execute(script(page), folder, more)


def prepare(page: Page, folder: Path, made: Path | None) -> None:
    """Make the links in the folder."""
    for path in offline.ROOT.iterdir():
        if path.name not in (".git", "workdir"):
            (folder / path.name).symlink_to(path)
    if made:
        (folder / "made").symlink_to(made)
    for name, target in page.links.items():
        for parent in reversed((folder / name).relative_to(folder).parents):
            (folder / parent).mkdir(mode=0o700, exist_ok=True)  # as the umask of `execute` has it
        (folder / name).symlink_to(folder / "made" / target)


def execute(
    text: str, folder: Path, more: Mapping[str, str] | None = None, umask: int = 0o077
) -> subprocess.CompletedProcess[str]:
    """Run a script of bash in a folder that gets its own work folder, without a network. more: environment variables.

    `python` is that of this process.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", **(more or {})}
    environment |= {"PYTHONPATH": str(offline.ROOT)}
    environment.pop("BERT_WORKDIR", None)  # it is ./workdir, as the pages have it
    command = [*offline.words(), "bash", "-c", f"mkdir -p workdir\n{text}"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, umask=umask)


def failures(said: str) -> str:
    """Return the commands that failed, each with the last lines of what it printed to standard error."""
    found, before = [], ""
    for line in said.splitlines():
        if line.startswith("+ "):
            before = ""
        elif line.startswith(FAILED):
            found.append(f"{line}\n{before[-800:]}")
        before += f"    {line}\n"
    return "\n".join(found)
