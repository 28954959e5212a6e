import os

import pytest

from rigor.cores import SHARE, cores, cores_of_run, share


@pytest.fixture
def of_eight(monkeypatch):
    """Let this process be bound to eight cores, in no task of a cluster."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.delenv(SHARE, raising=False)
    return monkeypatch


def test_a_run_by_itself_may_use_all_cores(of_eight):
    assert (cores(), cores_of_run()) == (8, 8)


@pytest.mark.parametrize(("given", "there"), [("3", 3), ("40", 8), ("", 8), ("4(x2)", 8)])
def test_a_task_that_is_bound_to_no_cores_keeps_to_its_number(of_eight, given, there):
    of_eight.setenv("SLURM_CPUS_PER_TASK", given)
    assert cores() == there


def test_runs_at_once_share_the_cores(of_eight):
    assert [share(n)[SHARE] for n in (1, 3, 8, 20)] == ["8", "2", "1", "1"]
    of_eight.setenv(SHARE, share(3)[SHARE])
    assert cores_of_run() == 2
