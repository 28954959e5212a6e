"""Figures of evaluation episodes: wealth and goals, prices and exercise, mixture weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.envs.american_put import AmericanPut
from rigor.envs.wealth import Wealth
from rigor.maths.horizons import Bundle
from rigor.report.evaluation.protocol import EvaluatedPolicy
from rigor.report.evaluation.recording import RecordedEpisode
from rigor.report.figures.style import COLOURS, dress, legend, new_figure, number, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 25  # paths that are drawn individually
_PATH = "0.62"
_FAN = (((5, 95), 0.22), ((25, 75), 0.4))


def draw(policy: EvaluatedPolicy, episodes: Sequence[RecordedEpisode]) -> dict[str, Any]:
    """Return the figures that fit a run, by the names of their files."""
    figures: dict[str, Any] = {}
    bundle, env = policy.config.bundle, policy.env
    if bundle.n_horizons > 1:
        longest = max(len(episode.reward) for episode in episodes)
        title = f"Mixture weights of {policy.title}"
        clock_runs = policy.config.variant.clock_runs
        figures["weights.png"] = weights_figure(bundle, clock_runs, longest, title)
    if isinstance(env, Wealth):
        title = f"Wealth and goals of {policy.title}"
        figures["paths.png"] = wealth_figure(episodes, env, title)
    if isinstance(env, AmericanPut):
        title = f"Prices and exercise of {policy.title}"
        figures["paths.png"] = price_figure(episodes, env, title)
    return figures


def has_paths(env: Any) -> bool:
    """Whether `draw` gives a figure of an environment's paths."""
    return isinstance(env, Wealth | AmericanPut)


def wealth_figure(episodes: Sequence[RecordedEpisode], env: Wealth, title: str) -> "Figure":
    """Draw quantiles of the wealth before each decision, some paths, and the goals taken.

    Args:
      episodes: with all observations. env: their environment. title: of the figure.
    """
    wealth = np.stack([_observations(episode)[:, 0] for episode in episodes])  # [K, T + 1]
    reached = np.stack([episode.reward > 0 for episode in episodes])
    figure = new_figure(9.0, 5.6, title)
    axes = figure.subplots()
    t = np.arange(wealth.shape[1])
    for path in wealth[:SHOWN]:
        axes.plot(t, path, color=_PATH, linewidth=0.6, zorder=1)
    for (low, high), alpha in _FAN:
        ends = np.percentile(wealth, (low, high), axis=0)
        label = f"{low}-{high} % of the episodes"
        axes.fill_between(t, *ends, color=COLOURS[0], alpha=alpha, linewidth=0, label=label)
    axes.plot(t, np.median(wealth, axis=0), color=COLOURS[0], linewidth=1.8, label="median")
    named = (("early goal", env.early_time, COLOURS[2]), ("late goal", env.periods, COLOURS[1]))
    for name, time, colour in named:
        cost = env.offers[time, 0]
        label = f"{name} taken: {100 * reached[:, time].mean():.0f} % (costs {number(cost)})"
        rows = reached[:, time]
        at = np.full(rows.sum(), time)
        axes.plot(at, wealth[rows, time], "o", color=colour, markersize=4, alpha=0.6, label=label)
        axes.plot([time - 0.35, time + 0.35], [cost, cost], color=colour, linewidth=2.5)
    if wealth.min() > 0:
        axes.set_yscale("log")
        _plain_ticks(axes, float(wealth.min()), float(wealth.max()))
    dress(axes)
    axes.set_xticks(round_ticks(0, env.periods, 12))
    axes.set_xlabel("t (periods)")
    axes.set_ylabel("wealth before the decision (currency)")
    legend(figure, axes.get_legend_handles_labels()[0], 3)
    return figure


