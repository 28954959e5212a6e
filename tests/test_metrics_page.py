"""`docs/metrics.md` lists exactly the columns and keys that runs write."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TINY, environment, rigor_train

from rigor.exact import run as exact
from rigor.learning import milestones

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
COLUMNS, *KEYS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]

SHORT = "train.steps=200 train.batch_size=16 agent.quantiles=5 tracker=none"
SHORT += " evaluate.every=1 evaluate.episodes=1 evaluate.final_episodes=1"
EXACT = "agent=backward_induction tracker=none"
ENDLESS = "env=tabular env.horizon=inf discount=exponential discount.gamma=.8"
STATIONARY = f"{ENDLESS} agent=infinite_horizon tracker=none"
RUNS = {
    "cartpole": " ".join([*TINY, "tracker=wandb", "tracker.mode=offline", "risk=cvar"]),
    "atari": f"env=atari/pong agent=multihorizon {SHORT} env.max_frames=400 env.num_envs=2",
    "learned": f"env=gbwm env.periods=4 {SHORT}",
    "endless": f"{ENDLESS} {SHORT}",
    "wealth": f"env=gbwm env.periods=4 risk=cvar exact.grid=true outer.points=11 {EXACT}",
    "put": f"env=american_put env.steps=8 {EXACT}",
    "algorithm 1": f"{STATIONARY} risk=entropic",
    "stationary": f"{STATIONARY} variant=time_inconsistent",
}


def documented(*sections: str) -> list[str]:
    """Return the names in the first column of the tables of these sections."""
    rows = re.findall(r"^\| (`.*?) \|", "\n".join(sections), flags=re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w/]+)`", row)]


def test_the_page_lists_the_columns_of_the_code_in_order():
    assert documented(COLUMNS) == milestones.COLUMNS
    assert set(exact.COLUMNS) <= set(milestones.COLUMNS)


@pytest.mark.parametrize("sections", [[COLUMNS], KEYS])
def test_no_name_is_listed_twice(sections):
    names = documented(*sections)
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_runs_write_exactly_the_documented_columns_and_keys(tmp_path):
    columns, keys = set(), set()
    for name, command in RUNS.items():
        out = tmp_path / name
        done = rigor_train(*command.split(), f"out={out}", cwd=tmp_path, env=environment())
        assert done.code == 0, (name, done)
        (run,) = out.glob("*-*/metrics.csv")
        columns |= set(next(csv.reader(run.open())))
        keys |= json.loads((run.parent / "result.json").read_text()).keys()
    assert columns == set(documented(COLUMNS))
    assert keys == set(documented(*KEYS))
    shown = wandb_names(next((tmp_path / "cartpole").glob("*/wandb/offline-run-*")))
    assert shown - columns - keys == {"score/cartpole"}  # the page's score/PROBLEM
    assert "`score/PROBLEM`" in PAGE


def wandb_names(run: Path) -> set[str]:
    """Return the names in the W&B summary of an offline run, without W&B's own, such as `_step`."""
    command = [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--summary", "--json"]
    done = subprocess.run([*command, run], capture_output=True, text=True, check=True)
    names = {name for name in json.loads(done.stdout)["summary"] if not name.startswith("_")}
    assert {"eval_score", "loss", "objective"} <= names
    return names
