import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import rigor
from rigor import figure
from rigor.envs.option import Put
from rigor.envs.wealth import Wealth
from rigor.errors import UserError
from rigor.maths.utility import CVaR, Mean

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
PUT = Put(
    steps=2, maturity=1.0, strike=100.0, start=95.0, kappa=2.0, zeta=100.0, sigma=20.0, num_envs=1
)


def command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "rigor.figure", *arguments], capture_output=True, text=True, cwd=cwd
    )


def lines(drawn):
    return {one.get_label(): one for one in drawn.axes[0].lines}


def test_help_is_quick_and_lists_the_names():
    done = command("--help")
    assert done.returncode == 0
    shown = [row.split()[0] for row in done.stdout.splitlines() if row.startswith("  ")]
    assert [name for name in shown if name != "rigor-figure"] == list(figure.PICTURES)
    code = (
        "import sys; from rigor.figure import run; run(['-h']); "
        "assert not {'matplotlib', 'hydra', 'numpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_writes_into_the_current_directory(tmp_path):
    done = command("discounts", "steps=20", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "discounts.png\ndiscounts.svg\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["discounts.png", "discounts.svg"]


def test_a_mistake_is_one_line_and_code_2():
    done = command("discount")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rigor-figure: discount: no such picture; did you mean discounts?\n"


def test_every_discount_of_the_config_by_its_defaults():
    drawn = lines(figure.discounts(None, {"steps": "30"}))
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


def test_values_change_one_option():
    drawn = lines(figure.discounts(None, {"steps": "5", "hyperbolic.k": "0.01"}))
    assert drawn["hyperbolic (k = 0.01)"].get_ydata()[5] == pytest.approx(1 / 1.05)
    assert "tail_integral (k = 0.05, tail γ = 0.99)" in drawn


def test_every_utility(tmp_path):
    drawn = lines(figure.utilities(None, {"cvar.tau": "0.25"}))
    assert [label for label in drawn if not label.startswith("_")] == [
        "mean",
        "cvar (τ = 0.25)",
        "entropic (β = −1)",
        "mean_cvar (κ = 0.5, τ = 0.1)",
        "mean_variance (κ = 0.1)",
    ]
    assert drawn["cvar (τ = 0.25)"].get_ydata()[0] == pytest.approx(-8)  # f(−2) = −2/.25


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["which picture?", "discounts, utilities, policy, boundary, outcomes"]),
        (["polcy"], ["polcy: no such picture", "did you mean policy?"]),
        (["xyz"], ["xyz: no such picture; choose discounts, utilities"]),
        (["policy"], ["policy: of which run? rigor-figure policy RUN_DIR"]),
        (["policy", "nowhere"], ["nowhere: no such directory"]),
        (["discounts", "."], [".: one word too many", "steps=..., DISCOUNT.KEY=..., out=..."]),
        (["discounts", "--steps=3"], ["--steps=3: no such flag"]),
        (["discounts", "step=3"], ["step: discounts has no such key", "steps=..."]),
        (["utilities", "steps=3"], ["steps: utilities has no such key"]),
        (["discounts", "steps=0"], ["steps=0: must be a whole number of agent steps, 1 to 100000"]),
        (["discounts", "steps=1e3"], ["steps=1e3: must be"]),
        (["discounts", "out="], ["out=: needs a directory"]),
        (["discounts", "hyperbolc.k=1"], ["hyperbolc.k: no such discount", "hyperbolic"]),
        (
            ["discounts", "hyperbolic.kk=1"],
            ["hyperbolic.kk: no such key; did you mean hyperbolic.k?"],
        ),
        (["discounts", "hyperbolic.k=-1"], ["hyperbolic.k=-1.0: must be"]),
        (["discounts", "hyperbolic.k=abc"], ["hyperbolic.k=abc"]),
        (["utilities", "cvar.tau=0"], ["cvar.tau=0.0"]),
    ],
)
def test_refusals(arguments, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        figure.run(arguments)
    for part in parts:
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config\.yaml: not a readable config"):
        figure.run(["outcomes", str(tmp_path)])


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return what makes a directory pass for a run."""

    def make(env, risk=None, points=None, actions=None, files=(), result=None):
        for name in files:
            (tmp_path / name).write_bytes(b"")
        offsets = [np.zeros(1) for _ in actions or ()]
        model = SimpleNamespace(
            observations=lambda t: np.stack([points, np.full(len(points), t)], 1).astype(np.float32)
        )
        tabled = SimpleNamespace(
            tables=SimpleNamespace(actions=actions, offsets=offsets), model=model
        )
        one = SimpleNamespace(
            path=tmp_path,
            built=lambda: SimpleNamespace(env=env, risk=risk or Mean()),
            policy=lambda: tabled,
            result=result,
        )
        monkeypatch.setattr(rigor, "load", lambda directory: one)
        return tmp_path

    return make


def test_the_policy_of_a_run(fake):
    actions = [np.array([[1, 0, 0]]), np.array([[0, 2, 2]]), np.array([[0, 0, 2]])]
    run = fake(WEALTH, points=np.array([50.0, 120.0, 300.0]), actions=actions, files=["policy.npz"])
    drawn = figure.policy(run, {})
    first = drawn.axes[0]
    assert first.collections[0].get_array()[:, 0].tolist() == [2, 1, 1]
    assert [one.get_ydata()[0] for one in first.lines] == [100, 150, 100]
    assert run.name in drawn._suptitle.get_text()
    said = figure.run(["policy", str(run)])
    assert said == f"{run}/policy.png\n{run}/policy.svg"
    assert (run / "policy.png").stat().st_size > 10_000
    assert figure.run(["policy", str(run), f"out={run}/a"]).startswith(f"{run}/a/policy.png")


def test_the_boundary_of_a_run(fake):
    actions = [np.array([row]) for row in ([1, 0, 0], [1, 1, 0], [0, 0, 0])]
    run = fake(PUT, points=np.array([80.0, 90.0, 100.0]), actions=actions, files=["policy.npz"])
    axes = figure.boundary(run, {}).axes[0]
    drawn = {one.get_label(): list(one.get_ydata()) for one in axes.lines}
    assert drawn["highest price at which it exercises"] == [80, 90, 100]
    assert drawn["start 95"] == [95]
    assert axes.get_xlabel() == "t (steps of 0.5 years)"


def test_the_outcomes_of_a_run(fake):
    run = fake(WEALTH, CVaR(0.5), result={"initial_stock_optimal": -10.0})
    np.savez(run / "outcomes.npz", returns=[0.0, 10.0, 20.0], probabilities=[0.25, 0.5, 0.25])
    drawn = figure.outcomes(run, {})
    named = [text.get_text() for text in drawn.legends[0].get_texts()]
    # mean (5 + 5) = 10; the worst half is .25 of 0 and .25 of 10
    assert named == ["mean = −c₀* = 10", "objective = 5"]
    assert drawn.axes[0].get_xlabel() == "x = discounted return (utility)"


def test_the_mean_has_no_stock_to_mark(fake):
    run = fake(PUT, result={"initial_stock_optimal": 0.0})
    np.savez(run / "outcomes.npz", returns=[0.0, 10.0], probabilities=[0.25, 0.75])
    drawn = figure.outcomes(run, {})
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["mean = objective = 7.5"]
    assert drawn.axes[0].get_xlabel() == "x = discounted return (currency)"


def test_a_run_that_has_no_such_picture_is_refused(fake):
    run = fake(PUT, files=["policy.npz"])
    for name, part in (
        ("policy", "its environment is Put; policy needs a run with env=gbwm"),
        ("outcomes", r"there is no outcomes\.npz; it takes a finished run of an exact agent"),
    ):
        with pytest.raises(UserError, match=f"has no picture {name}, for .*{part}"):
            figure.run([name, str(run)])
    (run / "outcomes.npz").write_bytes(b"half a file")
    with pytest.raises(UserError, match=r"outcomes\.npz: not the outcomes of a run"):
        figure.run(["outcomes", str(run)])
