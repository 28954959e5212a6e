"""The table and the figure of docs/results/risk.md, from the runs of `experiment=risk_gate`.

    python benchmarks/risk_gate.py SWEEP docs/results/risk_gate

writes risk_gate.csv and risk_gate.png, and prints the summary. If SWEEP is such a .csv file, the
figure is drawn from it. The normalised regret is the optimum minus the exact objective of
the learned policy, over the optimum minus the exact objective of uniformly random actions. Cells
whose denominator is below 2 % of the range of returns are listed apart.
"""

import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from rigor.report.data.runs import RunRecord, find, load

matplotlib.use("Agg")

SMALLEST_GAP = 0.02  # of the range of returns
RISKS = ("mean", "cvar", "mean_cvar", "entropic", "mean_variance")


def problem(run: RunRecord) -> str:
    """Return a name for the problem of a run, such as `random 4x2, T = 5`."""
    env = run.choices["env"]
    if env == "american_put":
        return f"put, N = {run.settings['env.steps']}"
    if env == "gbwm":
        return f"wealth, T = {run.settings['env.periods']}"
    builtin, states = run.settings["env.builtin"], run.settings["env.states"]
    size = f"{states}x{run.settings['env.actions']}" if builtin == "random" else f"{states}"
    return f"{builtin} {size}, T = {run.settings['env.horizon']}"


def cells(directory: Path) -> pd.DataFrame:
    """Return one row for each finished run of a sweep."""
    rows = []
    for run in map(load, find([directory])):
        if run.state != "done":
            print(f"not done: {run.path.name} ({run.state}) {run.problem}")
            continue
        result = run.result
        gap = result["objective_optimal"] - result["objective_random"]
        rows.append(
            {
                "problem": problem(run),
                "agent": run.choices["agent"],
                "risk": run.choices["risk"],
                "discount": run.choices["discount"],
                "seed": run.seed,
                "objective": result["objective_exact"],
                "optimum": result["objective_optimal"],
                "random": result["objective_random"],
                "regret": result["regret"] / gap,
                "gap": gap / (result["return_high"] - result["return_low"]),
                "c0": result["initial_stock"],
                "c0_optimal": result["initial_stock_optimal"],
                "seconds": run.seconds,
            }
        )
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the regret of every cell, problems down and risk measures across."""
    from matplotlib import pyplot as plt

    table = table[table.seed == table.seed.min()]
    names = list(dict.fromkeys(table.problem))
    figure, axes = plt.subplots(1, 6, figsize=(11, 4), sharey=True, layout="constrained")
    for axis, (risk, agent) in zip(
        axes,
        [(risk, "singlehorizon") for risk in RISKS] + [("mean", "multihorizon")],
        strict=True,
    ):
        part = table[(table.risk == risk) & (table.agent == agent)]
        for discount, marker in (
            ("exponential", "o"),
            ("hyperbolic", "s"),
            ("quasi_hyperbolic", "^"),
        ):
            one = part[part.discount == discount]
            if one.empty:
                continue
            y = [names.index(name) for name in one.problem]
            small = (one.gap < SMALLEST_GAP).to_numpy()
            x = np.clip(one.regret.to_numpy(), 1e-4, 1.0)
            axis.scatter(
                x,
                y,
                marker=marker,
                s=26,
                label=discount,
                facecolors=np.where(small, "none", "#0072B2"),
                edgecolors="#0072B2",
            )
        axis.set_xscale("log")
        axis.set_xlim(7e-5, 1.4)
        axis.axvline(0.02, color="#D55E00", linewidth=1)
        axis.axvline(0.1, color="#D55E00", linewidth=1, linestyle=":")
        axis.set_title(risk if agent == "singlehorizon" else f"{risk}, Algorithm 3", fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    drawn = axes[-1].get_legend_handles_labels()
    figure.legend(*drawn, fontsize=8, ncols=3, loc="outside upper right")
    figure.supxlabel("regret / (optimum − random play); hollow: the denominator is small")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Write the table and the figure, and print the summary."""
    source, target = map(Path, sys.argv[1:3])
    table = pd.read_csv(source) if source.suffix == ".csv" else cells(source)
    table.to_csv(target.with_suffix(".csv"), index=False, float_format="%.6g")
    draw(table, target.with_suffix(".png"))
    judged = table[table.gap >= SMALLEST_GAP]
    cell = ["problem", "agent", "risk", "discount"]
    regret = judged[judged.seed == judged.seed.min()].set_index(cell).regret
    better = judged.groupby(cell, sort=False).regret.min()
    print(f"{len(table)} runs, {len(judged)} with a gap of 2 % of the range of returns or more")
    for most in (0.02, 0.1):
        print(f"regret <= {most}: {(regret <= most).sum()} of {len(regret)} cells, first seed")
        print(f"and {(better <= most).sum()} by the better of two where a second was run")
    print(regret[regret > 0.02].round(3).to_string())
    print(table[table.gap < SMALLEST_GAP].groupby("problem", sort=False).size().to_string())
    print(f"seconds a run: {table.seconds.median():.0f} (median)")


if __name__ == "__main__":
    main()
