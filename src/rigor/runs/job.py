"""A job: the composed config of one run, its hash and its directory."""

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rigor.config import hints
from rigor.config.config import Config, build, build_stored
from rigor.config.groups import target_of
from rigor.config.own_code import own_code, refuse_changed_code
from rigor.config.schemas import Learner, NoTraining, TrainParallel
from rigor.config.validate import validate
from rigor.errors import UserError
from rigor.runs.directory import RunDirectory
from rigor.runs.disk import atomic_write
from rigor.runs.identity import config_hash, directory_name, shown_names

NAMED = ("env", "agent", "discount", "risk", "variant")
"""The groups whose options form a directory's name, in this order."""


@dataclass
class Job:
    """A composed and checked run.

    plain: the resolved config as plain containers, with the run's name, the option of each group
      of `NAMED` as `choices`, and the digests of the user's own code as `code`, if there is any.
    digest: its hash. path: the run directory.
    """

    plain: dict[str, Any]
    digest: str
    path: Path

    @property
    def choices(self) -> dict[str, str]:
        """The option of each group of `NAMED`, as the user typed it."""
        return dict(self.plain.get("choices") or {})

    @property
    def names(self) -> dict[str, str]:
        """The name of each choice for people; see `shown_names`."""
        return shown_names(self.choices, self.plain)

    @functools.cached_property
    def config(self) -> Config:
        """The working objects, built on first use: most jobs of a sweep run in another process.

        Raises:
          UserError: a value out of range.
        """
        return build_stored(self.plain, self.path / "config.yaml")

    @property
    def steps(self) -> int:
        """Agent steps at the end of the run; 0 of an exact agent, whatever a sweep sets."""
        train = self.plain["train"]
        return 0 if train.get("_target_") == target_of(NoTraining) else int(train["steps"])

    @property
    def learner(self) -> str:
        """`parallel` or `replay`; `replay` of an exact agent too, which takes no steps."""
        parallel = self.plain["train"].get("_target_") == target_of(TrainParallel)
        return "parallel" if parallel else "replay"

    @property
    def label(self) -> str:
        """The label of a progress bar, such as `breakout s0`."""
        return f"{self.names.get('env', 'run')} s{self.plain['seed']}"


def job(
    composed: DictConfig, choices: dict[str, Any], working: dict[str, Any] | None = None
) -> Job:
    """Resolve, build and check one composed configuration.

    Args:
      composed: the root, with or without its `hydra` node.
      choices: Hydra's record of the option of each group.
      working: objects that other jobs have built and that this job may share, see `build`.

    Raises:
      UserError: a value is missing or out of range, or options do not fit each other.
    """
    keys = [field.name for field in dataclasses.fields(Config)]
    # Hydra accepts `+foo=1`, but no code reads it
    for key in sorted(set(map(str, composed)) - {*keys, "hydra"}):
        raise UserError(hints.no_such_key(key))
    for key in sorted({*keys} - set(map(str, composed))):
        raise UserError(f"{key}: a run needs it; leave ~{key} out")
    own = OmegaConf.masked_copy(composed, keys)
    try:
        plain = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(explain(error)) from error
    assert isinstance(plain, dict)
    named_values = {str(key): value for key, value in plain.items()}
    named = {group: str(choices[group]) for group in NAMED if choices.get(group)}
    own_choices = {group: str(option) for group, option in choices.items() if option}
    config = build(own, own_choices, named_values, working)
    validate(config)
    if code := own_code(named_values):
        named_values["code"] = code
    digest = config_hash(named_values)
    name = directory_name(shown_names(named, named_values), config.seed, digest)
    # the name comes first in config.yaml, where it is found without parsing the file
    named_values = {"name": name, **named_values, "choices": named}
    return Job(named_values, digest, Path(config.out).expanduser() / name)


def with_seed(job: Job, seed: int) -> Job:
    """Return the same job with another seed, in its own directory."""
    plain = job.plain | {"seed": seed}
    digest = config_hash(plain)
    name = directory_name(job.names, seed, digest)
    return Job(plain | {"name": name}, digest, job.path.with_name(name))


def enqueue(job: Job, sweep: str) -> None:
    """Write the directory that a worker needs to run a job, with the status `queued`.

    Raises:
      UserError: the directory holds a run of another config or a live process, or is not writable.
    """
    with RunDirectory.open(job.path, job.plain | {"sweep": sweep}, job.digest) as run:
        atomic_write(run.path / "job.json", json.dumps({"cwd": os.getcwd()}, indent=1) + "\n")
        run.write_status("queued", steps_total=job.steps)


def cwd_of(path: Path) -> Path:
    """Return the working directory of the command that queued the run in `path`.

    Raises:
      UserError: no sweep has queued a run there.
    """
    try:
        return Path(json.loads((path / "job.json").read_bytes())["cwd"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: no sweep has queued a run there; start it with rigor-train"
        ) from error


def stored_job(path: Path) -> Job:
    """Return the job whose config is in a run directory.

    Raises:
      UserError: the config cannot be read or cannot work on this machine, or the user's own code
        has changed since it was written.
    """
    plain = RunDirectory(path).config()
    job = Job(plain, config_hash(plain), path)
    validate(job.config)
    refuse_changed_code(path, plain)
    return job


def wandb_names(plain: Mapping[str, Any], sweep: str | None) -> dict[str, Any]:
    """Return the names of a run in W&B; without a sweep, runs that differ only in seed are a group.

    `choices` holds the option of each group for W&B's config; the config itself holds their values
    only.

    Args:
      plain: of the job.
    """
    names = shown_names(plain.get("choices") or {}, plain)
    problem = names.get("env", "run")
    shown = [problem, names.get("variant", ""), f"s{plain['seed']}"]
    learns = plain["agent"]["_target_"].endswith(f".{Learner.__name__}")
    return {
        "group": sweep or "-".join(names.values()),
        "name": " · ".join(part for part in shown if part),
        "tags": list(names.values()),
        "job_type": "train" if learns else "solve",
        "problem": problem,
        "choices": names,
    }


def explain(error: OmegaConfBaseException) -> str:
    """Return one line for an error of OmegaConf: the key, and why its value is refused."""
    message = str(error).strip().splitlines()[0]
    key = getattr(error, "full_key", None)
    kind, found, own = message.partition(" raised while resolving interpolation: ")
    if kind == "KeyError" and found:  # of oc.env, whose message names the variable only
        variable = own.strip("\"'")
        return f"{key}: {variable}"
    if found:
        return own  # the message of our own resolver, which names the key
    if message.startswith("Missing mandatory value"):
        return f"{key}: has no value yet; add {key}=VALUE"
    return f"{key}: {message}" if key else message
