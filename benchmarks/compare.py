"""`make bench-compare OLD=a.json NEW=b.json`: what moved between two benchmark files.

A machine is a third slower while others use it, and then everything is. So the last arm of each
section, which is not rigor's code (or is its plainest), is the section's yardstick: a time is
divided by the yardstick's of the same repeat, since arms take turns. A change of the code shows in
both, in the time and in this ratio, the same way: the median lies outside the other file's samples,
and theirs outside its own, by more than `LEAST`. Everything else is noise and is not shown.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from timing import median

LEAST = 0.1  # relative change that is told


def moved(old: list[float], new: list[float]) -> float | None:
    """Return the new median over the old one, None where the difference is noise."""
    ratio = median(new) / median(old)
    apart = not min(old) <= median(new) <= max(old) and not min(new) <= median(old) <= max(new)
    return ratio if apart and abs(ratio - 1.0) > LEAST else None


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a line for each arm that moved, what is in one file only, and a summary."""
    lines = [f"{_described(old)} → {_described(new)}"]
    machine, same = [], 0
    for name, there, here in _sections(old, new):
        *arms, yardstick = (arm for arm in there if arm in here)
        machine.append(median(here[yardstick]) / median(there[yardstick]))
        for arm in arms:
            before, after = (_over(one[arm], one[yardstick]) for one in (there, here))
            ratio, plain = moved(before, after), moved(there[arm], here[arm])
            if ratio is None or plain is None or (ratio > 1.0) != (plain > 1.0):
                same += 1
                continue
            word = "slower" if ratio > 1.0 else "faster"
            lines.append(
                f"{name} / {arm}: {median(there[arm]):.3g} → {median(here[arm]):.3g} ms; over "
                f"{yardstick}: {_told(before)} → {_told(after)}, {ratio:.2f}× ({word})"
            )
    for word, one, other in (("old", old, new), ("new", new, old)):
        alone = sorted(_names(one) - _names(other))
        if alone:
            lines.append(f"only in the {word} file: {', '.join(alone)}")
    if machine:
        lines.append(f"the yardsticks themselves, new over old: {_told(machine)}")
    return [*lines, f"{same} times did not move"]


def _sections(
    old: dict[str, Any], new: dict[str, Any]
) -> Iterator[tuple[str, dict[str, list[float]], dict[str, list[float]]]]:
    """Yield what both files hold of a section, if any arm: its name, old and new samples."""
    for allocator, sections in old["cpu_ms"].items():
        for section, there in sections.items():
            here = new["cpu_ms"].get(allocator, {}).get(section, {})
            if there.keys() & here.keys():
                yield f"{allocator} / {section}", there, here


def _names(one: dict[str, Any]) -> set[str]:
    return {
        f"{section} / {arm}"
        for sections in one["cpu_ms"].values()
        for section, arms in sections.items()
        for arm in arms
    }


def _over(samples: list[float], yardstick: list[float]) -> list[float]:
    return [own / its for own, its in zip(samples, yardstick, strict=False)]


def _told(samples: list[float]) -> str:
    """Return the median with the smallest and the largest sample."""
    return f"{median(samples):.3g} [{min(samples):.3g}, {max(samples):.3g}]"


def _described(one: dict[str, Any]) -> str:
    machine = one["machine"]
    return f"{machine['commit']} on {machine['cpu']}, torch {machine['torch']}"


def main() -> None:
    """Compare the two files of the command line."""
    if len(sys.argv) != 3:
        sys.exit("usage: compare.py OLD.json NEW.json")
    old, new = (json.loads(Path(name).read_text()) for name in sys.argv[1:])
    print("\n".join(compare(old, new)))


if __name__ == "__main__":
    main()
