"""Run an exact agent in its directory: solve, save the policy and write the result."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any

import numpy as np

from rigor.config.schemas import BackwardInduction
from rigor.config.validate import warnings
from rigor.errors import STOPS, Stopped
from rigor.exact.solve import ExactSolution, solve_finite, solve_infinite
from rigor.exact.solver_progress import SolverProgress
from rigor.runs.directory import RunDirectory
from rigor.runs.disk import disk_errors
from rigor.runs.job import Job, wandb_names
from rigor.runs.metrics import MetricsFile
from rigor.runs.provenance import source
from rigor.runs.trackers import open_trackers

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
      job: the run's config and names. run: its locked directory.
      sweep: name of the run's sweep, if any.
      stop: unused; an exact solver has nothing to save, so it stops at once on a signal.
      after: collects functions to call once the status is written.
    """
    if threading.current_thread() is threading.main_thread():  # which alone has handlers
        for number in STOPS:
            signal.signal(number, _stop)  # the caller restores the old handlers
    config = job.config
    made_by = source()
    result: dict[str, Any] = {}
    began = time.perf_counter()
    solve = solve_finite if isinstance(config.agent, BackwardInduction) else solve_infinite
    with MetricsFile(run.metrics_path, COLUMNS).open(-1) as metrics:
        with SolverProgress(
            job.label, run.log_path, lambda: run.write_status("running", commit=made_by["commit"])
        ) as progress:
            for note in warnings(config):
                progress.note(note)
            solution = solve(config, progress)
            # opened here, so that a refused problem leaves no run in W&B
            names = wandb_names(job.plain, sweep)
            described = job.plain | made_by | {"choices": names["choices"]}
            sink = open_trackers(config.tracker, run.path, described, names, progress.note)
            after.callback(lambda: sink.finish(0 if result else 1, result))
        save(solution, run)
        seconds = time.perf_counter() - began
        result |= {
            "objective": solution.metrics["objective_exact"],
            "score": solution.outcome.mean_score,
            "episodes": 0,
            "steps": 0,
            "seconds": seconds,
            **solution.metrics,
            "config_hash": job.digest,
            "device": "cpu",
            **made_by,
        }
        row = {
            "steps": 0,
            "eval_score": result["score"],
            "eval_objective": result["objective"],
            "seconds": round(seconds, 3),
        }
        metrics.append(row)
        sink.catch_up()
    run.write_result(result)
    run.write_status("done", step=0)
    return float(result["objective"])


def _stop(number: int, frame: FrameType | None) -> None:
    for other in STOPS:  # a second signal must not interrupt writing the status
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number, "stopped; an exact solver saves nothing, so the same command starts over")


def save(solution: ExactSolution, run: RunDirectory) -> None:
    """Write `policy.npz`, and the distribution of the discounted return to `outcomes.npz`."""
    solution.policy.save(run.path / "policy.npz")
    path = run.path / "outcomes.npz"
    with disk_errors(path), path.open("wb") as file:
        np.savez_compressed(
            file,
            returns=solution.outcome.returns,
            probabilities=solution.outcome.probabilities,
        )
