"""Sweeps on a real SLURM with preemption, time limits, dead nodes and killed processes."""

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from cluster_sweep import LONG, SLURM, newest, runs, same, states
from command_line import COMMAND, TINY, environment, finish, refused, rigor_train, start
from submitit.core.utils import JobPaths

from rigor.errors import UserError
from rigor.launch import slurm
from rigor.launch.manifest import Manifest, read_manifest
from rigor.launch.squeue import SweepReader
from rigor.runs.directory import RunDirectory

pytestmark = pytest.mark.slow

LAUNCH = Path(__file__).parents[2] / "launch"


# --- submitting -----------------------------------------------------------------------------------


def test_seeds_are_submitted_and_the_command_returns_or_waits(cluster, undisturbed):
    done = cluster.submit()
    assert "submitted 2 runs in 2 tasks: job " in done.out
    assert f"rigor-sweep status {cluster.directory.relative_to(cluster.place)}" in done.out
    shown = cluster.status()
    assert "lost" not in shown
    assert "failed" not in shown
    again = cluster.submit()  # no run is submitted twice
    assert again.out.startswith("2 runs are done, running or already submitted\n")
    assert len(cluster.jobs()) == 1
    waited = cluster.submit("hydra.launcher.wait=true", timeout=180)
    assert waited.out.count(" done ") == 2
    same(runs(cluster.out), undisturbed)
    assert set(cluster.slurm.ended(cluster.jobs()[0]).values()) == {"COMPLETED"}
    assert "2 done of 2" in cluster.status()
    assert "nothing to retry" in cluster.sweep("retry").out


def test_a_dry_run_submits_no_job(cluster):
    more = ("hydra.launcher.dry_run=true", "hydra.launcher.gres=gpu:1", "hydra.launcher.mem=1G")
    setup = "hydra.launcher.setup=[module load cuda]"
    extra = "+hydra.launcher.extra.reservation=mine"
    rate = "hydra.launcher.steps_per_second=10"
    done = cluster.submit(*more, setup, extra, rate, "hydra.launcher.runs_per_gpu=2", seeds="0,1,2")
    for part in (
        *("#SBATCH --gres=gpu:1", "#SBATCH --mem=1G", "#SBATCH --reservation=mine"),
        *("#SBATCH --requeue", "#SBATCH --array=0-1%2", "#SBATCH --cpus-per-task=2"),
        *("\nmodule load cuda\n", "3 runs in 2 tasks: about 0.04 GPU-hours at 10 steps/s"),
    ):
        assert part in done.out
    assert not cluster.out.exists()
    assert cluster.slurm.jobs() == {}


@pytest.mark.parametrize(
    ("profile", "parts"),
    [
        ("gpu", ("--partition=gpu", "--gres=gpu:1", "--array=0-4%5", "--cpus-per-task=4")),
        ("preemptible", ("--partition=preempt", "--signal=USR2@120", "--array=0-4%5")),
        ("shard", ("--gres=shard:1", "--array=0-17%18")),
        ("account", ("--account=my_project", "--qos=normal", "--gres=gpu:a100:1", "--array=0-2%3")),
        ("no_requeue", ("--no-requeue", "--gres=gpu:1")),
        ("container", ("--requeue", "--gres=gpu:1")),
    ],
)
def test_the_profiles_submit_the_grid(slurm, tmp_path, profile, parts):
    # two of the 50 games, because composing all of them takes long
    grid = ("experiment=atari50", "env=atari/pong,atari/qbert", f"hydra/launcher={profile}")
    env = environment(**slurm.env)
    done = rigor_train(
        "--config-dir", str(LAUNCH), *grid, "hydra.launcher.dry_run=true", cwd=tmp_path, env=env
    )
    assert (done.code, done.err) == (0, "")
    for part in parts:
        assert f"#SBATCH {part}\n" in done.out
    assert "\n18 runs in " in done.out
    assert "hours at 300 steps/s a run (Atari on a CPU core; " in done.out
    assert list(tmp_path.iterdir()) == []
    script = done.out.partition("\n# runs\n")[0]
    command = 'apptainer exec --nv --bind "$PWD" rigor.sif python -P -u -m submitit'
    assert (command in script) == (profile == "container")
    # SLURM accepts the script, with the names of this cluster for the profile's own
    for theirs, ours in (("partition=preempt", "partition=spare"), ("shard:1", "gpu:1"),
                         ("gpu:a100:1", "gpu:1"), ("#SBATCH --qos=normal\n", "")):  # fmt: skip
        script = script.replace(theirs, ours)
    (tmp_path / "script.sh").write_text(f"{script}\n")
    slurm.ask("sbatch", "--test-only", str(tmp_path / "script.sh"))


