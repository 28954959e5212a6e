"""The part of a checkpoint that belongs to the agent."""

from collections.abc import Mapping
from typing import Any

import torch

from rigor.learning.agent import Agent
from rigor.learning.engine import restore_moments
from rigor.learning.networks import QuantileNetwork


def agent_state(agent: Agent) -> dict[str, Any]:
    """Return the part of a checkpoint that belongs to the agent."""
    return {
        **{name: network.state_dict() for name, network in _networks(agent).items()},
        "n_averaged": agent.n_averaged,
        "moments": agent.optimizer.state_dict()["state"],
        "loss_sum": agent.loss_sum,
        "initial_stock": agent.initial_stock,
        "reward_unit": agent.values.scale,
        "returns": agent.returns.state(),
        "observations": None if agent.observations is None else agent.observations.state(),
        "to_go": None if agent.to_go is None else agent.to_go.state(),
        "candidates": agent.candidates.state(),
    }


def restore_agent(agent: Agent, state: Mapping[str, Any]) -> None:
    """Restore the result of `agent_state`, before the agent's first update.

    Raises:
      ValueError: the state is that of another network.
    """
    for name, network in _networks(agent).items():
        _refuse_other_shapes(name, network.state_dict(), state[name])
    for number, parameter in enumerate(agent.online.parameters()):
        saved = state["moments"].get(str(number), {})
        own = dict.fromkeys(("exp_avg", "exp_avg_sq"), parameter) if saved else {}
        _refuse_other_shapes(f"moments of {number}", own, saved)
    for name, network in _networks(agent).items():
        network.load_state_dict(state[name])
    agent.n_averaged = state["n_averaged"]
    restore_moments(agent.optimizer, state["moments"])
    agent.loss_sum.copy_(state["loss_sum"])
    agent.initial_stock = state["initial_stock"]
    agent.values.scale = state["reward_unit"]
    zero, one = state["online"]["stock_unit"].tolist()
    agent.stock_unit = zero, one
    if agent.observations is not None:
        agent.observations.restore(state["observations"])
        mean, deviation = state["online"]["encoder.unit"].numpy()
        agent.observation_unit = mean, deviation
    agent.returns.restore(state["returns"])
    if agent.to_go is not None:
        agent.to_go.restore(state["to_go"])
    agent.candidates.restore(state["candidates"])


def _networks(agent: Agent) -> dict[str, QuantileNetwork]:
    """Return the networks of an agent by name; one that serves as another comes once."""
    networks = {"online": agent.online, "target": agent.target, "averaged": agent.averaged}
    return {
        name: network
        for name, network in networks.items()
        if name == "online" or network is not agent.online
    }


def _refuse_other_shapes(
    part: str, own: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor]
) -> None:
    """Refuse saved tensors that lack one of an agent's own, or that have another shape."""
    for name, tensor in own.items():
        if name not in saved:
            raise ValueError(f"{part} has no {name}")
        if saved[name].shape != tensor.shape:
            there, here = list(saved[name].shape), list(tensor.shape)
            raise ValueError(f"{name} of {part} has the shape {there}, not {here}")
