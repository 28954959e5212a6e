"""The parallel learner's peer: the same agent as one file, as PQN's scripts are usually written.

A rollout in tensors, lambda-returns backwards over it, epochs of shuffled minibatches, the outputs
of every action in each forward pass, an eager pairwise loss, RAdam as it comes. Network, copies,
rollout, minibatches, epochs and emulator are rigor's, and `bench.py` checks that it computes its
targets and loss from the same weights and rollout.
"""

import numpy as np
import torch
from torch import nn


class OverChannels(nn.Module):
    """Layer normalisation over the channels of images [B, C, H, W]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, C, H, W]."""
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NormalisedNetwork(nn.Module):
    """The Nature CNN with layer normalisation and the time beside it; outputs [B, A, M, N]."""

    def __init__(self, n_actions: int, n_horizons: int, n: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            OverChannels(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            OverChannels(64),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            OverChannels(64),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.linear = nn.Linear(3136 + 64, 512)
        self.norm = nn.LayerNorm(512)
        self.head = nn.Linear(512, n_actions * n_horizons * n)
        self.time = nn.Linear(1, 64)
        self.shape = (n_actions, n_horizons, n)

    def forward(self, frames: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return the outputs at uint8 frames [B, 4, 84, 84] and agent steps t [B]."""
        features = self.conv(frames / 255.0)
        time = torch.relu(self.time(t.float().unsqueeze(1) / 1000.0))
        hidden = self.linear(torch.cat([features, time], 1))
        return self.head(torch.relu(self.norm(hidden))).view(-1, *self.shape)


class SingleFileParallel:
    """Network, rollout and loop of the peer, in its one class.

    Args:
      games: rigor's `AtariGames`, seeded here. shape: (A, M, N).
      gammas: γ_i, [T, M]. weights: w_{i,t}, [T, M].
      kappa, learning_rate, trace_decay, max_grad_norm, n_steps, epochs, minibatch: as rigor's.
    """

    def __init__(
        self,
        games,
        shape: tuple[int, int, int],
        gammas: np.ndarray,
        weights: np.ndarray,
        kappa: float,
        learning_rate: float,
        trace_decay: float,
        max_grad_norm: float,
        n_steps: int,
        epochs: int,
        minibatch: int,
    ) -> None:
        self.games, self.kappa, self.shape = games, kappa, shape
        self.trace_decay, self.max_grad_norm = trace_decay, max_grad_norm
        self.n_steps, self.epochs, self.minibatch = n_steps, epochs, minibatch
        self.net = NormalisedNetwork(*shape)
        self.optimizer = torch.optim.RAdam(self.net.parameters(), lr=learning_rate)
        self.gammas = torch.tensor(gammas, dtype=torch.float32)
        self.weights = torch.tensor(weights, dtype=torch.float32)
        self.tau = (torch.arange(shape[2]) + 0.5) / shape[2]
        self.rng = np.random.default_rng(0)
        n = games.n_envs
        self.obs = torch.zeros(n_steps, n, 4, 84, 84, dtype=torch.uint8)
        self.actions = torch.zeros(n_steps, n, dtype=torch.int64)
        self.rewards = torch.zeros(n_steps, n)
        self.dones = torch.zeros(n_steps, n)
        self.valid = torch.zeros(n_steps, n, dtype=torch.bool)
        self.times = torch.zeros(n_steps, n, dtype=torch.int64)
        self.values = torch.zeros(n_steps + 1, n, *shape[1:])
        self.now = games.reset(np.random.SeedSequence(1))
        self.t = np.zeros(n, np.int64)
        self.steps = 0

    @torch.no_grad()
    def act(self, k: int) -> torch.Tensor:
        """Return greedy actions [E], and keep what the targets of row k bootstrap from."""
        t = torch.tensor(self.t)
        outputs = self.net(torch.tensor(self.now), t)
        best = (outputs.mean(3) * self.weights[t].unsqueeze(1)).sum(2).argmax(1)
        self.values[k] = outputs[torch.arange(len(t)), best]
        return best

    def play(self) -> None:
        """Fill the rollout."""
        n = self.games.n_envs
        for k in range(self.n_steps):
            greedy = self.act(k)
            self.obs[k], self.times[k] = torch.tensor(self.now), torch.tensor(self.t)
            explores = torch.tensor(self.rng.random(n) < 0.01)
            random = torch.tensor(self.rng.integers(0, self.shape[0], n))
            self.actions[k] = torch.where(explores, random, greedy)
            step = self.games.step(self.actions[k].numpy())
            self.rewards[k] = torch.tensor(step.reward, dtype=torch.float32)
            self.dones[k] = torch.tensor(step.terminated.astype(np.float32))
            self.valid[k] = torch.tensor(~step.dummy)
            self.t = np.where(step.dummy, 0, self.t + 1)
            self.now = step.observation
            self.steps += int((~step.dummy).sum())
        self.act(self.n_steps)

    @torch.no_grad()
    def targets(self, rng: np.random.Generator) -> torch.Tensor:
        """Return the lambda-returns [T, E, M, N]; for quantiles with lengths drawn."""
        go = torch.zeros(self.n_steps, self.games.n_envs)
        if self.shape[2] == 1:
            go[:-1] = self.trace_decay
        else:
            drawn = rng.random((self.n_steps - 1, self.games.n_envs)) < self.trace_decay
            go[:-1] = torch.tensor(drawn).float()
        go[:-1] *= self.valid[1:]
        returns = torch.zeros_like(self.values[:-1])
        after = self.values[-1]
        for k in reversed(range(self.n_steps)):
            mixed = go[k, :, None, None] * after + (1 - go[k, :, None, None]) * self.values[k + 1]
            alive = (1 - self.dones[k])[:, None, None]
            gamma = self.gammas[self.times[k]][:, :, None]
            after = self.rewards[k][:, None, None] + gamma * alive * mixed
            returns[k] = after
        return returns

    def loss(self, obs, t, actions, y) -> torch.Tensor:
        """Return the loss of a minibatch with targets y [B, M, N]."""
        x = self.net(obs, t)[torch.arange(len(t)), actions]
        u = y.unsqueeze(2) - x.unsqueeze(3)  # [B, M, N, N']
        if self.kappa == float("inf"):
            huber = 0.5 * u.pow(2)
        else:
            huber = torch.where(
                u.abs() <= self.kappa, 0.5 * u.pow(2), self.kappa * (u.abs() - 0.5 * self.kappa)
            )
        weight = torch.abs(self.tau.view(1, 1, -1, 1) - (u.detach() < 0).float())
        return (weight * huber).mean(3).sum(2).mean()

    def learn(self) -> None:
        """Take the gradient steps of a rollout."""
        y = self.targets(self.rng).flatten(0, 1)
        rows = (self.obs.flatten(0, 1), self.times.flatten(), self.actions.flatten(), y)
        kept = torch.nonzero(self.valid.flatten()).squeeze(1)
        for _ in range(self.epochs):
            order = kept[torch.randperm(len(kept))]
            for batch in order.split(self.minibatch):
                loss = self.loss(*(column[batch] for column in rows))
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), self.max_grad_norm)
                self.optimizer.step()

    def run(self, steps: int) -> int:
        """Go on for so many agent steps, or a few more; return those taken."""
        before, until = self.steps, self.steps + steps
        while self.steps < until:
            self.play()
            self.learn()
        return self.steps - before
