"""Runs of exact agents, and exact metrics of learned ones, from the command line."""

import json
import signal

import numpy as np
import pytest
from command_line import finish, refused, rigor_train, start, wait_for

import rigor

pytestmark = pytest.mark.slow

WEALTH = ("env=gbwm", "env.periods=4", "risk=cvar", "tracker=none", "out=out")
EXACT = (*WEALTH, "agent=backward_induction")
LEARNED = ("train.steps=600", "evaluate.every=1", "evaluate.episodes=2", "tracker=none", "out=out")


def only(place):
    (path,) = [path for path in place.iterdir() if (path / "config.yaml").exists()]
    return path


def figure(name, run):
    return finish(start(name, run, cwd=run, name="figure"))


def discounted_returns(run, n):
    """Return the discounted returns of n episodes of a run's policy, all of the same length."""
    config, policy = run.built(), run.policy()
    env = config.env.make(n, evaluation=True)
    observation = env.reset(np.random.SeedSequence(1))
    stock, total = np.full(n, policy.initial_stock), np.zeros(n)
    for t, d in enumerate(config.discount.factor(np.arange(config.env.n_decisions))):
        at = np.full(n, t)
        step = env.step(policy(observation, at, stock))
        stock, total = policy.next_stock(stock, at, step.reward), total + d * step.reward
        observation = step.observation
    assert step.episode_end.all()
    return total


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    place = tmp_path_factory.mktemp("exact")
    done = rigor_train(*EXACT, cwd=place)
    assert (done.code, done.err) == (0, "")
    assert "exact" in done.out
    return place


def test_the_files_of_an_exact_run(exact):
    run = only(exact / "out")
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "status.json", "result.json", "metrics.csv"} <= names
    assert {"policy.npz", "outcomes.npz", "outcomes.png"} <= names
    status = json.loads((run / "status.json").read_text())
    result = json.loads((run / "result.json").read_text())
    assert (status["state"], status["step"]) == ("done", 0)
    assert (result["episodes"], result["steps"]) == (0, 0)
    assert result["objective"] == result["objective_exact"]
    assert result["objective_exact"] == pytest.approx(result["objective_optimal"])
    assert result["regret"] == pytest.approx(0, abs=1e-9 * result["objective"])
    with np.load(run / "outcomes.npz") as file:
        assert file["probabilities"].sum() == pytest.approx(1)
        assert file["probabilities"] @ file["returns"] <= result["score"] + 1e-9


def test_an_exact_run_is_skipped_when_done(exact):
    done = rigor_train(*EXACT, cwd=exact)
    assert (done.code, done.err) == (0, "")
    assert "done, skipped" in done.out


def test_the_saved_policy_acts(exact):
    run = rigor.load(only(exact / "out"))
    policy = run.policy()
    start, t = np.array([[100.0, 0.0], [100.0, 2.0]], np.float32), np.array([0, 2])
    stock = np.full(2, policy.initial_stock)
    actions = policy(start, t, stock)
    assert actions.shape == (2,)
    assert actions[1] // 15 == 1  # at t = T//2 the early goal is affordable, and paid for
    assert policy.next_stock(stock, t, np.array([0.0, 1000.0]))[1] > stock[1]


def test_figures_of_an_exact_run(exact):
    run = only(exact / "out")
    for name in ("policy", "outcomes"):
        done = figure(name, run)
        assert done.code == 0, done.err
        assert (run / f"{name}.png").stat().st_size > 10_000
    done = figure("boundary", run)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


def test_the_boundary_of_the_put(tmp_path):
    done = rigor_train(
        "env=american_put", "env.steps=8", "agent=backward_induction", *LEARNED[-2:], cwd=tmp_path
    )
    assert (done.code, done.err) == (0, "")
    assert figure("boundary", only(tmp_path / "out")).code == 0


def test_a_learned_run_is_measured_against_the_optimum(tmp_path):
    sample = "evaluate.final_episodes=200"
    done = rigor_train(*WEALTH, "agent=singlehorizon", *LEARNED, sample, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "exact: objective" in done.out
    run = rigor.load(only(tmp_path / "out"))
    result = run.result
    assert result["regret"] >= -1e-9
    assert result["objective_optimal"] == pytest.approx(
        result["objective_exact"] + result["regret"]
    )
    assert 0 <= result["p_late"] <= 1
    # CVaR of 200 episodes depends on the few that earn nothing, so a larger sample tests more
    returns, risk = discounted_returns(run, 10_000), run.built().risk
    stock = risk.oce(returns)[1]
    spread = risk.f(stock + returns).std()
    exact = result["objective_exact"]
    assert risk.oce(returns)[0] == pytest.approx(exact, abs=4 * spread / np.sqrt(10_000))
    assert result["objective"] == pytest.approx(exact, abs=4 * spread / np.sqrt(200))
    error = np.std(result["scores"]) / np.sqrt(200)
    assert result["score"] == pytest.approx(result["expected_utility"], abs=4 * error)


def test_a_learned_run_of_an_infinite_horizon_is_measured_too(tmp_path):
    infinite = ("env=tabular", "env.horizon=inf", "env.max_steps=200")
    discount = ("discount=exponential", "discount.gamma=.9")
    done = rigor_train(*infinite, *discount, "agent=singlehorizon", *LEARNED, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    result = json.loads((only(tmp_path / "out") / "result.json").read_text())
    assert result["optimum_low"] <= result["optimum_high"]
    assert result["objective_exact"] <= result["optimum_high"] + 1e-9
    assert result["regret_low"] == pytest.approx(result["optimum_low"] - result["objective_exact"])


def test_an_overflowing_utility_is_refused(tmp_path):
    done = rigor_train(
        "env=gbwm", "agent=backward_induction", "risk=entropic", "risk.beta=-2", cwd=tmp_path
    )
    refused(done, "risk.beta=-2", "spans too much")


def test_a_stopped_solver_says_that_it_saves_nothing(tmp_path):
    slow = ("env=american_put", "env.steps=1000", "risk=cvar", "agent=backward_induction")
    process = start(*slow, "tracker=none", "out=out", cwd=tmp_path)

    def running():
        return [
            path
            for path in tmp_path.glob("out/*/status.json")
            if json.loads(path.read_text())["state"] == "running"
        ]

    (status,) = wait_for(running, process)
    wait_for((status.parent / "metrics.csv").exists, process)  # the solver has begun
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    assert done.code == 143
    assert done.err == (
        "rigor-train: stopped; an exact solver saves nothing, so the same command starts over\n"
    )
    assert json.loads(status.read_text())["state"] == "preempted"


def test_a_sweep_over_risks_is_refused_as_a_whole(tmp_path):
    done = rigor_train(
        "env=gbwm", "agent=backward_induction", "-m", "risk=mean,entropic", "out=out", cwd=tmp_path
    )
    refused(done, "risk.beta=-1.0", "spans too much")
    assert not (tmp_path / "out").exists()
