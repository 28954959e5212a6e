"""Calibration: the return predicted at the start of an episode against the realised return.

Episode k has a predicted distribution F_k, given by N quantiles or by the atoms of an exact
solution, and a realised return x_k. Three comparisons are made: of the means; of the returns with
the predictions of all episodes together (the Wasserstein distance, in reward); and of each return
with its own prediction (the probability integral transform u_k = F_k(x_k), which is uniform on
[0, 1] for a calibrated agent, and its Kolmogorov-Smirnov distance to the uniform distribution).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report.figures.style import COLOURS, dress, new_figure, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Returns that differ by less than this fraction of the range of all returns count as equal in the
# transform. A network never predicts an atom exactly, and u would jump with its last digit.
RESOLUTION = 0.01
SIMULATED = 500  # simulated evaluations of a calibrated agent
MOST_ATOMS = 2000  # of the pooled prediction; more atoms would change no digit that is shown
BINS = 10
_GREY = "0.55"


@dataclass
class PredictedDistributions:
    """The predicted distributions of the returns of K episodes.

    Attributes:
      values: of n atoms, ascending in each row, [K, n], or [1, n] if all episodes have the same.
      probabilities: of the atoms, with sum one, [n].
    """

    values: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def of_quantiles(cls, quantiles: np.ndarray) -> "PredictedDistributions":
        """Return the distributions of K rows of N equally likely quantiles in any order, [K, N]."""
        n = quantiles.shape[1]
        return cls(np.sort(quantiles, axis=1), np.full(n, 1.0 / n))

    def of_episode(self, k: int) -> np.ndarray:
        """Return the atoms of episode k, [n]."""
        return self.values[min(k, len(self.values) - 1)]

    def means(self, n: int) -> np.ndarray:
        """Return the predicted mean of each of n episodes, [n]."""
        return np.broadcast_to(self.values @ self.probabilities, (n,))

    def pooled(self) -> np.ndarray:
        """Return MOST_ATOMS equally likely values of the mixture of all rows, ascending."""
        values = self.values.ravel()
        probabilities = np.tile(self.probabilities, len(self.values)) / len(self.values)
        order = np.argsort(values, kind="stable")
        levels = (np.arange(MOST_ATOMS) + 0.5) / MOST_ATOMS
        places = np.searchsorted(np.cumsum(probabilities[order]), levels)
        return values[order][np.minimum(places, len(values) - 1)]


@dataclass
class Calibration:
    """The result of the comparison; the module's docstring defines the terms.

    Attributes:
      wasserstein: distance of the realised returns to the pooled predictions, in reward.
      wasserstein_95: bound below which 95 % of such evaluations of a calibrated agent stay.
      ks, ks_p: distance of u to the uniform distribution, and its p-value.
      pit: u, [K]. pooled: values of the pooled prediction, ascending. realised: x, [K].
    """

    predicted_mean: float
    realised_mean: float
    wasserstein: float
    wasserstein_95: float
    ks: float
    ks_p: float
    pit: np.ndarray
    pooled: np.ndarray
    realised: np.ndarray

    def means(self) -> dict[str, Any]:
        """Return the two means, the only comparison for an agent that predicts a mean."""
        return {"predicted_mean": self.predicted_mean, "realised_mean": self.realised_mean}

    def numbers(self) -> dict[str, Any]:
        """Return all single numbers, for `eval.json`."""
        return {
            key: value for key, value in vars(self).items() if not isinstance(value, np.ndarray)
        }


def calibrate(predicted: PredictedDistributions, realised: np.ndarray, seed: int) -> Calibration:
    """Compare the predicted distributions of K episodes with their realised returns [K].

    Args:
      seed: of the random numbers that break ties in u and simulate a calibrated agent.
    """
    from scipy import stats

    rng = np.random.default_rng(seed)
    n, pooled = len(realised), predicted.pooled()
    pit = _transform(predicted, realised, rng)
    test = stats.kstest(pit, "uniform")
    # A calibrated agent's returns are drawn from its own predictions.
    atoms = rng.choice(len(predicted.probabilities), size=(SIMULATED, n), p=predicted.probabilities)
    rows = np.minimum(np.arange(n), len(predicted.values) - 1)
    simulated = [stats.wasserstein_distance(predicted.values[rows, row], pooled) for row in atoms]
    return Calibration(
        predicted_mean=float(predicted.means(n).mean()),
        realised_mean=float(realised.mean()),
        wasserstein=float(stats.wasserstein_distance(realised, pooled)),
        wasserstein_95=float(np.quantile(simulated, 0.95)),
        ks=float(test.statistic),
        ks_p=float(test.pvalue),
        pit=pit,
        pooled=pooled,
        realised=realised,
    )


def _transform(
    predicted: PredictedDistributions, realised: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return u_k, uniform between F_k(x_k − δ) and F_k(x_k + δ) with δ the resolution, [K].

    If F_k is smooth, u_k is close to F_k(x_k). If x_k is an atom, u_k is uniform over the atom's
    probability; otherwise u would not be uniform for a calibrated agent.
    """
    low = min(realised.min(), predicted.values.min())
    high = max(realised.max(), predicted.values.max())
    delta = max(RESOLUTION * (high - low), 1e-6 * max(abs(low), abs(high)))
    cumulative = np.concatenate([[0.0], np.cumsum(predicted.probabilities)])
    fractions = rng.random(len(realised))
    ends = np.empty((len(realised), 2))
    for k, x in enumerate(realised):
        row = predicted.of_episode(k)
        ends[k, 0] = cumulative[np.searchsorted(row, x - delta, "left")]
        ends[k, 1] = cumulative[np.searchsorted(row, x + delta, "right")]
    return np.clip(ends[:, 0] + fractions * (ends[:, 1] - ends[:, 0]), 0.0, 1.0)


