"""The stock-augmented quantile agent: Algorithm 2 (one horizon) and Algorithm 3 (M horizons).

The methods are in this order: act and move the stock, targets, loss, update, target network, and
the search for the initial stock, with which the paper's box begins. The options of `variant` differ
in two switches only: whether the network sees t, and whether the mixture weights follow the
episode's clock or stay at t = 0. ξ⁻ and θ⁻ are the paper's ξ̄ and θ̄, of the target network.

`rigor.learning.value_targets` says what the network's outputs mean, and holds the formulas of Q, of
the targets and of the loss. `rigor.learning.engine` runs the arithmetic on the device.
"""

import functools

import numpy as np
import torch
from torch import Tensor

from rigor.config.config import Config
from rigor.config.schemas import TrainReplay
from rigor.envs.problem import return_to_go
from rigor.envs.vector import VectorEnv
from rigor.learning.build_network import build_network
from rigor.learning.engine import Engine, move
from rigor.learning.fast_head import FastHead
from rigor.learning.initial_stock import StockCandidates, predicted_objectives
from rigor.learning.layers import scale_pixels
from rigor.learning.networks import Head, ValueHead
from rigor.learning.observations_seen import ObservationsSeen
from rigor.learning.replay import Batch, Transitions
from rigor.learning.return_to_go_seen import ReturnToGoSeen
from rigor.learning.returns_seen import ReturnsSeen
from rigor.learning.rollout import epsilon_greedy
from rigor.learning.value_targets import uses_bounds, value_targets
from rigor.maths import lambda_return
from rigor.maths import stock as stocks
from rigor.maths.outer import best
from rigor.maths.utility import RiskLevel, Utility

SKIPPED = np.array([0.0, 1.0])[:, None, None]  # start and slope where a transition has ended


