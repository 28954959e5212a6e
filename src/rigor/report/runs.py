"""The runs of a report: which directories they are, and what each of them left behind."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.errors import UserError
from rigor.tracking.identity import settings
from rigor.tracking.metrics import read
from rigor.tracking.rundir import RunDirectory

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("env", "agent", "discount", "risk", "variant")
"""The config groups whose choice stands in a directory's name, in this order."""

_NAME = re.compile(r"(?P<choices>.*)-s(?P<seed>\d+)-[0-9a-f]{8}$")
_GAME_KEYS = ("env.game", "env.id", "env.builtin", "env.path")
_CURVE = ("steps", "eval_score", "eval_objective")


@dataclass
class Run:
    """What a report needs of one run.

    path: its directory, which a run of a manifest may lack. choices: the option of each group of
    `NAMED`. seed: None where neither name nor config says it. settings: the config by dotted key,
    {} before it is written. state: as in `tables.collect_rows`. problem: why it failed, or what of
    it could not be read, one line. step, steps_total: agent steps. result: the final numbers that
    are finite, {} before the end. made_by: commit, device and versions, as text, {} before the end.
    curve: the evaluations, `steps` and `eval_score` at least. seconds: wall-clock.
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
    seconds: float | None

    @property
    def is_scored(self) -> bool:
        """Whether the run is done and has a final score."""
        return self.state == "done" and "return_mean" in self.result


def find(directories: Sequence[Path]) -> list[Path]:
    """Return the run directories that the arguments of the command mean, each once.

    A directory is a sweep's (it has a manifest, which also names runs that have no directory), a
    run's, or one that holds runs.

    Raises:
      UserError: a directory is missing, or holds none of these.
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
    return list(found)


def load(path: Path) -> Run:
    """Read one run; what is broken or not there yet is said in `problem` and left out."""
    import pandas as pd

    run = RunDirectory(path)
    status, result = run.status() or {}, run.result() or {}
    problems = [str(status["error"])] if status.get("error") else []
    config: dict[str, Any] = {}
    metrics = pd.DataFrame()
    if run.config_path.exists():
        try:
            config = settings(run.config())
        except UserError as error:
            problems.append(str(error))
    try:
        metrics = read(run.metrics_path)
    except UserError as error:
        problems.append(str(error))
    state = run.state()
    if state == "done" and not result:
        problems.append("done, but result.json is missing or broken")
    if state == "lost" and not problems:
        problems.append("has no directory" if not path.is_dir() else "says running, but nobody is")
    choices, seed = _named(path.name, config)
    numbers, counts = _numbers(result), _numbers(status)
    return Run(
        path=path,
        choices=choices,
        seed=seed,
        settings=config,
        state=state,
        problem=_first_line(problems),
        step=int(max(counts.get("step", 0), _last(metrics, "steps", int) or 0)),
        steps_total=int(counts["steps_total"]) if "steps_total" in counts else None,
        result=numbers,
        made_by=_made_by(result) if result else {},
        curve=_curve(metrics),
        seconds=numbers.get("seconds", _last(metrics, "seconds", float)),
    )


def _manifest(directory: Path) -> list[Path]:
    path = directory / "manifest.json"
    try:
        runs = json.loads(path.read_bytes())["runs"]
        return [(directory / str(run)).resolve() for run in runs]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not the manifest of a sweep ({error!r})") from error


def _is_run(path: Path) -> bool:
    return (path / "config.yaml").is_file() or (path / "status.json").is_file()


def _named(name: str, config: dict[str, Any]) -> tuple[dict[str, str], int | None]:
    """Read choices and seed from a directory's name, or else from the config."""
    match = _NAME.match(name)
    parts = match["choices"].split("-") if match else []
    seed = int(match["seed"]) if match else config.get("seed")
    if len(parts) == len(NAMED):
        return dict(zip(NAMED, parts, strict=True)), seed
    choices = {group: _class(config.get(f"{group}._target_")) for group in NAMED}
    game = next((config[key] for key in _GAME_KEYS if config.get(key)), None)
    return choices | {"env": str(game or choices["env"] or name)}, seed


def _numbers(result: dict[str, Any]) -> dict[str, float]:
    numbers = {key: value for key, value in result.items() if type(value) in (int, float)}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}


def _made_by(result: dict[str, Any]) -> dict[str, str]:
    versions = result.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    told = [f"{k} {v}" for k, v in versions.items() if v and k != "platform"]
    commit, plus, dirty = str(result.get("commit") or "not known").partition("+")
    return {
        "commit": commit[:12] + plus + dirty,
        "device": str(result.get("device") or "not known"),
        "versions": ", ".join(told),
    }


def _class(target: Any) -> str:
    return str(target or "").rpartition(".")[2]


def _curve(metrics: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    if not {"steps", "eval_score"} <= set(metrics.columns):
        return pd.DataFrame({"steps": [], "eval_score": []})
    columns = [name for name in _CURVE if name in metrics.columns]
    return metrics.loc[metrics["eval_score"].notna(), columns].reset_index(drop=True)


def _last(metrics: "pd.DataFrame", column: str, kind: type) -> Any:
    if column not in metrics.columns or not len(metrics):
        return None
    values = metrics[column].dropna()
    return kind(values.iloc[-1]) if len(values) else None


def _first_line(problems: list[str]) -> str:
    lines = [line.strip() for problem in problems for line in problem.splitlines()[:1]]
    return "; ".join(line for line in lines if line)