def p_label(p: float) -> str:
    """Return a p-value as a label."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def calibration_figure(found: Calibration, unit: str, title: str) -> "Figure":
    """Draw both distributions, their quantiles against each other, and the histogram of u.

    Args:
      unit: of the returns. title: of the figure.
    """
    figure = new_figure(13.0, 4.8, title)
    panels = figure.subplots(1, 3)
    _draw_distributions(panels[0], found, unit)
    _draw_quantiles(panels[1], found, unit)
    _draw_transform(panels[2], found)
    for axes in panels:
        dress(axes)
    return figure


def _draw_distributions(axes: "Axes", found: Calibration, unit: str) -> None:
    axes.ecdf(found.pooled, color=COLOURS[0], label="predicted at the start")
    axes.ecdf(found.realised, color=COLOURS[1], label="realised")
    axes.axvline(found.predicted_mean, color=COLOURS[0], linestyle=":", linewidth=1.2)
    axes.axvline(found.realised_mean, color=COLOURS[1], linestyle=":", linewidth=1.2)
    axes.set_title(
        f"Wasserstein distance {number(found.wasserstein)}\n"
        f"(calibrated: below {number(found.wasserstein_95)} in 95 %)",
        fontsize="medium",
    )
    axes.set_xlabel(f"discounted return ({unit}); dotted: means")
    axes.set_ylabel("fraction of episodes below")
    axes.set_ylim(0.0, 1.02)
    axes.legend(frameon=False, fontsize="small", loc="best")


def _draw_quantiles(axes: "Axes", found: Calibration, unit: str) -> None:
    levels = (np.arange(len(found.realised)) + 0.5) / len(found.realised)
    predicted = np.quantile(found.pooled, levels)
    ends = [min(predicted[0], found.realised.min()), max(predicted[-1], found.realised.max())]
    axes.plot(ends, ends, color=_GREY, linewidth=1.2)
    axes.plot(predicted, np.sort(found.realised), "o", color=COLOURS[0], markersize=4, alpha=0.7)
    axes.set_title("quantile against quantile\n(calibrated: on the line)", fontsize="medium")
    axes.set_xlabel(f"predicted ({unit})")
    axes.set_ylabel(f"realised ({unit})")


def _draw_transform(axes: "Axes", found: Calibration) -> None:
    from scipy import stats

    n = len(found.pit)
    low, high = (stats.binom.ppf(level, n, 1 / BINS) / n for level in (0.025, 0.975))
    axes.axhspan(low, high, color="0.9")
    axes.axhline(1 / BINS, color=_GREY, linewidth=1.2)
    counts, edges = np.histogram(found.pit, BINS, (0.0, 1.0))
    axes.bar(edges[:-1], counts / n, 0.92 / BINS, align="edge", color=COLOURS[0], alpha=0.75)
    axes.set_title(
        f"probability integral transform: KS {found.ks:.2g}, {p_label(found.ks_p)}\n"
        "(calibrated: flat, within the band in 95 %)",
        fontsize="medium",
    )
    axes.set_xlabel("predicted probability of a smaller return")
    axes.set_ylabel("fraction of episodes")
    axes.set_xlim(0.0, 1.0)
