import psutil
import pytest

from rigor.runs import memory
from rigor.runs.memory import RUNS_ON_GPU, SHARE, free_memory, runs_on_gpu, shares


@pytest.fixture
def limit(monkeypatch):
    """Set the limit and the use of one control group; all others have none."""

    def set_limit(name, most, used="1000"):
        files = {
            "/proc/self/cgroup": "12:cpu:/x\n0::/system/slurm/job_7/step_0\n",
            f"/sys/fs/cgroup{name}/memory.max": most,
            f"/sys/fs/cgroup{name}/memory.current": used,
        }
        monkeypatch.setattr(memory.Path, "read_text", lambda self: files.get(str(self), "max"))

    return set_limit


@pytest.mark.parametrize(
    "group", ["", "/memory", "/system/slurm/job_7/step_0", "/system/slurm/job_7", "/system"]
)
def test_the_limit_of_a_container_or_of_a_slurm_job_counts(limit, group):
    limit(group, "3000")
    assert free_memory() == 2000
    limit(group, "max")
    assert free_memory() > 2000
    limit("/system/slurm/job_8", "3000")  # another job's
    assert free_memory() > 2000


def test_runs_at_once_share_what_was_free_before_the_first(limit, monkeypatch):
    limit("", "7000")
    assert shares(3, 2) == {SHARE: "2000", RUNS_ON_GPU: "2"}
    assert shares(2, 0) == {SHARE: "3000", RUNS_ON_GPU: "2"}
    for name, value in shares(3, 2).items():
        monkeypatch.setenv(name, value)
    assert (free_memory(), runs_on_gpu()) == (2000, 2)
    limit("", "7000", "6000")
    assert free_memory() == 1000  # others have taken more since


def test_a_run_by_itself_may_take_what_is_free():
    assert free_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    assert runs_on_gpu() == 1