def test_a_refusal_by_slurm_is_one_line_and_no_run_stays_queued(cluster):
    command = (*LONG, "seed=0,1", "-m", *SLURM, "out=out", "hydra.launcher.partition=nope")
    env = environment(**cluster.slurm.env)
    done = rigor_train(*command, cwd=cluster.place, env=env)
    refused(done, "hydra/launcher=slurm: sbatch refuses: ", "nvalid partition")
    shown = cluster.status()
    assert "2 failed of 2" in shown
    assert shown.count(": sbatch refuses: ") == 2
    done = rigor_train(*TINY, "hydra/launcher=slurm", cwd=cluster.place, env=env)
    refused(done, "hydra/launcher=slurm", "add -m")


def test_what_sbatch_accepted_is_cancelled_where_the_disk_is_then_full(cluster, monkeypatch):
    """submitit writes the tasks' files after sbatch; without them each would wait for a minute."""
    monkeypatch.chdir(cluster.place)
    run, directory = cluster.place / "run", Path("sweep")  # relative, as with out=out
    run.mkdir()
    directory.mkdir()
    RunDirectory(run).write_status("queued")
    moved = []

    def move(paths, *given, **options):
        moved.append(given)
        if len(moved) == 3:  # the script and the file of the first task are written
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(paths, *given, **options)

    usual = JobPaths.move_temporary_file
    monkeypatch.setenv("SLURM_CONF", cluster.slurm.env["SLURM_CONF"])
    monkeypatch.setattr(JobPaths, "move_temporary_file", move)
    manifest = Manifest([run, run], {"name": "slurm"}, [[]] * 2, ["a", "b"])
    other = ["sbatch", "--job-name=sweep.0", "--hold", "--wrap=true"]
    cluster.slurm.ask(*other)  # of the same name, but not of this sweep
    with pytest.raises(UserError, match="no space left on device; free some space"):
        slurm.submit(directory, manifest, [0, 1], slurm.Cluster(extra={"hold": True}))
    cluster.slurm.until(lambda: list(cluster.slurm.jobs().values()) == ["PENDING"])
    assert [entry.job for entry in read_manifest(directory).submissions] == [None]
    cluster.slurm.ask("scancel", "--user=root")
    cluster.slurm.until(lambda: not cluster.slurm.jobs())
    assert {status.error for status in SweepReader(directory).read()} == {
        "it was not submitted to SLURM"
    }


FRAGILE = """
import os

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Fragile(CartPoleEnv):
    def __init__(self, at=None):
        super().__init__()
        self.left = at

    def step(self, action):
        self.left -= 1
        if self.left == 0 and not os.path.exists("mended"):
            raise ValueError("the pole broke")
        return super().step(action)


gymnasium.register("Fragile-v0", entry_point=Fragile, max_episode_steps=20)
"""


def test_four_runs_use_two_tasks_and_a_failure_does_not_affect_the_others(cluster):
    (cluster.place / "mine.py").write_text(FRAGILE)
    (cluster.place / "queue.py").write_text("raise ImportError('the wrong queue')")
    cluster.submit(
        *("env=gymnasium", "env.id=mine:Fragile-v0", "train.steps=100", "out=out"),
        "+env.kwargs.at=20,1001,1002,1003",
        *("hydra.launcher.runs_per_gpu=2", "hydra.launcher.gres=gpu:1"),
        seeds="0",
    )
    cluster.slurm.settled()
    assert sorted(states(cluster.out)) == ["done"] * 3 + ["failed"]
    (job,) = cluster.jobs()
    assert cluster.slurm.ended(job) == {"0": "FAILED", "1": "COMPLETED"}
    shown = cluster.sweep("logs").out
    assert shown.count('raise ValueError("the pole broke")') == 1
    assert f"{job}_0_0_log.err" in shown
    assert "3 done, 1 failed of 4" in cluster.status()
    (cluster.place / "mended").touch()  # in the working directory of the command
    cluster.retried()
    assert states(cluster.out) == ["done"] * 4
    assert cluster.slurm.ended(cluster.jobs()[1]) == {"0": "COMPLETED"}


# --- disturbances that SLURM itself repairs -------------------------------------------------------


