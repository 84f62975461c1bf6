"""The commands of the docker scripts, and what the Dockerfile promises that can be seen without building it."""

import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_setup import Machine

ROOT = Path(__file__).resolve().parents[2]
ME = f"--user {os.getuid()}:{os.getgid()} --env HOME=/tmp"
LOCKED = "--security-opt no-new-privileges --cap-drop ALL"
LIMITS = "--shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864"
TARGETS = ("cpu", "ngc", "cuda")


def shown(command: str, **variables: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a script."""
    script, *words = command.split()
    done = subprocess.run(
        [ROOT / "scripts" / script, *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | variables,
    )
    return done.returncode, "\n".join(line.strip() for line in done.stdout.splitlines()), done.stderr


@pytest.mark.parametrize(
    "command, expected",
    [
        ("docker_build.sh --dry-run", "docker build --target cuda --tag bert:cuda ."),
        (
            "docker_build.sh --dry-run --target cpu --base other:1 --tag me",
            "docker build --target cpu --tag me:cpu --build-arg CPU_BASE=other:1 .",
        ),
        (
            "docker_build.sh --dry-run --target ngc --save /s/bert.sqsh",
            "docker build --target ngc --tag bert:ngc .\nenroot import --output /s/bert.sqsh dockerd://bert:ngc",
        ),
        (
            "docker_run.sh --dry-run --image me:cpu --gpus none --workdir /w --data / -- make demo",
            f"docker run --rm --init {LOCKED} {LIMITS} {ME} --volume /w:/workdir --volume /:/data:ro me:cpu make demo",
        ),
        (
            f"docker_build.sh --dry-run --target ngc --digest sha256:{64 * 'a'}",
            f"docker build --target ngc --tag bert:ngc --build-arg NGC_DIGEST=@sha256:{64 * 'a'} .",
        ),
        (
            "docker_run.sh --dry-run --gpus none --shm-size 512m --workdir /w -- true",
            f"docker run --rm --init {LOCKED} {LIMITS.replace('1g', '512m')} {ME} --volume /w:/workdir bert:cuda true",
        ),
        (
            "docker_run.sh --dry-run --workdir /w -- true",
            f"docker run --rm --init {LOCKED} --gpus all {LIMITS} {ME} --volume /w:/workdir bert:cuda true",
        ),
    ],
)
def test_docker_scripts_show_their_command(command: str, expected: str) -> None:
    assert shown(command) == (0, expected, "")


@pytest.mark.parametrize(
    "engine, pack",
    [
        ("docker", "docker save --output /s/b.tar bert:cuda"),
        ("podman", "podman save --output /s/b.tar bert:cuda"),
        ("buildah", "buildah push bert:cuda docker-archive:/s/b.tar:bert:cuda"),
    ],
)
def test_every_engine_makes_the_same_files(engine: str, pack: str) -> None:
    build = f"{engine} build --target cuda --tag bert:cuda ."
    assert shown("docker_build.sh --dry-run --save /s/b.tar", ENGINE=engine) == (0, f"{build}\n{pack}", "")
    sif = "apptainer build /s/b.sif docker-archive:/s/b.tar"
    assert (
        shown("docker_build.sh --dry-run --save /s/b.sif", ENGINE=engine)[1] == f"{build}\n{pack}\n{sif}\nrm /s/b.tar"
    )


# Seen with podman 4.3.1: it could not raise the limit (setrlimit: operation not permitted), a process with --user could
# not write to the mounted folder, and --gpus was accepted and did nothing.
@pytest.mark.parametrize("most", [resource.getrlimit(resource.RLIMIT_MEMLOCK)[1], 4 << 20])
def test_podman_without_root_asks_for_what_it_may_have(most: int, tmp_path: Path) -> None:
    limit = -1 if most == resource.RLIM_INFINITY else most
    (tmp_path / "id").write_text("#!/bin/sh\necho 1234\n")
    (tmp_path / "id").chmod(0o755)
    environment = os.environ | {"ENGINE": "podman", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [ROOT / "scripts" / "docker_run.sh", "--dry-run", "--workdir", "/w", "--", "true"],
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, most)),
    )
    limits = LIMITS.replace("memlock=-1", f"memlock={limit}")
    assert done.stdout.strip() == (
        f"podman run --rm --init {LOCKED} --device nvidia.com/gpu=all {limits} --userns=keep-id --env HOME=/tmp "
        "--volume /w:/workdir bert:cuda true"
    )
    assert done.stderr.startswith(f"warning: {limit >> 20} MiB may be pinned") if limit != -1 else done.stderr == ""


def test_podman_as_root_differs_from_docker_in_the_gpus(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 0\n")
    (tmp_path / "id").chmod(0o755)
    one, other = (
        shown("docker_run.sh --dry-run -- true", ENGINE=engine, PATH=f"{tmp_path}:{os.environ['PATH']}")[1]
        for engine in ("docker", "podman")
    )
    assert other == one.replace("docker", "podman").replace("--gpus all", "--device nvidia.com/gpu=all") != one
    code, _, error = shown("docker_run.sh --dry-run --gpus 2 -- true", ENGINE="podman")
    assert code == 2 and "with podman it is all or none" in error
    assert shown("docker_run.sh --dry-run -- true", ENGINE="buildah")[0] == 2  # which builds only


@pytest.mark.parametrize("there", [(), ("infiniband",), ("infiniband", "gdrdrv")])
def test_one_of_several_nodes_gets_its_network_and_its_adapters(there: tuple[str, ...], tmp_path: Path) -> None:
    for name in there:
        (tmp_path / name).mkdir()
    devices = "".join(f"--device={tmp_path / name} " for name in there)
    expected = f"docker run --rm --init {LOCKED} --gpus all --network=host --cap-add=IPC_LOCK {devices}{LIMITS} {ME} "
    assert shown("docker_run.sh --dry-run --cluster -- true", DEVICES=str(tmp_path))[1].startswith(expected)


@pytest.mark.parametrize(
    "command",
    [
        "docker_build.sh --target gpu",
        "docker_build.sh --save b.zip",
        "docker_build.sh --base",
        "docker_build.sh --x",
        "docker_run.sh true",
        "docker_run.sh --data /nonexistent -- true",
        "docker_run.sh --image",
        "docker_run.sh --shm-size all -- true",
        "docker_build.sh --digest sha256:1",
    ],
)
def test_what_is_not_understood_is_one_line(command: str) -> None:
    code, out, error = shown(command)
    assert (code, out) == (2, "") and error.startswith("error: ") and error.count("\n") == 1


def test_a_tool_that_is_missing_is_named_before_anything_is_built(tmp_path: Path) -> None:
    for name in ("bash", "dirname", "realpath", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or "/bin/true")
    code, _, error = shown("docker_build.sh", PATH=str(tmp_path))
    assert code == 2 and "docker is not installed" in error


def stages() -> dict[str, list[str]]:
    """Each target's instructions."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    found: dict[str, list[str]] = {}
    for block in re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]:
        head, *rest = block.strip().splitlines()
        found[head.split(" AS ")[1]] = [line for line in rest if line]
    return found


