from types import SimpleNamespace

import numpy as np
import pytest

from rigor.envs.american_put import AmericanPut
from rigor.envs.wealth import Wealth
from rigor.errors import UserError
from rigor.maths.utility import CVaR, Mean
from rigor.report.figures import catalogue
from rigor.report.figures.catalogue import FIGURES

WEALTH = Wealth(
    periods=2,
    wealth=100.0,
    early_cost=100.0,
    early_utility=1000.0,
    late_cost=150.0,
    late_utility=500.0,
    scaling="volatility",
    action="flat",
    num_envs=1,
    asset_means=[0.05, 0.1],
    asset_covariance=[[0.01, 0.0], [0.0, 0.04]],
    weights=[[1.0, 0.0], [0.0, 1.0]],
)
PUT = AmericanPut(
    steps=2, maturity=1.0, strike=100.0, start=95.0, kappa=2.0, zeta=100.0, sigma=20.0, num_envs=1
)


def lines(drawn):
    return {one.get_label(): one for one in drawn.axes[0].lines}


def test_every_discount_has_its_default_parameters():
    drawn = lines(catalogue.discounts(None, {"steps": "30"}))
    t = np.arange(31)
    assert list(drawn) == [
        "cir (a = 0.05, b = 0.01, σ = 0.1, r₀ = 0.01)",
        "exponential (γ = 0.99)",
        "hyperbolic (k = 0.05)",
        "capped (hyperbolic k = 0.05, tail γ = 0.98)",
        "generalized_hyperbolic (k = 0.05, b = 1.5)",
        "quasi_hyperbolic (β = 0.7, γ = 0.99)",
        "tail_integral (k = 0.05, tail γ = 0.99)",
    ]
    assert drawn["hyperbolic (k = 0.05)"].get_ydata() == pytest.approx(1 / (1 + 0.05 * t))
    assert drawn["exponential (γ = 0.99)"].get_ydata() == pytest.approx(0.99**t)


def test_values_change_the_parameters_of_an_option():
    drawn = lines(catalogue.discounts(None, {"steps": "5", "hyperbolic.k": "0.01"}))
    assert drawn["hyperbolic (k = 0.01)"].get_ydata()[5] == pytest.approx(1 / 1.05)
    assert "tail_integral (k = 0.05, tail γ = 0.99)" in drawn


def test_every_utility():
    drawn = lines(catalogue.utilities(None, {"cvar.tau": "0.25"}))
    assert [label for label in drawn if not label.startswith("_")] == [
        "mean",
        "cvar (τ = 0.25)",
        "entropic (β = −1)",
        "mean_cvar (κ = 0.5, τ = 0.1)",
        "mean_variance (κ = 0.1)",
    ]
    assert drawn["cvar (τ = 0.25)"].get_ydata()[0] == pytest.approx(-8)  # f(−2) = −2/.25


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a function that lets a directory pass for a run, and returns it."""
    path = tmp_path / "american_put-backward_induction-hyperbolic-mean-time_consistent-s0-1a2b3c4d"

    def make(env, risk=None, points=None, actions=None, files=(), result=None):
        path.mkdir()
        for name in files:
            (path / name).write_bytes(b"")
        offsets = [np.zeros(1) for _ in actions or ()]
        model = SimpleNamespace(
            observations=lambda t: np.stack([points, np.full(len(points), t)], 1).astype(np.float32)
        )
        table = SimpleNamespace(
            tables=SimpleNamespace(actions=actions, offsets=offsets), model=model
        )
        run = SimpleNamespace(
            path=path,
            built=lambda: SimpleNamespace(env=env, risk=risk or Mean()),
            policy=lambda: table,
            result=result,
        )
        monkeypatch.setattr("rigor.report.data.load.load", lambda directory: run)
        return path

    return make


def test_the_policy_of_a_run(fake):
    actions = [np.array([[1, 0, 0]]), np.array([[0, 2, 2]]), np.array([[0, 0, 2]])]
    run = fake(WEALTH, points=np.array([50.0, 120.0, 300.0]), actions=actions, files=["policy.npz"])
    drawn = catalogue.policy(run, {})
    first = drawn.axes[0]
    assert first.collections[0].get_array()[:, 0].tolist() == [2, 1, 1]
    assert [one.get_ydata()[0] for one in first.lines] == [100, 150, 100]
    assert run.name in drawn._suptitle.get_text().replace("\n", "")


def test_the_boundary_of_a_run(fake):
    actions = [np.array([row]) for row in ([1, 0, 0], [1, 1, 0], [0, 0, 0])]
    run = fake(PUT, points=np.array([80.0, 90.0, 100.0]), actions=actions, files=["policy.npz"])
    axes = catalogue.boundary(run, {}).axes[0]
    drawn = {one.get_label(): list(one.get_ydata()) for one in axes.lines}
    assert drawn["highest price at which it exercises"] == [80, 90, 100]
    assert drawn["start 95"] == [95]
    assert axes.get_xlabel() == "t (steps of 0.5 years)"


def test_the_outcomes_of_a_run(fake):
    run = fake(WEALTH, CVaR(0.5), result={"initial_stock_optimal": -10.0})
    np.savez(run / "outcomes.npz", returns=[0.0, 10.0, 20.0], probabilities=[0.25, 0.5, 0.25])
    drawn = catalogue.outcomes(run, {})
    named = [text.get_text() for text in drawn.legends[0].get_texts()]
    # The mean is 5 + 5 = 10; the worst half is .25 of 0 and .25 of 10.
    assert named == ["mean = −c₀* = 10", "objective = 5"]
    assert drawn.axes[0].get_xlabel() == "x = discounted return (utility)"


def test_the_mean_has_no_stock_to_mark(fake):
    run = fake(PUT, result={"initial_stock_optimal": 0.0})
    np.savez(run / "outcomes.npz", returns=[0.0, 10.0], probabilities=[0.25, 0.75])
    drawn = catalogue.outcomes(run, {})
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["mean = objective = 7.5"]
    assert drawn.axes[0].get_xlabel() == "x = discounted return (currency)"


def test_a_run_without_the_figure_is_refused(fake):
    run = fake(PUT, files=["policy.npz"])
    for name, part in (
        ("policy", "needs env=gbwm, and this run has env=american_put"),
        ("outcomes", r"needs the file outcomes\.npz, which only a finished run of an exact agent"),
    ):
        with pytest.raises(UserError, match=f"figure {name} {part}"):
            FIGURES[name].draw(run, {})
    (run / "outcomes.npz").write_bytes(b"half a file")
    with pytest.raises(UserError, match=r"outcomes\.npz: not the outcomes of a run"):
        catalogue.outcomes(run, {})
