"""File systems that are not like a local disk: a container's, with folders of its image that cannot be renamed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert.core import outputs
from tests.training import ROOT

pytestmark = pytest.mark.faults


def write(text: str, folder: Path) -> None:
    """Build `folder`, which depends on `text`."""

    def make(partial: Path) -> outputs.StageResult:
        (partial / "text").write_text(text)
        return outputs.StageResult(counts={})

    outputs.build(folder, stage="test", parameters={"text": text}, inputs=[], make=make)


def in_container(layers: Path, code: str) -> str:
    """Return what Python code prints in the folder `layers/merged`, whose lower layer is `layers/image`."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    for name in ("upper", "work", "merged"):
        (layers / name).mkdir()
    mount = "mount -t overlay test -o userxattr,lowerdir=image,upperdir=upper,workdir=work merged"
    if not shutil.which("unshare") or subprocess.run([*unshare, mount], cwd=layers, capture_output=True).returncode:
        pytest.skip("overlay mounts are not allowed here")
    program = f'{mount}; cd merged; PYTHONPATH="$2" exec "$0" -c "$1"'
    done = subprocess.run([*unshare, program, sys.executable, code, ROOT], cwd=layers, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_output_of_a_container_s_image_is_removed_and_not_replaced(tmp_path: Path) -> None:
    for name in ("old", "kept"):
        write("of the image", tmp_path / "image" / name)
    code = """
from pathlib import Path
from bert.core.errors import UsageError
from bert.core import outputs
from tests.faults.test_file_system_faults import write

outputs.remove(Path("old"))
try:
    write("other", Path("kept"))
except UsageError as error:
    print(error)
write("new", Path("new"))
write("newer", Path("new"))
print(*sorted(path.name for path in Path().iterdir()), Path("kept/text").read_text(), Path("new/text").read_text())
"""
    refused, left = in_container(tmp_path, code).splitlines()
    assert refused == "kept: cannot be replaced (Invalid cross-device link); choose another output folder"
    assert left == "kept new of the image newer"
