"""Compare metrics.csv of eight short runs of two checkouts, bit for bit except the clock columns.

    python benchmarks/same_metrics.py OLD_CHECKOUT NEW_CHECKOUT

Each checkout needs its own `.venv` (`make setup`). NAMES maps choices, keys and columns of the new
checkout to their older names. `initial_stock` is not compared on rows with an evaluation: versions
before November 2026 wrote the stock from before the search that precedes the evaluation.
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

SHORT = ["tracker=none", "device=cpu", "evaluate.episodes=3", "evaluate.final_episodes=3"]
CARTPOLE = ["env=cartpole", "train.steps=6000", *SHORT]
BREAKOUT = [
    "env=atari/breakout",
    "learner=replay",
    "train.steps=2000",
    "env.max_frames=4000",
    *SHORT,
]
WEALTH = ["env=gbwm", "train.steps=200_000", *SHORT]
PUT = ["env=american_put", "train.steps=200_000", *SHORT]
RUNS = {
    "cartpole, mean": [*CARTPOLE, "agent=multihorizon", "discount=hyperbolic"],
    "cartpole, cvar": [*CARTPOLE, "agent=singlehorizon", "risk=cvar", "discount=hyperbolic"],
    "breakout, mean": [*BREAKOUT, "agent=multihorizon"],
    "breakout, cvar": [*BREAKOUT, "agent=singlehorizon", "risk=cvar", "env.life_loss=ignore"],
    "gbwm, cvar": [*WEALTH, "agent=expected_utility", "risk=cvar", "discount=hyperbolic"],
    "gbwm, mean_cvar": [*WEALTH, "agent=singlehorizon", "risk=mean_cvar", "discount=hyperbolic"],
    "put, mean_variance": [*PUT, "agent=expected_utility", "risk=mean_variance", "risk.kappa=.01"],
    "put, cvar": [*PUT, "agent=singlehorizon", "risk=cvar", "discount=hyperbolic"],
}
NAMES = {"agent=expected_utility": "agent=utility"}
CLOCK = {"seconds", "steps_per_second"}


def rows(checkout: Path, overrides: list[str], out: str) -> list[dict[str, str]]:
    """Train in a checkout and return the rows of metrics.csv."""
    command = [str(checkout / ".venv/bin/rigor-train"), *overrides, f"out={out}"]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    (path,) = Path(out).glob("*/metrics.csv")
    return list(csv.DictReader(path.open()))


def differences(old: list[dict[str, str]], new: list[dict[str, str]]) -> list[str]:
    """Name every cell that differs."""
    if len(old) != len(new):
        return [f"{len(old)} rows and {len(new)}"]
    found = []
    for before, after in zip(old, new, strict=True):
        columns = {NAMES.get(key, key): key for key in after if key not in CLOCK}
        if after.get("eval_score"):
            columns.pop("initial_stock", None)
        found += [
            f"{key} at step {after['steps']}: {before.get(was)} and {after[key]}"
            for was, key in columns.items()
            if before.get(was) != after[key]
        ]
    return found


def main() -> None:
    """Compare, and exit with 1 where anything differs."""
    old, new = (Path(one).resolve() for one in sys.argv[1:3])
    code = 0
    for name, overrides in RUNS.items():
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            before = rows(old, [NAMES.get(one, one) for one in overrides], a)
            after = rows(new, overrides, b)
        found = differences(before, after)
        cells = sum(len([v for v in row.values() if v]) for row in after)
        print(
            f"{name:20} {len(after):4} rows, {cells:5} cells: {found[0] if found else 'the same'}"
        )
        code = max(code, bool(found))
    sys.exit(code)


if __name__ == "__main__":
    main()
