"""The device is chosen first, by every command; with fake GPUs, which TensorFlow lists and nothing runs on."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from bert.core.config import BatchConfig, PrecisionConfig
from bert.core.errors import UsageError
from bert.hardware import devices, nvidia
from bert.hardware.devices import Device
from tests import fake_gpus
from tests.fake_gpus import CAPABILITY, NAME
from tests.training import ROOT, TINY

H100 = Device(kind="GPU", compute_capability=(9, 0))
V100 = Device(kind="GPU", compute_capability=(7, 0))


class Machine:
    """What `choose` does to TensorFlow on a machine with some GPUs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seen: int, present: int | None = None) -> None:
        """seen: GPUs that TensorFlow lists; present: those in the machine, by default as many."""
        self.gpus = [f"GPU:{number}" for number in range(seen)]
        self.visible: list[object] | None = None
        self.grows: list[object] = []
        self.fixed: list[bool] = []
        config = tf.config
        monkeypatch.setattr(config, "list_physical_devices", lambda kind: self.gpus if kind == "GPU" else [])
        monkeypatch.setattr(config, "set_visible_devices", self._show)
        monkeypatch.setattr(config.experimental, "set_memory_growth", lambda gpu, on: self.grows.append(gpu))
        monkeypatch.setattr(config.experimental, "get_device_details", lambda gpu: {"device_name": NAME})
        monkeypatch.setattr(config.experimental, "enable_op_determinism", self._fix)
        monkeypatch.setattr(nvidia, "gpus_in_machine", lambda: ["/dev/nvidia0"] * (present or seen))
        monkeypatch.setenv("XLA_FLAGS", "")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def _show(self, chosen: object, kind: str) -> None:
        self.visible = chosen if isinstance(chosen, list) else [chosen]

    def _fix(self) -> None:
        self.fixed.append(True)


def test_each_rank_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, seen=8)
    device = devices.choose(local_rank=5, local_size=8)
    assert (device.kind, device.number, device.count, device.name) == ("GPU", 5, 8, NAME)
    assert machine.visible == machine.grows == ["GPU:5"]


@pytest.mark.parametrize("given", ["", "/scratch/kernels"])
def test_kernels_that_the_driver_compiles_are_kept_in_the_work_folder(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(monkeypatch, seen=1)
    monkeypatch.setenv("CUDA_CACHE_PATH", given)
    if not given:
        monkeypatch.delenv("CUDA_CACHE_PATH")
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path))
    seen_by_driver: list[str | None] = []
    listed = tf.config.list_physical_devices

    def look(kind: str) -> list[str]:
        seen_by_driver.append(os.environ.get("CUDA_CACHE_PATH"))
        return list(listed(kind))

    monkeypatch.setattr(tf.config, "list_physical_devices", look)
    devices.choose()
    assert seen_by_driver[0] == (given or str(tmp_path / "cuda_cache"))


def test_a_gpu_that_a_launcher_shows_to_one_rank_alone_is_its_number_0(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, seen=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert devices.choose(local_rank=5, local_size=8).number == 0
    assert machine.visible == ["GPU:0"]


@pytest.mark.parametrize("seen", [1, 7])
def test_two_ranks_never_share_a_gpu_in_silence(seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, seen=seen)
    with pytest.raises(UsageError, match=f"8 ranks on this machine, but TensorFlow sees {seen} GPUs.*--device cpu"):
        devices.choose(local_rank=0, local_size=8)


def test_a_gpu_that_tensorflow_does_not_see_is_an_error_unless_the_cpu_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Machine(monkeypatch, seen=0, present=8)
    with pytest.raises(UsageError, match=r"has 8 GPUs .*TensorFlow sees none.*DEVICE=gpu, or use --run\.device cpu"):
        devices.choose(flag="--run.device")
    assert devices.choose("cpu") == Device()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # the user's own word
    assert devices.choose() == Device()
    with pytest.raises(UsageError, match="TensorFlow sees none"):
        devices.choose("gpu")


def test_without_a_gpu_it_is_the_cpu_unless_a_gpu_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, seen=0)
    assert not devices.choose().is_gpu
    with pytest.raises(UsageError, match="--device gpu: TensorFlow sees no GPU"):
        devices.choose("gpu")


def test_the_cpu_can_be_chosen_on_a_machine_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, seen=8)
    assert not devices.choose("cpu", deterministic=True).is_gpu
    assert machine.visible == [] and not machine.fixed and os.environ["XLA_FLAGS"] == ""


def test_deterministic_runs_ask_tensorflow_and_xla_for_it_and_the_users_flags_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, seen=1)
    devices.choose()
    assert not machine.fixed and "deterministic" not in os.environ["XLA_FLAGS"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_allow_excess_precision=true --xla_gpu_autotune_level=0")
    devices.choose(deterministic=True)
    assert machine.fixed
    assert os.environ["XLA_FLAGS"].split() == [
        "--xla_allow_excess_precision=true",
        "--xla_gpu_autotune_level=0",
        "--xla_gpu_deterministic_ops=true",
    ]


@pytest.mark.slow
def test_xla_knows_the_flags_and_reads_them_after_tensorflow_is_imported() -> None:
    code = """
import sys
import tensorflow as tf
from bert.hardware import devices
tf.config.list_physical_devices()
devices._add_xla_flags(devices.GPU_FLAGS | devices.DETERMINISTIC_FLAGS | dict.fromkeys(sys.argv[1:], "true"))
tf.function(lambda x: x + 1, jit_compile=True)(tf.ones([]))
"""
    for more, known in (([], True), (["xla_no_such_flag"], False)):
        done = subprocess.run([sys.executable, "-c", code, *more], cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode == 0) == known, done.stderr[-500:]
        assert bool(re.search("Unknown flags? in XLA_FLAGS: --xla_no_such_flag", done.stderr)) != known


def test_a_gpus_memory_is_that_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, seen=8)
    monkeypatch.setattr(nvidia, "gpu_memory", lambda number: 81559 << 20 if number == 5 else None)
    assert devices.choose(local_rank=5, local_size=8).memory == 81559 << 20
    assert "80 GiB" in devices.choose(local_rank=5, local_size=8).describe()
    assert devices.choose(local_rank=4, local_size=8).memory is None


