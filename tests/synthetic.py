"""Synthetic run directories for tests and benchmarks."""

import json
from pathlib import Path

import numpy as np

from rigor.report.data.agents import AgentGroup, agents_of
from rigor.report.data.runs import NAMED, load
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash, directory_name

VARIANTS = {
    "time_consistent": {"sees_time": True, "clock_runs": True},
    "time_aware": {"sees_time": True, "clock_runs": False},
    "time_inconsistent": {"sees_time": False, "clock_runs": False},
}
PAPER_WEALTH = {
    "periods": 30,
    "wealth": 100.0,
    "early_cost": 100.0,
    "early_utility": 1000.0,
    "late_cost": 150.0,
    "late_utility": 2000.0,
    "scaling": "covariance",
    "_target_": "rigor.envs.wealth.Wealth",
}
COLUMNS = (
    "steps,frames,episodes,updates,epsilon,loss,train_score,train_length,initial_stock,eval_score,"
    "eval_score_low,eval_score_high,eval_objective,eval_objective_low,eval_objective_high,"
    "eval_length,seconds,steps_per_second"
)


def config_of(game: str, variant: str, seed: int, **settings: object) -> dict:
    """Return the settings of an Atari run that a report reads."""
    config = {
        "env": {"game": game, "protocol": "paper", "_target_": "rigor.envs.atari.Atari"},
        "discount": {"k": 0.05, "_target_": "rigor.maths.discount.Hyperbolic"},
        "horizons": {"quadrature": "lower", "_target_": "rigor.maths.horizons.Multi"},
        "risk": {"_target_": "rigor.maths.utility.Mean"},
        "variant": {**VARIANTS.get(variant, {}), "_target_": "rigor.config.schemas.Variant"},
        "agent": {"quantiles": 50, "_target_": "rigor.config.schemas.Learner"},
        "train": {"steps": 10_000_000, "huber": 0.1, "_target_": "rigor.config.schemas.Train"},
        "evaluate": {"final_episodes": 30, "epsilon": 0.01},
        "seed": seed,
    }
    for key, value in settings.items():
        group, _, name = key.partition("__")
        config[group][name] = value
    return config


def make_run(
    out: Path,
    game: str,
    variant: str,
    seed: int,
    score: float | None = None,
    state: str = "done",
    rows: int = 21,
    error: str | None = None,
    choices: dict | None = None,
    result: dict | None = None,
    config: dict | None = None,
) -> Path:
    """Write one run directory; without a score it has neither a result nor metrics."""
    config = config or config_of(game, variant, seed)
    named = dict(zip(NAMED, (game, "multihorizon", "hyperbolic", "mean", variant), strict=True)) | (
        choices or {}
    )
    digest = config_hash(config)
    path = out / directory_name(named, seed, digest)
    RunDirectory.open(path, config, digest).close()
    RunDirectory(path).write_status(
        state, step=10_000_000 if state == "done" else 0, steps_total=10_000_000, error=error
    )
    if score is not None:
        (path / "metrics.csv").write_text(metrics(score, rows, seed))
        numbers = {"score": score, "objective": score / 9}
        numbers |= {"seconds": 7200.0, "steps_per_second": 1388.9}
        versions = {"python": "3.11.7", "rigor": "0.1.0", "torch": "2.13.0"}
        RunDirectory(path).write_result(
            {**numbers, "commit": "1a2b3c4d" * 5, "versions": versions, **(result or {})}
        )
    return path


def metrics(score: float, rows: int, seed: int) -> str:
    """Return the text of a metrics file with `rows` rows, twenty of them with evaluations."""
    rng = np.random.default_rng(seed)
    lines = [COLUMNS]
    for row in range(1, rows + 1):
        fraction = row / rows
        evaluated = row % max(1, rows // 20) == 0
        value = score * (1 - np.exp(-4 * fraction)) + 0.05 * abs(score) * rng.normal()
        cells = [int(fraction * 1e7), int(fraction * 4e7), row, row, 0.01, 0.0003, value, 900, ""]
        cells += [value, value - 1, value + 1, value / 9, value / 10, value / 8, 900]
        if not evaluated:
            cells[9:] = [""] * 7
        lines.append(",".join(map(str, [*cells, 7200 * fraction, 1388.9])))
    return "\n".join(lines) + "\n"


def make_sweep(out: Path, runs: list[Path], name: str = "grid") -> Path:
    """Write the manifest of a sweep; its run directories need not exist."""
    directory = out / "sweeps" / name
    directory.mkdir(parents=True)
    manifest = {"runs": [f"../../{path.name}" for path in runs], "overrides": [], "hashes": []}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def scored_agents(out: Path, scores: dict) -> list[AgentGroup]:
    """Return agents of finished Atari runs; scores: by (game, variant), the score of each seed."""
    return agents_of(
        [
            load(make_run(out, game, variant, seed, score))
            for (game, variant), by_seed in scores.items()
            for seed, score in enumerate(by_seed)
        ]
    )