def early(target: str, folder: Path) -> None:
    """Copies into `folder` what is in the image when set-up runs there."""
    for line in stages()[target]:
        if line.startswith("RUN") and "setup.sh" in line:
            return
        if line.startswith("COPY"):
            *patterns, into = line.split()[1:]
            for pattern in patterns:
                for path in ROOT.glob(pattern.removesuffix("/")):
                    for file in path.iterdir() if path.is_dir() else [path]:  # as COPY, the files of a folder
                        (folder / into).mkdir(parents=True, exist_ok=True)
                        shutil.copy(file, folder / into / file.name)
    raise AssertionError(f"{target}: no set-up")


@pytest.mark.parametrize("target", TARGETS)
def test_set_up_is_done_while_the_image_is_built_and_never_at_start(target: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    shutil.rmtree(machine.checkout)
    early(target, machine.checkout)
    given = dict(re.findall(r"(\w+)=(\S+)", next(line for line in stages()[target] if line.startswith("ENV"))))
    # For GPUs set-up builds as for CPUs here, from the files that are there: the toolkit is not what is tested.
    device = "cpu" if target == "cuda" else given.get("DEVICE", "")
    settings = {"OWN_HOROVOD": str(int(target == "ngc")), "DEVICE": device}
    assert machine.run("setup.sh", **settings) == (0, "")
    assert "pip install" in machine.calls()
    for pattern in ("requirements.txt", "pyproject.toml", "requirements/*", "scripts/*.*"):  # COPY . .
        for path in ROOT.glob(pattern):
            shutil.copy(path, machine.checkout / path.relative_to(ROOT))
    for path in (machine.checkout, machine.checkout / "scripts", machine.checkout / "scripts" / "setup.sh"):
        path.chmod(0o555)
    assert machine.run("setup.sh", **settings, HOME="/nonexistent") == (0, "")
    calls = machine.calls()
    assert "pip" not in calls and "-m venv" not in calls


@pytest.mark.parametrize("target", TARGETS)
def test_any_user_may_run_it_and_none_may_change_it(target: str) -> None:
    lines = stages()[target]
    assert lines.index("COPY . .") < lines.index("RUN chmod -R a+rX,go-w /bert") < lines.index("USER 1000")
    assert any("install --directory --mode 1777 /workdir" in line for line in lines)
    assert any(line.startswith("ENV HOME=/tmp ") for line in lines)


def test_the_base_that_a_build_may_replace_is_each_targets_own() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for target in TARGETS:
        name = target.upper()
        assert f"FROM ${{{name}_BASE}}${{{name}_DIGEST}} AS {target}\n" in text
        assert f"ARG {name}_BASE=" in text and f"ARG {name}_DIGEST=\n" in text
    assert list(stages())[-1] == "cuda"  # what `docker build .` makes


def test_no_container_shares_the_hosts_memory_or_gets_all_rights() -> None:
    for flags in ("", "--cluster", "--gpus none", "--cluster --gpus none --data /"):
        words = shown(f"docker_run.sh --dry-run {flags} -- true")[1].split()
        assert not {"--privileged", "--ipc=host", "--pid=host"} & {*words} and "seccomp" not in " ".join(words)
        assert words[words.index("--cap-drop") + 1] == "ALL" and "no-new-privileges" in words
        added = [word for word in words if word.startswith("--cap-add")]
        assert added == (["--cap-add=IPC_LOCK"] if "--cluster" in flags else [])
