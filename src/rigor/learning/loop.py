"""The training loop of the replay learner: one, and visible. `parallel_loop` has the other."""

import numpy as np

from rigor.learning.engine import set_learning_rate
from rigor.learning.milestones import Outputs, milestones
from rigor.learning.schedule import Linear, crossings, every, position
from rigor.learning.training import State, Training
from rigor.learning.units import follow


def train(training: Training, state: State, outputs: Outputs) -> None:
    """Train until `train.steps` agent steps, writing metrics, evaluations and checkpoints.

    Args:
      training, state: the parts of the run, and their state. outputs: of the run.

    Raises:
      Stopped: a signal asked for it, at a safe point of a step; the state has been saved.
    """
    spec, agent, env = training.config.train, training.agent, training.env
    schedule = spec.schedule_steps
    assert training.memory is not None
    replay, note = training.memory.replay, outputs.progress.note
    epsilon = Linear(spec.epsilon_start, spec.epsilon_end, every(spec.epsilon_fraction, schedule))
    learning_rate = Linear(spec.learning_rate, spec.learning_rate_end, schedule)
    learning_starts = max(spec.learning_starts * schedule, 2 * env.n_envs)
    target_every = min(spec.target_every, every(0.01, schedule))
    updates = schedule / spec.update_every
    while not milestones(training, state, epsilon(state.steps), outputs):
        # act
        actions = agent.act(
            state.observation, state.t, state.stock, epsilon(state.steps), training.exploration
        )
        # learn from the stored transitions, so that a GPU works while the emulator plays
        if state.steps >= learning_starts:
            agent.values.compile_loss(note, spec.batch_size, spec.next_state_samples, updates)
            rate = learning_rate(position(state.steps, schedule, spec.restart_schedule))
            set_learning_rate(agent.optimizer, rate)
            follow(agent, keep=state.updates > 0)
            for _ in range(crossings(state.steps_learned, state.steps, spec.update_every)):
                batch = replay.sample(spec.batch_size, training.sampling, spec.n_step)
                agent.relabel(batch, training.sampling)
                training.sample_next_states(batch)
                agent.update(batch)
                state.updates += 1
            for _ in range(crossings(state.steps_learned, state.steps, target_every)):
                agent.update_target()
        state.steps_learned = state.steps
        # step
        step = training.step(state, actions)
        replay.add(
            state.observation,
            t=state.t,
            stock=state.stock,
            stock_start=state.stock_start,
            action=actions,
            reward=step.reward,
            terminated=step.terminated,
            valid=~step.dummy,
        )
        training.advance(state, step, np.full(env.n_envs, agent.initial_stock))
        outputs.progress.update(state.steps, state.shown())
