"""One run from its directory to its result: what `rigor-train` does once a job is accepted."""

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

import numpy as np
import torch

from rigor.config import warnings
from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch.job import Job
from rigor.learning import evaluate, loop
from rigor.tracking.metrics import MetricsFile
from rigor.tracking.progress import Progress
from rigor.tracking.rundir import RunDirectory, commit, versions
from rigor.tracking.wandb_sink import open_sink


class Stop:
    """Remembers the signal that asked the run to stop; the loop reads it at a safe point."""

    signal: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal; the second one of a kind ends the process in the ordinary way."""
        self.signal = number
        ordinary = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, ordinary)


def execute(job: Job, sweep: str | None) -> float:
    """Run a job to its end in its directory and return the objective.

    Raises:
      UserError: the directory, memory or disk refuses. RunFailed: our fault.
      Stopped: asked to stop; the directory resumes.
    """
    with (
        RunDirectory.open(job.path, job.plain, job.digest) as run,
        _signals() as stop,
        ExitStack() as after,  # W&B and the environment end after the status is written
    ):
        run.write_status("running", steps_total=job.steps)
        try:
            objective = _train(job, run, sweep, stop, after)
        except Stopped as stopped:
            run.write_status("preempted", error=f"stopped by {signal.Signals(stopped.signal).name}")
            raise
        except UserError as error:
            _tell_failure(run, str(error), f"failed: {error}", error)
            raise
        except KeyboardInterrupt:
            run.write_status("preempted", error="interrupted before it could save itself")
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            _tell_failure(run, text, traceback.format_exc(), error)
            raise RunFailed(f"{text}; the traceback is in {run.log_path}") from error
        if stop.signal:  # it came when there was nothing left to stop; a sweep must hear of it
            raise Stopped(stop.signal)
        return objective


def choose_device(name: str) -> torch.device:
    """Return the device that `device=auto|cpu|cuda` means here."""
    if name == "cuda" and not torch.cuda.is_available():
        built = "this torch is a CPU build" if torch.version.cuda is None else "torch sees no GPU"
        raise UserError(f"device=cuda: {built}; use device=cpu, or install torch for CUDA")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _train(job: Job, run: RunDirectory, sweep: str | None, stop: Stop, after: ExitStack) -> float:
    """Train, evaluate and write the result; `after` collects what is to be closed."""
    config = job.config
    source = {"commit": commit(), "versions": versions()}  # of what is running now
    device = choose_device(config.device)
    torch.set_num_threads(1)  # one run, one core: two threads are slower than two runs
    training = loop.Training(config, run, device)
    after.callback(training.env.close)
    sink = open_sink(config.tracker, run.path, job.plain, _names(job, sweep))
    result: dict[str, Any] = {}
    after.callback(lambda: sink.finish(0 if result else 1, result))
    notes: list[str] = warnings(config)
    state = training.start(notes.append)
    metrics = MetricsFile(run.metrics_path, loop.COLUMNS).open(state.told)
    label = f"{_short(job.choices.get('env', 'run'))} s{config.seed}"
    progress = Progress(job.steps, label, run.log_path, enabled=True, start=state.steps)
    with metrics, progress:
        for note in notes:
            progress.note(note)
        loop.train(training, state, metrics, progress, sink.log, lambda: stop.signal)
        training.choose_initial_stock(state, progress.note)
        result |= _result(job, training, state, lambda: stop.signal) | source
    run.write_result(result)
    run.write_status("done", step=state.steps)
    return float(result["objective"])


def _result(
    job: Job, training: loop.Training, state: loop.State, stop: Callable[[], int | None]
) -> dict[str, Any]:
    """Play the final games and return what `result.json` holds."""
    config = job.config
    seed = training.seeds["final_evaluation"]
    games = training.evaluate(config.evaluate.final_episodes, seed, stop)
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


def _names(job: Job, sweep: str | None) -> dict[str, Any]:
    """Return how the run is called in W&B."""
    choices = {group: _short(value) for group, value in job.choices.items()}
    shown = [choices.get("env", ""), choices.get("variant", ""), f"s{job.config.seed}"]
    return {
        "group": sweep,
        "name": " · ".join(part for part in shown if part),
        "tags": list(choices.values()),
        "job_type": "train",
    }


def _short(choice: str) -> str:
    """Return `breakout` for `atari/breakout`."""
    return choice.rpartition("/")[2]


def _tell_failure(run: RunDirectory, error: str, log: str, raised: Exception) -> None:
    """Leave the reason and the status of a failed run; a full disk may refuse both."""
    # a launcher keeps the error until the sweep ends, and its frames hold the replay
    traceback.clear_frames(raised.__traceback__)
    with suppress(UserError):
        run.write_traceback(log)
        run.write_status("failed", error=error)


@contextmanager
def _signals() -> Iterator[Stop]:
    """Catch Ctrl-C and SIGTERM while a run is on, and put the old handlers back."""
    stop = Stop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
