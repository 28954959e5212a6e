import os
from pathlib import Path

import pytest

from rigor.errors import RunFailed, UserError
from rigor.launch import mps, task
from rigor.launch.mps import processes_share_gpus
from rigor.runs.directory import RunDirectory


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Put a fake control command of MPS onto the path; return a function that reads its calls."""

    def install(code=0, quit_code=0):
        folder = tmp_path / "bin"
        folder.mkdir()
        command = folder / "nvidia-cuda-mps-control"
        command.write_text(
            "#!/bin/sh\n"
            f'echo "$* $(cat) $CUDA_MPS_PIPE_DIRECTORY" >> {tmp_path}/calls\n'
            f'echo "$CUDA_VISIBLE_DEVICES" >> {tmp_path}/gpus\n'
            f"echo 'no such GPU' >&2\n[ \"$*\" = -d ] && exit {code}\nexit {quit_code}\n"
        )
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return lambda: [line.split() for line in (tmp_path / "calls").read_text().splitlines()]

    return install


def test_the_service_runs_inside_the_block_only(service, monkeypatch):
    calls = service()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/of/another/service")
    with processes_share_gpus(True):
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert Path(folder).is_dir()
        assert Path(folder).parent.parent == Path("/tmp")  # a socket's path has 107 bytes at most
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]).is_dir()
        assert calls() == [["-d", folder]]
    assert calls() == [["-d", folder], ["quit", folder]]
    assert not Path(folder).exists()
    assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/of/another/service"
    assert "CUDA_MPS_LOG_DIRECTORY" not in os.environ


def test_the_service_ends_with_a_failing_block(service):
    calls = service()
    with pytest.raises(KeyboardInterrupt), processes_share_gpus(True):
        raise KeyboardInterrupt
    assert [call[0] for call in calls()] == ["-d", "quit"]


def test_nothing_is_started_where_it_is_not_asked_for(service):
    service(code=1)
    with processes_share_gpus(False):
        assert "CUDA_MPS_LOG_DIRECTORY" not in os.environ


def test_a_machine_without_the_service_is_refused(monkeypatch):
    monkeypatch.setattr(mps.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"hydra\.launcher\.mps=true: nvidia-cuda-mps-control not"):
        mps.check()


def test_a_task_whose_service_does_not_start_says_so_in_its_runs(service, tmp_path, monkeypatch):
    service(code=1)
    monkeypatch.setattr(task, "run_pool", lambda *more, **options: pytest.fail("a run started"))
    run = RunDirectory(tmp_path / "a")
    run.path.mkdir()
    run.write_status("queued")
    with pytest.raises((UserError, RunFailed), match=r"ends with code 1 \(no such GPU\)"):
        task.run_task([str(run.path)], mps=True)
    assert run.state() == "failed"
    assert "hydra.launcher.mps=false works without it" in run.status()["error"]


def test_the_service_sees_the_visible_gpus_and_its_clients_count_them_from_0(
    service, monkeypatch, tmp_path
):
    service()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    with processes_share_gpus(True):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert (tmp_path / "gpus").read_text().split() == ["2,5", "2,5"]  # at its start and its end
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    with pytest.raises(UserError, match="in parts"), processes_share_gpus(True):
        pytest.fail("parts have no service")


def test_a_service_that_has_ended_by_itself_is_no_failure(service):
    service(quit_code=1)
    with processes_share_gpus(True):
        pass
