"""What the paper's whole Atari grid costs, computed from measured numbers.

    python benchmarks/grid.py [--measure] [--bench FILE] [--gpu FILE] [--learners FILE]

50 games × 3 agents × 3 seeds × 10 million agent steps, one update for every four, 4 × 10 × 50
outputs. `--measure` plays every game again and rewrites emulator.csv (five minutes). The files are
those that bench.py, gpu.sh and learners.py write; docs/results has the ones of its pages.
"""

import argparse
import csv
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

RUNS_OF_A_GAME = 3 * 3
STEPS = 10_000_000
CASE = "4x10x50"
LEFT_OUT = (  # of the 57; the first five are named in the paper
    "skiing",
    "solaris",
    "montezuma_revenge",
    "pitfall",
    "private_eye",
    "defender",
    "surround",
)
EMULATOR = HERE / "emulator.csv"


def measure() -> None:
    """Play each game at random for a CPU second; write agent steps per CPU second."""
    import numpy as np
    from pieces import compose
    from timing import machine

    from rigor.envs.atari import GAMES

    where = machine()
    rows = []
    for game in GAMES:
        games = compose(f"env.game={game}").config.env.make(8, evaluation=False)
        rng = np.random.default_rng(0)
        games.reset(np.random.SeedSequence(0))
        for _ in range(20):
            games.step(rng.integers(0, games.n_actions, 8))
        steps, began = 0, time.process_time()
        while (took := time.process_time() - began) < 1.0:
            games.step(rng.integers(0, games.n_actions, 8))
            steps += 8
        rows.append((game, round(steps / took), where["cpu"], where["date"]))
        games.close()
    with open(EMULATOR, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("game", "agent_steps_per_cpu_second", "cpu", "date"))
        writer.writerows(rows)


def cost(
    emulator: dict[str, float],
    learner_ms: float,
    gpu_steps_per_second: float | None = None,
    cores: int = 0,
) -> dict[str, dict[str, float]]:
    """Return core-hours and, where measured, GPU-hours of each game of the grid.

    Args:
      emulator: agent steps per CPU second of each game.
      learner_ms: CPU milliseconds per agent step of all but the emulator.
      gpu_steps_per_second: of one GPU with packed runs; None where it was not measured.
      cores: beside the GPU, which the emulators share.
    """
    steps = RUNS_OF_A_GAME * STEPS
    hours = {}
    for game, speed in emulator.items():
        if game in LEFT_OUT:
            continue
        hours[game] = {
            "core_hours": steps * (learner_ms / 1e3 + 1.0 / speed) / 3600,
            "emulator_core_hours": steps / speed / 3600,
        }
        if gpu_steps_per_second is not None:
            # the slower of the two works all the time
            hours[game]["gpu_hours"] = steps / min(gpu_steps_per_second, cores * speed) / 3600
    return hours


def emulator_rows() -> list[dict[str, str]]:
    """Return what `measure` wrote, a row for each game."""
    with open(EMULATOR, newline="") as file:
        return list(csv.DictReader(file))


def speeds(rows: list[dict[str, str]]) -> dict[str, float]:
    """Return agent steps per CPU second of each game's emulator."""
    return {row["game"]: float(row["agent_steps_per_cpu_second"]) for row in rows}


def estimate(bench: dict[str, Any], gpu: dict[str, Any] | None) -> list[str]:
    """Return the lines that tell what the grid costs."""
    from timing import median

    rows = emulator_rows()
    emulator = speeds(rows)
    sections = bench["cpu_ms"]["default"]
    learner = median(sections[f"training {CASE}"]["rigor"])
    learner -= median(sections["environment"]["emulator, 8 steps"]) / 8
    same = {"case": CASE, "learner": "replay", "precision": "fp32"}  # as on the CPU
    rows_of_case = [row for row in (gpu or {}).get("rows", []) if same.items() <= row.items()]
    best = max((sum(row["steps_per_second"]) for row in rows_of_case), default=None)
    hours = cost(emulator, learner, best, gpu["machine"]["cores"] if gpu else 0)
    total = {key: sum(one[key] for one in hours.values()) for key in next(iter(hours.values()))}
    slow = sorted(hours, key=lambda game: emulator[game])
    lines = [
        f"the grid: {len(hours)} games × {RUNS_OF_A_GAME} runs × {STEPS:,} agent steps",
        f"  CPU alone: {total['core_hours']:,.0f} core-hours at {learner:.1f} ms a step and the "
        f"emulator's time, {total['emulator_core_hours']:,.0f} of them emulation",
        f"  emulators, agent steps per CPU second: {slow[0]} {emulator[slow[0]]:,.0f} (slowest) to "
        f"{slow[-1]} {emulator[slow[-1]]:,.0f} ({rows[0]['cpu']}, {rows[0]['date']})",
    ]
    if gpu is None or best is None:
        return [*lines, "  GPU: not measured here; benchmarks/gpu.sh does it"]
    return [
        *lines,
        f"  GPU: {total['gpu_hours']:,.0f} hours of {gpu['machine']['card']} with "
        f"{gpu['machine']['cores']} cores, at {best:,.0f} agent steps/s of Breakout",
    ]


def by_learner(learners: dict[str, Any]) -> list[str]:
    """Return what the grid costs at the speed of each learner on Breakout, a line each."""
    from timing import median

    emulator = speeds(emulator_rows())
    lines = [f"by learner, on {learners['machine']['cpu']}:"]
    for name, samples in learners["cpu_ms"][f"learners {CASE}"].items():
        if "single file" not in name:  # which saves and evaluates nothing
            rest = median(samples) - 1e3 / emulator["breakout"]
            hours = sum(one["core_hours"] for one in cost(emulator, rest).values())
            speed = 1e3 / median(samples)
            lines.append(f"  {name:14} {speed:4.0f} agent steps/s  {hours:7,.0f} core-hours")
    return lines


def main() -> None:
    """Measure if asked, and print the estimate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="play every game again")
    parser.add_argument("--bench", type=Path, default=HERE / "results" / "latest.json")
    parser.add_argument("--gpu", type=Path, default=HERE / "results" / "gpu.json")
    parser.add_argument("--learners", type=Path, default=HERE / "results" / "learners.json")
    asked = parser.parse_args()
    if asked.measure:
        measure()
    gpu = json.loads(asked.gpu.read_text()) if asked.gpu.exists() else None
    if asked.bench.exists():
        print("\n".join(estimate(json.loads(asked.bench.read_text()), gpu)))
    if asked.learners.exists():
        print("\n".join(by_learner(json.loads(asked.learners.read_text()))))
    if not (asked.bench.exists() or asked.learners.exists()):
        parser.error("nothing is measured yet: make bench, or make bench-learners")


if __name__ == "__main__":
    main()
