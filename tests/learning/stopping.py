"""Stops at chosen points of a training, and its metrics without the wall clock."""

from rigor.runs.metrics import read


def table(end):
    return read(end.training.run.metrics_path).drop(columns=["seconds", "steps_per_second"])


class StopAt:
    """Asks for a stop once, at the first safe point where `when` holds."""

    def __init__(self, when):
        self.when, self.done = when, False

    def __call__(self, training, state):
        if not self.done and self.when(training, state):
            self.done = True
            return True
        return False


def at(steps):
    return lambda training, state: state.steps >= steps
