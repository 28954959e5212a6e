"""The runs of a report: their directories, and a record of the files of each run."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.errors import UserError
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash, settings, shown_names
from rigor.runs.metrics import read
from rigor.runs.plain_text import plain

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("env", "agent", "discount", "risk", "variant")
"""The config groups whose choice is part of a directory's name, in this order."""

EXACT_AGENTS = ("backward_induction", "infinite_horizon")
"""The options of `agent=` that compute a policy from a model."""

_NAME = re.compile(r"(?P<choices>.*)-s(?P<seed>\d+)-[0-9a-f]{8}$")
_GAME_KEYS = ("env.game", "env.id", "env.builtin", "env.path")
_CURVE = ("steps", "frames", "seconds", "eval_score", "eval_objective")
_TRAINING = ("frames", "episodes", "train_score")


@dataclass
class RunRecord:
    """The facts of one run that a report needs.

    path: its directory, which may not exist for a run that a manifest names. choices: the option
    of each group of `NAMED`. seed: None if neither the name nor the config has it. settings: the
    config by dotted key, empty until the run has written it. state: that of `RunDirectory.state`.
    problem: why the run failed, or which file could not be read, one line. step, steps_total: agent
    steps. result: the finite numbers of `result.json`, empty before the end. made_by: commit,
    device and versions as text, empty before the end. curve: the evaluations, at least `steps` and
    `eval_score`. training: `frames`, `episodes` and `train_score` of the rows in which training
    episodes ended; empty for runs that have no frames. seconds: wall-clock.
    """

    path: Path
    choices: dict[str, str]
    seed: int | None
    settings: dict[str, Any]
    state: str
    problem: str
    step: int
    steps_total: int | None
    result: dict[str, float]
    made_by: dict[str, str]
    curve: "pd.DataFrame"
    training: "pd.DataFrame"
    seconds: float | None

    @property
    def is_exact(self) -> bool:
        """Whether the agent computed its policy from a model and learned nothing."""
        return self.choices["agent"] in EXACT_AGENTS

    @property
    def is_scored(self) -> bool:
        """Whether the run is done and has a final score."""
        return self.state == "done" and "score" in self.result


def with_parameters(run: RunRecord, group: str) -> str:
    """Return a choice with its parameters, such as `exponential gamma=0.99`."""
    numbers = [
        f"{key.rpartition('.')[2]}={value}"
        for key, value in run.settings.items()
        if key.startswith(f"{group}.") and isinstance(value, int | float)
    ]
    return " ".join([run.choices[group], *numbers])


def is_put(run: RunRecord) -> bool:
    """Tell whether a run has `env=american_put`."""
    return run.choices["env"] == "american_put"


def is_wealth(run: RunRecord) -> bool:
    """Tell whether a run has `env=gbwm`."""
    return run.choices["env"] == "gbwm"


def is_lander(run: RunRecord) -> bool:
    """Tell whether a run's environment is a lunar lander, by its name."""
    return "lander" in run.choices["env"].replace("_", "").lower()


def is_atari(run: RunRecord) -> bool:
    """Tell whether a run has `env=atari/GAME`."""
    return "env.protocol" in run.settings


def is_minatar(run: RunRecord) -> bool:
    """Tell whether a run has `env=minatar/GAME`."""
    return str(run.settings.get("env._target_", "")) == "rigor.envs.minatar.MinAtar"


def find(directories: Sequence[Path]) -> list[Path]:
    """Return the run directories that the arguments of a command name, each once.

    An argument is a sweep's directory (its manifest may also name runs that have no directory), a
    run's directory, or a directory of runs.

    Raises:
      UserError: a directory is missing or is none of these, a manifest cannot be read, or one run
        is in two places, where it would count twice.
    """
    found: dict[Path, None] = {}
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"{directory}: no such directory")
        if (directory / "manifest.json").is_file():
            found |= dict.fromkeys(_manifest(directory))
        elif _is_run(directory):
            found[directory.resolve()] = None
        else:
            runs = sorted(path.resolve() for path in directory.iterdir() if _is_run(path))
            if not runs:
                raise UserError(
                    f"{directory}: neither a sweep's directory nor a run's, and it holds no runs; "
                    "give the directory of out=DIR, or one of its sweeps/NAME"
                )
            found |= dict.fromkeys(runs)
    places: dict[str, Path] = {}
    for path in filter(lambda path: _NAME.match(path.name), found):  # which holds a digest
        if (other := places.setdefault(path.name, path)) != path:
            raise UserError(f"{path}: the same run as {other}; give one of the two")
    return list(found)


