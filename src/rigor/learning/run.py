"""One learning run in its directory: train, evaluate, write the result."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from rigor.config.config import Config
from rigor.config.schemas import TrainReplay
from rigor.config.validate import warnings
from rigor.errors import UserError
from rigor.learning import evaluate, loop, parallel_loop
from rigor.learning.engine import lacks_bf16
from rigor.learning.milestones import COLUMNS, Outputs
from rigor.learning.training import State, Training
from rigor.runs.directory import RunDirectory
from rigor.runs.gpus import visible_gpus
from rigor.runs.job import Job, wandb_names
from rigor.runs.metrics import MetricsFile
from rigor.runs.progress import Progress
from rigor.runs.provenance import source
from rigor.runs.trackers import Trackers, open_trackers


def choose_device(name: str) -> torch.device:
    """Return the device that `device=auto|cpu|cuda` means here.

    Raises:
      UserError: no GPU is there, or torch sees one that its build has no code for.
    """
    if name == "cuda" and not torch.cuda.is_available():
        built = "this torch is a CPU build" if torch.version.cuda is None else "torch sees no GPU"
        raise UserError(f"device=cuda: {built}; use device=cpu, or install torch for CUDA")
    asked = name
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        try:
            torch.zeros(1, device=device).add_(1).item()
        except RuntimeError as error:
            if "no kernel image" not in str(error):  # a busy GPU may be free in the next try
                raise
            raise UserError(
                f"device={asked}: torch {torch.__version__} has no code for this GPU; use "
                "device=cpu, or the build for older cards: make clean, then make setup TORCH=cu126"
            ) from error
    return device


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
    made_by = source()
    device = choose_device(config.device)
    run.write_status("running", gpu=gpu_of(device), commit=made_by["commit"])
    torch.set_num_threads(1)  # one run, one core: two threads are slower than two runs
    training = Training(config, run, device)
    after.callback(training.close)
    names = wandb_names(job.plain, sweep)
    described = job.plain | made_by | {"choices": names["choices"]}
    result: dict[str, Any] = {}
    notes: list[str] = warnings(config)
    notes += device_notes(config, device)
    state = training.start(notes.append)
    metrics = MetricsFile(run.metrics_path, COLUMNS).open(state.steps_logged)

    def beat(step: int, rate: float, seconds_left: float | None) -> None:
        run.write_status("running", step=step, steps_per_second=rate, seconds_left=seconds_left)

    progress = Progress(job.steps, job.label, run.log_path, start=state.steps, beat=beat)
    sink = open_trackers(config.tracker, run.path, described, names, progress.note)
    after.callback(lambda: sink.finish(0 if result else 1, result))

    def stop_alive() -> int | None:
        """Return the signal that asks for a stop; asked in every step, of evaluations too."""
        progress.alive()
        return stop()

    with metrics, progress:
        for note in notes:
            progress.note(note)
        sink.catch_up()
        outputs = Outputs(metrics, progress, sink, stop_alive)
        if state.steps < config.train.steps or state.steps_logged < state.steps:
            (parallel_loop if training.memory is None else loop).train(training, state, outputs)
        progress.average = state.steps / state.seconds
        result |= _result(job, training, state, sink, stop_alive, progress.note) | made_by
        result |= _exact(config, training, progress.note)
    run.write_result(result)
    run.write_status("done", step=state.steps)
    return float(result["objective"])


def device_notes(config: Config, device: torch.device) -> list[str]:
    """Return what a run says of its device, one line each."""
    notes = []
    if config.train.precision == "bf16" and lacks_bf16(device):
        notes.append(
            "train.precision=bf16: this processor has no instructions for it, and updates are "
            "several times slower than with train.precision=fp32"
        )
    if config.train.precision == "tf32" and device.type == "cpu":
        notes.append("train.precision=tf32: only GPUs have it; this run computes in fp32")
    if config.device == "auto" and device.type == "cpu" and (gpus := visible_gpus()):
        built = "is a build for CPUs" if torch.version.cuda is None else "cannot use them"
        notes.append(
            f"device=auto: nvidia-smi lists {len(gpus)} GPU{'s' * (len(gpus) > 1)}, but this torch "
            f"{built}, so the run is on the CPU; README says how to install torch for CUDA, and "
            "device=cpu is silent"
        )
    return notes


def _result(
    job: Job,
    training: Training,
    state: State,
    sink: Trackers,
    stop: Callable[[], int | None],
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Play the final episodes and return the contents of `result.json`."""
    config = job.config
    seed = training.seeds["final_evaluation"]
    episodes = training.evaluate(config.final_episodes, seed, stop)
    sink.log_episodes(state.steps, asdict(episodes))
    if line := evaluate.unseen(episodes):
        note(line)
    if cut := evaluate.cut_at_limit(episodes):
        note(f"final episodes: {cut}")
    result: dict[str, Any] = {}
    for name, estimate in evaluate.summarise(config, episodes).items():
        result |= estimate.columns(name)
    return result | {
        "episodes": len(episodes.score),
        "episodes_cut": int(episodes.cut.sum()),
        "length_mean": float(np.mean(episodes.length)),
        "scores": episodes.score.tolist(),
        "steps": state.steps,
        "frames": state.steps * training.env.frames_per_step,
        "updates": state.updates,
        "simulator_states": _sampled_states(config, state),
        "simulator_steps": state.search_steps,
        "initial_stock": training.agent.initial_stock,
        "horizons": config.bundle.n_horizons,
        "fit_error": config.bundle.fit_error,
        "seconds": state.seconds,
        "steps_per_second": state.steps / state.seconds,
        "config_hash": job.digest,
        "sources": training.sources,
        "device": str(training.agent.device),
    }


def _sampled_states(config: Config, state: State) -> int:
    """Return how many next states were drawn from the environment's dynamics for updates."""
    train = config.train
    if not isinstance(train, TrainReplay) or train.next_state_samples == 1:
        return 0
    return state.updates * train.batch_size * train.next_state_samples


def _exact(config: Config, training: Training, note: Callable[[str], None]) -> dict[str, Any]:
    """Return the exact numbers of the trained policy; nothing where the problem has no model."""
    if config.env.problem is None or config.env.problem.model is None:
        return {}
    from rigor.exact.policy_evaluation import grid_note, measure

    try:
        numbers = measure(config, training.agent)
    except UserError as error:  # the run is done all the same
        note(f"no exact numbers: {error}")
        return {}
    objective = numbers["objective_exact"]
    best = numbers["objective_optimal" if "objective_optimal" in numbers else "optimum_low"]
    note(f"exact: objective {objective:.6g}, optimum {best:.6g}, regret {best - objective:.4g}")
    if numbers["stock_error"]:
        note(grid_note(config.exact.max_stocks, numbers["stock_error"]))
    return numbers
