"""The training loop: one, and visible."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from rigor.errors import Stopped, UserError
from rigor.learning import checkpoint, evaluate
from rigor.learning.schedule import Linear, crossings, every
from rigor.learning.state import STREAMS, State, Training
from rigor.tracking.metrics import MetricsFile
from rigor.tracking.progress import Progress
from rigor.tracking.wandb_sink import Sink

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
    "seconds",
    "steps_per_second",
]
"""Columns of metrics.csv. The last two are wall-clock, all others are reproducible on CPU."""


def train(
    training: Training,
    state: State,
    metrics: MetricsFile,
    progress: Progress,
    sink: Sink,
    stop: Callable[[], int | None],
) -> None:
    """Train until `train.steps` agent steps, writing metrics, evaluations and checkpoints.

    Args:
      training, state: the parts, and where they stand.
      metrics, progress, sink: where rows and lines go.
      stop: returns the signal that asks for a stop, read at a safe point of every step.

    Raises:
      Stopped: with that signal; the state has been saved.
    """
    config, agent, env, replay = training.config, training.agent, training.env, training.replay
    spec, schedule = config.train, config.train.schedule_steps
    epsilon = Linear(spec.epsilon_start, spec.epsilon_end, every(spec.epsilon_fraction, schedule))
    learning_rate = Linear(spec.learning_rate, spec.learning_rate_end, schedule)
    learning_starts = max(spec.learning_starts * schedule, 2 * env.n_envs)
    target_every = min(spec.target_every, every(0.01, schedule))
    log_every = every(spec.log_every, schedule)
    evaluate_every = every(config.evaluate.every, schedule)
    clock = time.perf_counter() - state.seconds
    while True:
        # tell: before the next step, so that a stop during an evaluation resumes with it
        evaluates = crossings(state.told, state.steps, evaluate_every) > 0
        if evaluates or crossings(state.told, state.steps, log_every):
            row = _row(training, state, epsilon(state.steps))
            if evaluates:
                try:
                    row |= _evaluation(training, state, progress, sink, stop)
                except Stopped:
                    training.save(state)
                    raise
            metrics.append(row)
            sink.log(row)
            state.ended, state.updates_told = [], state.updates
            agent.loss_sum.zero_()
        due = crossings(state.told, state.steps, training.checkpoint_every) > 0
        state.told = state.steps
        # save
        ends, signal = state.steps >= spec.steps, stop()
        new_rows = replay.added - training.saved_rows
        if new_rows and (due or ends or signal or new_rows >= training.slack // checkpoint.KEEP):
            training.save(state)
        if signal:
            raise Stopped(signal)
        if ends:
            if state.updates > state.updates_told:
                _checked_loss(training, state)
            return
        # act
        actions = agent.act(
            state.observation, state.t, state.stock, epsilon(state.steps), training.exploration
        )
        # learn: from what is stored, so that a GPU works while the emulator plays
        if state.steps >= learning_starts:
            agent.learned.compile_loss(progress.note)
            agent.set_learning_rate(learning_rate(state.steps))
            for _ in range(crossings(state.learned, state.steps, spec.update_every)):
                batch = replay.sample(spec.batch_size, training.sampling)
                agent.relabel(batch, training.sampling)
                training.branch(batch)
                agent.update(batch)
                state.updates += 1
                if agent.utility.needs_stock and state.updates % config.outer.every == 0:
                    training.choose_initial_stock(state, progress.note)
            for _ in range(crossings(state.learned, state.steps, target_every)):
                agent.smooth_target()
        state.learned = state.steps
        # step
        step = env.step(actions)
        counts = ~step.dummy
        replay.add(
            state.observation,
            t=state.t,
            stock=state.stock,
            stock_start=state.stock_start,
            action=actions,
            reward=step.reward,
            terminated=step.terminated,
            valid=counts,
        )
        # the clock, the stock and the episode's sums move on; an autoreset puts them back
        state.steps += int(counts.sum())
        moved = agent.next_stock(state.stock, state.t, step.reward)
        state.stock = np.where(counts, moved, agent.initial_stock)
        state.stock_start = np.where(counts, state.stock_start, agent.initial_stock)
        state.t = np.where(counts, state.t + 1, 0)
        state.score = np.where(counts, state.score + step.reward, 0.0)
        state.length = np.where(counts, state.length + 1, 0)
        for i in np.flatnonzero(step.episode_end):
            state.ended.append((float(state.score[i]), int(state.length[i])))
            state.episodes += 1
        state.observation = step.observation
        if agent.utility.needs_stock:
            agent.candidates.see(agent.learned_reward(step.reward))
            if step.dummy.any():
                starts = np.concatenate([state.starts, step.observation[step.dummy]])
                state.starts = starts[-config.outer.batch :]
        state.seconds = time.perf_counter() - clock
        progress.update(state.steps, _shown(state))


def _row(training: Training, state: State, epsilon: float) -> dict[str, Any]:
    """Return the row of metrics at this step, without an evaluation."""
    row = {
        "steps": state.steps,
        "frames": state.steps * training.frame_skip,
        "episodes": state.episodes,
        "updates": state.updates,
        "epsilon": epsilon,
        "seconds": round(state.seconds, 3),
        "steps_per_second": round(state.steps / state.seconds, 2),
    }
    if state.updates > state.updates_told:
        row["loss"] = _checked_loss(training, state)
    if state.ended:
        row["train_score"] = float(np.mean([score for score, _ in state.ended]))
        row["train_length"] = float(np.mean([length for _, length in state.ended]))
    if training.agent.utility.needs_stock:
        row["initial_stock"] = training.agent.initial_stock
    return row


def _evaluation(
    training: Training,
    state: State,
    progress: Progress,
    sink: Sink,
    stop: Callable[[], int | None],
) -> dict[str, Any]:
    """Evaluate, say so, and return the columns."""
    config = training.config
    training.choose_initial_stock(state, progress.note)  # games are played with the newest
    # one stream for each evaluation, whatever happened before it
    index = state.steps // every(config.evaluate.every, config.train.schedule_steps)
    seed = np.random.SeedSequence(config.seed, spawn_key=(STREAMS.index("evaluation"), index))
    games = training.evaluate(config.evaluate.episodes, seed, stop)
    sink.log_episodes(state.steps, asdict(games))
    estimates = evaluate.summarise(config, games, config.seed)
    score, objective = estimates["score"], estimates["objective"]
    progress.note(
        f"step {state.steps}: score {score.value:.4g} [{score.low:.4g}, {score.high:.4g}], "
        f"objective {objective.value:.4g} over {config.evaluate.episodes} games"
    )
    warning = evaluate.out_of_proportion(config.risk, games.discounted)
    if warning and index == 1:
        progress.note(warning)
    return {
        "eval_score": score.value,
        "eval_score_low": score.low,
        "eval_score_high": score.high,
        "eval_objective": objective.value,
        "eval_objective_low": objective.low,
        "eval_objective_high": objective.high,
        "eval_length": float(games.length.mean()),
    }


def _checked_loss(training: Training, state: State) -> float:
    """Return the mean loss since the last row.

    Raises:
      UserError: it is no number, so the network is lost.
    """
    loss = training.agent.loss_sum.item() / (state.updates - state.updates_told)
    if not math.isfinite(loss):
        raise UserError(
            f"train.learning_rate={training.config.train.learning_rate}: the loss is {loss} at "
            f"step {state.steps}, the network is lost; lower the rate, or scale the rewards by "
            "train.reward_scale"
        )
    return loss


def _shown(state: State) -> dict[str, float]:
    """Return what the progress bar shows: the mean score of the episodes since the last row."""
    if not state.ended:
        return {}
    return {"score": float(np.mean([score for score, _ in state.ended[-10:]]))}
