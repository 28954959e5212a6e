"""The stock-augmented quantile agent: Algorithm 2 (one horizon) and Algorithm 3 (m horizons).

What its numbers mean and how they are learned, `rigor.learning.learned` says. The variants differ
in two switches only: whether the network sees t, and whether the readout weights follow the
episode's clock or stay at t = 0.
"""

import functools
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rigor.config import Config
from rigor.envs.vector import VectorEnv
from rigor.learning.ahead import ahead
from rigor.learning.candidates import Candidates
from rigor.learning.explore import epsilon_greedy
from rigor.learning.learned import Returns, Share
from rigor.learning.networks import QuantileNetwork, as_input, build_network
from rigor.learning.recorded import CudaGraphs, Recorded, upload
from rigor.learning.replay import Batch
from rigor.maths import objective, stock

_PART = 100_000  # quantiles that a CPU's cache holds, with what is made of them


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
        self._weights = torch.tensor(tables.weights, dtype=torch.float32, device=device)  # [T, M]
        self._mass = torch.tensor(tables.mass, device=device)  # [T]
        self.ahead = ahead(config.env, self.mass)
        self.learned: Returns | Share
        if config.agent.learns == "returns":
            self.learned = Returns(config, tables.backup, device)
        elif self.ahead is not None:
            self.learned = Share(config, self.ahead, device)
        else:
            raise ValueError("agent.learns=utility: a checked config has an env with bounds")
        self.initial_stock = 0.0
        self.candidates = Candidates(config.outer, self.mass, self.ahead, env.reward_bound)
        if self.utility.needs_stock:
            self.candidates.check()
        shape = (env.n_actions, tables.backup.shape[1], config.agent.quantiles)
        torch.manual_seed(seed)
        averages = config.train.average > 0
        self.online, self.target, *others = (
            build_network(
                config.network,
                env,
                shape,
                sees_time=variant.sees_time,
                sees_stock=self.utility.needs_stock,
                stock_scale=self.candidates.scale,
                totals=None if self.ahead is None else self.ahead.totals,
            ).to(device)
            for _ in range(2 + averages)
        )
        self.averaged = others[0] if averages else self.online
        self.averages = 0  # times that the online weights entered the average
        for lagged in (self.target, self.averaged):
            lagged.load_state_dict(self.online.state_dict())
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)  # of all updates
        self._records = device.type == "cuda" and config.train.graph
        recorder = CudaGraphs() if self._records else None
        self._learn = Recorded(self._learn_from, device, recorder)
        self._decide = Recorded(self._decide_at, device, recorder)

    @functools.cached_property
    def optimizer(self) -> torch.optim.Adam:
        """Adam, made when it is first needed: it imports torch's compiler, which takes a second."""
        train = self.config.train
        rate: float | Tensor = train.learning_rate
        if self._records:  # a recording reads the rate where it lies, so it lies on the device
            rate = torch.tensor(rate, device=self.device)
        return torch.optim.Adam(
            self.online.parameters(),
            lr=rate,
            eps=train.adam_eps,
            fused=True,
            capturable=self._records,
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
        return epsilon_greedy(
            lambda: self.greedy(observation, t, stock), len(t), self.online.shape[0], epsilon, rng
        )

    def greedy(self, observation: np.ndarray, t: np.ndarray, stock: np.ndarray) -> np.ndarray:
        """Return the actions of largest Q, int64 [E]; by the averaged network if there is one."""
        return self._decide(observation, t, stock).cpu().numpy()

    def next_stock(self, total: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} = S_t + mass(t) r, float64 [B]; reward is raw."""
        return stock.next_stock(total, self.mass[t], self.learned_reward(reward))

    def set_learning_rate(self, rate: float) -> None:
        """Set the optimiser's step size."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def update(self, batch: Batch) -> Tensor:
        """Take one gradient step on a batch and return its loss, good until the next update.

        The loss, a scalar on the device, is also added to `loss_sum`; nothing waits for a GPU.
        """
        loss = self._learn(*self._arguments(batch))
        self.online.forget_means()
        if self.averaged is not self.online:
            self.averages += 1  # at first a plain mean over the last fifth: first weights are noise
            share = max(1.0 - self.config.train.average, 1.0 / (1.0 + self.averages / 5.0))
            _move(self.averaged, self.online, share)
        return loss

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch against the target network."""
        return self._loss(*self._uploaded(batch))

    def targets(self, batch: Batch) -> Tensor:
        """Return the targets of `learned` from ξ⁻(s′, t+1, S′, a′), float32 [B, M, K · N].

        Truncated transitions are not terminated and bootstrap (erratum E22).
        """
        _, observation_next, _, after, indices = self._uploaded(batch)
        return self._targets(as_input(observation_next), after, indices)

    def _arguments(self, batch: Batch) -> tuple[Tensor | np.ndarray, ...]:
        """Return both observations; S_t; S_{t+1} and what `learned.step` says; t and action.

        Shapes: [B, *shape], [B · K, *shape]; [B]; [1 + k, B · K]; [2, B].
        """
        t, total = (
            np.repeat(one, len(batch.reward) // len(batch.t)) for one in (batch.t, batch.stock)
        )
        total_next = self.next_stock(total, t, batch.reward)
        reward = self.learned_reward(batch.reward)
        step = self.learned.step(t, total, reward, total_next, batch.terminated)
        after = np.concatenate([total_next[None], step])  # float64: one copy to the device for all
        indices = np.stack([batch.t, batch.action])
        return batch.observation, batch.observation_next, batch.stock, after, indices

    def _uploaded(self, batch: Batch) -> list[Tensor]:
        return [upload(torch.as_tensor(one), self.device) for one in self._arguments(batch)]

    def _learn_from(self, *arguments: Tensor) -> Tensor:
        """Take the gradient step; nothing but kernels of the device, so it can be recorded."""
        loss = self._loss(*arguments)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        loss = loss.detach()
        self.loss_sum += loss
        return loss

    def _loss(
        self,
        observation: Tensor,
        observation_next: Tensor,
        total: Tensor,
        after: Tensor,
        indices: Tensor,
    ) -> Tensor:
        targets = self._targets(as_input(observation_next), after, indices)  # [B, M, K · N]
        t, action = indices
        hidden = self._hidden(self.online, as_input(observation), t, total)  # [B, H]
        taken = self.online.of_actions(hidden, action)  # [B, M, N]
        return self.learned.loss(taken, targets)

    @torch.no_grad()
    def _targets(self, observation_next: Tensor, after: Tensor, indices: Tensor) -> Tensor:
        stock_next, step, n = after[0], after[1:], indices.shape[1]
        t = indices[0].repeat_interleave(after.shape[1] // n)  # [B · K]
        seen = observation_next, t + 1, stock_next
        lagged = self._hidden(self.target, *seen)  # [B · K, H]
        chooser, hidden = self.target, lagged
        if self.config.agent.double == "online":
            chooser, hidden = self.online, self._hidden(self.online, *seen)
        if self.config.agent.bootstrap == "per_head":
            action = chooser.means(hidden)[..., 0].argmax(1)  # [B · K, M]
            index = action[:, None, :, None].expand(-1, 1, -1, self.target.shape[2])
            quantiles = self.target.quantiles(lagged).gather(1, index).squeeze(1)
        else:
            action = self._choose(chooser, hidden, t + 1, stock_next)  # [B · K]
            quantiles = self.target.of_actions(lagged, action)  # [B · K, M, N]
        targets = self.learned.targets(step, t, quantiles)  # [B · K, M, N]
        return targets.unflatten(0, (n, -1)).transpose(1, 2).flatten(2)

    def _hidden(self, network: QuantileNetwork, *inputs: Tensor) -> Tensor:
        """Return the head's input [B, H] for an update; the trunk may run in half the precision."""
        half = self.config.train.precision == "bf16"
        # a cache of converted weights would outlive the weights in a recording
        with (
            torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
            if half
            else nullcontext()
        ):
            hidden = network.hidden(*inputs)
        return hidden.to(network.head.weight.dtype)

    def smooth_target(self) -> None:
        """Move the target network: θ⁻ ← (1 − α) θ⁻ + α θ."""
        _move(self.target, self.online, self.config.train.target_smoothing)

    @torch.no_grad()
    def choose_initial_stock(self, observations: np.ndarray) -> bool:
        """Set c₀ to argmax_c mean_K {−c + max_a Q(s₀, 0, c, a)} over initial observations [K, ...].

        Returns:
          Whether the best stock is an edge of the grid, so that a wider one may have a better.
        """
        grid = torch.from_numpy(self.candidates.grid()).to(self.device)  # [G]
        network = self.averaged
        features = network.encode(upload(torch.from_numpy(observations), self.device))  # [K, F]
        zeros = torch.zeros(len(features), dtype=torch.int64, device=self.device)
        starts = torch.stack(
            [
                self.learned.at_start(
                    network.read(features, zeros, c.expand(len(zeros))), self._weights[zeros]
                )
                for c in grid
            ]
        )  # [G, K, A, N]
        choice = self.learned.initial_stock(grid, starts)
        self.initial_stock = choice.c0
        return choice.on_edge

    def relabel(self, batch: Batch, rng: np.random.Generator) -> None:
        """Give a share of the transitions another initial stock where the risk needs one."""
        if self.utility.needs_stock:
            self.candidates.relabel(batch, rng)

    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint keeps of the agent."""
        return {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "averaged": self.averaged.state_dict(),
            "averages": self.averages,
            "moments": self.optimizer.state_dict()["state"],
            "loss_sum": self.loss_sum,
            "initial_stock": self.initial_stock,
            "reward_bound": self.candidates.reward_bound,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; before the first update, which may be recorded."""
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        self.averaged.load_state_dict(state["averaged"])
        self.averages = state["averages"]
        for network in (self.online, self.target, self.averaged):
            network.forget_means()
        self.loss_sum.copy_(state["loss_sum"])
        # JSON turned the parameters' numbers into strings; rate and epsilon are the config's
        moments = {int(key): value for key, value in state["moments"].items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        # Fused Adam walks parameters and moments side by side in memory: a convolution's moments
        # must lie in its own layout (channels last), which a file does not keep.
        for parameter, moments in self.optimizer.state.items():
            for name, value in moments.items():
                if value.shape == parameter.shape:
                    moments[name] = torch.empty_like(parameter).copy_(value)
        self.initial_stock = state["initial_stock"]
        self.candidates.reward_bound = state["reward_bound"]

    @torch.no_grad()
    def _decide_at(self, observation: Tensor, t: Tensor, total: Tensor) -> Tensor:
        hidden = self.averaged.hidden(observation, t, total)
        return self._choose(self.averaged, hidden, t, total)

    def _choose(self, network: QuantileNetwork, hidden: Tensor, t: Tensor, total: Tensor) -> Tensor:
        """Return a network's greedy action [B] at its hidden layer [B, H], t [B] and S_t [B]."""
        clock = t if self.clock_runs else torch.zeros_like(t)
        weights, mass = self._weights[clock], self._mass[clock]
        if self.learned.by_means:
            return objective.mean_values(network.means(hidden), weights).argmax(1)
        rows = len(t)
        if self.device.type == "cpu":  # in parts that fit the cache: three times as fast
            rows = max(1, _PART // (network.shape[0] * network.shape[1] * network.shape[2]))
        parts = zip(*(one.split(rows) for one in (hidden, weights, mass, total)), strict=True)
        return torch.cat([self._choose_with_risk(network, *part) for part in parts])

    def _choose_with_risk(
        self, network: QuantileNetwork, hidden: Tensor, weights: Tensor, mass: Tensor, total: Tensor
    ) -> Tensor:
        quantiles = self.learned.scale * network.quantiles(hidden)  # [B, A, M, N]
        values = objective.action_values(self.utility, quantiles, weights, mass, total)
        if not self.utility.needs_stock:
            return values.argmax(1)
        return objective.greedy(values, objective.mean_values(quantiles, weights))


@torch.no_grad()
def _move(network: QuantileNetwork, towards: QuantileNetwork, share: float) -> None:
    """Move a network's weights a share of the way to another's."""
    torch._foreach_lerp_(tuple(network.parameters()), tuple(towards.parameters()), share)
    network.forget_means()
