"""The lock files have what requirements.txt and pyproject.toml ask for, and the environment has what they list."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
STAMP = Path(sys.prefix) / ".stamp"  # PYTHON-VERSION DEVICE HASH; scripts/setup.sh writes it last
OURS = {"horovod", "pip", "setuptools", "wheel"}  # built here, or part of every environment
LOCKS = {"cpu": ("cpu",), "gpu": ("cpu", "gpu")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS, GROUPS = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
RUN_TIME = re.findall(r"^[^#\s]+", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE)
ASKED = {
    "cpu.lock": [*RUN_TIME, *EXTRAS["extra"], *GROUPS["dev"]],
    "gpu.lock": EXTRAS["gpu"],
    "nvcc.lock": GROUPS["nvcc"],
}


def locked(name: str) -> list[Requirement]:
    """Return the entries of a file in requirements/."""
    text = (ROOT / "requirements" / name).read_text("utf-8")
    return [Requirement(line) for line in re.findall(r"^(\w.*?)(?: \\)?$", text, re.MULTILINE)]


def pinned(lines: list[str]) -> dict[str, str]:
    """Return the version of each package; every line is `name==version`, perhaps with an extra."""
    asked = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in asked}


def here(*names: str) -> dict[str, str]:
    """Return the versions that locks have for this interpreter."""
    entries = [one for name in names for one in locked(f"{name}.lock")]
    return pinned([f"{one.name}{one.specifier}" for one in entries if one.marker is None or one.marker.evaluate()])


def device() -> str:
    """Return what this environment was made for from a lock; skip the test if it was not."""
    made_for = STAMP.read_text().split()[1] if STAMP.exists() else "none"
    if made_for not in LOCKS:
        pytest.skip("this environment was not made from a lock file")
    return made_for


def needed(lines: list[str]) -> set[str]:
    """Return what these packages need, themselves included, according to what is installed."""
    found: set[tuple[str, str]] = set()  # a package and one of its extras
    waiting = lines
    while waiting:
        wanted = [Requirement(line) for line in waiting]
        new = {(canonicalize_name(one.name), extra) for one in wanted for extra in ("", *one.extras)} - found
        found |= new
        waiting = [
            line
            for name, extra in new
            for line in metadata.requires(name) or []
            if (marker := Requirement(line).marker) is None or marker.evaluate({"extra": extra})
        ]
    return {name for name, _ in found}


@pytest.mark.parametrize("name", ASKED)
def test_locks_have_every_pinned_package_and_a_hash_for_each(name: str) -> None:
    versions: dict[str, set[str]] = {}
    for one in locked(name) + locked("cpu.lock"):  # gpu.lock has only what cpu.lock has not
        versions.setdefault(canonicalize_name(one.name), set()).add(str(one.specifier).removeprefix("=="))
    asked = pinned(ASKED[name])
    assert {package: versions.get(package, set()) & {version} for package, version in asked.items()} == {
        package: {version} for package, version in asked.items()
    }, "run make lock"
    entries = re.split(r"\n(?=\w)", (ROOT / "requirements" / name).read_text("utf-8"))[1:]
    assert len(entries) >= len(asked) - (name == "gpu.lock")
    assert all("==" in entry and " \\\n    --hash=sha256:" in entry for entry in entries)


def test_locks_have_nothing_that_no_package_needs() -> None:
    asked = ASKED["cpu.lock"] + (ASKED["gpu.lock"] if device() == "gpu" else [])
    assert here(*LOCKS[device()]).keys() == needed(asked), "run make lock"
    assert {one.name for one in locked("nvcc.lock")} == pinned(GROUPS["nvcc"]).keys(), "run make lock"


def test_no_package_is_in_two_locks_for_one_environment() -> None:
    assert not {one.name for one in locked("cpu.lock")} & {one.name for one in locked("gpu.lock")}


def test_beside_another_tensorflow_the_rest_has_the_versions_of_the_lock() -> None:
    own, asked = pinned([str(one) for one in locked("own.txt")]), pinned(ASKED["cpu.lock"])
    assert own == {name: version for name, version in asked.items() if name in own}, "run make lock"
    of_tensorflow = {"tensorflow", "tensorflow-text", "tensorboard", "numpy"}
    of_horovod = {"cloudpickle", "psutil", "pyyaml", "packaging", "setuptools"}
    newer = {"tensorflow-serving-api", "onnx", "onnxruntime"}  # these would replace parts of an older TensorFlow
    newer |= {"openvino"}  # which needs onnx
    assert asked.keys() - own.keys() == of_tensorflow | of_horovod | newer | {"requests", "matplotlib"}


def test_installed_packages_are_those_of_the_lock_file() -> None:
    wanted = here(*LOCKS[device()])
    installed: dict[str, str] = {
        canonicalize_name(one.metadata["Name"]): one.version for one in metadata.distributions()
    }
    assert len(wanted) > 50
    assert {name: installed.get(name) for name in wanted} == wanted, "run make setup"
    assert not installed.keys() - wanted.keys() - OURS - {PROJECT["project"]["name"]}  # which pip notes in the checkout


def test_the_version_is_the_one_to_cite() -> None:
    assert f"\nversion: {PROJECT['project']['version']}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_with_tensorflow_2_17_the_rest_has_the_versions_of_the_lock() -> None:
    versions = here("cpu")
    other = {name: version for name, version in pinned(GROUPS["tf217"]).items() if versions[name] != version}
    assert other.keys() == {"tensorflow", "tensorflow-text", "numpy"}
