"""`make bench-compare OLD=a.json NEW=b.json`: what moved between two benchmark files.

A median has moved when it lies outside the other file's samples, and theirs outside its own, and
by more than 3 %; everything else is noise and is not shown.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from timing import median

LEAST = 0.03  # relative change that is told


def moved(old: list[float], new: list[float]) -> float | None:
    """Return the new median over the old one, None where the difference is noise."""
    ratio = median(new) / median(old)
    apart = not min(old) <= median(new) <= max(old) and not min(new) <= median(old) <= max(new)
    return ratio if apart and abs(ratio - 1.0) > LEAST else None


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a line for each arm that moved, for each that is in one file only, and a summary."""
    lines, same = [], 0
    if old["machine"]["cpu"] != new["machine"]["cpu"]:
        lines.append(f"other machines: {old['machine']['cpu']}, {new['machine']['cpu']}")
    flat = [
        {
            (allocator, section, arm): samples
            for allocator, sections in one["cpu_ms"].items()
            for section, arms in sections.items()
            for arm, samples in arms.items()
        }
        for one in (old, new)
    ]
    for key in flat[0] | flat[1]:
        name = " / ".join(key)
        if key not in flat[0] or key not in flat[1]:
            lines.append(f"{name}: only in the {'new' if key in flat[1] else 'old'} file")
            continue
        there, here = flat[0][key], flat[1][key]
        ratio = moved(there, here)
        if ratio is None:
            same += 1
            continue
        word = "slower" if ratio > 1.0 else "faster"
        lines.append(f"{name}: {_told(there)} → {_told(here)} ms, {ratio:.2f}× ({word})")
    return [*lines, f"{same} times did not move"]


def _told(samples: list[float]) -> str:
    """Return the median with the smallest and the largest sample."""
    return f"{median(samples):.3g} [{min(samples):.3g}, {max(samples):.3g}]"


def main() -> None:
    """Compare the two files of the command line."""
    if len(sys.argv) != 3:
        sys.exit("usage: compare.py OLD.json NEW.json")
    old, new = (json.loads(Path(name).read_text()) for name in sys.argv[1:])
    print("\n".join(compare(old, new)))


if __name__ == "__main__":
    main()
