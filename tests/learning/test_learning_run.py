import pytest
import torch
from command_line import TINY, choices, composed

from rigor.errors import UserError
from rigor.launch.execute import execute
from rigor.learning import run as learning_run
from rigor.learning import training
from rigor.learning.run import choose_device, device_notes, gpu_of
from rigor.runs import progress
from rigor.runs.directory import RunDirectory
from rigor.runs.job import job


@pytest.mark.parametrize(
    ("visible", "device", "gpu"),
    [
        (None, "cuda", "0 H100 80GB HBM3"),
        (None, "cuda:1", "1 H100 80GB HBM3"),
        ("", "cuda", "0 H100 80GB HBM3"),
        ("5", "cuda", "5 H100 80GB HBM3"),  # the only one it sees is torch's first
        ("4, 7", "cuda:1", "7 H100 80GB HBM3"),
        ("MIG-4f0f", "cuda", "MIG-4f0f H100 80GB HBM3"),
        ("5", "cpu", None),
    ],
)
def test_a_gpu_is_called_by_its_number_on_the_machine(monkeypatch, visible, device, gpu):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H100 80GB HBM3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_of(torch.device(device)) == gpu


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_gpu_that_this_torch_has_no_code_for_is_refused(monkeypatch, name):
    def fails(reason):
        def zeros(*shape, device):
            raise RuntimeError(f"CUDA error: {reason}\nmore")

        monkeypatch.setattr(torch, "zeros", zeros)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    fails("no kernel image is available for execution on the device")
    with pytest.raises(UserError, match=f"^device={name}: torch .* has no code for this GPU; use"):
        choose_device(name)
    fails("all CUDA-capable devices are busy or unavailable")
    with pytest.raises(RuntimeError, match="busy"):
        choose_device(name)


@pytest.mark.parametrize(
    ("overrides", "gpus", "cuda", "note"),
    [
        (
            ["device=auto"],
            ["0", "1"],
            None,
            "lists 2 GPUs, but this torch is a build for CPUs",
        ),
        (["device=auto"], ["0"], "13.0", "lists 1 GPU, but this torch cannot use them"),
        (["device=cpu"], ["0"], None, None),
        (["device=auto"], [], None, None),
        (["train.precision=tf32"], [], None, "only GPUs have it"),
    ],
)
def test_a_run_says_when_it_leaves_a_gpu_idle(monkeypatch, overrides, gpus, cuda, note):
    one = composed(*TINY, *overrides)
    monkeypatch.setattr(learning_run, "visible_gpus", lambda: gpus)
    monkeypatch.setattr("torch.version.cuda", cuda)
    notes = device_notes(job(one, choices(one)).config, torch.device("cpu"))
    assert [note in line for line in notes] == ([True] if note else [])


@pytest.mark.slow
def test_a_run_shows_that_it_is_alive_while_it_evaluates(tmp_path, monkeypatch):
    one = composed(*TINY, "train.steps=40", "train.learning_starts=1", f"out={tmp_path}")
    beats, evaluations = [], []
    play, write_status = training.play_episodes, RunDirectory.write_status

    def write(self, state, **fields):
        beats.append((state, fields.get("step")))
        write_status(self, state, **fields)

    def played(*given, **named):
        before = len(beats)
        episodes = play(*given, **named)
        evaluations.append((beats[before:], int(episodes.length.sum())))
        return episodes

    monkeypatch.setattr(progress, "BEAT_EVERY", 0.0)
    monkeypatch.setattr(progress, "_BEAT_AFTER", 0.0)
    monkeypatch.setattr(RunDirectory, "write_status", write)
    monkeypatch.setattr(training, "play_episodes", played)
    execute(job(one, choices(one)), None)
    assert [step for while_, _ in evaluations for _, step in while_[:1]] == [20, 40, 40]
    for while_, steps in evaluations:
        assert while_ == [("running", while_[0][1])] * steps