def test_after_a_signal_a_run_saves_and_its_task_is_requeued(cluster, undisturbed):
    cluster.submit()
    with cluster.at_work():
        (job,) = cluster.jobs()
        for task, name in ((f"{job}_1", "USR2"), (f"{job}_0", "TERM")):
            cluster.slurm.ask("scancel", f"--signal={name}", task)
    cluster.slurm.until(lambda: set(cluster.slurm.jobs().values()) == {"PENDING"})
    assert states(cluster.out) == ["preempted"] * 2
    shown = cluster.status()
    assert "2 queued of 2" in shown
    assert "retry" not in shown
    cluster.slurm.settled()
    same(runs(cluster.out), undisturbed)
    for run in runs(cluster.out):
        assert (run / "train.log").read_text().count("resumed at step") == 1


def test_runs_resume_after_preemption_by_another_partition(cluster, undisturbed):
    cluster.submit("hydra.launcher.partition=spare", "hydra.launcher.runs_per_gpu=2")
    with cluster.at_work():  # SLURM continues what it takes the place of
        quiet = ("--output=/dev/null", "--cpus-per-task=8")
        other = cluster.slurm.ask("sbatch", "--parsable", *quiet, "--wrap=sleep 300")
        cluster.slurm.until(lambda: cluster.slurm.jobs().get(other.strip()) == "RUNNING")
    assert states(cluster.out) == ["preempted"] * 2
    assert "2 queued of 2" in cluster.status()
    cluster.slurm.ask("scancel", other.strip())
    cluster.slurm.settled()
    same(runs(cluster.out), undisturbed)


def test_runs_resume_after_the_time_limit(cluster, undisturbed):
    cluster.submit("hydra.launcher.time=1", seeds="0")
    with cluster.at_work(1):  # half a minute before the limit and its grace
        (job,) = cluster.jobs()
        log = cluster.slurm.directory / "slurmctld.log"
        cluster.slurm.until(lambda: f"warning signal 12 to JobId={job}" in log.read_text())
    cluster.slurm.until(lambda: cluster.slurm.jobs() == {job: "PENDING"})
    assert states(cluster.out) == ["preempted"]
    cluster.slurm.settled()
    same(runs(cluster.out), undisturbed[:1])


def test_runs_resume_after_a_requeue_and_a_dead_node(cluster, undisturbed):
    cluster.submit()
    with cluster.at_work():
        (job,) = cluster.jobs()
        cluster.slurm.ask("scontrol", "requeue", job)
    cluster.slurm.until(lambda: set(cluster.slurm.jobs().values()) == {"PENDING"})
    node = f"NodeName={os.uname().nodename.partition('.')[0]}"
    cluster.slurm.ask("scontrol", "update", node, "State=DRAIN", "Reason=test")
    assert "2 queued of 2" in cluster.status()
    before = max(newest(run) for run in runs(cluster.out))
    cluster.slurm.ask("scontrol", "update", node, "State=RESUME")
    cluster.slurm.hurry(job)
    with cluster.at_work(after=before) as found:
        # the node dies: SLURM marks it as down, and every process of the job ends at once
        cluster.slurm.ask("scontrol", "update", node, "State=DOWN", "Reason=test")
        for run in found:
            pids = [cluster.member(run)]
            while name_of(pids[-1]) != "slurmstepd":
                pids.append(parent_of(pids[-1]))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    cluster.slurm.until(lambda: "RUNNING" not in cluster.slurm.jobs().values())
    assert "2 queued of 2" in cluster.status()
    # it may have resumed by itself
    cluster.slurm.ask("scontrol", "update", node, "State=RESUME", check=False)
    cluster.slurm.settled()
    same(runs(cluster.out), undisturbed)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# --- disturbances that need a retry ---------------------------------------------------------------


def test_a_cancelled_run_has_saved_and_resumes_only_with_a_retry(cluster, undisturbed):
    cluster.submit()
    with cluster.at_work() as (first, _):
        done = cluster.sweep("cancel", first.name)
    assert done.code == 0, done
    cluster.slurm.settled()
    assert sorted(states(cluster.out)) == ["done", "preempted"]
    assert "CANCELLED" in cluster.slurm.ended(cluster.jobs()[0]).values()
    assert "1 done, 1 stopped of 2" in cluster.status()
    refusal = cluster.sweep("cancel")
    assert (refusal.code, "SLURM has no task of this sweep" in refusal.err) == (2, True)
    cluster.retried()
    same(runs(cluster.out), undisturbed)


