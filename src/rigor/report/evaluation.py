"""Evaluate the policy of a run and write what came of it: numbers, games, pictures, a video."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rigor.envs.option import Put
from rigor.envs.wealth import Wealth
from rigor.errors import UserError
from rigor.learning import evaluate
from rigor.learning.agent import Agent
from rigor.learning.evaluate import Estimate, Games
from rigor.learning.prediction import came_true, predict
from rigor.maths.utility import Mean
from rigor.report import episodes as pictures
from rigor.report import played
from rigor.report.calibration import Calibration, Laws, calibrate, calibration_picture, chance
from rigor.report.outcomes import read_outcomes
from rigor.report.played import Asked, Episode, Subject
from rigor.report.style import number, save_png
from rigor.tracking.disk import atomic_write, disk_errors
from rigor.tracking.lock import Lock
from rigor.tracking.provenance import commit, versions
from rigor.tracking.rundir import as_json

COLUMNS = [
    "game",
    "score",
    "discounted",
    "bundle",
    "learned",
    "length",
    "ended",
    "predicted_mean",
    "came_true",
    "place",
]


@dataclass
class Evaluated:
    """What was found and where it lies.

    predicted: what the agent predicts, `return` or `gain in utility`. only_means: it predicts one
    number, not a law. notes: what a reader must know, a line each.
    """

    directory: Path
    title: str
    protocol: str
    estimates: dict[str, Estimate]
    calibration: Calibration
    predicted: str
    only_means: bool
    notes: list[str]
    files: list[Path]

    def table(self) -> str:
        """Return the numbers as lines of text."""
        shown = {"score": self.estimates["score"], "objective": self.estimates["objective"]}
        for name in ("objective_bundle", "objective_learner"):
            if self.estimates[name] not in shown.values():
                shown[name] = self.estimates[name]
        shown["length"] = self.estimates["length"]
        rows = [
            f"  {name:<18}{number(one.value):>10}   [{number(one.low)}, {number(one.high)}]"
            for name, one in shown.items()
        ]
        found = self.calibration
        of_law = [
            f"  Wasserstein distance {number(found.wasserstein)} (a calibrated agent stays "
            f"below {number(found.wasserstein_95)} in 95 % of such evaluations)",
            f"  KS distance {found.ks:.2g} ({chance(found.ks_p)})",
        ]
        return "\n".join(
            [
                self.title,
                f"  {self.protocol}",
                "",
                f"  {'':<18}{'value':>10}   95 % interval",
                *rows,
                "",
                f"  {self.predicted} at the start: predicted {number(found.predicted_mean)}, came "
                f"true {number(found.realised_mean)}",
                *([] if self.only_means else of_law),
                "",
                *(f"  {note}" for note in self.notes),
                *(str(path) for path in self.files),
            ]
        )


def write_evaluation(
    directory: Path, asked: Asked, out: Path | None, tell: Callable[[int, int], None]
) -> Evaluated:
    """Evaluate the newest policy of a run, and write what came of it.

    The run's own files and its lock are not touched. A place below `out` is named by what was
    evaluated and how, so another checkpoint or protocol never overwrites it; a repeat replaces file
    after file, each whole, `eval.json` last.

    Args:
      directory: of the run. out: where to write, None for `evaluation` in it.
      tell: called with the games and the agent steps played so far.

    Raises:
      UserError: no run, no policy, a protocol that does not fit, or a place that refuses.
    """
    one = played.subject(directory, asked)
    name = one.run.path.resolve().name
    place = (out / name if out else directory / "evaluation") / _name(one, asked)
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    lock = Lock(place)
    if lock.is_held():
        raise UserError(f"{place}: another rigor-eval writes there; wait for it, or use --out DIR")
    lock.acquire()
    try:
        return _write(one, asked, place, tell)
    finally:
        lock.release()


def _name(one: Subject, asked: Asked) -> str:
    """Return such as `step_200-episodes_100-seed_0-epsilon_0.05`."""
    parts = ["exact" if one.steps is None else f"step_{one.steps}"]
    parts += [f"episodes_{asked.episodes}", f"seed_{asked.seed}"]
    own = {"epsilon": one.config.evaluate.epsilon}
    own |= {"sticky": getattr(one.config.env, "sticky", None)}
    own |= {"noops": getattr(one.config.env, "noop_max", None)}
    for key, value in own.items():
        said = getattr(asked, key)
        if said is not None and said != value:
            parts.append(f"{key}_{said:g}")
    return "-".join(parts)


def _write(one: Subject, asked: Asked, place: Path, tell: Callable[[int, int], None]) -> Evaluated:
    name = one.run.path.resolve().name
    when = "exact policy" if one.steps is None else f"after {one.steps:,} agent steps"
    title = f"{name}, {when}"
    paths = []
    if asked.video and _is_filmed(one):  # first, for what cannot draw itself says so at once
        from rigor.report.video import film

        paths.append(film(one, asked, place, title))
    games, episodes = played.play(one, asked, tell)
    laws, realised, unit = _predicted(one, games, episodes)
    found = calibrate(laws, realised, asked.seed)
    estimates = evaluate.summarise(one.config, games, asked.seed)
    estimates["length"] = evaluate.interval(games.length, lambda x: float(np.mean(x)), asked.seed)
    notes = _notes(one, asked, episodes)
    only_means = _predicts_a_mean(one)
    figures = _pictures(one, episodes, title)
    if not only_means:
        whole = calibration_picture(found, unit, f"Calibration of {title}")
        figures = {"calibration.png": whole, **figures}
    for file, figure in figures.items():
        partial = place / f".{file}"
        save_png(figure, partial.with_suffix(".partial.png")).replace(place / file)
        paths.append(place / file)
    rows = _rows(games, episodes, laws, found)
    atomic_write(place / "episodes.csv", _csv(rows))
    protocol = played.sentence(one, asked)
    facts = {
        "run": name,
        "steps": one.steps,
        "protocol": {"sentence": protocol, **played.protocol(one, asked)},
        "estimates": {key: asdict(estimate) for key, estimate in estimates.items()},
        "calibration": found.means() if only_means else found.numbers(),
        "notes": notes,
        "commit": commit(),
        "versions": versions(),
    }
    atomic_write(place / "eval.json", as_json(facts))
    paths += [place / "episodes.csv", place / "eval.json"]
    return Evaluated(
        place, title, protocol, estimates, found, _predicts(one), only_means, notes, paths
    )


def _predicts_a_mean(one: Subject) -> bool:
    """Tell whether one number an action is learned, and is a mean."""
    if not isinstance(one.player, Agent) or one.config.agent.quantiles > 1:
        return False
    return one.config.agent.learns == "utility" or one.config.train.huber == math.inf


def _predicts(one: Subject) -> str:
    """Return what an agent predicts, in words."""
    in_utility = isinstance(one.player, Agent) and one.config.agent.learns == "utility"
    return "gain in utility" if in_utility and not isinstance(one.config.risk, Mean) else "return"


def _predicted(
    one: Subject, games: Games, episodes: Sequence[Episode]
) -> tuple[Laws, np.ndarray, str]:
    """Return what was predicted at the start of each game, what came true of it, and its unit."""
    unit = {Wealth: "utility", Put: "currency"}.get(type(one.env), "reward")
    if not isinstance(one.player, Agent):
        returns, probabilities = read_outcomes(one.run.path / "outcomes.npz")
        return Laws(returns[None], probabilities), games.discounted, unit
    starts = np.stack([episode.start for episode in episodes])
    t = np.zeros(len(starts), np.int64)
    stock = np.full(len(starts), one.player.initial_stock)
    at_start = predict(one.player, starts, t, stock)
    quantiles = at_start.outcomes[np.arange(len(starts)), at_start.action]  # [K, N]
    realised = np.array(
        [came_true(one.player, episode.reward, episode.terminated)[0] for episode in episodes]
    )
    return Laws.of_quantiles(quantiles), realised, f"learned {unit}"


def _pictures(one: Subject, episodes: Sequence[Episode], title: str) -> dict[str, Any]:
    """Return the figures that fit the run, by the names of their files."""
    drawn: dict[str, Any] = {}
    bundle, clock_runs = one.config.bundle, one.config.variant.clock_runs
    if bundle.n_horizons > 1:
        longest = max(len(episode.reward) for episode in episodes)
        what = f"Mixture weights of {title}"
        drawn["weights.png"] = pictures.weights_picture(bundle, clock_runs, longest, what)
    if isinstance(one.env, Wealth):
        what = f"Wealth and goals of {title}"
        drawn["paths.png"] = pictures.wealth_picture(episodes, one.env, what)
    if isinstance(one.env, Put):
        what = f"Prices and exercise of {title}"
        drawn["paths.png"] = pictures.price_picture(episodes, one.env, what)
    return drawn


def _is_filmed(one: Subject) -> bool:
    """Tell whether the environment can be looked at and the policy says what it predicts."""
    return hasattr(one.env, "filmed") and isinstance(one.player, Agent)


def _notes(one: Subject, asked: Asked, episodes: Sequence[Episode]) -> list[str]:
    """Return what a reader of the numbers must know."""
    notes = []
    if (one.run.status or {}).get("state") == "running":
        notes.append("the run goes on; this is its newest checkpoint")
    truncated = sum(
        episode.truncated and episode.until == len(episode.reward) for episode in episodes
    )
    if truncated:
        notes.append(
            f"{truncated} of {len(episodes)} games were cut at their limit of steps; the agent "
            "predicts what would have come after it too"
        )
    cut = sum(episode.until < len(episode.reward) for episode in episodes)
    if cut:
        notes.append(
            f"calibration is up to the first lost life, where this agent's returns ended in "
            f"training ({cut} of {len(episodes)} games went on)"
        )
    if one.epsilon:
        notes.append(
            f"the agent predicts its greedy policy; in these games {one.epsilon:g} of the actions "
            "are random"
        )
    if isinstance(one.player, Agent):
        if _predicts_a_mean(one):
            notes.append("one number an action is learned, so a mean is predicted and no law")
        if one.config.bundle.n_horizons > 1:
            notes.append(
                "the predicted law adds the horizons quantile by quantile (comonotone): its mean "
                "is right, its spread at least as wide as the truth's"
            )
        if one.config.agent.bootstrap == "per_head":
            notes.append(
                "agent.bootstrap=per_head: each horizon predicts a greedy policy of its own, "
                "which nobody plays"
            )
    if one.config.bundle.n_horizons == 1:
        notes.append("one horizon, so no picture of mixture weights")
    if asked.video and not _is_filmed(one):
        other = "; paths.png shows its games" if isinstance(one.env, Wealth | Put) else ""
        notes.append(f"no video: {type(one.env).__name__} has no frames to film{other}")
    return notes


def _rows(
    games: Games, episodes: Sequence[Episode], laws: Laws, found: Calibration
) -> list[dict[str, Any]]:
    means = laws.means(len(episodes))
    return [
        {
            "game": k + 1,
            "score": games.score[k],
            "discounted": games.discounted[k],
            "bundle": games.bundle[k],
            "learned": games.learned[k],
            "length": int(games.length[k]),
            "ended": "truncated" if episode.truncated else "terminated",
            "predicted_mean": means[k],
            "came_true": found.realised[k],
            "place": found.pit[k],
        }
        for k, episode in enumerate(episodes)
    ]


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {
            key: float(value) if isinstance(value, np.floating) else value
            for key, value in row.items()
        }
        for row in rows
    )
    return text.getvalue()
