from pathlib import Path

import gymnasium
import numpy as np
import pytest

import rigor
import rigor.gym
from rigor.config.defaults import option
from rigor.errors import UserError
from rigor.exact.foreign_policy import _takes
from rigor.exact.outer_search import optimum
from rigor.exact.table_policy import TablePolicy
from rigor.maths.discount import Capped, Exponential, Hyperbolic
from rigor.maths.utility import CVaR, Entropic, Mean

DISCOUNT = Hyperbolic(k=0.05)


def best_policy(spec, risk):
    """Return the optimal policy as a function of a model's observations."""
    model = spec.problem.model()
    factors = DISCOUNT.factor(np.arange(model.n_decisions))
    best = optimum(model, factors, risk, 2001)
    return TablePolicy(model, best.tables, best.c0, factors)


@pytest.mark.parametrize("name", ["american_put", "tabular"])
@pytest.mark.parametrize("risk", [Mean(), CVaR(tau=0.3), Entropic(beta=-0.1)])
def test_the_optimal_policy_has_no_regret(name, risk):
    spec = option("env", name, **({"steps": 4} if name == "american_put" else {"horizon": 4}))
    table = best_policy(spec, risk)

    def policy(observation, t, stock):
        return table(observation, t, stock)

    value = rigor.exact_value(
        spec, policy, discount=DISCOUNT, risk=risk, initial_stock=table.initial_stock
    )
    assert value.regret == pytest.approx(0.0, abs=1e-6 * max(1.0, abs(value.optimum)))
    assert value.initial_stock == table.initial_stock
    assert value == rigor.exact_value(spec, policy, discount=DISCOUNT, risk=risk)


def test_the_value_of_a_put_that_is_exercised_at_once_by_hand():
    env = gymnasium.make("rigor/AmericanPut-v0", steps=4, strike=100, start=90)
    value = rigor.exact_value(
        env, lambda observation, t: np.ones(len(t), int), discount=DISCOUNT, risk=CVaR(tau=0.1)
    )
    assert value.objective == pytest.approx(10.0, abs=0.05)  # on a grid of prices
    assert value.regret == value.optimum - value.objective
    env = gymnasium.make("rigor/AmericanPut-v0", steps=4)  # starts at its strike
    value = rigor.exact_value(
        env, lambda observation, t: np.ones(len(t), int), discount=DISCOUNT, risk=Mean()
    )
    assert value.objective == pytest.approx(0.0, abs=0.05)
    assert value.regret > 1.0


def test_an_exponential_utility_of_a_policy_that_takes_its_stock_by_hand(tmp_path):
    np.savez(
        tmp_path / "lottery.npz",  # action 0: nothing or 1 by chance, action 1: a half
        P=np.ones((1, 2, 1)),
        reward=np.array([[0.0, 1.0], [0.5, 0.5]])[None, :, None],
        reward_probability=np.full((1, 2, 1, 2), 0.5),
    )
    value = rigor.exact_value(
        option("env", "tabular", path=str(tmp_path / "lottery.npz"), horizon=2),
        lambda observation, t, stock: (stock > 0.5).astype(int),  # who has won takes what is sure
        discount=Exponential(gamma=1.0),
        risk=Entropic(beta=-1.0),
        initial_stock=0.0,
    )
    returns = np.array([0.0, 1.0, 1.5])
    by_hand = -np.log(np.array([0.25, 0.25, 0.5]) @ np.exp(-returns))
    assert value.objective == pytest.approx(by_hand)


def test_simulated_episodes_have_the_exact_value():
    env = gymnasium.make("rigor/Tabular-v0", builtin="random", states=4, horizon=3)

    def policy(observation, t):
        return (observation[:, 0] + t) % 2

    value = rigor.exact_value(env, policy, discount=DISCOUNT, risk=Mean())
    returns = np.zeros(4000)
    for k in range(len(returns)):
        observation, _ = env.reset(seed=0 if k == 0 else None)
        over, t = False, 0
        while not over:
            action = int(policy(observation[None], np.array([t]))[0])
            observation, reward, over, _, _ = env.step(action)
            returns[k] += DISCOUNT.factor(t) * reward
            t += 1
    error = returns.std() / np.sqrt(len(returns))
    assert value.objective == pytest.approx(returns.mean(), abs=4 * error)


