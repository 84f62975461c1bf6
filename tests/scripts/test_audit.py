"""scripts/audit.sh, with a stand-in for pip-audit that finds what a test tells it to."""

import json
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# As observed of pip-audit 2.10.1: it ends with 0 where the service knows none of the packages, and with 1 where it
# could not connect; according to its README also where it found something.
STAND_IN = """
    import json, pathlib, sys
    answer = json.loads((pathlib.Path(__file__).parent / "answer").read_text())
    lines = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text().split()
    with open(pathlib.Path(__file__).parent / "asked", "a") as asked:
        asked.write("\\n".join(lines) + "\\n")
    assert len({line.split("==")[0] for line in lines}) == len(lines), "two versions of a package"
    if answer == "no network":
        sys.exit("requests.exceptions.ConnectionError: Failed to resolve the service's name")
    found = []
    for name, version in (line.split("==") for line in lines):
        if name in answer["unknown"] or answer["unknown"] == "all":
            found.append({"name": name, "skip_reason": "Dependency not found"})
        else:
            flaws = [{"id": "CVE-1", "fix_versions": ["9.9"]}] if name in answer["flawed"] else []
            found.append({"name": name, "version": version, "vulns": flaws})
    print(json.dumps({"dependencies": found, "fixes": []}))
    sys.exit(any(package.get("vulns") for package in found))
"""
LISTS = ("requirements-audit.txt", "requirements-nvcc.lock", "requirements-cpu.lock", "requirements-gpu.lock")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The lists and scripts, beside an environment with the stand-in."""
    for name in (*LISTS, "scripts/audit.sh", "scripts/extra_venv.sh", "scripts/install_horovod.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    program = tmp_path / ".venv-audit" / "bin" / "pip-audit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable} -S\n" + re.sub("^    ", "", STAND_IN, flags=re.MULTILINE))
    program.chmod(0o755)
    (tmp_path / ".venv-audit" / ".stamp").write_text(f"{sha256((ROOT / LISTS[0]).read_bytes()).hexdigest()}  -\n")
    return tmp_path


def audit(checkout: Path, answer: object) -> tuple[int, list[str], str]:
    """Exit status, printed lines and standard error."""
    (checkout / ".venv-audit/bin/answer").write_text(json.dumps(answer))
    done = subprocess.run([checkout / "scripts/audit.sh"], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_every_version_of_every_locked_package_and_horovod_are_compared(checkout: Path) -> None:
    code, said, error = audit(checkout, {"unknown": [], "flawed": []})
    asked = (checkout / ".venv-audit/bin/asked").read_text().split()
    text = "".join((ROOT / name).read_text() for name in LISTS[1:])
    pinned = set(re.findall(r"^([\w.-]+)(?:\[.*?\])?(==[\w.]+)", text, re.MULTILINE))
    assert sorted(asked) == sorted({name + version for name, version in pinned} | {"horovod==0.28.1"})
    assert (code, error) == (0, "") and said == [
        f"{len(asked)} of {len(asked)} packages compared, 0 known vulnerabilities"
    ]


@pytest.mark.parametrize(
    "answer", ["no network", {"unknown": "all", "flawed": []}, {"unknown": ["numpy"], "flawed": []}]
)
def test_packages_that_could_not_be_compared_are_no_success(answer: object, checkout: Path) -> None:
    code, _, error = audit(checkout, answer)
    assert code == 3 and error.startswith("error: the audit is not complete: ") and error.count("\n") == 1


def test_a_known_vulnerability_is_named_with_the_version_that_mends_it(checkout: Path) -> None:
    code, said, error = audit(checkout, {"unknown": ["numpy"], "flawed": ["requests"]})
    assert code == 4 and error.startswith("error: packages with known vulnerabilities") and error.count("\n") == 1
    assert re.fullmatch(r"requests [\d.]+: CVE-1, mended in 9\.9", said[0]) and "1 known" in said[1]


def test_without_a_network_for_the_program_itself_it_is_one_line_more(checkout: Path) -> None:
    (checkout / ".venv-audit/.stamp").unlink()
    python = checkout / "python3"
    python.write_text("#!/bin/sh\nmkdir -p .venv-audit/bin; cp false .venv-audit/bin/python\n")
    (checkout / "false").symlink_to("/bin/false")
    python.chmod(0o755)
    command, env = [checkout / "scripts/audit.sh"], {"PATH": "/usr/bin:/bin", "PYTHON": str(python)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 3 and "pip-audit could not be installed" in done.stderr
    assert not (checkout / ".venv-audit/.stamp").exists()
