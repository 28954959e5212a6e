"""Both learners end to end beside the parallel one's peer: `make bench-learners`, ten minutes.

    python benchmarks/learners.py [--out FILE]

Agent steps per CPU second of one thread on Breakout, once learning has begun, each arm in turn.
`grid.py` computes from FILE what the paper's grid costs by each learner.
"""

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path

import torch
from pieces import CPU, make_parallel, parallel_differences
from timing import Samples, machine, median
from training import rigor_run

from rigor.learning.engine import lacks_bf16

HERE = Path(__file__).parent
CASES = ("4x10x1", "4x10x50")
REPEATS = 2


def learners(case: str, rollouts: int, repeats: int) -> dict[str, Samples]:
    """Return CPU milliseconds per agent step of both learners and the latter's peer, in turn.

    Args:
      case: a key of `pieces.CASES`. rollouts: of the parallel learner in each chunk.
    """
    precisions = ["fp32"] if lacks_bf16(CPU) else ["fp32", "bf16"]
    with contextlib.ExitStack() as after:
        folder = after.enter_context(tempfile.TemporaryDirectory())
        runs = {
            f"{learner} {precision}": rigor_run(
                case, [f"learner={learner}", f"train.precision={precision}"], folder, after
            )
            for learner in ("replay", "parallel")
            for precision in precisions
        }
        differences = parallel_differences(case)
        assert max(differences) < 1e-4, f"{case}: the peer's targets and loss differ: {differences}"
        _, peer = make_parallel(case)
        after.callback(peer.games.close)
        runs["parallel, single file"] = peer.run
        samples: Samples = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                began = time.process_time()
                # both chunks take about the same time
                steps = run(128 * 32 * rollouts if "parallel" in name else 1000 * rollouts)
                samples[name].append(1e3 * (time.process_time() - began) / steps)
    return {f"learners {case}": samples}


def main() -> None:
    """Print agent steps per CPU second, and the ratio to the replay learner's in fp32."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "learners.json")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    here = machine()
    found: dict[str, Samples] = {}
    print(f"{here['cpu']}, torch {here['torch']}, commit {here['commit']}, {here['date']}")
    for case in CASES:
        found |= learners(case, 1, REPEATS)
        arms = found[f"learners {case}"]
        first = median(arms["replay fp32"])
        for name, samples in arms.items():
            rates = ", ".join(f"{1e3 / one:.0f}" for one in samples)
            print(f"{case}  {name:22}{rates:>12} steps/s  x {first / median(samples):.2f}")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"machine": here, "cpu_ms": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