def test_observations_go_through_the_wrappers_of_the_environment():
    env = gymnasium.make("rigor/Tabular-v0", builtin="random", states=4, horizon=3)
    flat = gymnasium.wrappers.FlattenObservation(env)

    def policy(observation, t):
        assert observation.shape == (4, 4 + 4)  # one-hot state and time
        np.testing.assert_array_equal(observation[:, 4:].argmax(1), t)
        return observation[:, :4].argmax(1) % 2

    plain = rigor.exact_value(
        env, lambda observation, t: observation[:, 0] % 2, discount=DISCOUNT, risk=CVaR(tau=0.5)
    )
    assert rigor.exact_value(flat, policy, discount=DISCOUNT, risk=CVaR(tau=0.5)) == plain


def test_a_problem_without_a_last_decision():
    env = gymnasium.make("rigor/Tabular-v0", builtin="random", states=3, horizon=float("inf"))
    discount = Capped(base=Exponential(gamma=0.9), gamma_tail=0.9)
    value = rigor.exact_value(
        env, lambda state, t: np.zeros(len(state), int), discount=discount, risk=Mean()
    )
    assert value.regret > 0


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda o, t: np.zeros(3, int), r"returned int64 of shape \(3,\) for"),
        (lambda o, t: np.zeros(len(t)), r"returned float64"),
        (lambda o, t: np.full(len(t), 2), r"in 0\.\.\.1"),
        (lambda o, state=None, start=None: (np.zeros(len(o), int), state), "returned a tuple"),
    ],
)
def test_a_policy_that_returns_no_actions_is_refused(returned, message):
    env = gymnasium.make("rigor/Tabular-v0", horizon=2)
    with pytest.raises(UserError, match=message):
        rigor.exact_value(env, returned, discount=DISCOUNT, risk=Mean())


def test_a_function_without_a_signature_takes_no_stock():
    assert not _takes(max, 3)
    assert _takes(lambda *given: given, 3)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: gymnasium.make("CartPole-v1"), "CartPoleEnv has no exact model; use rigor/"),
        (lambda: option("env", "windy_lunar_lander"), "Lander has no exact model"),
        (
            lambda: gymnasium.wrappers.TransformReward(
                gymnasium.make("rigor/Tabular-v0"), lambda reward: 2 * reward
            ),
            "TransformReward changes actions or rewards",
        ),
        (
            lambda: gymnasium.make("rigor/GoalBasedWealth-v0", action="factored"),
            "make it with action=flat",
        ),
    ],
)
def test_what_has_no_model_is_refused(env, message):
    with pytest.raises(UserError, match=message):
        rigor.exact_value(env(), lambda o, t: t, discount=DISCOUNT, risk=Mean())


@pytest.mark.slow
def test_the_documented_dqn_beside_the_optimum(capsys):
    page = (Path(__file__).parents[2] / "docs" / "other_learners.md").read_text()
    code = "".join(part.split("```")[0] for part in page.split("```python\n")[1:])
    assert "model.learn(20_000)" in code
    exec(code.replace("learn(20_000)", "learn(300)"), {})
    first, second = capsys.readouterr().out.splitlines()
    objective, optimum, regret = (float(part.split()[-1]) for part in first.split(","))
    assert 0.0 <= objective <= optimum
    assert regret == pytest.approx(optimum - objective, abs=1e-2)
    assert float(second) >= 0.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": 3}, r"policy=3: must be a function of \(observation, t\)"),
        ({"discount": 0.9}, r"discount=0\.9: must be an object, such as rigor\.maths\.discount"),
        ({"discount": "hyperbolic"}, "discount='hyperbolic': must be an object"),
        ({"risk": "cvar"}, r"risk='cvar': must be an object, such as rigor\.maths\.utility\.CVaR"),
        ({"risk": None}, "risk=None: must be an object"),
        (
            {"initial_stock": 3.0},
            r"initial_stock=3\.0: needs a policy of \(observation, t, stock\)",
        ),
        (
            {"initial_stock": np.nan, "policy": lambda observation, t, stock: t},
            "initial_stock=nan: must be a finite number",
        ),
        (
            {"initial_stock": "0", "policy": lambda observation, t, stock: t},
            "initial_stock='0': must be a finite number",
        ),
    ],
)
def test_arguments_of_another_kind_are_refused(changes, said):
    given = {"policy": lambda observation, t: t, "discount": DISCOUNT, "risk": Mean()} | changes
    with pytest.raises(UserError, match=f"^{said}"):
        rigor.exact_value(option("env", "tabular", horizon=2), **given)
