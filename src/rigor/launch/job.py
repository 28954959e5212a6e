"""One job: what was composed, its hash, and the directory that belongs to it."""

import dataclasses
import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rigor.checks import validate
from rigor.config import Config, build
from rigor.errors import UserError
from rigor.launch import hints
from rigor.tracking.disk import atomic_write
from rigor.tracking.rundir import RunDirectory, config_hash, directory_name

NAMED = ("env", "agent", "discount", "risk", "variant")
"""The groups whose choice stands in a directory's name, in this order."""


@dataclass
class Job:
    """A composed and checked run.

    plain: the resolved config as plain containers. digest: its hash.
    path: the run directory. choices: the option of each group that stands in its name.
    """

    plain: dict[str, Any]
    digest: str
    path: Path
    choices: dict[str, str]

    @functools.cached_property
    def config(self) -> Config:
        """The working objects; built when first asked for, as most jobs of a sweep run elsewhere.

        Raises:
          UserError: a value out of range.
        """
        return build(OmegaConf.create(self.plain))

    @property
    def steps(self) -> int:
        """Agent steps at the end of the run."""
        return int(self.plain["train"]["steps"])

    @property
    def label(self) -> str:
        """What a progress bar calls it, such as `breakout s0`."""
        return f"{_short(self.choices.get('env', 'run'))} s{self.plain['seed']}"


def job(
    composed: DictConfig, choices: dict[str, Any], working: dict[str, Any] | None = None
) -> Job:
    """Resolve, build and check one composed configuration.

    Args:
      composed: the root, with or without its `hydra` node.
      choices: Hydra's record of what was chosen in each group.
      working: objects that other jobs have built and that this one may share, see `build`.

    Raises:
      UserError: a value is missing or out of range, or choices do not go together.
    """
    keys = [field.name for field in dataclasses.fields(Config)]
    # `+foo=1` gets past Hydra; nobody would read it
    for key in sorted(set(map(str, composed)) - {*keys, "hydra"}):
        raise UserError(hints.no_such_key(key))
    own = OmegaConf.masked_copy(composed, keys)
    try:
        plain = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(explain(error)) from error
    assert isinstance(plain, dict)
    named_values = {str(key): value for key, value in plain.items()}
    config = build(own, named_values, working)
    validate(config)
    digest = config_hash(named_values)
    named = {group: str(choices[group]) for group in NAMED if choices.get(group)}
    path = Path(config.out).expanduser() / directory_name(named, config.seed, digest)
    return Job(named_values, digest, path, named)


def leave(one: Job, sweep: str) -> None:
    """Make a job's directory so that a worker can run it, and say that it is queued.

    Raises:
      UserError: another config's run or a live process is there, or the place is not writable.
    """
    with RunDirectory.open(one.path, one.plain | {"sweep": sweep}, one.digest) as run:
        beside = {"choices": one.choices, "cwd": os.getcwd()}
        atomic_write(run.path / "job.json", json.dumps(beside, indent=1) + "\n")
        run.write_status("queued", steps_total=one.steps)


def cwd_of(path: Path) -> Path:
    """Return where the command was typed that queued the run in a directory.

    Raises:
      UserError: no sweep has queued it.
    """
    return Path(_beside(path)["cwd"])


def taken_up(path: Path) -> tuple[Job, str | None]:
    """Return the job that `leave` left in a directory, and its sweep; nothing is composed.

    Raises:
      UserError: no sweep has queued it, or its config cannot work here.
    """
    choices = {str(group): str(option) for group, option in _beside(path)["choices"].items()}
    plain = RunDirectory(path).config()
    one = Job(plain, config_hash(plain), path, choices)
    validate(one.config)
    return one, one.config.sweep


def _beside(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / "job.json").read_bytes())
        return {"choices": dict(found["choices"]), "cwd": str(found["cwd"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: no sweep has queued a run there; start it with rigor-train"
        ) from error


def tracked_as(one: Job, sweep: str | None) -> dict[str, Any]:
    """Return how a run is called in W&B; without a sweep, runs that differ in the seed are a group.

    `choices` are the names of what was chosen in each group, for W&B's config: the config itself
    has their values only.
    """
    choices = {group: _short(value) for group, value in one.choices.items()}
    problem = choices.get("env", "run")
    shown = [problem, choices.get("variant", ""), f"s{one.plain['seed']}"]
    return {
        "group": sweep or "-".join(choices.values()),
        "name": " · ".join(part for part in shown if part),
        "tags": list(choices.values()),
        "job_type": "train" if one.config.learns else "solve",
        "problem": problem,
        "choices": choices,
    }


def explain(error: OmegaConfBaseException) -> str:
    """Return one line for an error of OmegaConf: the key, and what is wrong with its value."""
    message = str(error).strip().splitlines()[0]
    key = getattr(error, "full_key", None)
    _, found, own = message.partition(" raised while resolving interpolation: ")
    if found:
        return own  # a resolver of ours refused, and says which key it is about
    if message.startswith("Missing mandatory value"):
        return f"{key}: has no value yet; add {key}=VALUE"
    return f"{key}: {message}" if key else message


def _short(choice: str) -> str:
    """Return `breakout` for `atari/breakout`."""
    return choice.rpartition("/")[2]
