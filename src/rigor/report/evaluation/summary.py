"""The summary of an evaluation: what the terminal shows, and notes on how to read the numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rigor.config.own_code import changed_code
from rigor.learning.evaluate import Estimate
from rigor.maths.utility import is_mean
from rigor.report.evaluation.calibration import Calibration, p_label
from rigor.report.evaluation.episode_figures import has_paths
from rigor.report.evaluation.protocol import EvaluatedPolicy, EvaluationRequest, env_option
from rigor.report.evaluation.recording import RecordedEpisode
from rigor.report.figures.style import number


@dataclass
class EvaluationSummary:
    """The results of an evaluation and the files that hold them.

    Attributes:
      protocol: one sentence.
      quantity: that the agent predicts, `return` or `gain in utility`.
      only_means: whether the agent predicts a mean instead of a distribution.
      notes: a line each, for a reader of the numbers.
    """

    title: str
    protocol: str
    estimates: dict[str, Estimate]
    calibration: Calibration
    quantity: str
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
            f"  {name:<18}{number(found.value):>10}   {_ends(found)}"
            for name, found in shown.items()
        ]
        return "\n".join(
            [
                self.title,
                f"  {self.protocol}",
                "",
                f"  {'':<18}{'value':>10}   95 % interval",
                *rows,
                "",
                *self._calibration_lines(),
                "",
                *(f"  {note}" for note in self.notes),
                *(str(path) for path in self.files),
            ]
        )

    def _calibration_lines(self) -> list[str]:
        found = self.calibration
        means = (
            f"  {self.quantity} at the start: predicted {number(found.predicted_mean)}, realised "
            f"{number(found.realised_mean)}"
        )
        if self.only_means:
            return [means]
        return [
            means,
            f"  Wasserstein distance {number(found.wasserstein)} (a calibrated agent stays "
            f"below {number(found.wasserstein_95)} in 95 % of such evaluations)",
            f"  KS distance {found.ks:.2g} ({p_label(found.ks_p)})",
        ]


def _ends(found: Estimate) -> str:
    """Return the ends of an interval as text."""
    if math.isnan(found.low):
        return "none: one episode, or equal ones"
    return f"[{number(found.low)}, {number(found.high)}]"


def predicts_mean(policy: EvaluatedPolicy) -> bool:
    """Tell whether the agent learns a single number for each action, which is a mean."""
    if policy.agent is None or policy.config.agent.quantiles > 1:
        return False
    return policy.config.agent.learns == "expected_utility" or policy.config.train.huber == math.inf


def predicted_quantity(policy: EvaluatedPolicy) -> str:
    """Return the name of the quantity that an agent predicts."""
    learns_utility = policy.agent and policy.config.agent.learns == "expected_utility"
    is_return = not learns_utility or is_mean(policy.config.risk)
    return "return" if is_return else "gain in utility"


def reading_notes(
    policy: EvaluatedPolicy, request: EvaluationRequest, episodes: Sequence[RecordedEpisode]
) -> list[str]:
    """Return a line for each fact that a reader of the numbers must know."""
    notes = []
    if (policy.run.status or {}).get("state") == "running":
        notes.append("the run is still training; this is its newest checkpoint")
    if change := changed_code(policy.run.config):
        notes.append(f"{change}; these numbers are of the code of now")
    beyond = [len(episode.reward) > episode.predicted_steps for episode in episodes]
    if cut := [len(episode.reward) for episode in episodes if episode.truncated]:
        notes.append(
            f"{len(cut)} of {len(episodes)} episodes were cut at their limit of {max(cut):,} "
            "steps: they may not show how they end, and the agent also predicts the rewards after "
            "the limit"
        )
    if any(beyond):
        notes.append(
            "calibration is up to the first lost life, where this agent's returns ended in "
            f"training ({sum(beyond)} of {len(episodes)} games went on)"
        )
    if policy.epsilon:
        notes.append(
            f"the agent predicts the return of its greedy policy, but here {policy.epsilon:g} of "
            "the actions are random"
        )
    if policy.agent is not None:
        notes += _prediction_notes(policy)
    if policy.config.bundle.n_horizons == 1:
        notes.append("no weights.png, because the agent has one horizon")
    if request.video and not policy.has_video:
        other = "; paths.png shows its episodes" if has_paths(policy.env) else ""
        notes.append(f"no video: env={env_option(policy.run)} has no frames{other}")
    return notes


def _prediction_notes(policy: EvaluatedPolicy) -> list[str]:
    """Return notes on the predictions of a learned agent."""
    notes = []
    if predicts_mean(policy):
        notes.append(
            "the agent learns a single number for each action, so it predicts a mean and no "
            "distribution"
        )
    if policy.config.bundle.n_horizons > 1:
        notes.append(
            "the predicted distribution adds the horizons quantile by quantile (comonotone): its "
            "mean is right, and its spread is at least as wide as the true one"
        )
    if policy.config.agent.bootstrap == "per_head":
        notes.append(
            "agent.bootstrap=per_head: each horizon predicts a greedy policy of its own, which is "
            "never played"
        )
    return notes
