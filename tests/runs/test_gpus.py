import pytest

from rigor.runs import gpus

WHOLE = "GPU 0: NVIDIA H200 (UUID: GPU-aa)\nGPU 1: NVIDIA H200 (UUID: GPU-bb)\n"
PARTS = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)
  MIG 3g.20gb     Device  0: (UUID: MIG-11)
  MIG 3g.20gb     Device  1: (UUID: MIG-22)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)
"""


@pytest.mark.parametrize(
    ("lines", "names"), [(WHOLE, ["0", "1"]), (PARTS, ["MIG-11", "MIG-22", "1"]), ("", [])]
)
def test_parts_of_a_gpu_stand_in_its_place(lines, names):
    assert gpus.listed(lines) == names


def test_nvidia_smi_is_asked_unless_the_variable_is_set(tmp_path, monkeypatch):
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\ntest \"$1\" = -L && printf '%s' '{PARTS}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus.visible_gpus() == ["MIG-11", "MIG-22", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    assert gpus.visible_gpus() == ["4", "7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-3f,-1,5")  # as CUDA: the rest is not seen
    assert gpus.visible_gpus() == ["GPU-3f"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")  # SLURM's, for none
    assert gpus.visible_gpus() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.visible_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    command.write_text("#!/bin/sh\nexit 9\n")  # no driver
    assert gpus.visible_gpus() == []
