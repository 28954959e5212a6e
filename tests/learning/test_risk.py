"""Risk measures learned to the known optimum."""

import json
import os

import pytest
from command_line import environment, rigor_train
from gambles import GAMBLES

TESTS = os.path.dirname(os.path.dirname(__file__))
GATE = (
    *("network=mlp", "outer=grid", "evaluate=control"),
    *("network.norm=layer", "network.normalise=true", "env.num_envs=8", "evaluate.every=1"),
    *("train.batch_size=256", "train.update_every=8", "train.learning_rate=3e-3"),
    *("train.weight_average=0.99", "train.target_smoothing=0.03"),
    *("train.epsilon_fraction=0.6", "tracker=none"),
)
"""Chosen for speed: each problem is learned to its optimum, so the limit leaves a margin."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scale", "limit", "agent"),
    [
        ("OneDecision", 1000.0, 100_000, "singlehorizon"),
        ("BothSigns", 0.01, 10, "singlehorizon"),
        ("EarnedGain", 1000.0, 500, "singlehorizon"),
        ("EarnedLoss", 0.01, 500, "expected_utility"),
    ],
)
def test_gambles_are_chosen_rightly_at_any_scale_and_limit(tmp_path, name, scale, limit, agent):
    _, tau, best, second = GAMBLES[name]
    done = rigor_train(
        *("env=gymnasium", f"env.id=gambles:{name}-v0", f"+env.kwargs.scale={scale}"),
        *(f"env.max_steps={limit}", f"agent={agent}", "discount.gamma=1", "tracker=none"),
        *("risk=cvar", f"risk.tau={tau}", "train.steps=3000", "env.num_envs=8"),
        *("evaluate.every=0.25", "evaluate.final_episodes=2000", "out=out"),
        cwd=tmp_path,
        env=environment(PYTHONPATH=TESTS),
    )
    assert (done.code, done.err) == (0, "")
    objective = json.loads(next((tmp_path / "out").glob("*/result.json")).read_bytes())["objective"]
    assert objective > scale * (best + second) / 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choices", "agent"),
    [
        ("env.builtin=ladder env.states=6 env.horizon=5 risk=cvar risk.tau=0.25", "singlehorizon"),
        (
            "env.builtin=random env.states=4 env.horizon=5 risk=mean_cvar risk.tau=0.25",
            "singlehorizon",
        ),
        ("env.builtin=random env.states=3 env.horizon=4 risk=mean_variance", "singlehorizon"),
        ("env.builtin=random env.states=3 env.horizon=4 risk=mean_variance", "expected_utility"),
    ],
)
def test_a_small_gate_against_exact_optima(tmp_path, choices, agent):
    chosen = ("env=tabular", *choices.split(), f"agent={agent}", *GATE)
    done = rigor_train(*chosen, "train.steps=5000", "out=out", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    result = json.loads(next((tmp_path / "out").glob("*/result.json")).read_bytes())
    gap = result["objective_optimal"] - result["objective_random"]
    assert gap > 0.02 * (result["return_high"] - result["return_low"])
    assert result["regret"] <= 0.1 * gap
