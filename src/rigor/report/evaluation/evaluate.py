"""Evaluate the policy of a run, and write numbers, episodes, figures and a video."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rigor.learning import evaluate
from rigor.learning.prediction import predict, realised_returns
from rigor.learning.rollout import Episodes
from rigor.report.evaluation import episode_figures
from rigor.report.evaluation.calibration import (
    Calibration,
    PredictedDistributions,
    calibrate,
    calibration_figure,
)
from rigor.report.evaluation.protocol import (
    EvaluatedPolicy,
    EvaluationRequest,
    load_policy,
    locked_place,
    protocol,
    sentence,
)
from rigor.report.evaluation.recording import Progress, RecordedEpisode, record_episodes
from rigor.report.evaluation.summary import (
    EvaluationSummary,
    predicted_quantity,
    predicts_mean,
    reading_notes,
)
from rigor.report.figures.return_distributions import read_outcomes, reward_unit
from rigor.report.figures.style import save_png
from rigor.runs.disk import as_json, atomic_write
from rigor.runs.provenance import commit, versions


def write_evaluation(
    directory: Path,
    request: EvaluationRequest,
    out: Path | None,
    progress: Progress,
) -> EvaluationSummary:
    """Evaluate the newest policy of a run, and write the results.

    The run's own files and its lock are not touched. The place of the results is named by the
    checkpoint and the protocol, so another one never overwrites it. A repetition replaces each file
    atomically, `eval.json` last.

    Args:
      directory: of the run. request: the protocol.
      out: where to write; None for `evaluation` in the run's directory.
      progress: called while it plays.

    Raises:
      UserError: there is no run or no policy, the protocol does not fit, or the place cannot be
        written.
    """
    policy = load_policy(directory, request)
    with locked_place(policy, request, out) as place:
        return _write(policy, request, place, progress)


def _write(
    policy: EvaluatedPolicy,
    request: EvaluationRequest,
    place: Path,
    progress: Progress,
) -> EvaluationSummary:
    paths = []
    if request.video and policy.has_video:  # first: an environment without frames fails at once
        from rigor.report.evaluation.video import write_video

        paths.append(write_video(policy, request, place))
    sums, episodes = record_episodes(policy, request, progress)
    predicted, realised, unit = _predicted(policy, sums, episodes)
    found = calibrate(predicted, realised, request.seed)
    estimates = evaluate.summarise(policy.config, sums)
    estimates["length"] = evaluate.interval(sums.length, lambda x: float(np.mean(x)))
    only_means = predicts_mean(policy)
    figures = episode_figures.draw(policy, episodes)
    if not only_means:
        title = f"Calibration of {policy.title}"
        figures = {"calibration.png": calibration_figure(found, unit, title), **figures}
    for file, figure in figures.items():
        partial = place / f".{file}"
        save_png(figure, partial.with_suffix(".partial.png")).replace(place / file)
        paths.append(place / file)
    table = _episode_table(sums, episodes, predicted, found)
    atomic_write(place / "episodes.csv", table.to_csv(index=False, lineterminator="\n"))
    notes = reading_notes(policy, request, episodes)
    content = {
        "run": policy.name,
        "steps": policy.steps,
        "protocol": {"sentence": sentence(policy, request), **protocol(policy, request)},
        "estimates": {key: asdict(estimate) for key, estimate in estimates.items()},
        "episodes_cut": sum(episode.truncated for episode in episodes),
        "calibration": found.means() if only_means else found.numbers(),
        "notes": notes,
        "commit": commit(),
        "versions": versions(),
    }
    atomic_write(place / "eval.json", as_json(content))
    return EvaluationSummary(
        title=policy.title,
        protocol=sentence(policy, request),
        estimates=estimates,
        calibration=found,
        quantity=predicted_quantity(policy),
        only_means=only_means,
        notes=notes,
        files=[*paths, place / "episodes.csv", place / "eval.json"],
    )


def _predicted(
    policy: EvaluatedPolicy, sums: Episodes, episodes: Sequence[RecordedEpisode]
) -> tuple[PredictedDistributions, np.ndarray, str]:
    """Return the predictions at the start of each episode, the realised returns and their unit."""
    unit = reward_unit(policy.env)
    if policy.agent is None:
        returns, probabilities = read_outcomes(policy.run.path / "outcomes.npz")
        return PredictedDistributions(returns[None], probabilities), sums.discounted, unit
    agent, starts = policy.agent, np.stack([episode.start for episode in episodes])
    t, stock = np.zeros(len(starts), np.int64), np.full(len(starts), agent.initial_stock)
    at_start = predict(agent, starts, t, stock)
    quantiles = at_start.outcomes[np.arange(len(starts)), at_start.action]  # [K, N]
    realised = np.array(
        [realised_returns(agent, one.reward, one.terminated)[0] for one in episodes]
    )
    return PredictedDistributions.of_quantiles(quantiles), realised, f"learner's {unit}"


def _episode_table(
    sums: Episodes,
    episodes: Sequence[RecordedEpisode],
    predicted: PredictedDistributions,
    found: Calibration,
) -> pd.DataFrame:
    """Return one row for each episode."""
    columns: dict[str, Any] = {
        "episode": np.arange(1, len(episodes) + 1),
        "score": sums.score,
        "discounted": sums.discounted,
        "bundle": sums.bundle,
        "learner": sums.learner,
        "length": sums.length.astype(np.int64),
        "ended": ["truncated" if episode.truncated else "terminated" for episode in episodes],
        "predicted_mean": predicted.means(len(episodes)),
        "realised_return": found.realised,
        "probability_below": found.pit,
    }
    return pd.DataFrame(columns)