def load(path: Path) -> RunRecord:
    """Read one run; a broken file, or a missing result, is reported in `problem` and left out."""
    import pandas as pd

    run = RunDirectory(path)
    status, result = run.status() or {}, run.result() or {}
    problems = [str(status["error"])] if status.get("error") else []
    whole: dict[str, Any] = {}
    metrics = pd.DataFrame()
    if run.config_path.exists():
        try:
            whole = run.config()
        except UserError as error:
            problems.append(str(error))
    made = result.get("config_hash")
    if whole and made and made != config_hash(whole):
        problems.append("config.yaml is another one than that of result.json; put it back")
    try:
        metrics = read(run.metrics_path)
    except UserError as error:
        problems.append(str(error))
    state = run.state()
    if unreadable := run.problem():
        problems.append(unreadable)
    if state == "done" and result and "score" not in result and "objective_exact" not in result:
        problems.append("the run is of an older version of rigor, whose results are not read")
    if state == "lost" and not problems:
        lost = "no process runs it, and its status is not final"
        problems.append(lost if path.is_dir() else "its directory is missing")
    config = {key: _plain(value) for key, value in settings(whole).items()}
    choices, seed = _named(plain(path.name), whole, config)
    numbers, counts = _numbers(result), _numbers(status)
    return RunRecord(
        path=path,
        choices=choices,
        seed=seed,
        settings=config,
        state=state,
        problem=_first_lines(problems),
        step=int(max(counts.get("step", 0), _last(metrics, "steps", int) or 0)),
        steps_total=int(counts["steps_total"]) if "steps_total" in counts else None,
        result=numbers,
        made_by=_made_by(result) if result else {},
        curve=_curve(metrics),
        training=_training(metrics),
        seconds=numbers.get("seconds", _last(metrics, "seconds", float)),
    )


def option_of(target: object) -> str:
    """Return the option name of a `_target_`: `Hyperbolic` is `hyperbolic`."""
    name = str(target or "").rpartition(".")[2]
    if name == "Wealth":  # the class of env=gbwm
        return "gbwm"
    # no underscore before the last letter: CVaR is cvar
    return re.sub(r"(?<=[a-z])(?=[A-Z](?!$))", "_", name).lower()


def _manifest(directory: Path) -> list[Path]:
    path = directory / "manifest.json"
    try:
        runs = json.loads(path.read_bytes())["runs"]
        return [(directory / str(run)).resolve() for run in runs]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not the manifest of a sweep ({error!r})") from error


def _is_run(path: Path) -> bool:
    return (path / "config.yaml").is_file() or (path / "status.json").is_file()


def _named(
    name: str, whole: dict[str, Any], config: dict[str, Any]
) -> tuple[dict[str, str], int | None]:
    """Return choices and seed by the config, else by a directory's name.

    Args:
      name: of the directory. whole: the config. config: its settings by dotted key.
    """
    seed = config["seed"] if type(config.get("seed")) is int else None
    recorded = whole.get("choices")
    if isinstance(recorded, dict) and set(recorded) >= set(NAMED):
        options = {group: str(recorded[group]) for group in NAMED}
        return shown_names(options, whole), seed
    match = _NAME.match(name)
    parts = match["choices"].split("-") if match else []
    seed = int(match["seed"]) if match else seed
    if len(parts) == len(NAMED):
        return dict(zip(NAMED, parts, strict=True)), seed
    choices = {group: option_of(config.get(f"{group}._target_")) for group in NAMED}
    game = next((config[key] for key in _GAME_KEYS if config.get(key)), None)
    return choices | {"env": str(game or choices["env"] or name)}, seed


def _numbers(result: dict[str, Any]) -> dict[str, float]:
    numbers = {key: value for key, value in result.items() if type(value) in (int, float)}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def _made_by(result: dict[str, Any]) -> dict[str, str]:
    versions = result.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    commit, plus, dirty = str(result.get("commit") or "not known").partition("+")
    made_by = {
        "commit": commit[:12] + plus + dirty,
        "device": str(result.get("device") or "not known"),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items() if v and k != "platform"),
    }
    return {key: plain(text) for key, text in made_by.items()}


def _curve(metrics: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    if not {"steps", "eval_score"} <= set(metrics.columns):
        return pd.DataFrame({"steps": [], "eval_score": []})
    columns = [name for name in _CURVE if name in metrics.columns]
    return metrics.loc[metrics["eval_score"].notna(), columns].reset_index(drop=True)


def _training(metrics: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    if not set(_TRAINING) <= set(metrics.columns):
        return pd.DataFrame({name: [] for name in _TRAINING})
    rows = metrics["train_score"].notna() & metrics["frames"].notna()
    return metrics.loc[rows, list(_TRAINING)].reset_index(drop=True)


def _last(metrics: "pd.DataFrame", column: str, kind: type) -> Any:
    if column not in metrics.columns or not len(metrics):
        return None
    values = metrics[column].dropna()
    return kind(values.iloc[-1]) if len(values) else None


def _first_lines(problems: list[str]) -> str:
    lines = [plain(line).strip() for text in problems for line in text.splitlines()[:1]]
    return "; ".join(line for line in lines if line)
