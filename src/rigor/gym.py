"""rigor's problems as Gymnasium environments: importing this module registers them.

    import gymnasium
    import rigor.gym

    env = gymnasium.make("rigor/GoalBasedWealth-v0", periods=30)

The arguments are the keys of the option of `env`, with the values of `conf/env` as defaults.
`gymnasium.make("rigor.gym:rigor/GoalBasedWealth-v0")` imports the module by itself.
"""

from typing import Any

import gymnasium

from rigor.config.defaults import option
from rigor.envs.gymnasium_forms import MinAtarEnv, PutEnv, TabularEnv, WealthEnv


def wealth(**changes: Any) -> gymnasium.Env[Any, Any]:
    """Return goal-based wealth management, `env=gbwm`."""
    return WealthEnv(option("env", "gbwm", **changes))


def american_put(**changes: Any) -> gymnasium.Env[Any, Any]:
    """Return the American put, `env=american_put`."""
    return PutEnv(option("env", "american_put", **changes))


def tabular(**changes: Any) -> gymnasium.Env[Any, Any]:
    """Return a finite problem, `env=tabular`."""
    return TabularEnv(option("env", "tabular", **changes))


def minatar(game: str, **changes: Any) -> gymnasium.Env[Any, Any]:
    """Return a game of MinAtar, `env=minatar/GAME`, channels first."""
    return MinAtarEnv(option("env", "minatar/_base", game=game, **changes))


def windy_lunar_lander(render_mode: str | None = None, **changes: Any) -> gymnasium.Env[Any, Any]:
    """Return the lunar lander in wind, `env=windy_lunar_lander`; its limit is Gymnasium's."""
    from gymnasium.envs.box2d.lunar_lander import LunarLander

    spec = option("env", "windy_lunar_lander", **changes)
    return LunarLander(
        render_mode,
        enable_wind=True,
        wind_power=spec.wind_power,
        turbulence_power=spec.turbulence_power,
    )


def _register() -> None:
    limits = {"WindyLunarLander": option("env", "windy_lunar_lander").max_steps}
    for name, entry_point in (
        ("GoalBasedWealth", "wealth"),
        ("AmericanPut", "american_put"),
        ("Tabular", "tabular"),
        ("MinAtar", "minatar"),
        ("WindyLunarLander", "windy_lunar_lander"),
    ):
        gymnasium.register(
            f"rigor/{name}-v0",
            entry_point=f"rigor.gym:{entry_point}",
            max_episode_steps=limits.get(name),
        )


_register()