class Agent:
    """Networks, optimiser and initial stock; acts and learns.

    Args:
      config: of the run.
      env: the environment that it acts in; only its shapes and bounds are read.
      device: where the networks live.
      seed: of the networks' first weights.
    """

    def __init__(self, config: Config, env: VectorEnv, device: torch.device, seed: int) -> None:
        self.config, self.device = config, device
        self.utility = config.risk  # f
        self.learner_reward = env.learner_reward
        tables = config.bundle.tables(env.max_time)
        self.discount = tables.discount  # d̃_t of every t, float64 [max_time + 2]
        bounds = return_to_go(env.problem, self.discount) if uses_bounds(config) else None
        self.knows_bounds = bounds is not None
        self.returns, shape = ReturnsSeen(), env.observation_shape
        sees = config.agent.learns == "expected_utility" and not self.knows_bounds
        self.to_go = ReturnToGoSeen(tables.step_factors[:, 0]) if sees else None
        self.values = value_targets(config, tables, bounds or self.to_go, device)
        normalises = getattr(config.network, "normalise", False) and not self.knows_bounds
        self.observations = ObservationsSeen(shape) if normalises else None
        self.initial_stock = 0.0
        self.candidates = StockCandidates(config.outer, self.returns, bounds)
        if self.utility.needs_stock:
            self.candidates.check()
        # Those of the networks, kept here because to read them from a GPU is to wait for it.
        self.observation_unit = np.zeros(int(np.prod(shape))), np.ones(int(np.prod(shape)))
        self.stock_unit = 0.0, max(map(abs, self.candidates.range())) or 1.0
        torch.manual_seed(seed)
        networks = ["online"]
        networks += ["target"] if isinstance(config.train, TrainReplay) else []
        networks += ["averaged"] if config.train.weight_average > 0 else []
        built = {
            name: build_network(
                config.network,
                env,
                (env.n_actions, tables.step_factors.shape[1], config.agent.quantiles),
                sees_time=config.variant.sees_time,
                sees_stock=self.utility.needs_stock,
                stock_scale=self.stock_unit[1],
                attainable=None if bounds is None else bounds.attainable,
                make_head=FastHead if config.train.fast else Head,
            ).to(device)
            for name in networks
        }
        self.online = built["online"]
        self.target = built.get("target", self.online)  # of `learner=replay` only
        self.averaged = built.get("averaged", self.online)  # acts, in training too
        self.n_averaged = 0  # updates that entered the average
        for network in (self.target, self.averaged):
            network.load_state_dict(self.online.state_dict())
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)  # of all updates
        self.engine = Engine(config.train, device)
        # These two take arrays of the machine's memory and run as CUDA graphs where there is a GPU.
        self.gradient_step_on_device = self.engine.record(self.gradient_step)
        self.greedy_on_device = self.engine.record(self.greedy_actions)

    # --- act: a_t = argmax_a Q(s_t, t, S_t, a), ε-greedy

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
          epsilon: probability of a uniformly random action. rng: for the exploration.
        """
        n_actions = self.online.head.shape[0]
        choose = functools.partial(self.greedy, observation, t, stock)
        return epsilon_greedy(choose, len(t), n_actions, epsilon, rng)

    def greedy(self, observation: np.ndarray, t: np.ndarray, stock: np.ndarray) -> np.ndarray:
        """Return the actions of largest Q, int64 [E], by the averaged network if there is one."""
        return self.greedy_on_device(observation, t, stock).cpu().numpy()

    @torch.no_grad()
    def greedy_actions(self, observation: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return `greedy` for tensors on the device."""
        hidden = self.averaged.hidden(observation, t, stock)
        return self.values.greedy(self.averaged.head, hidden, t, stock)

    def next_stock(self, stock: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} = S_t + d̃_t r, float64 [B]; `reward` is raw."""
        return stocks.next_stock(stock, self.discount[t], self.learner_reward(reward))

    # --- learn: targets, loss, gradient step

    def transitions(self, batch: Batch) -> Transitions:
        """Return a batch of the replay with next stocks, and start and slope of its targets."""
        n_samples = len(batch.length) // len(batch.t)  # K sampled next states of each transition
        t, stock = np.repeat(batch.t, n_samples), np.repeat(batch.stock, n_samples)
        steps = []
        for k, (reward, terminated) in enumerate(zip(batch.reward, batch.terminated, strict=True)):
            belongs = k < batch.length
            at = t + np.minimum(k, batch.length - 1)
            stock_next = np.where(belongs, self.next_stock(stock, at, reward), stock)
            reward = self.learner_reward(reward)
            step = self.values.steps(at, stock, reward, stock_next, terminated)  # [2, B · K, M]
            steps.append(np.where(belongs[:, None], step, SKIPPED))
            stock = stock_next
        start, slope = np.stack(steps, axis=1)
        start, slope = lambda_return.n_step(start, slope)
        return Transitions(
            observation=torch.as_tensor(batch.observation),
            t=torch.as_tensor(batch.t),
            stock=torch.as_tensor(batch.stock),
            action=torch.as_tensor(batch.action),
            observation_next=torch.as_tensor(batch.observation_next),
            t_next=torch.as_tensor(t + batch.length),
            stock_next=torch.as_tensor(stock),
            start=torch.as_tensor(start, dtype=torch.float32),
            slope=torch.as_tensor(slope, dtype=torch.float32),
        )

    @torch.no_grad()
    def targets(self, batch: Transitions) -> Tensor:
        """Return y from ξ⁻(s′, t + n, S′, a′), float32 [B, M, K · N].

        K sampled next states of a transition give K · N targets. a′ maximises Q of the online
        network (`train.double=online`) or of the target network.
        """
        # scaled here, once for two networks
        after = scale_pixels(batch.observation_next), batch.t_next, batch.stock_next
        hidden_target = self.engine.hidden(self.target, *after)  # [B · K, H]
        chooser, hidden = self.target.head, hidden_target
        if self.config.train.double == "online":
            chooser, hidden = self.online.head, self.engine.hidden(self.online, *after)
        action = self.next_actions(chooser, hidden, batch.t_next, batch.stock_next)  # a′
        quantiles = self.of_next_actions(self.target.head, hidden_target, action)
        following = self.values.after(quantiles)  # [B · K, M, N]
        targets = lambda_return.target(batch.start, batch.slope, following)
        targets = targets.unflatten(0, (len(batch.t), -1))  # [B, K, M, N]
        return targets.transpose(1, 2).flatten(2)

    def next_actions(self, head: ValueHead, hidden: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return a′ of every horizon, int64 [n, M].

        With `bootstrap=per_head` each horizon has its own a′, the best by its own mean; otherwise
        all have argmax_a Q.
        """
        if self.config.agent.bootstrap == "per_head":
            return head.means(hidden).argmax(1)
        action = self.values.greedy(head, hidden, t, stock)
        return action[:, None].expand(-1, head.shape[1])

    def of_next_actions(self, head: ValueHead, hidden: Tensor, action: Tensor) -> Tensor:
        """Return the quantiles of `next_actions`, [n, M, N]."""
        if self.config.agent.bootstrap != "per_head":
            return head.of_actions(hidden, action[:, 0])
        quantiles = head(hidden)  # [n, A, M, N]
        index = action[:, None, :, None].expand(-1, 1, -1, quantiles.shape[3])
        return quantiles.gather(1, index).squeeze(1)

    def loss(self, batch: Transitions) -> Tensor:
        """Return the loss of ξ(s, t, S, a) against y, a scalar: for quantiles the Huber loss."""
        targets = self.targets(batch)  # [B, M, K · N]
        now = scale_pixels(batch.observation), batch.t, batch.stock
        hidden = self.engine.hidden(self.online, *now)  # [B, H]
        selected = self.online.head.of_actions(hidden, batch.action)  # [B, M, N]
        return self.values.loss(selected, targets)

    def gradient_step(self, *batch: Tensor) -> Tensor:
        """Take one step of Adam on `Transitions` on the device, and return the loss."""
        loss = self.loss(Transitions(*batch))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        loss = loss.detach()
        self.loss_sum += loss
        return loss

    def update(self, batch: Batch) -> Tensor:
        """Take one gradient step on a batch and return its loss, which the next update overwrites.

        The loss, a scalar on the device, is also added to `loss_sum`; nothing waits for a GPU.
        """
        loss = self.gradient_step_on_device(*self.transitions(batch))
        self.average_weights()
        return loss

    def average_weights(self) -> None:
        """Let the newest weights enter the averaged network, if there is one.

        A polynomial-decay average: after n updates the newest weights enter with at least
        1/(1 + n/5), since early weights are noise.
        """
        if self.averaged is not self.online:
            self.n_averaged += 1
            keep = self.config.train.weight_average
            move(self.averaged, self.online, max(1.0 - keep, 1.0 / (1.0 + self.n_averaged / 5.0)))

    def update_target(self) -> None:
        """Move the target network: θ⁻ ← (1 − α) θ⁻ + α θ."""
        move(self.target, self.online, self.config.train.target_smoothing)

    @functools.cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Made when it is first needed: to make it imports torch's compiler, for a second."""
        return self.engine.optimizer(self.online)

    # --- initial stock: c₀ = argmax_c {−c + mean over initial states of max_a Q(s₀, 0, c, a)}

    def choose_initial_stock(self, observations: np.ndarray) -> str | None:
        """Set c₀ to the best candidate at initial observations [K, ...].

        Returns:
          A warning if the candidates do not suffice, else None.
        """
        stocks, objective = self._objectives(observations, self.utility)
        self.initial_stock = best(torch.from_numpy(stocks), objective).c0
        return self.candidates.note_search(stocks, self.initial_stock)

    def stock_at_level(self, observations: np.ndarray, level: RiskLevel) -> float:
        """Return the stock with which this agent starts an episode at another risk level."""
        stocks, trained = self._objectives(observations, level.utility, level.shift)
        low, high = self.candidates.range()  # stocks beyond it are not trained
        inside = (low <= stocks) & (stocks <= high)
        stocks, trained = stocks[inside], trained[torch.from_numpy(inside)]
        values = level.objective(torch.from_numpy(stocks), trained)
        return best(torch.from_numpy(stocks - level.shift), values).c0 + level.shift

    def _objectives(
        self, observations: np.ndarray, utility: Utility, shift: float = 0.0
    ) -> tuple[np.ndarray, Tensor]:
        searched = self.averaged, self.values, self.candidates, self.engine.upload(observations)
        return predicted_objectives(*searched, utility, shift)

    def relabel(self, batch: Batch, rng: np.random.Generator) -> None:
        """Move a fraction of the transitions to other initial stocks, if the risk needs a stock."""
        if self.utility.needs_stock:
            self.candidates.relabel(batch, rng)