def test_a_killed_run_is_lost_and_the_other_run_of_its_task_continues(cluster, undisturbed):
    cluster.submit("hydra.launcher.runs_per_gpu=2")
    with cluster.at_work() as (first, second):
        os.kill(cluster.member(first), signal.SIGKILL)
        cluster.slurm.until(lambda: "1 running, 1 lost of 2" in cluster.status())
        shown = cluster.sweep("retry").out
        assert "nothing to retry: 1 running, 1 lost" in shown  # its task continues
    cluster.slurm.settled()
    assert [RunDirectory(run).state() for run in (first, second)] == ["lost", "done"]
    assert cluster.slurm.ended(cluster.jobs()[0]) == {"0": "FAILED"}
    shown = cluster.status()
    assert "1 done, 1 lost of 2" in shown
    assert "rigor-sweep retry" in shown
    logs = cluster.sweep("logs").out
    assert f"==> {first / 'train.log'} (lost)" in logs
    assert f"{cluster.jobs()[0]}_0_log.out" in logs

    before = newest(first)
    assert cluster.sweep("retry").code == 0
    with cluster.at_work(1, after=before):
        done = cluster.sweep("cancel")
    assert done.out.startswith("cancelled: ")
    assert cluster.jobs()[1] in done.out
    cluster.slurm.settled()
    assert "1 done, 1 stopped of 2" in cluster.status()
    assert f"==> {first / 'train.log'} (stopped by SIGTERM)" in cluster.sweep("logs").out
    cluster.retried()
    same(runs(cluster.out), undisturbed)
    assert "2 done of 2" in cluster.status()


def test_a_retry_finishes_the_runs_of_a_killed_task(cluster, undisturbed):
    cluster.submit("hydra.launcher.runs_per_gpu=2")
    with cluster.at_work() as (first, _):
        os.kill(parent_of(cluster.member(first)), signal.SIGKILL)
    cluster.slurm.settled()
    # depending on the speed of SLURM; the other run may still be saving
    cluster.slurm.until(lambda: set(states(cluster.out)) <= {"preempted", "lost"})
    assert cluster.slurm.ended(cluster.jobs()[0]) == {"0": "FAILED"}
    assert "of 2" in cluster.status()
    assert "2 unfinished without a process" in cluster.status()
    cluster.retried()
    same(runs(cluster.out), undisturbed)


def test_the_status_says_why_a_job_does_not_start(cluster):
    cluster.slurm.ask("scontrol", "update", "PartitionName=spare", "MaxTime=10")
    try:
        cluster.submit("hydra.launcher.partition=spare")
        reason = "2 queued: PartitionTimeLimit: hydra.launcher.time is above the limit"
        cluster.slurm.until(lambda: reason in cluster.status())
    finally:
        cluster.slurm.ask("scontrol", "update", "PartitionName=spare", "MaxTime=INFINITE")


def test_ctrl_c_during_wait_leaves_the_jobs(cluster):
    command = (*LONG, "seed=0", "-m", *SLURM, "out=out", "hydra.launcher.wait=true")
    process = start(*command, cwd=cluster.place, env=environment(**cluster.slurm.env))
    with cluster.at_work(1):
        process.send_signal(signal.SIGINT)
        done = finish(process)
    assert done.code == 130
    assert "stopped waiting, but the jobs continue; rigor-sweep status" in done.err
    assert list(cluster.slurm.jobs()) == cluster.jobs()


def test_jobs_of_a_launcher_killed_during_submission_are_known(cluster, undisturbed):
    command = (*LONG, "seed=0,1", "-m", *SLURM, "out=out")
    process = start(*command, cwd=cluster.place, env=environment(**cluster.slurm.env))
    cluster.slurm.until(lambda: cluster.slurm.jobs())
    process.kill()
    process.communicate()
    assert cluster.jobs()[0] is None or cluster.jobs()[0].isdigit()
    shown = cluster.status()
    assert "2 queued of 2" in shown or "running" in shown
    cluster.slurm.ask("scancel", "--user=root")
    cluster.slurm.until(lambda: not cluster.slurm.jobs())
    cluster.retried()
    same(runs(cluster.out), undisturbed)


def test_a_sweep_submitted_from_inside_a_job_does_not_inherit_its_allocation(cluster, undisturbed):
    inner = " ".join(f"'{part}'" for part in (*LONG, "seed=0,1", "-m", *SLURM, "out=out"))
    outer = ("--cpus-per-task=4", "--gres=gpu:1", "--mem=2000", "--time=7", "--job-name=outer")
    env = os.environ | environment(**cluster.slurm.env)
    subprocess.run(
        ["sbatch", "--wait", *outer, f"--chdir={cluster.place}", f"--wrap={COMMAND} {inner}"],
        env=env,
        check=True,
        capture_output=True,
    )
    (job,) = cluster.jobs()
    shown = cluster.slurm.ask("scontrol", "show", "job", job)
    assert "NumCPUs=1 " in shown
    assert "TimeLimit=1-00:00:00" in shown
    assert "gpu" not in shown.partition("TresPerNode")[2]
    cluster.slurm.settled()
    same(runs(cluster.out), undisturbed)
