"""One learning run in its directory: train, evaluate, write the result."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from rigor.checks import warnings
from rigor.config import Config
from rigor.errors import UserError
from rigor.launch.job import Job, tracked_as
from rigor.learning import evaluate, loop
from rigor.tracking.metrics import MetricsFile
from rigor.tracking.progress import Progress
from rigor.tracking.rundir import RunDirectory, commit, versions
from rigor.tracking.wandb_sink import Sink, open_sink


def choose_device(name: str) -> torch.device:
    """Return the device that `device=auto|cpu|cuda` means here."""
    if name == "cuda" and not torch.cuda.is_available():
        built = "this torch is a CPU build" if torch.version.cuda is None else "torch sees no GPU"
        raise UserError(f"device=cuda: {built}; use device=cpu, or install torch for CUDA")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def gpu_of(device: torch.device) -> str | None:
    """Return a run's GPU for people, such as `1 H100 80GB HBM3`, or None on a CPU.

    The number, or the name of a MIG part, is that of CUDA_VISIBLE_DEVICES, which SLURM sets; torch
    counts from 0 within it.
    """
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    number = visible[index].strip() if index < len(visible) else ""
    return f"{number or index} {torch.cuda.get_device_name(index).removeprefix('NVIDIA ')}"


def work(
    job: Job,
    run: RunDirectory,
    sweep: str | None,
    stop: Callable[[], int | None],
    after: ExitStack,
) -> float:
    """Train, evaluate, write the result and return the objective.

    Args:
      job, run: what to do, and its locked directory.
      sweep: name of the sweep that it belongs to.
      stop: returns the signal that asks for a stop.
      after: collects what is to be closed once the status is written.
    """
    config = job.config
    source = {"commit": commit(), "versions": versions()}  # of what is running now
    device = choose_device(config.device)
    run.write_status("running", gpu=gpu_of(device))
    torch.set_num_threads(1)  # one run, one core: two threads are slower than two runs
    training = loop.Training(config, run, device)
    after.callback(training.env.close)
    names = tracked_as(job, sweep)
    described = job.plain | source | {"choices": names["choices"]}
    sink = open_sink(config.tracker, run.path, described, names)
    result: dict[str, Any] = {}
    after.callback(lambda: sink.finish(0 if result else 1, result))
    notes: list[str] = warnings(config)
    state = training.start(notes.append)
    metrics = MetricsFile(run.metrics_path, loop.COLUMNS).open(state.told)

    def beat(step: int, rate: float, seconds_left: float | None) -> None:
        run.write_status("running", step=step, steps_per_second=rate, seconds_left=seconds_left)

    progress = Progress(
        job.steps, job.label, run.log_path, enabled=True, start=state.steps, beat=beat
    )

    def stop_alive() -> int | None:
        """Return the signal that asks for a stop; asked in every step, of evaluations too."""
        progress.alive()
        return stop()

    with metrics, progress:
        for note in notes:
            progress.note(note)
        loop.train(training, state, metrics, progress, sink, stop_alive)
        training.choose_initial_stock(state, progress.note)
        result |= _result(job, training, state, sink, stop_alive) | source
        result |= _exact(config, training, progress.note)
    run.write_result(result)
    run.write_status("done", step=state.steps)
    return float(result["objective"])


def _result(
    job: Job,
    training: loop.Training,
    state: loop.State,
    sink: Sink,
    stop: Callable[[], int | None],
) -> dict[str, Any]:
    """Play the final games and return what `result.json` holds."""
    config = job.config
    seed = training.seeds["final_evaluation"]
    games = training.evaluate(config.evaluate.final_episodes, seed, stop)
    sink.log_episodes(state.steps, asdict(games))
    result: dict[str, Any] = {}
    for name, estimate in evaluate.summarise(config, games, config.seed).items():
        key = "return" if name == "score" else name
        result["return_mean" if name == "score" else key] = estimate.value
        result |= {f"{key}_low": estimate.low, f"{key}_high": estimate.high}
    return result | {
        "episodes": len(games.score),
        "length_mean": float(np.mean(games.length)),
        "returns": games.score.tolist(),
        "steps": state.steps,
        "frames": state.steps * training.frame_skip,
        "updates": state.updates,
        "initial_stock": training.agent.initial_stock,
        "horizons": config.bundle.n_horizons,
        "fit_error": config.bundle.fit_error,
        "seconds": state.seconds,
        "steps_per_second": state.steps / state.seconds,
        "config_hash": job.digest,
        "device": str(training.agent.device),
    }


def _exact(config: Config, training: loop.Training, note: Callable[[str], None]) -> dict[str, Any]:
    """Return the exact numbers of the trained policy; nothing where the problem has no model."""
    if not hasattr(config.env, "model"):
        return {}
    from rigor.exact.measure import measure

    try:
        numbers = measure(config, training.agent)
    except UserError as error:  # the run is done all the same
        note(f"no exact numbers: {error}")
        return {}
    objective = numbers["objective_exact"]
    best = numbers["objective_optimal" if "objective_optimal" in numbers else "optimum_low"]
    note(f"exact: objective {objective:.6g}, optimum {best:.6g}, regret {best - objective:.4g}")
    return numbers
