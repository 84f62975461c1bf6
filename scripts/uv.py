"""Run uv with the settings that pip has on this machine: mirror, folder of files, certificates. uv reads only its own.

    .venv/bin/python scripts/uv.py pip install --python .venv/bin/python six

Variables of uv that are set already stay. It is the uv of the environment whose interpreter runs this.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

VARIABLES = {  # pip's settings, and uv's variables for the same
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}


def translated(listed: str) -> tuple[dict[str, str], list[str]]:
    """Return variables and flags for `listed`, the lines of `pip config list`: global.index-url='https://...'."""
    flags = []
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}  # as pip
    lines = [line.partition("=") for line in listed.splitlines() if "=" in line]
    # pip's order: what is set for all commands, for `pip install`, in the environment
    for section in ("global.", "install.", ":env:."):
        for name, _, value in lines:
            setting = name.removeprefix(section) if name.startswith(section) else ""
            words = ast.literal_eval(value).split()
            if setting in VARIABLES and words:
                variable = VARIABLES[setting]
                settings[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(words)
            elif setting == "no-index":  # uv has no variable for it
                flags = ["--no-index"] if "".join(words).lower() in ("1", "true", "yes", "on", "y", "t") else []
    return settings, flags


if __name__ == "__main__":
    command = [sys.executable, "-m", "pip", "config", "list"]
    settings = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    program = Path(sys.executable).with_name("uv")
    environment, flags = translated(settings)
    os.execve(program, [str(program), *sys.argv[1:], *flags], environment | os.environ)
