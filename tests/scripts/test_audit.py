"""scripts/audit.sh, with a stand-in for pip-audit that finds what a test tells it to."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# As observed of pip-audit 2.10.1: with --strict it ends with 1 at the first package that its service does not know, and
# where it could not connect. According to its source it ends with 1 too where it found something, and prints a table.
STAND_IN = """
    import json, pathlib, sys
    answer = json.loads((pathlib.Path(__file__).parent / "answer").read_text())
    assert "--strict" in sys.argv
    lines = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text().split()
    with open(pathlib.Path(__file__).parent / "asked", "a") as asked:
        asked.write("\\n".join(lines) + "\\n")
    pinned = dict(line.split("==") for line in lines)
    assert len(pinned) == len(lines), "two versions of a package"
    if answer == "no network":
        sys.exit("requests.exceptions.ConnectionError: Failed to resolve the service's name")
    if answer["unknown"] == "all" or {*answer["unknown"]} & {*pinned}:
        sys.exit("ERROR:pip_audit._cli:numpy: Dependency not found and could not be audited: numpy (2.4.6)")
    found = [name for name in answer["flawed"] if name in pinned]
    print(*(f"{name} {pinned[name]} CVE-1 9.9" for name in found), sep="\\n", end="\\n" if found else "")
    sys.exit(f"Found {len(found)} known vulnerabilities" if found else 0)
"""
LOCKS = ("cpu.lock", "gpu.lock", "nvcc.lock")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The locks and scripts, beside environments with stand-ins for uv and pip-audit."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "scripts").mkdir()
    for name in ("audit.sh", "extra_venv.sh", "install_horovod.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    program(tmp_path / ".venv-audit/bin/pip-audit", re.sub("^    ", "", STAND_IN, flags=re.MULTILINE))
    program(tmp_path / ".venv-audit/bin/python", "")
    program(tmp_path / ".venv/bin/uv", "")
    program(tmp_path / ".venv/bin/python", "")
    return tmp_path


def program(path: Path, text: str) -> None:
    """Put a Python program there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -S\n{text}")
    path.chmod(0o755)


def audit(checkout: Path, answer: object) -> tuple[int, list[str], str]:
    """Exit status, printed lines and standard error."""
    (checkout / ".venv-audit/bin/answer").write_text(json.dumps(answer))
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([checkout / "scripts/audit.sh"], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_every_version_of_every_locked_package_and_horovod_are_compared(checkout: Path) -> None:
    code, said, error = audit(checkout, {"unknown": [], "flawed": []})
    asked = (checkout / ".venv-audit/bin/asked").read_text().split()
    text = "".join((ROOT / "requirements" / name).read_text() for name in LOCKS)
    pinned = set(re.findall(r"^([\w.-]+)(==[\w.]+)", text, re.MULTILINE))
    assert sorted(asked) == sorted({name + version for name, version in pinned} | {"horovod==0.28.1"})
    assert (code, error) == (0, "") and said == [f"{len(asked)} packages compared, none has a known vulnerability"]


@pytest.mark.parametrize(
    "answer", ["no network", {"unknown": "all", "flawed": []}, {"unknown": ["numpy"], "flawed": []}]
)
def test_packages_that_could_not_be_compared_are_no_success(answer: object, checkout: Path) -> None:
    code, said, error = audit(checkout, answer)
    assert code == 3 and error.startswith("error: the audit is not complete: ") and error.count("\n") == 1 and not said


def test_a_known_vulnerability_is_named_with_the_version_that_mends_it(checkout: Path) -> None:
    code, said, error = audit(checkout, {"unknown": [], "flawed": ["requests"]})
    assert code == 4 and error.startswith("error: packages with known vulnerabilities") and error.count("\n") == 1
    assert len(said) == 1 and re.fullmatch(r"requests [\d.]+ CVE-1 9\.9", said[0])


def test_without_a_network_for_the_program_itself_it_is_one_line_more(checkout: Path) -> None:
    program(checkout / ".venv/bin/python", "import sys; sys.exit('no network')\n")
    code, said, error = audit(checkout, {"unknown": [], "flawed": []})
    assert code == 3 and "pip-audit could not be installed" in error and not said
    (checkout / ".venv/bin/uv").unlink()
    assert "error: .venv has no uv ; install with: make setup\n" in audit(checkout, {})[2]
