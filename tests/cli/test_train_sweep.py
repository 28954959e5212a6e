"""Sweeps and a user's own parts by the real command line."""

import pytest
from command_line import TINY, environment, refused, rigor_train
from run_files import ANSI, only, read, runs

USER_MODULE = '''
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Fragile(gymnasium.Env):
    """Ten steps of reward 1; raises at step `at` with a message of two lines."""

    observation_space = Box(-1.0, 1.0, (2,))
    action_space = Discrete(2)

    def __init__(self, at=None, seconds=0.0):
        self.at, self.total = at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        self.total += 1
        if self.at is not None and self.total == self.at:
            raise ValueError("the sensor fell off\\nand rolled away")
        return np.full(2, self.t / 10, np.float32), 1.0, self.t == 10, False, {}


gymnasium.register("Fragile-v0", entry_point=Fragile, max_episode_steps=20)


class HalfLife:
    """d_t = 2^(-t/steps): a discount that rigor does not know."""

    mixture = None
    atoms = None

    def __init__(self, steps):
        self.steps = steps
        self.tail_factor = 0.5 ** (1 / steps)

    def factor(self, t):
        return np.power(0.5, np.asarray(t, dtype=float) / self.steps)

    def step_factor(self, t):
        return np.full(np.shape(t), self.tail_factor)

'''


@pytest.fixture
def user(tmp_path):
    """A user's own module and configs; returns the environment that finds the module."""
    (tmp_path / "mine.py").write_text(USER_MODULE)
    for file, text in {
        "discount/half_life.yaml": "_target_: mine.HalfLife\nsteps: 7\n",
    }.items():
        path = tmp_path / "conf" / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return environment(PYTHONPATH=str(tmp_path))


@pytest.mark.slow
def test_a_users_own_discount_is_fitted(tmp_path, user):
    """`test_docs.py` runs the example of `docs/own_discount.md`."""
    own = ("--config-dir", "conf", "discount=half_life")
    done = rigor_train(*own, *TINY, "agent=multihorizon", "out=out", cwd=tmp_path, env=user)
    assert (done.code, done.err) == (0, "")
    run = only(tmp_path / "out")
    assert run.name.startswith("cartpole-multihorizon-half_life-mean-time_consistent-s0-")
    result = read(run / "result.json")
    # half-life 7: the sum of a long game is 1/(1 - 2^(-1/7)) = 10.6
    expected = [sum(0.5 ** (t / 7) for t in range(int(n))) for n in result["scores"]]
    assert result["objective"] == pytest.approx(sum(expected) / len(expected))
    assert "is approximated by" in (run / "train.log").read_text()  # with the error of the fit


@pytest.mark.slow
def test_a_sweep_and_its_repetition(tmp_path):
    command = ("env=cartpole", "-m", "seed=0,1,2", *TINY[1:], "train.steps=150", "out=out")
    done = rigor_train(*command, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert ANSI not in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    found = runs(tmp_path / "out")
    assert [read(run / "status.json")["state"] for run in found] == ["done"] * 3
    (directory,) = (tmp_path / "out" / "sweeps").iterdir()
    assert {path.name for path in directory.iterdir()} == {
        ".lock",
        "manifest.json",
        "table.txt",
        "learning_curves.png",
    }
    manifest = read(directory / "manifest.json")
    assert [(directory / run).resolve() for run in manifest["runs"]] == found
    table = (directory / "table.txt").read_text()
    assert table.count("done") == 3
    assert "lost" not in table
    assert done.out.count(" done ") == 3
    assert {run.name for run in found} == {path.name for path in runs(tmp_path / "out")}

    again = rigor_train(*command, cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert again.out.count("done, skipped") == 3
    assert list((tmp_path / "out" / "sweeps").iterdir()) == [directory]


@pytest.mark.slow
def test_a_failed_run_does_not_affect_other_runs_of_its_sweep(tmp_path, user):
    command = ("env=gymnasium", "env.id=mine:Fragile-v0", *TINY[1:], "train.steps=60", "out=out")
    command = (*command, "evaluate.every=1", "-m", "+env.kwargs.at=50,5000")
    done = rigor_train(*command, cwd=tmp_path, env=user)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert line.startswith("rigor-train: 1 of 2 runs failed")
    assert "the sensor fell off and rolled away" in line
    states = {}
    for run in runs(tmp_path / "out"):
        status = read(run / "status.json")
        states[status["state"]] = states.get(status["state"], 0) + 1
        if status["state"] == "failed":
            failed = run
    assert states == {"done": 1, "failed": 1}
    log = (failed / "train.log").read_text()
    assert "Traceback" in log
    assert 'raise ValueError("the sensor fell off' in log
    assert "ValueError: the sensor fell off" in read(failed / "status.json")["error"]
    (directory,) = (tmp_path / "out" / "sweeps").iterdir()
    table = (directory / "table.txt").read_text()
    assert table.count("done") == 1
    assert "failed" in table
    assert "sensor" in done.out
    assert not (failed / "result.json").exists()

    alone = (*command[:-2], "+env.kwargs.at=50", "out=other")
    done = rigor_train(*alone, cwd=tmp_path, env=user)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert line.startswith("rigor-train: ValueError: the sensor fell off and rolled away; ")
    assert line.endswith(f"the traceback is in other/{failed.name}/train.log")


@pytest.mark.slow
def test_a_sweep_that_the_machine_refuses_has_exit_code_2(tmp_path):
    done = rigor_train(*TINY, "env.id=CartPol-v1", "-m", "seed=0,1", "out=out", cwd=tmp_path)
    refused(done, "2 of 2 runs failed", "env.id=CartPol-v1")
    assert done.out.count("failed") == 2
    assert "no run of the sweep began, so its directories are removed" in done.out
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_key_that_every_swept_option_has_can_be_set(tmp_path):
    exact = ("env=tabular", "agent=backward_induction", "tracker=none", "out=out", "discount.k=0.1")
    done = rigor_train(*exact, "-m", "discount=hyperbolic,generalized_hyperbolic", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    texts = [(run / "config.yaml").read_text() for run in runs(tmp_path / "out")]
    assert [text.count("k: 0.1\n") for text in texts] == [1, 1]
    done = rigor_train(*exact, "-m", "discount=hyperbolic,cir", cwd=tmp_path)
    refused(done, "job 1 ", "discount.k needs discount=", "; now discount=cir")
    done = rigor_train(*exact, cwd=tmp_path)
    refused(done, "rigor-train: discount.k needs discount=", "; now discount=exponential")
