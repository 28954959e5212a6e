import signal
import subprocess
import sys

import pytest
from command_line import TINY, choices, composed, environment, wait_for

from rigor.launch.worker import PARENT
from rigor.runs.directory import RunDirectory, TakenOver
from rigor.runs.identity import config_hash
from rigor.runs.job import enqueue, job


def queued(out, *overrides):
    """Queue a run in `out` and return its directory."""
    config = composed(*TINY, f"out={out}", *overrides)
    queued_job = job(config, choices(config))
    enqueue(queued_job, "some")
    return queued_job.path


def worker(path, **options):
    return subprocess.run(
        [sys.executable, "-m", "rigor.launch.worker", str(path)],
        env=options.pop("env", None) or environment(),
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


@pytest.mark.slow
def test_a_worker_executes_the_run_in_its_directory_and_skips_a_finished_one(tmp_path):
    path = queued(tmp_path, "seed=3")
    done = worker(path, cwd=tmp_path)  # not the directory in which it was queued
    assert (done.returncode, done.stderr) == (0, "")
    status = RunDirectory(path).status()
    assert (status["state"], status["step"]) == ("done", 300)
    before = (path / "status.json").stat().st_mtime_ns
    again = worker(path)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == f"{path}: done, skipped\n"
    assert (path / "status.json").stat().st_mtime_ns == before


def test_a_worker_refuses_a_run_of_another_process(tmp_path):
    path = tmp_path / "run"
    config = {"seed": 0}
    # started alone: no sweep has queued it
    with RunDirectory.open(path, config, config_hash(config)) as run:
        run.write_status("running")
        done = worker(path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"rigor-worker: {path}: another process runs there")
        assert run.state() == "running"


@pytest.mark.parametrize("count", [{}, {"SLURM_RESTART_COUNT": "1"}])
def test_a_worker_refuses_a_run_of_the_same_start_of_its_task(tmp_path, count):
    path = tmp_path / "run"
    config = {"seed": 0}
    with RunDirectory.open(path, config, config_hash(config)) as run:
        run.write_status("running", task="7", restarts=int(count.get("SLURM_RESTART_COUNT", 0)))
        done = worker(path, env=environment(SLURM_JOB_ID="7", **count))
        assert done.returncode == 2
        assert run.state() == "running"


@pytest.mark.slow
def test_a_worker_of_a_requeued_task_waits_for_an_earlier_process_that_did_not_notice(tmp_path):
    path = queued(tmp_path)
    config = composed(*TINY, f"out={tmp_path}")
    waiting = job(config, choices(config))
    with RunDirectory.open(path, waiting.plain, waiting.digest) as run:
        run.write_status("running", task="7", restarts=0)  # over the task's own "queued"
        process = subprocess.Popen(
            [sys.executable, "-m", "rigor.launch.worker", str(path)],
            env=environment(SLURM_JOB_ID="7", SLURM_RESTART_COUNT="1"),
        )
        wait_for(lambda: run.status()["state"] == "queued", process)
        with pytest.raises(TakenOver):  # at its next heartbeat
            run.write_status("running")
        # one heartbeat had read the status before
        RunDirectory(path).write_status("running")
        wait_for(lambda: run.status()["state"] == "queued", process)
    assert process.wait(300) == 0
    assert RunDirectory(path).state() == "done"


def test_a_worker_explains_why_it_cannot_execute_a_run(tmp_path):
    done = worker(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rigor-worker: {tmp_path}: no sweep has queued a run there")
    path = queued(tmp_path)
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text.replace("quantiles: 5", "quantiles: 0"))
    done = worker(path)
    assert done.returncode == 2
    assert "agent.quantiles=0" in done.stderr
    status = RunDirectory(path).status()
    assert (status["state"], "agent.quantiles=0" in status["error"]) == ("failed", True)


def test_a_worker_refuses_code_that_was_edited_while_its_run_waited(tmp_path, monkeypatch):
    (tmp_path / "patient.py").write_text(
        "from rigor.maths.discount import Exponential\nclass Patient(Exponential): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = queued(tmp_path, "discount._target_=patient.Patient")
    assert "code:\n  patient: " in (path / "config.yaml").read_text()
    with open(tmp_path / "patient.py", "a") as code:
        code.write("# edited\n")
    done = worker(path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the code of patient has changed since this run was made" in done.stderr
    assert RunDirectory(path).state() == "failed"


@pytest.mark.slow
def test_a_worker_ends_when_its_parent_dies(tmp_path):
    path = queued(tmp_path, "train.steps=100000")
    code = (
        "import sys; from pathlib import Path; from rigor.launch import pool\n"
        "print(pool.start(Path(sys.argv[1])).process.pid, flush=True); sys.stdin.read()"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = RunDirectory(path)
    wait_for(lambda: run.state() == "running" and run.status()["step"] > 0, launcher)
    launcher.kill()
    launcher.communicate()
    left = subprocess.Popen(["sleep", "300"])
    wait_for(lambda: run.state() != "running", left)
    left.kill()
    left.wait()
    assert run.status()["state"] == "preempted"
    assert "SIGTERM" in run.status()["error"]


def test_a_worker_does_not_start_when_its_parent_is_dead(tmp_path):
    path = queued(tmp_path)
    before = (path / "status.json").read_bytes()
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = worker(path, env=environment(**{PARENT: str(gone.pid)}))
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")
    assert (path / "status.json").read_bytes() == before
