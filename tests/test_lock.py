"""The environment has the packages that the lock file names, in these versions."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
STAMP = Path(sys.prefix) / ".stamp"  # PYTHON-VERSION DEVICE HASH; scripts/setup.sh writes it last
OURS = {"horovod", "pip", "setuptools", "wheel"}  # built here, or part of every environment


def plain(name: str) -> str:
    """Return the normal form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_installed_packages_are_those_of_the_lock_file() -> None:
    device = STAMP.read_text().split()[1] if STAMP.exists() else "none"
    lock = ROOT / f"requirements-{device}.lock"
    if not lock.exists():
        pytest.skip("this environment was not made from a lock file")
    entries = re.findall(r"^([\w.-]+(?:\[[^]]*\])?==.*?)(?: \\)?$", lock.read_text(), re.MULTILINE)
    wanted = [one for one in map(Requirement, entries) if one.marker is None or one.marker.evaluate()]
    locked = {plain(one.name): str(one.specifier).removeprefix("==") for one in wanted}
    installed = {plain(one.metadata["Name"]): one.version for one in metadata.distributions()}
    assert len(locked) > 50
    assert {name: installed.get(name) for name in locked} == locked, "run make setup"
    assert not installed.keys() - locked.keys() - OURS