def price_figure(episodes: Sequence[RecordedEpisode], env: AmericanPut, title: str) -> "Figure":
    """Draw price paths up to the exercise, and the distribution of the exercise time.

    Args:
      episodes: with all observations. env: their environment. title: of the figure.
    """
    figure = new_figure(9.0, 6.2, title)
    prices, times = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    ends = np.array([len(episode.reward) - 1 for episode in episodes])
    last = np.array([_observations(episode)[-1, 0] for episode in episodes])
    paid = np.array([episode.reward[-1] > 0 for episode in episodes])
    for episode in episodes[:SHOWN]:
        prices.plot(_observations(episode)[:, 0], color=_PATH, linewidth=0.7)
    kinds = (("exercised", paid, COLOURS[2], "o"), ("worthless", ~paid, COLOURS[1], "x"))
    for name, rows, colour, marker in kinds:
        label = f"{name}: {100 * rows.mean():.0f} %"
        prices.plot(ends[rows], last[rows], marker, color=colour, markersize=5, label=label)
    label = f"strike {number(env.strike)}"
    prices.axhline(env.strike, color="black", linestyle="--", linewidth=1.0, label=label)
    prices.set_ylabel("price (currency)")
    bins = np.arange(env.n_decisions + 1) - 0.5
    weights = np.full(len(ends), 1.0 / len(ends))
    times.hist(ends, bins, weights=weights, color=COLOURS[0], alpha=0.75, rwidth=0.85)
    times.set_ylabel("fraction of episodes")
    times.set_xlabel(f"t of the end (steps of {number(env.maturity / env.steps)} years)")
    times.set_xticks(round_ticks(0, env.steps, 12))
    times.set_xlim(-0.5, env.steps + 0.5)
    for axes in (prices, times):
        dress(axes)
    legend(figure, prices.get_legend_handles_labels()[0], 3)
    return figure


def weights_figure(bundle: Bundle, clock_runs: bool, longest: int, title: str) -> "Figure":
    """Draw the mixture weights w_{i,t} of an agent over an episode, and the mean horizon factor.

    Args:
      bundle: of several horizons. clock_runs: whether the mixture follows the clock.
      longest: agent steps of the longest episode. title: of the figure.
    """
    import matplotlib

    assert bundle.gammas is not None
    t = np.arange(longest + 1)
    weights = bundle.normalised_weights(t if clock_runs else np.zeros_like(t))  # [L + 1, M]
    figure = new_figure(9.0, 6.2, title)
    stack, factors = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 1.0, bundle.n_horizons))
    labels = [f"γ = {_gamma(gamma)}" for gamma in bundle.gammas]
    stack.stackplot(t, weights.T, colors=colours, labels=labels, linewidth=0)
    stack.set_ylim(0.0, 1.0)
    stack.set_ylabel("weight of each horizon")
    agents = weights @ bundle.gammas
    label = "of the agent: Σ weight · γ"
    factors.plot(t, agents, color=COLOURS[1], linewidth=1.8, label=label)
    true = bundle.true_discount.step_factor(t)
    label = "of the true discount"
    factors.plot(t, true, color="black", linestyle="--", linewidth=1.2, label=label)
    factors.set_ylabel("one-step discount")
    factors.set_xlabel(
        "t (agent steps)" + ("" if clock_runs else "; this agent's clock stays at 0")
    )
    factors.legend(frameon=False, fontsize="small")
    for axes in (stack, factors):
        dress(axes)
        axes.set_xlim(0, max(longest, 1))
    handles = stack.get_legend_handles_labels()[0]
    figure.legend(handles=handles[::-1], loc="outside right upper", frameon=False, fontsize="small")
    return figure


def _observations(episode: RecordedEpisode) -> np.ndarray:
    assert episode.observations is not None  # they are small
    return episode.observations


def _gamma(gamma: float) -> str:
    """Return γ with enough digits to distinguish it from 1."""
    return f"{gamma:.2f}" if gamma < 0.985 else f"{gamma:.4f}"


def _plain_ticks(axes: "Axes", low: float, high: float) -> None:
    """Label a logarithmic axis with a few round numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    narrow = high / low < 100
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
