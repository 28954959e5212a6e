"""`make bench`: rigor's speed against its peers and its floor, in one run on one machine.

    python benchmarks/bench.py [--quick] [--out FILE]

Times are CPU time of one thread, medians of repeats taken in turn. Each allocator needs a process
of its own: the C library's default, and one that is told to keep large blocks (`tuned`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

TUNED = {
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "100000000",
}
ALLOCATORS: dict[str, dict[str, str]] = {"default": {}, "tuned": TUNED}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def main() -> None:
    """Run the benchmark, print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look: fewer repeats, one case")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.json")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        asked.child.write_text(json.dumps(measure(asked.quick)))
        return
    from timing import machine

    found: dict[str, Any] = {"machine": machine(), "quick": asked.quick, "cpu_ms": {}}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for name, settings in ALLOCATORS.items():
        print(f"{name} allocator ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "child.json"
            command = [sys.executable, __file__, "--child", str(file)]
            command += ["--quick"] if asked.quick else []
            subprocess.run(command, env=os.environ | ONE_THREAD | settings, check=True)
            found["cpu_ms"][name] = json.loads(file.read_text())
        # at once: should the next one be killed, this one is kept
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    show(found)
    print(f"written: {asked.out}")


def measure(quick: bool) -> dict[str, dict[str, list[float]]]:
    """Return every section's samples, CPU milliseconds."""
    import pieces
    import torch
    import training

    torch.set_num_threads(1)
    repeats = 3 if quick else 7
    found = pieces.loss(repeats) | pieces.environment(repeats)
    cases = ["4x10x50"] if quick else ["4x10x50", "18x10x200", "4x1x200"]
    for case in cases:
        print(f"  {case}", flush=True)
        found |= pieces.network(case, repeats)
        chunk = 32 if case == "18x10x200" else 48 if quick else 96  # agent steps
        found |= training.end_to_end(case, chunk, 3 if quick else 5)
    return found


def show(found: dict[str, Any]) -> None:
    """Print every section: milliseconds and the ratio to rigor's, for both allocators."""
    from rich.console import Console
    from rich.table import Table
    from timing import median

    console = Console(width=96, highlight=False)
    machine = found["machine"]
    console.print(
        f"{machine['cpu']}, one thread, torch {machine['torch']}, commit {machine['commit']}, "
        f"{machine['date']}. CPU ms, medians; × is the time over that of the section's first row."
    )
    sections = found["cpu_ms"]["default"]
    for section, arms in sections.items():
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
        table.add_column(section, min_width=34, no_wrap=True)
        for name in ALLOCATORS:
            table.add_column(name, justify="right", min_width=9)
            table.add_column("×", justify="right", min_width=7)
        first = next(iter(arms))
        for arm in arms:
            cells = []
            for name in ALLOCATORS:
                samples = found["cpu_ms"][name][section]
                value = median(samples[arm])
                cells += [f"{value:.3g}", f"{value / median(samples[first]):.2f}"]
            table.add_row(arm, *cells)
        console.print(table)
        console.print()
    for line in conclusions(found):
        console.print(line)


def conclusions(found: dict[str, Any]) -> list[str]:
    """Return the floor, the distance to it, agent steps/s and the share of the data."""
    from timing import median

    lines = []
    for name, sections in found["cpu_ms"].items():
        for section, arms in sections.items():
            kind, _, case = section.partition(" ")
            if kind == "trunk":
                floor = median(arms["forward+backward"]) + 2 * median(arms["forward"])
                update = median(sections[f"update {case}"]["rigor"])
                lines.append(
                    f"{name}: update {case} {update:.1f} ms, {update / floor:.2f} of the floor "
                    f"({floor:.1f} ms: one trunk forward and backward, two forwards)"
                )
            if kind == "training":
                speeds = {arm: 1e3 / median(samples) for arm, samples in arms.items()}
                told = ", ".join(f"{arm} {speed:.1f}" for arm, speed in speeds.items())
                data = sections["environment"]
                per_step = (
                    median(data["emulator, 8 steps"])
                    + median(data["store, 8 steps"])
                    + 2 * median(data["sample a batch"])
                ) / 8
                share = per_step / median(arms["rigor"])
                lines.append(f"{name}: training {case}, agent steps/s: {told}; data {share:.1%}")
    return lines


if __name__ == "__main__":
    main()
