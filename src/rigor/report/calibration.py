"""Is the agent calibrated: the return that it predicted at the start against what came true.

Every game k has a predicted law F_k, of N quantiles or of the atoms of an exact solution, and one
return x_k. Three things are said of them: where the laws lie (means), how far the returns are from
the laws, in reward (the Wasserstein distance), and whether x_k falls everywhere in F_k equally
often (the probability integral transform u_k = F_k(x_k), which is uniform on [0, 1] for a
calibrated agent; its Kolmogorov-Smirnov distance to that).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report.style import COLOURS, dress, new_figure, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Returns that differ by less than this share of the range of all of them count as the same in the
# transform. A network never says an atom exactly, and u would jump with its last digit.
RESOLUTION = 0.01
SIMULATED = 500  # evaluations of a calibrated agent, which say how small a distance can be
MOST_ATOMS = 2000  # of the pooled law; a finer one changes no digit that is shown
BINS = 10
_GREY = "0.55"


@dataclass
class Laws:
    """The predicted laws of K games.

    values: [K, n], or [1, n] where it is the same law for all; ascending in each row.
    probabilities: of them, [n], which sum to one.
    """

    values: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def of_quantiles(cls, quantiles: np.ndarray) -> "Laws":
        """Return the laws of K rows of N equally likely quantiles, in any order, [K, N]."""
        n = quantiles.shape[1]
        return cls(np.sort(quantiles, axis=1), np.full(n, 1.0 / n))

    def of_game(self, k: int) -> np.ndarray:
        """Return the values that game k may have, [n]."""
        return self.values[min(k, len(self.values) - 1)]

    def means(self, n: int) -> np.ndarray:
        """Return the predicted mean of each of n games, [n]."""
        return np.broadcast_to(self.values @ self.probabilities, (n,))

    def pooled(self) -> np.ndarray:
        """Return at most MOST_ATOMS equally likely values of the mixture of all laws, ascending."""
        values = self.values.ravel()
        masses = np.tile(self.probabilities, len(self.values)) / len(self.values)
        order = np.argsort(values, kind="stable")
        levels = (np.arange(MOST_ATOMS) + 0.5) / MOST_ATOMS
        place = np.searchsorted(np.cumsum(masses[order]), levels)
        return values[order][np.minimum(place, len(values) - 1)]


@dataclass
class Calibration:
    """What came of the comparison; see the module's docstring.

    wasserstein: mean distance of the returns' quantiles to those of the pooled laws, in reward.
    wasserstein_95: below which a calibrated agent stays in 95 of 100 evaluations of that size.
    ks, ks_p: distance of u to the uniform, and the chance of a larger one by luck.
    pit: u, [K]. pooled: values of the pooled law, ascending. realised: x, [K].
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
        """Return the two means, all that an agent that predicts one number can be held to."""
        return {"predicted_mean": self.predicted_mean, "realised_mean": self.realised_mean}

    def numbers(self) -> dict[str, Any]:
        """Return the single numbers, for `eval.json`."""
        return {
            key: value for key, value in vars(self).items() if not isinstance(value, np.ndarray)
        }


def calibrate(laws: Laws, realised: np.ndarray, seed: int) -> Calibration:
    """Compare the predicted laws of K games with their returns [K].

    Args:
      seed: of the draws that break ties in u and simulate a calibrated agent.
    """
    from scipy import stats

    rng = np.random.default_rng(seed)
    n, pooled = len(realised), laws.pooled()
    pit = _transform(laws, realised, rng)
    test = stats.kstest(pit, "uniform")
    drawn = rng.choice(len(laws.probabilities), size=(SIMULATED, n), p=laws.probabilities)
    games = np.minimum(np.arange(n), len(laws.values) - 1)
    floor = [stats.wasserstein_distance(laws.values[games, row], pooled) for row in drawn]
    return Calibration(
        predicted_mean=float(laws.means(n).mean()),
        realised_mean=float(realised.mean()),
        wasserstein=float(stats.wasserstein_distance(realised, pooled)),
        wasserstein_95=float(np.quantile(floor, 0.95)),
        ks=float(test.statistic),
        ks_p=float(test.pvalue),
        pit=pit,
        pooled=pooled,
        realised=realised,
    )


