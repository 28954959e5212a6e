"""Schedules: fractions of `schedule_steps`, in agent steps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """Move linearly from `start` to `end` within `steps` agent steps, then stay there."""

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        """Return the value at agent step `step`."""
        if step >= self.steps:
            return self.end
        return self.start + (self.end - self.start) * step / self.steps


def position(step: int, schedule_steps: int, restarts: bool) -> int:
    """Return the step of a schedule at an agent step; one that restarts begins again at its end."""
    return step % schedule_steps if restarts else step


def crossings(before: int, after: int, every: int) -> int:
    """Count the multiples of `every` in (before, after].

    A vector of environments moves the step counter by more than one at a time, so "every n steps"
    is a question of what was crossed, not of divisibility.
    """
    return after // every - before // every


def every(fraction: float, schedule_steps: int) -> int:
    """Turn a fraction of the schedule into a whole number of agent steps, at least one."""
    return max(1, round(fraction * schedule_steps))
