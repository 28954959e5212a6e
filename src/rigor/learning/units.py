"""The units of a network's outputs and inputs, which follow what was seen.

Outputs and the stock follow the returns, observations their own moments. So neither the scale of
rewards nor that of observations matters. A change of the units leaves the networks' functions as
they are.
"""

import numpy as np

from rigor.learning.agent import Agent

OUTGROWN = 1.25  # times the old unit: a larger spread of returns changes the stock's unit
DRIFTED = 0.5  # of the unit: a larger move of the middle of the returns does so too


def follow(agent: Agent, keep: bool) -> None:
    """Set an agent's units by what was seen; the problem's bounds, where known, set its inputs'.

    Args:
      agent: its networks, `values`, `stock_unit` and `observation_unit` may change.
      keep: whether the networks' functions stay as they are; False before the first update, when
        there is nothing to keep.
    """
    networks = dict.fromkeys((agent.online, agent.target, agent.averaged))  # each once
    returns = agent.returns
    factor = agent.values.follow(returns.reward_unit)
    for network in networks if keep and factor != 1.0 else ():
        network.rescale_outputs(factor)
    if agent.knows_bounds:
        return
    if agent.observations is not None:
        mean, deviation = agent.observations.mean, agent.observations.deviation
        mean_before, deviation_before = agent.observation_unit
        ratio = deviation / deviation_before
        drifted = np.abs(mean - mean_before) > DRIFTED * deviation_before
        if not keep or (drifted | (ratio > OUTGROWN) | (ratio < 1.0 / OUTGROWN)).any():
            agent.observation_unit = mean, deviation
            for network in networks:
                network.rescale_observations(mean, deviation, keep)
    if not agent.utility.needs_stock:
        return
    zero, one = -(returns.low + returns.high) / 2.0, returns.spread / 2.0
    zero_before, one_before = agent.stock_unit
    moved = abs(zero - zero_before) > DRIFTED * one_before
    if moved or one > OUTGROWN * one_before or not keep:
        agent.stock_unit = zero, one
        for network in networks:
            network.rescale_stock(zero, one, keep)