def _transform(laws: Laws, realised: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return u_k: uniform between F_k(x_k − δ) and F_k(x_k + δ), δ the resolution, [K].

    Where F_k is smooth that is F_k(x_k); where x_k is an atom u spreads over its mass, as it must
    to be uniform.
    """
    low = min(realised.min(), laws.values.min())
    high = max(realised.max(), laws.values.max())
    delta = max(RESOLUTION * (high - low), 1e-6 * max(abs(low), abs(high)))
    running = np.concatenate([[0.0], np.cumsum(laws.probabilities)])
    share = rng.random(len(realised))
    ends = np.empty((len(realised), 2))
    for k, x in enumerate(realised):
        row = laws.of_game(k)
        ends[k, 0] = running[np.searchsorted(row, x - delta, "left")]
        ends[k, 1] = running[np.searchsorted(row, x + delta, "right")]
    return np.clip(ends[:, 0] + share * (ends[:, 1] - ends[:, 0]), 0.0, 1.0)


def chance(p: float) -> str:
    """Return a p-value as a label."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def calibration_picture(found: Calibration, unit: str, title: str) -> "Figure":
    """Draw both distributions, their quantiles against each other, and where returns fell.

    Args:
      unit: of the returns. title: of the figure.
    """
    figure = new_figure(13.0, 4.8, title)
    laws, quantiles, places = figure.subplots(1, 3)
    _draw_laws(laws, found, unit)
    _draw_quantiles(quantiles, found, unit)
    _draw_places(places, found)
    for axes in (laws, quantiles, places):
        dress(axes)
    return figure


def _draw_laws(axes: "Axes", found: Calibration, unit: str) -> None:
    axes.ecdf(found.pooled, color=COLOURS[0], label="predicted at the start")
    axes.ecdf(found.realised, color=COLOURS[1], label="came true")
    for value, colour in ((found.predicted_mean, 0), (found.realised_mean, 1)):
        axes.axvline(value, color=COLOURS[colour], linestyle=":", linewidth=1.2)
    axes.set_title(
        f"Wasserstein distance {number(found.wasserstein)}\n"
        f"(calibrated: below {number(found.wasserstein_95)} in 95 %)",
        fontsize="medium",
    )
    axes.set_xlabel(f"discounted return ({unit}); dotted: the means")
    axes.set_ylabel("share of games below")
    axes.set_ylim(0.0, 1.02)
    axes.legend(frameon=False, fontsize="small", loc="best")


def _draw_quantiles(axes: "Axes", found: Calibration, unit: str) -> None:
    levels = (np.arange(len(found.realised)) + 0.5) / len(found.realised)
    predicted = np.quantile(found.pooled, levels)
    ends = [
        min(predicted[0], found.realised.min()),
        max(predicted[-1], found.realised.max()),
    ]
    axes.plot(ends, ends, color=_GREY, linewidth=1.2)
    axes.plot(predicted, np.sort(found.realised), "o", color=COLOURS[0], markersize=4, alpha=0.7)
    axes.set_title("quantile against quantile\n(calibrated: on the line)", fontsize="medium")
    axes.set_xlabel(f"predicted ({unit})")
    axes.set_ylabel(f"came true ({unit})")


def _draw_places(axes: "Axes", found: Calibration) -> None:
    from scipy import stats

    n = len(found.pit)
    low, high = (stats.binom.ppf(level, n, 1 / BINS) / n for level in (0.025, 0.975))
    axes.axhspan(low, high, color="0.9")
    axes.axhline(1 / BINS, color=_GREY, linewidth=1.2)
    counts, edges = np.histogram(found.pit, BINS, (0.0, 1.0))
    axes.bar(edges[:-1], counts / n, 0.92 / BINS, align="edge", color=COLOURS[0], alpha=0.75)
    axes.set_title(
        f"place of the return in its law: KS {found.ks:.2g}, {chance(found.ks_p)}\n"
        "(calibrated: flat, within the band in 95 %)",
        fontsize="medium",
    )
    axes.set_xlabel("share of the predicted law below the return")
    axes.set_ylabel("share of games")
    axes.set_xlim(0.0, 1.0)
