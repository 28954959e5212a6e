"""Predictions of a learned agent at a state, and the returns realised along an episode."""

from dataclasses import dataclass

import numpy as np
import torch

from rigor.learning.agent import Agent


@dataclass
class Prediction:
    """Predictions of the network that acts, for E states; learner's reward units, seen from t.

    quantiles: ξ of every action and horizon, [E, A, M, N]; the expected utility gain, [E, A, 1, 1],
      with `agent.learns=expected_utility`.
    outcomes: returns-to-go z_j, [E, A, N]; see `ValueTargets.outcomes`.
    values: ranking values, [E, A]. action: the greedy action, int64 [E].
    """

    quantiles: np.ndarray
    outcomes: np.ndarray
    values: np.ndarray
    action: np.ndarray


@torch.no_grad()
def predict(agent: Agent, observation: np.ndarray, t: np.ndarray, stock: np.ndarray) -> Prediction:
    """Return the predictions at observations [E, *shape], t int64 [E] and S_t float64 [E]."""
    inputs = [agent.engine.upload(array) for array in (observation, t, stock)]
    predictions, at = agent.averaged(*inputs).double(), inputs[1:]
    return Prediction(
        agent.values.quantiles(predictions, *at).cpu().numpy(),
        agent.values.outcomes(predictions, *at).cpu().numpy(),
        agent.values.action_values(predictions, *at).cpu().numpy(),
        agent.greedy(observation, t, stock),
    )


def realised_returns(agent: Agent, reward: np.ndarray, terminated: np.ndarray) -> np.ndarray:
    """Return the realised counterparts of `Prediction.outcomes` at an episode's L states, [L].

    Args:
      agent: it made the predictions.
      reward: raw, [L]. terminated: where the bootstrap is cut, bool [L].
    """
    learner_reward = agent.learner_reward(reward)
    return agent.values.realised(learner_reward, terminated, agent.initial_stock)
