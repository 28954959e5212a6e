"""Loggers of libraries and of the user, which rigor leaves alone, and trouble with W&B."""

import subprocess
import sys

import pytest
from command_line import TINY, environment, rigor_train

MODULE = '''
import logging

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Logging(CartPoleEnv):
    """CartPole that warns at its first reset by a logger without handlers of its own."""

    warned = False

    def reset(self, *, seed=None, options=None):
        if not Logging.warned:
            Logging.warned = True
            logging.getLogger("library").warning("the sensor is cold")
        return super().reset(seed=seed, options=options)


gymnasium.register("Logging-v0", entry_point=Logging, max_episode_steps=20)
'''
OWN = ("env=gymnasium", "env.id=logs:Logging-v0", *TINY[1:], "out=out")
SCRIPT = """
import logging
from rigor.cli import train

mine = logging.getLogger("mine")
logging.basicConfig(level=logging.INFO)
mine.info("before")
train.run(["env=tabular", "agent=backward_induction", "tracker=none"])
mine.info("after")
"""


@pytest.fixture
def user(tmp_path):
    """The environment that finds the user's module."""
    (tmp_path / "logs.py").write_text(MODULE)
    return environment(PYTHONPATH=str(tmp_path))


@pytest.mark.slow
def test_a_warning_of_a_library_is_shown(tmp_path, user):
    done = rigor_train(*OWN, cwd=tmp_path, env=user)
    assert (done.code, done.err) == (0, "the sensor is cold\n")


@pytest.mark.slow
def test_workers_log_each_line_once(tmp_path, user):
    # W&B refuses this mode
    more = ("tracker=wandb", "-m", "seed=0", "hydra/launcher=local")
    done = rigor_train(*OWN, *more, cwd=tmp_path, env=user | {"WANDB_MODE": "nonsense"})
    assert (done.code, done.err) == (0, "")
    (log,) = (tmp_path / "out").glob("*-v0-*/train.log")
    assert log.read_text().count("the sensor is cold") == 1
    assert log.read_text().count("W&B: not mirrored") == 1


@pytest.mark.slow
def test_a_users_own_loggers_work_after_a_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "INFO:mine:before\nINFO:mine:after\n")
