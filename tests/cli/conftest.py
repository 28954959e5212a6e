"""Trained runs that `rigor-eval` is tested on."""

import pytest
from command_line import TINY, rigor_train

EXACT = ("agent=backward_induction", "discount=hyperbolic", "tracker=none")
ATARI = (
    "env=atari/breakout",
    "learner=replay",
    "agent=multihorizon",
    "tracker=none",
    "train.steps=200",
    "network.hidden=32",
    "agent.quantiles=5",
    "env.max_frames=400",
    "env.num_envs=2",
    "evaluate.every=1",
    "evaluate.episodes=1",
    "evaluate.final_episodes=1",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function from a run's name to its directory; each is trained once."""
    place = tmp_path_factory.mktemp("eval")
    wanted = {
        "cartpole": (*TINY, "agent=multihorizon", "horizons.m=3", "discount=hyperbolic"),
        "gbwm": ("env=gbwm", *EXACT),
        "american_put": ("env=american_put", *EXACT),
        "tabular": ("env=tabular", *EXACT),
        "learned_put": (*TINY, "env=american_put", "network=mlp", "risk=cvar", "outer.every=50"),
        "utility": (*TINY, "env=gbwm", "agent=expected_utility", "agent.quantiles=1", "risk=cvar"),
        "endless": ("env=tabular", "env.horizon=inf", "agent=infinite_horizon", "tracker=none"),
        "breakout": ATARI,
        "risky": (*TINY, "agent=singlehorizon", "risk=cvar", "outer.every=50"),
        "solved": ("env=tabular", *EXACT, "env.horizon=4", "risk=cvar", "risk.tau=0.5"),
    }

    def of(name):
        out = place / name
        if not out.exists():
            done = rigor_train(*wanted[name], f"out={out}", cwd=place)
            assert done.code == 0, done
        return next(path.parent for path in out.glob("*/config.yaml"))

    return of
