import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rigor.gym  # noqa: F401  registers the ids

IDS = {
    "rigor/GoalBasedWealth-v0": {"periods": 3},
    "rigor/AmericanPut-v0": {"steps": 3},
    "rigor/Tabular-v0": {"builtin": "random", "states": 3},
    "rigor/WindyLunarLander-v0": {"wind_power": 5},
    "rigor/MinAtar-v0": {"game": "freeway", "max_steps": 20},
}


@pytest.mark.parametrize("id", IDS)
def test_an_id_makes_an_environment_that_gymnasium_accepts(id):
    env = gymnasium.make(id, **IDS[id])
    check_env(env.unwrapped, skip_render_check=True)
    first, second = (env.reset(seed=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    for _ in range(600):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return
    raise AssertionError("no episode of these has more than 500 steps")


def test_all_registered_ids_are_tested():
    assert {id for id in gymnasium.registry if id.startswith("rigor/")} == set(IDS)


def test_values_are_those_of_the_options():
    env = gymnasium.make("rigor/GoalBasedWealth-v0")
    assert env.unwrapped.schema.periods == 10
    assert gymnasium.spec("rigor/WindyLunarLander-v0").max_episode_steps == 500


def test_an_id_with_its_module_needs_no_import():
    program = (
        "import gymnasium\nenv = gymnasium.make('rigor.gym:rigor/AmericanPut-v0', steps=2)\n"
        "print(env.reset(seed=0)[0].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[100.0, 0.0]\n"), done


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"period": 3}, r"env=gbwm has no key period; did you mean periods\?"),
        ({"qqq": 3}, r"env=gbwm has no key qqq; it has "),
    ],
)
def test_an_unknown_argument_is_named(values, message):
    with pytest.raises(TypeError, match=message):
        gymnasium.make("rigor/GoalBasedWealth-v0", **values)


def test_a_value_out_of_range_is_named():
    with pytest.raises(ValueError, match=r"env\.periods=0"):
        gymnasium.make("rigor/GoalBasedWealth-v0", periods=0)
