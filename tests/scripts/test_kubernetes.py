"""The manifests for Kubernetes: valid by the operator's published schema, and their commands and paths are right."""

import os
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bert.core.errors import UserError
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "scripts" / "kubernetes"
CRD = "https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.6.0/deploy/v2beta1/mpi-operator.yaml"
Node = dict[str, Any]


def manifests() -> dict[str, Node]:
    """All objects by name."""
    read = (yaml.safe_load_all(path.read_text()) for path in sorted(FOLDER.glob("*.yaml")))
    return {one["metadata"]["name"]: one for objects in read for one in objects}


def pods() -> Iterator[tuple[str, Node]]:
    """The specification of each kind of pod, with its name."""
    for name, one in manifests().items():
        if one["kind"] == "MPIJob":
            for role, replicas in one["spec"]["mpiReplicaSpecs"].items():
                yield role, replicas["template"]["spec"]
        elif one["kind"] == "Job":
            yield name, one["spec"]["template"]["spec"]


def closed(schema: Node) -> Node:
    """A schema of the API in which fields that it does not name are errors, as for `kubectl apply`."""
    kept = {key: value for key, value in schema.items() if key not in ("description", "format", "default")}
    for key, value in kept.items():
        if key == "properties":
            kept[key] = {name: closed(one) for name, one in value.items()}
        elif isinstance(value, dict):
            kept[key] = closed(value)
    if kept.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if "properties" in kept and not kept.get("x-kubernetes-preserve-unknown-fields"):
        kept.setdefault("additionalProperties", False)
    return kept


@pytest.mark.thorough
def test_the_manifests_are_valid_for_the_operator_and_the_api() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    try:
        with urllib.request.urlopen(os.environ.get("MPI_OPERATOR", CRD), timeout=20) as answer:
            published = list(yaml.safe_load_all(answer.read()))
    except (urllib.error.URLError, TimeoutError):
        pytest.skip(f"needs {CRD}")
    (crd,) = [one for one in published if one["kind"] == "CustomResourceDefinition"]
    (version,) = [one for one in crd["spec"]["versions"] if one["name"] == "v2beta1"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] |= {"properties": {"name": {"type": "string"}}}
    replicas = schema["properties"]["spec"]["properties"]["mpiReplicaSpecs"]["additionalProperties"]
    template = closed(replicas["properties"]["template"]["properties"]["spec"])
    jsonschema.validate(manifests()["bert-pretrain"], closed(schema))
    for _, pod in pods():
        jsonschema.validate(pod, template)  # of jobs too: the operator's schema has the whole of a pod's
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(pod | {"restartpolicy": "Never"}, template)


def test_every_mounted_volume_is_there_and_every_claim_is_made() -> None:
    claims = {name for name, one in manifests().items() if one["kind"] == "PersistentVolumeClaim"}
    for name, pod in pods():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"] + pod.get("initContainers", []):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys(), name
        claimed = [
            one["persistentVolumeClaim"]["claimName"]
            for one in volumes.values()
            if len(one) > 1 and one["name"] != "shm"
        ]
        assert claimed and set(claimed) <= claims
    assert manifests()["bert-workdir"]["spec"]["accessModes"] == ["ReadWriteMany"]


def test_jobs_of_data_run_real_commands_and_fail_only_for_good() -> None:
    found = manifests()
    for name in ("bert-corpus", "bert-tfrecords"):
        spec = found[name]["spec"]
        (rule,) = spec["podFailurePolicy"]["rules"]
        codes = {one.exit_code for one in UserError.__subclasses__() if one.__module__ == UserError.__module__} - {75}
        assert set(rule["onExitCodes"]["values"]) == codes and rule["action"] == "FailJob"
        assert spec["template"]["spec"]["restartPolicy"] == "Never" and spec["backoffLimit"] > 0
    (stage,) = found["bert-corpus"]["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in stage["env"]} | {"BERT_WORKDIR": "/workdir"}
    assert stage["command"][0] == "python"
    shown = subprocess.run(
        [*stage["command"], "--dry_run"], cwd=ROOT, env=os.environ | given, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    spec = found["bert-tfrecords"]["spec"]
    (stage,) = spec["template"]["spec"]["containers"]
    flags = dict(argument.removeprefix("--").split("=") for argument in stage["args"])
    # The corpus is where the first job's stages write it.
    for flag, module, option in (("source", "data.shards", "--output"), ("vocab", "data.vocab", "--output")):
        command = next(line for line in shown.stdout.splitlines() if module in line)
        assert flags[flag].startswith(shlex.split(command)[shlex.split(command).index(option) + 1])
    assert flags["task"] == "$(JOB_COMPLETION_INDEX)" and flags["of"] == str(spec["completions"])
    refused = [*stage["command"], *(one.replace("$(JOB_COMPLETION_INDEX)", "0") for one in stage["args"])]
    done = subprocess.run(refused, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3 and "/workdir/corpus/" in done.stderr  # no such folder here: the flags are right


def script_of(role: str) -> str:
    """What the shell of a pod of the training runs."""
    (container,) = dict(pods())[role]["containers"]
    assert container["command"] == ["sh", "-ec"]
    (script,) = container["args"]
    assert isinstance(script, str)
    return script


def test_the_ranks_of_the_training_fit_the_pods() -> None:
    spec = manifests()["bert-pretrain"]["spec"]
    assert spec["runLauncherAsWorker"] and spec["runPolicy"]["backoffLimit"] > 0
    pods_with_ranks = sum(one["replicas"] for one in spec["mpiReplicaSpecs"].values())
    words = shlex.split(re.sub(r"\\\n", " ", script_of("Launcher")))
    command = words[words.index("scripts/mpirun.sh") :]
    ranks = int(command[command.index("-np") + 1])
    assert ranks == pods_with_ranks * spec["slotsPerWorker"]
    shown = subprocess.run([*command[:1], "--dry-run", *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0 and f"-np {ranks} --bind-to" in shown.stdout, shown.stderr
    for role in ("Launcher", "Worker"):
        pod = dict(pods())[role]
        (container,) = pod["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == spec["slotsPerWorker"]
        (memory,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
        assert memory["emptyDir"]["medium"] == "Memory" and pod["terminationGracePeriodSeconds"] >= 300
    assert "openssh-server" in (ROOT / "Dockerfile").read_text() and "sshd" in script_of("Worker")


def test_a_drained_node_asks_its_ranks_to_stop_and_waits_for_them(tmp_path: Path) -> None:
    (container,) = dict(pods())["Worker"]["containers"]
    hook = container["lifecycle"]["preStop"]["exec"]["command"]
    saved = tmp_path / "saved"
    code = f"trap 'sleep 1; touch \"{saved}\"; exit 75' TERM; echo ready; while :; do sleep 0.1; done"
    launcher = [str(ROOT / "scripts" / "launcher.sh"), "rank", "bash", "-c", code]
    env = os.environ | {"BERT_LAUNCH": "@launch", "VENV": "/nonexistent"}
    rank = subprocess.Popen(launcher, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert rank.stdout and rank.stdout.readline() == "ready\n"
    # Only this rank: others of this machine may belong to another test.
    alone = [
        word.replace("[s]cripts/launcher rank", f"[s]cripts/launcher rank bash -c trap .sleep 1; touch .{saved}")
        for word in hook
    ]
    assert alone != hook
    subprocess.run(alone, timeout=60, check=False, stdout=subprocess.DEVNULL)
    assert saved.exists()
    wait_for(lambda: rank.poll() is not None, "end of the rank")
    assert rank.returncode == 0  # to mpirun a stop on request is no failure
