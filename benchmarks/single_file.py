"""The peer: the same agent as one file, eager, as scripts of the field are usually written.

Every action's quantiles of both networks, a pairwise loss that autograd takes apart, Adam as it
comes, a replay that stores both stacks of each transition, `.item()` after every update. The
network, the batch, the number of updates and the emulator are rigor's, and `bench.py` checks that
it computes rigor's loss from the same weights.
"""

import numpy as np
import torch
from torch import nn


class Network(nn.Module):
    """The Nature CNN with the time embedded beside it; quantiles [B, A, M, N]."""

    def __init__(self, n_actions: int, n_horizons: int, n: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.linear = nn.Linear(3136 + 64, 512)
        self.head = nn.Linear(512, n_actions * n_horizons * n)
        self.time = nn.Linear(1, 64)
        self.shape = (n_actions, n_horizons, n)

    def forward(self, frames: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return quantiles of uint8 frames [B, 4, 84, 84] at agent steps t [B]."""
        return self.head(self.hidden(frames, t)).view(-1, *self.shape)

    def hidden(self, frames: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return the head's input [B, 512]."""
        features = self.conv(frames / 255.0)
        time = torch.relu(self.time(t.float().unsqueeze(1) / 1000.0))
        return torch.relu(self.linear(torch.cat([features, time], 1)))


class SingleFile:
    """Networks, replay and loop of the peer, in its one class.

    Args:
      games: rigor's `AtariGames`, seeded here. shape: (A, M, N).
      gammas: γ_i, or d̂_t where M is 1, [T, M]. weights: w_{i,t}, [T, M].
      kappa, learning_rate, eps: as rigor's.
    """

    def __init__(
        self,
        games,
        shape: tuple[int, int, int],
        gammas: np.ndarray,
        weights: np.ndarray,
        kappa: float,
        learning_rate: float,
        eps: float,
        capacity: int = 4000,
    ) -> None:
        self.games, self.kappa, self.shape = games, kappa, shape
        self.online, self.target = Network(*shape), Network(*shape)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=learning_rate, eps=eps)
        self.gammas = torch.tensor(gammas, dtype=torch.float32)
        self.weights = torch.tensor(weights, dtype=torch.float32)
        self.tau = (torch.arange(shape[2]) + 0.5) / shape[2]
        self.rng = np.random.default_rng(0)
        self.obs = np.zeros((capacity, 4, 84, 84), np.uint8)
        self.next_obs = np.zeros((capacity, 4, 84, 84), np.uint8)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.times = np.zeros(capacity, np.int64)
        self.pos = self.size = self.steps = 0
        self.now = games.reset(np.random.SeedSequence(1))
        self.t = np.zeros(games.n_envs, np.int64)

    def q_values(self, quantiles: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return Σ_i w_{i,t} mean_j ξ_ij, [B, A]."""
        return (quantiles.mean(3) * self.weights[t].unsqueeze(1)).sum(2)

    def act(self, obs: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return greedy actions [B]."""
        with torch.no_grad():
            times = torch.tensor(t)
            return self.q_values(self.online(torch.tensor(obs), times), times).argmax(1).numpy()

    def loss(self, obs, next_obs, t, actions, rewards, dones) -> torch.Tensor:
        """Return the loss of a batch of tensors."""
        with torch.no_grad():
            best = self.q_values(self.online(next_obs, t + 1), t + 1).argmax(1)
            next_quantiles = self.target(next_obs, t + 1)[torch.arange(len(t)), best]
            alive = (1 - dones)[:, None, None]
            y = rewards[:, None, None] + alive * self.gammas[t][:, :, None] * next_quantiles
        x = self.online(obs, t)[torch.arange(len(t)), actions]
        u = y.unsqueeze(2) - x.unsqueeze(3)  # [B, M, N, N']
        huber = torch.where(
            u.abs() <= self.kappa, 0.5 * u.pow(2), self.kappa * (u.abs() - 0.5 * self.kappa)
        )
        weight = torch.abs(self.tau.view(1, 1, -1, 1) - (u.detach() < 0).float())
        return (weight * huber).mean(3).sum(2).mean()

    def update(self, *batch: torch.Tensor) -> float:
        """Take one gradient step."""
        loss = self.loss(*batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def sample(self, n: int = 32) -> list[torch.Tensor]:
        """Return a batch of tensors."""
        i = self.rng.integers(0, self.size, n)
        columns = (self.obs, self.next_obs, self.times, self.actions, self.rewards, self.dones)
        return [torch.tensor(column[i]) for column in columns]

    def run(self, steps: int, learns: bool) -> int:
        """Go on for so many agent steps, with an update for every four; return those taken."""
        before, until = self.steps, self.steps + steps
        while self.steps < until:
            if self.rng.random() < 0.01 or not learns:
                actions = self.rng.integers(0, self.shape[0], self.games.n_envs)
            else:
                actions = self.act(self.now, self.t)
            step = self.games.step(actions)
            for i in range(self.games.n_envs):
                if step.dummy[i]:
                    self.t[i] = 0
                    continue
                self.obs[self.pos], self.next_obs[self.pos] = self.now[i], step.observation[i]
                self.actions[self.pos], self.times[self.pos] = actions[i], self.t[i]
                self.rewards[self.pos] = np.clip(step.reward[i], -1, 1)
                self.dones[self.pos] = step.terminated[i]
                self.pos = (self.pos + 1) % len(self.obs)
                self.size = min(self.size + 1, len(self.obs))
                self.t[i] += 1
                self.steps += 1
            self.now = step.observation
            if learns:
                for _ in range(self.games.n_envs // 4):
                    self.update(*self.sample())
        return self.steps - before
