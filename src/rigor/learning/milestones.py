"""What both training loops do between steps: rows of metrics, evaluations, checkpoints, the end."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rigor.errors import Stopped, UserError
from rigor.learning import evaluate
from rigor.learning.schedule import crossings, every
from rigor.learning.training import STREAMS, State, Training
from rigor.runs.metrics import MetricsFile
from rigor.runs.progress import Progress
from rigor.runs.trackers import Trackers

COLUMNS = [
    "steps",
    "frames",
    "episodes",
    "updates",
    "epsilon",
    "loss",
    "train_score",
    "train_length",
    "initial_stock",
    "eval_score",
    "eval_score_low",
    "eval_score_high",
    "eval_objective",
    "eval_objective_low",
    "eval_objective_high",
    "eval_length",
    "eval_cut",
    "seconds",
    "steps_per_second",
]
"""Columns of metrics.csv. The last two are wall-clock, all others are reproducible on CPU."""


@dataclass
class Outputs:
    """Where a run's numbers and lines go.

    metrics, progress, sink: for rows of metrics and lines of text.
    stop: returns the signal that asks for a stop, if any.
    """

    metrics: MetricsFile
    progress: Progress
    sink: Trackers
    stop: Callable[[], int | None]


def milestones(training: Training, state: State, epsilon: float, outputs: Outputs) -> bool:
    """Log, evaluate and save where that is due; return whether the run is over.

    Args:
      training, state: the parts of the run, and their state. epsilon: the present one.
      outputs: of the run.

    Raises:
      Stopped: with the signal that asks for a stop; the state has been saved.
      UserError: the loss is not finite.
    """
    config, spec = training.config, training.config.train
    log_every = every(spec.log_every, spec.schedule_steps)
    evaluate_every = every(config.evaluate.every, spec.schedule_steps)
    ends = state.steps >= spec.steps
    # Search first, so that a run stopped during the rollouts repeats the search on resuming, and
    # before the last checkpoint, whose c₀ is the result's.
    if ends or crossings(state.updates_searched, state.updates, config.outer.every):
        try:
            training.choose_initial_stock(state, outputs.progress.note, outputs.stop)
        except Stopped:
            training.save(state)
            raise
    state.updates_searched = state.updates
    # Log before acting, so that a run stopped during an evaluation repeats the evaluation when it
    # resumes.
    evaluates = crossings(state.steps_logged, state.steps, evaluate_every) > 0
    if evaluates or crossings(state.steps_logged, state.steps, log_every):
        row = _row(training, state, epsilon)
        if evaluates:
            try:
                row |= _evaluation(training, state, outputs)
            except Stopped:
                training.save(state)
                raise
        outputs.metrics.append(row)
        outputs.sink.log(row)
        state.ended, state.updates_logged = [], state.updates
        training.agent.loss_sum.zero_()
    due = crossings(state.steps_logged, state.steps, training.checkpoint_every) > 0
    state.steps_logged = state.steps
    signal = outputs.stop()
    due = due or (training.memory is not None and training.memory.overdue())
    if training.changed and (due or ends or signal):
        training.save(state, wait=ends or signal is not None)
    if signal:
        raise Stopped(signal)
    if ends and state.updates > state.updates_logged:
        _checked_loss(training, state)
    return ends


def _row(training: Training, state: State, epsilon: float) -> dict[str, Any]:
    """Return the row of metrics at this step, without an evaluation."""
    row = {
        "steps": state.steps,
        "frames": state.steps * training.env.frames_per_step,
        "episodes": state.episodes,
        "updates": state.updates,
        "epsilon": epsilon,
        "seconds": round(state.seconds, 3),
        "steps_per_second": round(state.steps / state.seconds, 2),
    }
    if state.updates > state.updates_logged:
        row["loss"] = _checked_loss(training, state)
    if state.ended:
        row["train_score"] = float(np.mean([score for score, _ in state.ended]))
        row["train_length"] = float(np.mean([length for _, length in state.ended]))
    if training.agent.utility.needs_stock:
        row["initial_stock"] = training.agent.initial_stock
    return row


def _evaluation(training: Training, state: State, outputs: Outputs) -> dict[str, Any]:
    """Search for c₀, evaluate with it, note the result and return its columns."""
    config, agent, progress = training.config, training.agent, outputs.progress
    training.choose_initial_stock(state, progress.note, outputs.stop)
    # Each evaluation has its own stream, independent of everything before it.
    index = state.steps // every(config.evaluate.every, config.train.schedule_steps)
    seed = np.random.SeedSequence(config.seed, spawn_key=(STREAMS.index("evaluation"), index))
    episodes = training.evaluate(config.evaluate.episodes, seed, outputs.stop)
    outputs.sink.log_episodes(state.steps, asdict(episodes))
    estimates = evaluate.summarise(config, episodes)
    score, objective = estimates["score"], estimates["objective"]
    cut = evaluate.cut_at_limit(episodes)
    progress.note(
        f"step {state.steps}: score {score}, objective {objective.value:.4g} over "
        f"{config.evaluate.episodes} episodes" + (f", {cut}" if cut else "")
    )
    warning = evaluate.out_of_proportion(config.risk, episodes.discounted)
    if warning and index == 1:
        progress.note(warning)
    return {
        **score.columns("eval_score"),
        **objective.columns("eval_objective"),
        "eval_length": float(episodes.length.mean()),
        "eval_cut": int(episodes.cut.sum()),
        **({"initial_stock": agent.initial_stock} if agent.utility.needs_stock else {}),
    }


def _checked_loss(training: Training, state: State) -> float:
    """Return the mean loss since the last row.

    Raises:
      UserError: the loss is not finite, so the network is lost.
    """
    loss = training.agent.loss_sum.item() / (state.updates - state.updates_logged)
    if not math.isfinite(loss):
        raise UserError(
            f"train.learning_rate={training.config.train.learning_rate}: the loss is {loss} at "
            f"step {state.steps}, the network is lost; lower the rate, or scale the rewards by "
            "train.reward_scale"
        )
    return loss
