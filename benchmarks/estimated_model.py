"""What 30,000 transitions allow: exact dynamic programming on tables estimated from random play.

    python benchmarks/estimated_model.py

prints for the tabular problems of `experiment=risk_gate`, under the mean and gamma = .99, the
normalised regret (mean and largest of five seeds) of the policy that is optimal for the estimated
tables, if these may depend on t and if they may not. An agent that explores less and less sees
more of what matters than random play does, and may do better.
"""

import numpy as np

from rigor.config.defaults import option
from rigor.envs.tabular_files import TransitionTables

GAMMA, STEPS, SEEDS = 0.99, 30_000, 5
PROBLEMS = (
    {"builtin": "random", "states": 4, "actions": 2, "horizon": 5, "builtin_seed": 101},
    {"builtin": "random", "states": 6, "actions": 3, "horizon": 8, "builtin_seed": 102},
    {"builtin": "random", "states": 10, "actions": 3, "horizon": 12, "builtin_seed": 103},
    {"builtin": "random", "states": 5, "actions": 4, "horizon": 16, "builtin_seed": 104},
    {"builtin": "cliff", "states": 4, "actions": 4, "horizon": 12},
    {"builtin": "cliff", "states": 6, "actions": 4, "horizon": 20},
    {"builtin": "inventory", "states": 6, "actions": 4, "horizon": 10},
    {"builtin": "ladder", "states": 7, "horizon": 6},
)


def values(tables: TransitionTables, P: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return Q [S, A] for transition probabilities [S, A, S'] and values of the next state [S']."""
    reward = (tables.reward * tables.reward_probability).sum(-1)
    return (P * (reward + GAMMA * np.where(tables.terminal, 0.0, after))).sum(-1)


def play(tables: TransitionTables, horizon: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each transition was seen, [T, S, A, S'], in STEPS steps of random play."""
    n_states, n_actions, _ = tables.P.shape
    counts = np.zeros((horizon, n_states, n_actions, n_states))
    left = STEPS
    while left > 0:
        states = rng.choice(n_states, size=100, p=tables.initial)
        for t in range(horizon):
            actions = rng.integers(n_actions, size=len(states))
            cumulative = tables.P[states, actions].cumsum(-1)
            after = (cumulative < rng.random((len(states), 1))).sum(-1).clip(max=n_states - 1)
            np.add.at(counts, (t, states, actions, after), 1)
            left -= len(states)
            states = after[~tables.terminal[after]]
    return counts


def regret(tables: TransitionTables, estimated: np.ndarray) -> float:
    """Return the normalised regret of the policy that is optimal for estimates [T, S, A, S']."""
    n_states = len(tables.P)
    best, own, believed, random = np.zeros((4, n_states))
    for P in estimated[::-1]:
        q = values(tables, P, believed)
        believed, chosen = q.max(1), q.argmax(1)
        own = values(tables, tables.P, own)[np.arange(n_states), chosen]
        best = values(tables, tables.P, best).max(1)
        random = values(tables, tables.P, random).mean(1)
    own, best, random = (tables.initial @ value for value in (own, best, random))
    return (best - own) / (best - random)


def probabilities(counts: np.ndarray) -> np.ndarray:
    """Return relative frequencies over the last axis; uniform where nothing was seen."""
    total = counts.sum(-1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), 1 / counts.shape[-1])


def main() -> None:
    """Print a line for each problem."""
    print("problem                 any t: mean, largest   not of t: mean, largest")
    for problem in PROBLEMS:
        tables, horizon = option("env", "tabular", **problem).tables(), problem["horizon"]
        found = []
        for seed in range(SEEDS):
            counts = play(tables, horizon, np.random.default_rng(seed))
            pooled = np.broadcast_to(probabilities(counts.sum(0)), counts.shape)
            found.append([regret(tables, P) for P in (probabilities(counts), pooled)])
        mean, largest = np.mean(found, 0), np.max(found, 0)
        name = f"{problem['builtin']} {problem['states']}, T = {horizon}"
        print(f"{name:24}{mean[0]:12.4f}{largest[0]:9.4f}{mean[1]:16.4f}{largest[1]:9.4f}")


if __name__ == "__main__":
    main()
