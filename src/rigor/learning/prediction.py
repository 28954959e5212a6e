"""What a learned agent predicts at a state, and what came true of it along an episode."""

from dataclasses import dataclass

import numpy as np
import torch

from rigor.learning.agent import Agent
from rigor.learning.learned import LEAST_MASS
from rigor.learning.networks import as_input


@dataclass
class Prediction:
    """What the network that chooses says of E states; all in learned reward units, seen from then.

    quantiles: ξ, of every action and horizon, [E, A, M, N].
    outcomes: z_j = Σ_i w_{i,t} ξ_ij, [E, A, N]: horizons are added quantile by quantile, the
      comonotone coupling, which is exact for the mean and for one horizon (erratum E10). The gain
      in utility that is expected, N = 1, of an agent that learns the utility; so are its quantiles.
    values: by which the agent chooses, [E, A]. action: the one of largest value, int64 [E].
    """

    quantiles: np.ndarray
    outcomes: np.ndarray
    values: np.ndarray
    action: np.ndarray


@torch.no_grad()
def predict(agent: Agent, observation: np.ndarray, t: np.ndarray, stock: np.ndarray) -> Prediction:
    """Return the predictions at observations [E, *shape], t int64 [E] and S_t float64 [E]."""
    clock = t if agent.clock_runs else np.zeros_like(t)
    bundle = agent.config.bundle
    weights = torch.from_numpy(bundle.weights_at(clock)).to(agent.device)  # [E, M]
    mass = torch.from_numpy(bundle.mass(clock)).to(agent.device)
    times, total = (torch.as_tensor(one).to(agent.device) for one in (t, stock))
    seen = as_input(torch.as_tensor(observation).to(agent.device))
    raw = agent.averaged(seen, times, total)
    at = weights, times, total, mass
    outcomes = agent.learned.outcomes(raw, *at)
    one_number = agent.config.agent.learns == "utility"
    quantiles = outcomes[:, :, None] if one_number else agent.learned.scale * raw.double()
    return Prediction(
        quantiles.cpu().numpy(),
        outcomes.cpu().numpy(),
        agent.learned.values(raw.double(), *at).cpu().numpy(),
        agent.greedy(observation, t, stock),
    )


def came_true(agent: Agent, reward: np.ndarray, terminated: np.ndarray) -> np.ndarray:
    """Return what the predictions of an episode's L states stood for, learned units, [L].

    Σ_i w_{i,t} G_i with G_i = r + (1 − terminated) backup_i(t) G_i′, the sum that the target's
    recursion samples: to the end of the episode, or to the first lost life where that is terminal.
    Where the utility is learned: (f(S_T) − f(S_t))/mass(t).

    Args:
      agent: who predicted. reward: raw, [L]. terminated: where the bootstrap is cut, bool [L].
    """
    t = np.arange(len(reward))
    if agent.config.agent.learns == "utility":
        return _gained(agent, reward, terminated)
    backup = agent.config.bundle.backup(t) * ~terminated[:, None]  # [L, M]
    weights = agent.config.bundle.weights_at(t if agent.clock_runs else np.zeros_like(t))
    learned = agent.learned_reward(reward)
    ahead = np.zeros(backup.shape[1])
    found = np.zeros(len(reward))
    for k in reversed(t):
        ahead = learned[k] + backup[k] * ahead
        found[k] = weights[k] @ ahead
    return found


def _gained(agent: Agent, reward: np.ndarray, terminated: np.ndarray) -> np.ndarray:
    """Return the utility gained from each state of an episode to its end, over the mass, [L]."""
    t = np.arange(len(reward))
    added = agent.mass[t] * agent.learned_reward(reward)
    totals = agent.initial_stock + np.concatenate([[0.0], np.cumsum(added)])  # S_0 ... S_L
    ends = np.flatnonzero(terminated | (t == t[-1]))
    end = ends[np.searchsorted(ends, t)]  # the last step before the bootstrap is cut
    f = agent.utility.f
    return (f(totals[end + 1]) - f(totals[t])) / np.maximum(agent.mass[t], LEAST_MASS)
