import copy
import dataclasses
import functools

import hydra
import pytest
import torch
import yaml
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from hydra_plugins.rigor.sweeper import RigorSweeper
from rigor.config import config
from rigor.runs.job import job

torch.set_num_threads(1)

SMALL = [
    "tracker=none",
    "device=cpu",
    "network.hidden=[16]",
    "agent.quantiles=5",
    "train.steps=400",
    "train.batch_size=8",
    "train.update_every=4",
    "train.learning_starts=0.05",
    "train.replay_capacity=150",
    "train.log_every=0.05",
    "train.target_every=20",
    "train.target_smoothing=0.3",
    "evaluate.every=0.25",
    "evaluate.episodes=3",
    "evaluate.final_episodes=3",
    "outer.points=11",
    "outer.every=7",
    "outer.batch=4",
]
"""CartPole for a second: the replay's ring wraps, a row every 20 steps, a checkpoint every 40."""


@functools.cache
def choose(choices):
    """Compose the groups once for all tests: it is most of the time that a test takes."""
    config.register()
    Plugins.instance().register(RigorSweeper)
    with hydra.initialize_config_module("rigor.conf", version_base="1.3"):
        root = hydra.compose("train", list(choices), return_hydra_config=True)
    keys = [field.name for field in dataclasses.fields(config.Config)]
    return OmegaConf.masked_copy(root, keys), root.hydra.runtime.choices


@pytest.fixture
def compose(tmp_path):
    """Return a function from overrides to a job in a directory of this test."""

    def composed(*overrides, small=SMALL):
        given = dict(one.split("=", 1) for one in [*small, f"out={tmp_path}", *overrides])
        values = {
            key: value for key, value in given.items() if "." in key or key in ("out", "seed")
        }
        groups = tuple(f"{key}={value}" for key, value in given.items() if key not in values)
        root, choices = choose(groups)
        root = copy.deepcopy(root)
        for key, value in values.items():
            OmegaConf.update(root, key, yaml.safe_load(value))
        return job(root, choices)

    return composed
