"""The training loop of the parallel learner: one, and visible. `loop` has the replay learner's."""

import numpy as np

from rigor.learning.engine import set_learning_rate
from rigor.learning.milestones import Outputs, milestones
from rigor.learning.parallel import Rollouts
from rigor.learning.schedule import Linear, every, position
from rigor.learning.training import State, Training
from rigor.learning.units import follow


def train(training: Training, state: State, outputs: Outputs) -> None:
    """Train until `train.steps` agent steps, rollout by rollout.

    Metrics, evaluations, checkpoints and stops come between rollouts. The first rollout is not
    learned from: it tells the units of rewards and stocks.

    Args:
      training, state: the parts of the run, and their state. outputs: of the run.

    Raises:
      Stopped: a signal asked for it; the state after the rollout has been saved.
    """
    spec, agent, env = training.config.train, training.agent, training.env
    schedule, note = spec.schedule_steps, outputs.progress.note
    epsilon = Linear(spec.epsilon_start, spec.epsilon_end, every(spec.epsilon_fraction, schedule))
    learning_rate = Linear(spec.learning_rate, spec.learning_rate_end, schedule)
    updates = schedule * spec.epochs / spec.batch_size
    rollouts = Rollouts(agent, env, spec)
    while not milestones(training, state, epsilon(state.steps), outputs):
        first = state.steps == 0
        # act: a rollout, whose episodes start from stocks spread over the candidates
        for k in range(spec.rollout_steps):
            now = state.observation, state.t, state.stock
            actions = rollouts.act(k, *now, epsilon(state.steps), training.exploration)
            step = training.step(state, actions)
            rollouts.store(k, step)
            initial_stock = np.full(env.n_envs, agent.initial_stock)
            if agent.utility.needs_stock:
                initial_stock = agent.candidates.spread(initial_stock, training.exploration)
            training.advance(state, step, initial_stock)
            outputs.progress.update(state.steps, state.shown())
        rollouts.predict(spec.rollout_steps, state.observation, state.t, state.stock)
        # learn from it
        if not first:
            agent.values.compile_loss(note, spec.batch_size, 1, updates)
            rate = learning_rate(position(state.steps, schedule, spec.restart_schedule))
            set_learning_rate(agent.optimizer, rate)
            state.updates += rollouts.learn(training.sampling)
        follow(agent, keep=not first)
