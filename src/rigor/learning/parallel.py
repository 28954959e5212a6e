"""Learning in parallel: λ-returns of the newest rollout of many copies.

There is no replay and no target network; layer normalisation keeps the learning stable (Gallici et
al. 2024, "Simplifying Deep Temporal Difference Learning", for the mean of one exponential horizon).
The agent, its choice of actions, its stock and the meaning of its outputs are those of
`rigor.learning.agent`, and a target of λ = 0 is that of Algorithms 2 and 3 with θ⁻ = θ.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rigor.config.schemas import TrainParallel
from rigor.envs.vector import Step, VectorEnv
from rigor.learning.agent import Agent
from rigor.learning.frames import RolloutFrames
from rigor.learning.layers import scale_pixels
from rigor.learning.rollout import epsilon_greedy
from rigor.maths import lambda_return


@dataclass
class Columns:
    """What a rollout of T steps of E copies holds in the machine's memory, [T, E] each.

    The clocks and stocks have T + 1 rows, `greedy` too: the actions a′ by which each of M horizons
    bootstraps, [T + 1, E, M].
    """

    t: np.ndarray
    stock: np.ndarray
    greedy: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    valid: np.ndarray


class Rollouts:
    """Plays an agent's actions into a rollout, and learns from it.

    Everything that the device reads keeps its place in memory, so that a GPU records one act and
    one gradient step. Observations go to the device once, to act.

    Args:
      agent: acts and learns. env: E copies, of which only the shapes are read.
      train: the values of the parallel learner.
    """

    def __init__(self, agent: Agent, env: VectorEnv, train: TrainParallel) -> None:
        self.agent, self.train, self.device = agent, train, agent.device
        n, n_rows = env.n_envs, train.rollout_steps
        _, n_horizons, n_quantiles = agent.online.head.shape
        self.rows = Columns(
            t=np.zeros((n_rows + 1, n), np.int64),
            stock=np.zeros((n_rows + 1, n)),
            greedy=np.zeros((n_rows + 1, n, n_horizons), np.int64),
            action=np.zeros((n_rows, n), np.int64),
            reward=np.zeros((n_rows, n)),
            terminated=np.zeros((n_rows, n), bool),
            valid=np.zeros((n_rows, n), bool),
        )
        device, size = self.device, (n, n_horizons, n_quantiles)
        self.frames = RolloutFrames(env, n_rows + 1, device)
        self._predicted = torch.zeros(n_rows + 1, *size, device=device)  # ξ(s, t, S, a′) of rows
        self._newest = torch.zeros(size, device=device)  # of the newest row
        self._t = torch.zeros(n_rows * n, dtype=torch.int64, device=device)
        self._action = torch.zeros_like(self._t)
        self._stock = torch.zeros(n_rows * n, dtype=torch.float64, device=device)
        self._targets = torch.zeros(n_rows * n, n_horizons, n_quantiles, device=device)
        self.greedy_on_device = agent.engine.record(self.greedy)
        self.gradient_step_on_device = agent.engine.record(self.gradient_step)

    # --- act: a_t = argmax_a Q(s_t, t, S_t, a), ε-greedy, and what the targets bootstrap from

    def act(
        self,
        k: int,
        observation: np.ndarray,
        t: np.ndarray,
        stock: np.ndarray,
        epsilon: float,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Write the states of row k, and return ε-greedy actions, int64 [E]."""
        greedy = self.predict(k, observation, t, stock)
        n, n_actions = len(greedy), self.agent.online.head.shape[0]
        actions = epsilon_greedy(lambda: greedy, n, n_actions, epsilon, rng)
        self.rows.action[k] = actions
        return actions

    def predict(
        self, k: int, observation: np.ndarray, t: np.ndarray, stock: np.ndarray
    ) -> np.ndarray:
        """Write the states of row k ≤ T and what is predicted there; return greedy actions [E]."""
        rows = self.rows
        rows.t[k], rows.stock[k] = t, stock
        self.frames.write(k, observation)
        places = k * len(t) + np.arange(len(t))
        found = self.greedy_on_device(places, t, stock).cpu().numpy()  # [E, 1 + M]
        self._predicted[k].copy_(self._newest)
        rows.greedy[k] = found[:, 1:]
        return found[:, 0]

    @torch.no_grad()
    def greedy(self, places: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the greedy action and a′ of every horizon, [E, 1 + M]; keep ξ(s, t, S, a′).

        Args:
          places: row · E + copy of the observations, int64 [E]. t, stock: at them, [E].
        """
        agent, observation = self.agent, self.frames.read(places, t)
        head = agent.online.head
        hidden = agent.engine.hidden(agent.online, observation, t, stock)
        following = agent.next_actions(head, hidden, t, stock)
        self._newest.copy_(agent.of_next_actions(head, hidden, following))
        if agent.config.agent.bootstrap == "per_head":
            chosen = agent.values.greedy(head, hidden, t, stock)
            return torch.cat([chosen[:, None], following], dim=1)
        return torch.cat([following[:, :1], following], dim=1)

    def store(self, k: int, step: Step) -> None:
        """Write the results of row k's actions. The row of an autoreset is no transition."""
        rows = self.rows
        rows.reward[k], rows.terminated[k] = step.reward, step.terminated
        rows.valid[k] = ~step.dummy

    # --- learn: λ-returns, loss, gradient steps

    def targets(self, rng: np.random.Generator) -> Tensor:
        """Return the λ-return of every row, float32 [T, E, M, N]; nan where none is defined.

        Lengths of λ-returns are drawn where the outputs are quantiles: a quantile of a mixture is
        no mixture of quantiles.
        """
        agent, rows = self.agent, self.rows
        shape = rows.reward.shape
        t, stock = rows.t[:-1].ravel(), rows.stock[:-1].ravel()
        stock_next = agent.next_stock(stock, t, rows.reward.ravel())
        reward = agent.learner_reward(rows.reward).ravel()
        steps = agent.values.steps(t, stock, reward, stock_next, rows.terminated.ravel())
        upload = agent.engine.upload
        start, slope = upload(steps.astype(np.float32)).unflatten(1, shape)  # [T, E, M] each
        continues = upload(self.continues(rng).astype(np.float32))
        returns = lambda_return.lambda_returns(
            start.nan_to_num(), slope, agent.values.after(self._predicted), continues
        )
        return returns.masked_fill_(start.isnan()[..., None], torch.nan)

    def continues(self, rng: np.random.Generator) -> np.ndarray:
        """Return the weight of the next row's λ-return in each row's target, [T, E, M].

        It is λ, or 0 or 1 with λ as the chance of 1. It is 0 at the last row, before the row of an
        autoreset, which ends a truncated episode, and with `trace=watkins` before an exploratory
        action.
        """
        rows, decay = self.rows, self.train.trace_decay
        goes = np.zeros(rows.greedy[:-1].shape)
        follows = rows.valid[1:, :, None]
        if self.train.trace == "watkins":
            follows = follows & (rows.action[1:, :, None] == rows.greedy[1:-1])
        if self.agent.values.learns_means:
            goes[:-1] = decay * follows
        else:
            goes[:-1] = (rng.random(follows.shape[:2])[..., None] < decay) & follows
        return goes

    def learn(self, rng: np.random.Generator) -> int:
        """Take gradient steps on every row, `train.epochs` times; return their number.

        Batches are equally large: a few rows serve once more in place of those of autoresets.
        """
        rows = self.rows
        self._targets.copy_(self.targets(rng).flatten(0, 1))
        for memory, values in (
            (self._t, rows.t[:-1]),
            (self._stock, rows.stock[:-1]),
            (self._action, rows.action),
        ):
            memory.copy_(self.agent.engine.upload(values).flatten())
        valid, size = np.flatnonzero(rows.valid), self.train.batch_size
        if not len(valid):  # all copies were reset at once
            return 0
        n_batches = max(1, rows.valid.size // size)
        order = np.concatenate(
            [np.resize(rng.permutation(valid), n_batches * size) for _ in range(self.train.epochs)]
        )
        batches = self.agent.engine.upload(order).split(size)
        for batch in batches:
            self.gradient_step_on_device(batch)
            self.agent.average_weights()
        return len(batches)

    def gradient_step(self, batch: Tensor) -> Tensor:
        """Take one step of RAdam on rows int64 [B] of the rollout, and return the loss."""
        agent, online = self.agent, self.agent.online
        t = self._t[batch]
        observation = scale_pixels(self.frames.read(batch, t))
        hidden = agent.engine.hidden(online, observation, t, self._stock[batch])
        selected = online.head.of_actions(hidden, self._action[batch])  # [B, M, N]
        loss = agent.values.loss(selected, self._targets[batch])
        agent.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), self.train.max_grad_norm)
        agent.optimizer.step()
        loss = loss.detach()
        agent.loss_sum += loss
        return loss