@pytest.mark.parametrize(
    ("device", "compute", "xla"),
    [(Device(), "float32", False), (H100, "bfloat16", True), (V100, "float16", True)],
    ids=["CPU", "H100", "V100"],
)
def test_precision_follows_the_device(device: Device, compute: str, xla: bool) -> None:
    resolved = PrecisionConfig(compute="auto", xla=None).resolved(device.is_gpu, device.has_bfloat16)
    assert (resolved.compute, resolved.xla) == (compute, xla)
    given = PrecisionConfig(compute="tf32", xla=False)
    assert given.resolved(device.is_gpu, device.has_bfloat16) == given


def test_a_share_is_divided_into_the_largest_equal_parts_that_fit() -> None:
    assert BatchConfig(total=36, per_device=0, max_per_device=7).divided(3).per_device == 6
    assert BatchConfig(total=26, per_device=0, max_per_device=12).divided(2).per_device == 1
    assert BatchConfig(total=36, per_device=4, max_per_device=7).divided(3).per_device == 4


@pytest.mark.slow
def test_batches_are_made_on_the_cpu_whatever_device_computes(dataset: Path) -> None:
    """A second CPU device stands for the GPU that tensors would be placed on by default."""
    code = f"""
import tensorflow as tf
from pathlib import Path
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                           [tf.config.LogicalDeviceConfiguration()] * 2)
from bert.text import sampler
from bert.training import accumulation
from bert.core.config import BatchConfig
from bert.text.records import Dataset
from bert.training.communicator import Communicator
config = BatchConfig(total=6, per_device=3)
for pack, group in ((False, 0), (True, 0), (False, 2)):
    config = BatchConfig(total=6, per_device=3, pack=pack, bucket_by_length=group)
    data = Dataset(Path({str(dataset)!r}), "train")
    with tf.device("CPU:1"):
        assert tf.ones(2).device.endswith("CPU:1")
        made = sampler.BatchSampler(data, config, 1).read(0) + [one for _, one in sampler.evaluation(data, config, 5)]
        made.append(accumulation.stack(made[:1]))
        places = {{value.device for batch in made for value in batch.values()}}
    assert [place[-5:] for place in places] == ["CPU:0"], places
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]


SHORT = ["--model.num_hidden_layers", "1", "--batch.per_device", "3", "--run.steps", "2"]


@pytest.mark.slow
def test_every_command_runs_on_a_machine_with_gpus(dataset: Path, tmp_path: Path) -> None:
    pretrained, answering, questions = tmp_path / "pretrained", tmp_path / "squad", tmp_path / "questions.jsonl"
    answer = '"answers": [{"text": "w4", "answer_start": 3}]'
    questions.write_text(f'{{"id": "q", "question": "w1 w2 ?", "context": "w3 w4 w5", {answer}}}\n')
    (tmp_path / "texts.txt").write_text("w1 w2\n")
    tune = ["squad_tiny", "--data.train_file", questions, "--init.checkpoint", pretrained, "--run.directory", answering]
    windows = ["--windows.max_seq_length", 17, "--windows.max_query_length", 5, "--windows.doc_stride", 5]
    model = ["--model", answering]
    commands = [
        ["bert.pretrain", "demo_phase1", "--data.train", dataset, "--run.directory", pretrained, *TINY, *SHORT],
        ["squad.train", *tune, *windows, "--run.steps", 1, "--batch.total", 2],
        ["squad.predict", *model, "--question", "w1 ?", "--context", "w3 w4"],
        ["squad.export", *model, "--output", tmp_path / "served"],
        ["bert.encode", *model, "--input", tmp_path / "texts.txt", "--output", tmp_path / "out.jsonl"],
        ["bert.convert", "export", "huggingface", answering, tmp_path / "exported"],
    ]
    (_, begun), (_, tuned), (answered, _), *_ = fake_gpus.run(8, commands, tmp_path)
    assert f"device: GPU 0 of 8, {NAME}, compute capability {CAPABILITY}; bfloat16; XLA; deterministic" in begun
    assert "bfloat16; XLA" in tuned and answered


@pytest.mark.multiprocess
def test_two_ranks_take_two_gpus_and_say_that_horovod_lacks_nccl(dataset: Path, tmp_path: Path) -> None:
    launch = [ROOT / "scripts" / "launch.sh", "-np", "2", "--", sys.executable, "-m", "tests.fake_gpus", "2"]
    data = ["--data.train", dataset, "--run.directory", tmp_path / "run", "--precision.xla", "false"]
    words = [*launch, "bert.pretrain", "demo_phase1", *data, *TINY, *SHORT]
    done = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "device: GPU 0 of 2" in done.stderr and "gradients of 2 ranks summed in float32 by Horovod" in done.stderr
    if "with NCCL" not in done.stderr:
        assert "warning: Horovod was built without NCCL, so gradients travel by Gloo" in done.stderr
