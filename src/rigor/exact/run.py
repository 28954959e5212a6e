"""One run of an exact agent in its directory: solve, save the policy, write the result."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any

import numpy as np

from rigor.checks import warnings
from rigor.errors import Stopped
from rigor.exact.agents import Solved, backward_induction, infinite_horizon
from rigor.exact.working import Working
from rigor.launch.job import Job, tracked_as
from rigor.schemas import BackwardInduction
from rigor.tracking.disk import disk_errors
from rigor.tracking.metrics import MetricsFile
from rigor.tracking.rundir import RunDirectory, commit, versions
from rigor.tracking.wandb_sink import open_sink

COLUMNS = ["steps", "eval_score", "eval_objective", "seconds"]


def work(
    job: Job,
    run: RunDirectory,
    sweep: str | None,
    stop: Callable[[], int | None],
    after: ExitStack,
) -> float:
    """Solve, write policy, outcome and result, and return the objective.

    Args:
      job, run: what to do, and its locked directory.
      sweep: name of the sweep that it belongs to.
      stop: returns the signal that asks for a stop; an exact solver, which has nothing to save,
        stops at once instead.
      after: collects what is to be closed once the status is written.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)  # whoever called puts the old ones back
    config = job.config
    source = {"commit": commit(), "versions": versions()}
    names = tracked_as(job, sweep)
    described = job.plain | source | {"choices": names["choices"]}
    sink = open_sink(config.tracker, run.path, described, names)
    result: dict[str, Any] = {}
    after.callback(lambda: sink.finish(0 if result else 1, result))
    began = time.perf_counter()
    solve = backward_induction if isinstance(config.agent, BackwardInduction) else infinite_horizon
    with MetricsFile(run.metrics_path, COLUMNS).open(-1) as metrics:
        with Working(job.label, run.log_path, lambda: run.write_status("running")) as working:
            for note in warnings(config):
                working.note(note)
            solved = solve(config, working)
        save(solved, run)
        seconds = time.perf_counter() - began
        result |= {
            "objective": solved.numbers["objective_exact"],
            "return_mean": solved.outcome.mean_undiscounted,
            "episodes": 0,
            "steps": 0,
            "seconds": seconds,
            **solved.numbers,
            "config_hash": job.digest,
            "device": "cpu",
            **source,
        }
        row = {
            "steps": 0,
            "eval_score": result["return_mean"],
            "eval_objective": result["objective"],
            "seconds": round(seconds, 3),
        }
        metrics.append(row)
        sink.log(row)
    run.write_result(result)
    run.write_status("done", step=0)
    return float(result["objective"])


def _stop(number: int, frame: FrameType | None) -> None:
    for other in (signal.SIGINT, signal.SIGTERM):  # none may come between this and the status
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number, "stopped; an exact solver keeps nothing, the same command starts again")


def save(solved: Solved, run: RunDirectory) -> None:
    """Write `policy.npz` and `outcomes.npz`, the law of the discounted return."""
    solved.policy.save(run.path / "policy.npz")
    path = run.path / "outcomes.npz"
    with disk_errors(path), path.open("wb") as file:
        np.savez_compressed(
            file,
            returns=solved.outcome.returns,
            probabilities=solved.outcome.probabilities,
        )
