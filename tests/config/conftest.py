"""Composed configs that most tests of this folder share, because composing takes long."""

import itertools

import pytest
from command_line import DISCOUNTS, RISKS, VARIANTS, composed


@pytest.fixture(scope="session")
def cartpole():
    return composed("env=cartpole", "tracker=none")


@pytest.fixture(scope="session")
def pong():
    return composed("env=atari/pong", "agent=multihorizon", "learner=replay", "tracker=none")


@pytest.fixture(scope="session")
def nodes():
    """The node of every option that can be combined, and the multi horizons of every discount."""
    found = {}
    for together in itertools.zip_longest(DISCOUNTS, RISKS, VARIANTS):
        chosen = dict(zip(("discount", "risk", "variant"), together, strict=True))
        given = [f"{group}={option}" for group, option in chosen.items() if option]
        one = composed("agent=multihorizon", *given)
        found |= {(group, option): one[group] for group, option in chosen.items()}
        found["horizons", chosen["discount"]] = one.horizons
    return found
