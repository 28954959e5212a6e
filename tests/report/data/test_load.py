import re
from pathlib import Path

import numpy as np
import pytest
from command_line import TINY, rigor_train

import rigor
from rigor.errors import UserError
from rigor.maths.discount import Hyperbolic


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the directory of a finished run whose risk measure needs a stock."""
    place = tmp_path_factory.mktemp("load")
    more = ("discount=hyperbolic", "risk=cvar", "outer.every=20", "out=out")
    assert rigor_train(*TINY, *more, cwd=place).code == 0
    (run,) = (place / "out").iterdir()
    return run


@pytest.mark.slow
def test_a_finished_run_is_read(finished):
    run = rigor.load(str(finished))
    assert run.path == finished
    assert run.config["train"]["steps"] == 300
    assert run.config["risk"]["tau"] == 0.1
    assert run.status["state"] == "done"
    assert run.result["steps"] == 300
    assert list(run.metrics["steps"]) == sorted(run.metrics["steps"])
    assert run.metrics["steps"].iloc[-1] == 300
    assert run.metrics["eval_score"].dropna().between(1, 500).all()
    built = run.built()
    assert isinstance(built.discount, Hyperbolic)
    assert built.discount.k == 0.05


@pytest.mark.slow
def test_the_policy_of_a_run_plays_an_episode(finished):
    run = rigor.load(finished)
    policy = run.policy()
    env = policy.env
    assert policy.initial_stock == run.result["initial_stock"]
    score = []
    for _ in range(2):  # the policy is greedy, so equal seeds give equal episodes
        observation = env.reset(np.random.SeedSequence(5))
        t, stock = np.zeros(1, np.int64), np.full(1, policy.initial_stock)
        total, ended = 0.0, False
        while not ended:
            action = policy(observation, t, stock)
            assert action.shape == (1,)
            assert action[0] in (0, 1)
            step = env.step(action)
            moved = policy.next_stock(stock, t, step.reward)
            # a reward of 1 at time t adds d_t = 1/(1 + t/20)
            assert moved - stock == pytest.approx(1 / (1 + 0.05 * t))
            observation, stock, t = step.observation, moved, t + 1
            total, ended = total + step.reward[0], step.episode_end[0]
        score.append(total)
    assert score[0] == score[1] >= 1
    env.close()


@pytest.mark.slow
def test_the_loop_of_the_readme_runs(finished, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "agg")
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(code.replace("runs/cartpole-...", str(finished)), {})
    shown = capsys.readouterr().out
    found = re.fullmatch(rf"<rigor run {re.escape(str(finished))}: done, 300 steps> (.*)\n", shown)
    assert float(found[1]) >= 1


@pytest.mark.slow
def test_a_policy_takes_one_observation_or_a_batch(finished):
    policy = rigor.load(finished).policy()
    batch = policy.env.reset(np.random.SeedSequence(0))
    stock = policy.initial_stock
    (action,) = policy(batch, np.zeros(1, np.int64), np.full(1, stock))
    for observation in (batch[0], batch[0].astype(float), list(batch[0])):
        assert policy(observation, 0, stock) == policy(observation, 0.0, stock) == action
    assert policy(np.repeat(batch, 3, axis=0), 0, stock).tolist() == [action] * 3
    assert policy.next_stock(0.0, 20.0, 1.0) == pytest.approx(0.5)
    for wrong, message in (
        (lambda: policy(batch[0], 0.5, stock), r"^t=0\.5: must be whole agent steps"),
        (lambda: policy(batch[0], -1, stock), r"^t=-1: must be whole agent steps"),
        (lambda: policy(batch[0], 501, stock), r"^t=.*501.*: episodes end after 500 steps"),
        (lambda: policy.next_stock(0.0, 501, 1.0), r"^t=501: episodes end after 500 steps"),
        (lambda: policy(batch[0][:3], 0, stock), r"^observation of shape \(3,\): must be \(4,\)"),
        (lambda: policy(batch, [0, 1], stock), r"^t of shape \(2,\): must be one number"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()


@pytest.mark.slow
def test_a_run_without_a_checkpoint_has_numbers_but_no_policy(finished, tmp_path):
    for name in ("config.yaml", "metrics.csv"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    run = rigor.load(tmp_path)
    assert (run.status, run.result) == (None, None)
    assert len(run.metrics) > 0
    with pytest.raises(UserError, match="no checkpoint that can be read"):
        run.policy()


@pytest.mark.parametrize("text", ["seed: 0\n", "env: {a: '${b'}\n", "env: ???\n"])
def test_a_config_that_cannot_be_built_is_one_line(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml: not a config of rigor \(") as caught:
        rigor.load(tmp_path).policy()
    assert "\n" not in str(caught.value)


def test_a_directory_without_a_run_is_refused(tmp_path):
    for path, reason in (
        (tmp_path, r"config\.yaml: not a readable config"),
        (tmp_path / "nothing", "nothing: no such directory"),
    ):
        with pytest.raises(UserError, match=reason) as caught:
            rigor.load(path)
        assert "\n" not in str(caught.value)
    (tmp_path / "config.yaml").write_text("- 1\n- 2\n")
    with pytest.raises(UserError, match="not a config, but a list"):
        rigor.load(tmp_path)
