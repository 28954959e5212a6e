"""Every example of the page on wrapping environments trains."""

import shlex
from pathlib import Path

import pytest
from command_line import composed
from scripted import session
from test_documented_commands import commands_of

from rigor.runs.job import job

PAGE = (Path(__file__).parents[2] / "docs" / "wrap_environment.md").read_text()
EXAMPLES = [command for command in commands_of(PAGE) if command.startswith("rigor-train")]
SMALL = (
    "tracker=none",
    "device=cpu",
    "agent.quantiles=3",
    "env.num_envs=1",
    "env.max_steps=12",
    "train.steps=24",
    "train.schedule_steps=240",
    "train.batch_size=4",
    "train.update_every=4",
    "train.learning_starts=0.02",
    "train.replay_capacity=200",
    "evaluate.every=1",
    "evaluate.episodes=1",
    "outer.points=5",
    "outer.batch=2",
)


def test_the_page_has_an_example_of_every_kind():
    kinds = (
        "Taxi Blackjack FrozenLake CliffWalking MiniGrid minatar/ ALE/ Warehouse my_wrappers.Planes"
    )
    assert all(any(kind in example for example in EXAMPLES) for kind in kinds.split())


@pytest.mark.slow  # 11 trainings of a second each
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_trains(example, tmp_path, monkeypatch):
    (tmp_path / "my_wrappers.py").write_text(PAGE.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    overrides = [word for word in shlex.split(example)[1:] if not word.startswith("env.max_steps=")]
    if "network=nature_cnn" in overrides:
        overrides.append("network.hidden=8")  # 12 million parameters would be saved otherwise
    root = composed(*overrides, *SMALL, f"out={tmp_path}")
    end = session(job(root, root.hydra.runtime.choices))
    assert end.state.updates > 0
    assert end.state.episodes > 0
