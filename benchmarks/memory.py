"""`make bench-memory`: what a replay of a million frames takes, and what saving it adds."""

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from rigor.learning.replay import Layout, Replay
from rigor.learning.replay_file import ReplayFile

FRAMES = 1_000_000


def main() -> None:
    """Fill a replay, save it, and print resident memory before and at the peak."""
    process = psutil.Process()
    before = process.memory_info().rss
    replay = Replay(FRAMES, Layout(8, (84, 84), np.dtype(np.uint8), 4))
    rng, zeros = np.random.default_rng(0), np.zeros(8)
    now = rng.integers(0, 256, (8, 4, 84, 84), dtype=np.uint8)
    for _ in range(replay.n_rows):
        replay.add(
            now,
            t=zeros,
            stock=zeros,
            stock_start=zeros,
            action=zeros,
            reward=zeros,
            terminated=zeros,
            valid=zeros == 0,
        )
    full = process.memory_info().rss
    print(f"{FRAMES:,} frames: {(full - before) / 1e9:.2f} GB resident")
    peak, ended = [full], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            peak.append(max(peak[-1], process.memory_info().rss))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        ReplayFile(Path(folder) / "replay.bin", replay, slack=1000).write()
        took = time.perf_counter() - began
    ended.set()
    watcher.join()
    added = (peak[-1] - full) / (full - before)
    print(f"saving it whole took {took:.0f} s and added {added:.1%} of memory")


if __name__ == "__main__":
    main()
