"""The stock-augmented quantile agent: Algorithm 2 (one horizon) and Algorithm 3 (m horizons).

    target_ij = r + (1 − terminated) · backup_i(t) · ξ⁻_ij(s′, t+1, S′, a′)
    Q(s, t, S, a) = mean_j f(S + Σ_i readout_i(t) ξ_ij) / mass(t)

The variants differ in two switches only: whether the network sees t, and whether the readout
weights follow the episode's clock or stay at t = 0.
"""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rigor.config import Config
from rigor.envs.vector import VectorEnv
from rigor.errors import UserError
from rigor.learning.networks import QuantileNetwork, build_network
from rigor.learning.replay import Batch
from rigor.maths import objective, outer, quantile, stock
from rigor.maths.utility import Mean


class Agent:
    """Networks, optimiser, clock and initial stock; acts and learns.

    Args:
      config: of the run.
      env: what it acts in; only its shapes and bounds are read.
      device: where the networks live.
      seed: of the networks' first weights.
    """

    def __init__(self, config: Config, env: VectorEnv, device: torch.device, seed: int) -> None:
        self.config, self.device, self.learned_reward = config, device, env.learned_reward
        self.utility, variant = config.risk, config.variant
        self.clock_runs = variant.clock_runs
        tables = config.bundle.tables(env.max_time)
        self.mass = tables.mass  # float64 [max_time + 2], numpy: the stock's recursion
        self._backup = torch.tensor(tables.backup, dtype=torch.float32, device=device)  # [T, M]
        self._weights = torch.tensor(tables.weights, dtype=torch.float32, device=device)  # [T, M]
        self._mass = torch.tensor(tables.mass, device=device)  # [T]
        # the largest |learned reward|: the environment's word, else the largest seen so far
        self.reward_bound = env.reward_bound or 0.0
        self.initial_stock = 0.0
        low, high = self.stock_range(env.reward_bound or 1.0)
        if self.utility.needs_stock and low >= high:
            raise UserError(
                f"outer.low={low:g} with outer.high={high:g}: no initial stock lies between; set "
                "both (null takes the largest discounted sum of rewards known at the start)"
            )
        shape = (env.n_actions, tables.backup.shape[1], config.agent.quantiles)
        levels = quantile.levels(config.agent.quantiles)
        self.levels = torch.tensor(levels, dtype=torch.float32, device=device)  # [N]
        torch.manual_seed(seed)
        self.online, self.target = (
            build_network(
                config.network,
                env.observation_shape,
                shape,
                sees_time=variant.sees_time,
                sees_stock=self.utility.needs_stock,
                time_scale=env.time_scale,
                stock_scale=max(abs(low), abs(high)) or 1.0,
            ).to(device)
            for _ in range(2)
        )
        self.target.load_state_dict(self.online.state_dict())

    @functools.cached_property
    def optimizer(self) -> torch.optim.Adam:
        """Adam, made when it is first needed: it imports torch's compiler, which takes a second."""
        train = self.config.train
        return torch.optim.Adam(
            self.online.parameters(), lr=train.learning_rate, eps=train.adam_eps, fused=True
        )

    def act(
        self,
        observation: np.ndarray,
        t: np.ndarray,
        stock: np.ndarray,
        epsilon: float,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Return ε-greedy actions, int64 [E].

        Args:
          observation: [E, *shape]. t: agent steps, int64 [E]. stock: S_t, float64 [E].
          epsilon: chance of a uniformly random action. rng: for the exploration.
        """
        n_actions = self.online.shape[0]
        explores = rng.random(len(t)) < epsilon
        actions = rng.integers(0, n_actions, len(t))
        if not explores.all():
            actions[~explores] = self.greedy(observation, t, stock)[~explores]
        return actions

    @torch.no_grad()
    def greedy(self, observation: np.ndarray, t: np.ndarray, stock: np.ndarray) -> np.ndarray:
        """Return the actions of largest Q, int64 [E], by the online network."""
        clock, total = self._tensor(t), self._tensor(stock)
        hidden = self.online.hidden(self._tensor(observation), clock, total)
        return self._choose(self.online, hidden, clock, total).cpu().numpy()

    def next_stock(self, total: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} = S_t + mass(t) r, float64 [B]; reward is raw."""
        return stock.next_stock(total, self.mass[t], self.learned_reward(reward))

    def set_learning_rate(self, rate: float) -> None:
        """Set the optimiser's step size."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def update(self, batch: Batch) -> Tensor:
        """Take one gradient step on a batch; return the loss, a scalar on the device."""
        loss = self.loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.online.forget_means()
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """Return the quantile Huber loss of a batch against the target network's quantiles."""
        observation, t = self._tensor(batch.observation), self._tensor(batch.t)
        targets = self.targets(batch)  # [B, M, N]
        hidden = self.online.hidden(observation, t, self._tensor(batch.stock))  # [B, H]
        taken = self.online.of_actions(hidden, self._tensor(batch.action))  # [B, M, N]
        train = self.config.train
        return quantile.quantile_huber_loss(
            taken, targets, self.levels, train.huber, train.reduction
        )

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """Return r + (1 − terminated) backup_i(t) ξ⁻_ij(s′, t+1, S′, a′), float32 [B, M, N].

        Truncated transitions are not terminated and bootstrap (erratum E22).
        """
        t, t_next = self._tensor(batch.t), self._tensor(batch.t + 1)
        stock_next = self._tensor(self.next_stock(batch.stock, batch.t, batch.reward))
        after = (self._tensor(batch.observation_next), t_next, stock_next)
        lagged = self.target.hidden(*after)  # [B, H]
        chooser, hidden = self.target, lagged
        if self.config.agent.double == "online":
            chooser, hidden = self.online, self.online.hidden(*after)
        if self.config.agent.bootstrap == "per_head":
            action = chooser.means(hidden)[..., 0].argmax(1)  # [B, M]
            index = action[:, None, :, None].expand(-1, 1, -1, self.target.shape[2])
            quantiles = self.target.quantiles(lagged).gather(1, index).squeeze(1)  # [B, M, N]
        else:
            action = self._choose(chooser, hidden, t_next, stock_next)  # [B]
            quantiles = self.target.of_actions(lagged, action)  # [B, M, N]
        reward = self._tensor(self.learned_reward(batch.reward)).float()[:, None, None]
        alive = self._tensor(~batch.terminated).float()[:, None, None]
        return reward + alive * self._backup[t][:, :, None] * quantiles

    @torch.no_grad()
    def smooth_target(self) -> None:
        """Move the target network: θ⁻ ← (1 − α) θ⁻ + α θ."""
        alpha = self.config.train.target_smoothing
        pairs = zip(self.target.parameters(), self.online.parameters(), strict=True)
        for lagged, online in pairs:
            lagged.lerp_(online, alpha)
        self.target.forget_means()

    @torch.no_grad()
    def choose_initial_stock(self, observations: np.ndarray) -> bool:
        """Set c₀ to argmax_c mean_K {−c + max_a Q(s₀, 0, c, a)} over initial observations [K, ...].

        Returns:
          Whether the best stock is an edge of the grid, so that a wider one may have a better.
        """
        grid = torch.from_numpy(stock.grid(*self.stock_range(), self.config.outer.points))  # [G]
        grid = grid.to(self.device)
        features = self.online.encode(self._tensor(observations))  # [K, F]
        zeros = torch.zeros(len(features), dtype=torch.int64, device=self.device)
        outcomes = torch.stack(
            [
                self._outcome(self.online.read(features, zeros, c.expand(len(zeros))), zeros)
                for c in grid
            ]
        )  # [G, K, A, N]
        choice = outer.initial_stock(self.utility, grid, outcomes)
        self.initial_stock = choice.c0
        return choice.on_edge

    def relabel(self, batch: Batch, rng: np.random.Generator) -> None:
        """Give a share of the transitions another initial stock, drawn from the grid's range.

        Valid because the stock is a deterministic function of the rewards.
        """
        if not self.utility.needs_stock:
            return
        n = len(batch.stock)
        chosen = rng.random(n) < self.config.outer.relabel
        start = np.where(chosen, rng.uniform(*self.stock_range(), n), batch.stock_start)
        batch.stock = stock.relabel(batch.stock, batch.stock_start, start)
        batch.stock_start = start

    def stock_range(self, reward_bound: float | None = None) -> tuple[float, float]:
        """Return (low, high) of the initial stock, in learned reward units.

        Args:
          reward_bound: largest |learned reward|; None takes what is known by now.
        """
        bound = self.reward_bound if reward_bound is None else reward_bound
        low, high = stock.default_range(self.mass, bound)
        spec = self.config.outer
        return (low if spec.low is None else spec.low, high if spec.high is None else spec.high)

    def see_reward(self, reward: np.ndarray) -> None:
        """Widen the range of the initial stock to the raw rewards [E] that came in."""
        self.reward_bound = max(self.reward_bound, float(np.abs(self.learned_reward(reward)).max()))

    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint keeps of the agent."""
        return {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "initial_stock": self.initial_stock,
            "reward_bound": self.reward_bound,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        self.online.forget_means()
        self.target.forget_means()
        optimizer = dict(state["optimizer"])
        # JSON turned the parameters' numbers into strings
        optimizer["state"] = {int(key): value for key, value in optimizer["state"].items()}
        self.optimizer.load_state_dict(optimizer)
        # Fused Adam walks parameters and moments side by side in memory: a convolution's moments
        # must lie in its own layout (channels last), which a file does not keep.
        for parameter, moments in self.optimizer.state.items():
            for name, value in moments.items():
                if value.shape == parameter.shape:
                    moments[name] = torch.empty_like(parameter).copy_(value)
        self.initial_stock = state["initial_stock"]
        self.reward_bound = state["reward_bound"]

    def _choose(self, network: QuantileNetwork, hidden: Tensor, t: Tensor, total: Tensor) -> Tensor:
        """Return a network's greedy action [B] at its hidden layer [B, H], t [B] and S_t [B]."""
        # the mean needs the means of the quantiles only, [B, A, M, 1]
        risk_neutral = isinstance(self.utility, Mean)
        quantiles = network.means(hidden) if risk_neutral else network.quantiles(hidden)
        clock = t if self.clock_runs else torch.zeros_like(t)
        weights = self._weights[clock]
        values = objective.action_values(self.utility, quantiles, weights, self._mass[clock], total)
        if not self.utility.needs_stock:
            return values.argmax(1)
        return objective.greedy(values, objective.mean_values(quantiles, weights))

    def _outcome(self, quantiles: Tensor, t: Tensor) -> Tensor:
        """Return Z = Σ_i w_{i,t} ξ_ij, [B, A, N]."""
        return objective.outcome(quantiles, self._weights[t])

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)
