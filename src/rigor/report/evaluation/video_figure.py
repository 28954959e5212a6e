"""The frames of a video: the environment, the values of the actions and the predicted return."""

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.learning.agent import Agent
from rigor.learning.prediction import Prediction
from rigor.maths import quantile
from rigor.report.figures.style import COLOURS, new_figure, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (9.6, 5.44)
"""Inches; video players need sides in pixels that are multiples of 16."""

DPI = 100
_FAINT = "0.85"  # grey
_MOST_TICKS = 5  # of horizons, and of numbers along an axis
_MOST_ROWS = 18  # names of actions that fit above each other


@dataclass
class VideoStep:
    """The state before one agent step.

    Attributes:
      frame: pixels of the environment, uint8, compressed by zlib. shape: of the frame.
      score: sum of the raw rewards so far. stock: S_t. action: the selected one.
      prediction: of the agent.
    """

    frame: bytes
    shape: tuple[int, ...]
    score: float
    stock: float
    action: int
    prediction: Prediction

    @property
    def pixels(self) -> np.ndarray:
        """The frame, uint8 [height, width, 3]."""
        return np.frombuffer(zlib.decompress(self.frame), np.uint8).reshape(self.shape)

    @property
    def means(self) -> np.ndarray:
        """The predicted mean of each action and horizon, [A, M]."""
        return self.prediction.quantiles.mean(-1)[0]

    @property
    def advantages(self) -> np.ndarray:
        """The values by which the agent selects an action, less their mean, [A]."""
        values = self.prediction.values[0]
        return values - values.mean()

    @property
    def outcomes(self) -> np.ndarray:
        """The predicted quantiles of the selected action, ascending, [N]."""
        return np.sort(self.prediction.outcomes[0, self.action])


class VideoFigure:
    """Draws the frames of a video: static parts once, moving parts for every step."""

    def __init__(
        self,
        agent: Agent,
        steps: list[VideoStep],
        realised: np.ndarray,
        action_names: list[str],
        title: str,
    ) -> None:
        """Draw the static parts.

        Args:
          agent: the one that plays.
          steps: the first steps of the episode.
          realised: return that each prediction of the whole episode of L steps is about, [L].
          action_names: a word for each action.
          title: of the video.
        """
        self._agent, self._steps, self._realised = agent, steps, realised
        self._figure = new_figure(*SIZE, "")
        self._figure.suptitle(title, fontsize="medium")
        self._figure.set_dpi(DPI)
        grid = self._figure.add_gridspec(2, 3, width_ratios=(5, 3.4, 2.6), height_ratios=(1, 1))
        self._moving: list[Any] = []
        self._add_frame(self._figure.add_subplot(grid[:, 0]))
        heat = self._figure.add_subplot(grid[0, 1])
        self._add_horizons(heat, action_names)
        self._add_advantages(self._figure.add_subplot(grid[0, 2], sharey=heat))
        self._add_distribution(self._figure.add_subplot(grid[1, 1:]))
        canvas: Any = self._figure.canvas
        canvas.draw()
        self._figure.set_layout_engine("none")  # a new layout would move the panels
        canvas.draw()
        self._background = canvas.copy_from_bbox(self._figure.bbox)
        self.size = canvas.get_width_height()

    def draw(self, k: int) -> np.ndarray:
        """Return the frame of step k, uint8 [height, width, 3]."""
        step = self._steps[k]
        self._update_frame(k, step)
        self._update_horizons(step)
        for bar, advantage in zip(self._bars, step.advantages, strict=True):
            bar.set_width(advantage)
            bar.set_facecolor(COLOURS[4])
        self._bars[step.action].set_facecolor(COLOURS[1])
        self._cdf.set_data(step.outcomes, quantile.levels(len(step.outcomes)))
        self._mean.set_xdata([step.outcomes.mean()] * 2)
        self._truth.set_xdata([self._realised[k]] * 2)
        canvas: Any = self._figure.canvas
        canvas.restore_region(self._background)
        for artist in self._moving:
            artist.axes.draw_artist(artist)
        return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])

    def _animate(self, artist: Any) -> Any:
        """Register an artist that is drawn for every step."""
        artist.set_animated(True)
        self._moving.append(artist)
        return artist

    def _add_frame(self, axes: "Axes") -> None:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color(_FAINT)
        height, width, _ = self._steps[0].shape
        # The pixels of the Atari console are wider than high; other pixels are square.
        aspect = 1.0 if width > height else 1.35 * width / height
        blank = np.zeros((height, width, 3), np.uint8)
        self._image = self._animate(axes.imshow(blank, aspect=1 / aspect))
        axes.set_title(" \n ", fontsize="medium", family="monospace")  # room for two lines of text
        style: dict[str, Any] = {"fontsize": "medium", "family": "monospace"}
        self._text = self._animate(axes.text(0.0, 1.02, "", transform=axes.transAxes, **style))

    def _update_frame(self, k: int, step: VideoStep) -> None:
        self._image.set_data(step.pixels)
        lines = f"t {k:>5} of {len(self._realised)}   score {number(step.score)}\n"
        lines += f"discount {self._agent.discount[k]:.3g}"
        if self._agent.utility.needs_stock:
            lines += f"   stock {step.stock:.4g}"
        self._text.set_text(lines)

    def _add_horizons(self, axes: "Axes", action_names: list[str]) -> None:
        """Add a heat map of each action's predicted mean by horizon, with numbers if they fit."""
        means = self._steps[0].means
        n_actions, n_horizons = means.shape
        self._shades = self._animate(
            axes.imshow(np.zeros_like(means), cmap="Blues", vmin=0.0, vmax=1.4, aspect="auto")
        )
        size = "small" if n_actions <= 9 else "xx-small"
        rows = -(-n_actions // _MOST_ROWS)
        axes.set_yticks(range(0, n_actions, rows), action_names[::rows], fontsize=size)
        axes.set_title("value by horizon in steps (dark: best)", fontsize="small")
        gammas = self._agent.config.bundle.gammas
        labels = ["all"] if gammas is None else [_horizon_label(gamma) for gamma in gammas]
        every = -(-n_horizons // _MOST_TICKS)
        axes.set_xticks(range(0, n_horizons, every), labels[::every], fontsize="x-small")
        axes.spines[["top", "right"]].set_visible(False)
        has_room = n_horizons <= 5 and n_actions <= 9
        self._cells = [
            self._animate(axes.text(i, a, "", ha="center", va="center", fontsize="small"))
            for a in range(n_actions if has_room else 0)
            for i in range(n_horizons)
        ]

    def _update_horizons(self, step: VideoStep) -> None:
        means = step.means
        ranges = np.ptp(means, axis=0)
        shades = (means - means.min(axis=0)) / np.where(ranges > 0.0, ranges, 1.0)
        self._shades.set_data(shades)
        for text, value, shade in zip(self._cells, means.ravel(), shades.ravel(), strict=False):
            text.set_text(f"{value:.3g}")
            text.set_color("white" if shade > 0.5 else "black")

    def _add_advantages(self, axes: "Axes") -> None:
        axes.tick_params(labelleft=False)
        axes.set_title("advantage (orange: selected)", fontsize="small")
        advantages = np.array([step.advantages for step in self._steps])  # [L, A]
        limit = float(np.quantile(np.abs(advantages), 0.98)) or 1.0  # the last steps may be extreme
        axes.set_xlim(-limit, limit)
        axes.locator_params(axis="x", nbins=2)
        axes.axvline(0.0, color=_FAINT, linewidth=0.8)
        axes.tick_params(axis="x", labelsize="x-small")
        bars = axes.barh(range(advantages.shape[1]), 0.0, height=0.7)
        self._bars = [self._animate(bar) for bar in bars]
        axes.spines[["top", "right"]].set_visible(False)

    def _add_distribution(self, axes: "Axes") -> None:
        shown = [step.outcomes for step in self._steps]
        axes.set_xlim(*_limits(np.concatenate([*shown, self._realised[: len(shown)]])))
        axes.set_ylim(0.0, 1.0)
        axes.set_title("return-to-go of the selected action", fontsize="small")
        axes.set_xlabel("discounted from now (learner's reward)", fontsize="small")
        axes.set_ylabel("probability below", fontsize="small")
        axes.tick_params(labelsize="x-small")
        axes.locator_params(axis="x", nbins=_MOST_TICKS)
        axes.grid(True, color=_FAINT, linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
        (self._cdf,) = axes.plot([], [], color=COLOURS[0], linewidth=2.0, label="predicted")
        self._mean = axes.axvline(0.0, color=COLOURS[0], linestyle=":", label="predicted mean")
        self._truth = axes.axvline(0.0, color=COLOURS[1], linewidth=1.6, label="realised")
        handles = [self._cdf, self._mean, self._truth]
        legend = axes.legend(handles=handles, loc="lower right", fontsize="x-small", framealpha=0.8)
        for artist in (*handles, legend):  # the legend is drawn last, on top of the lines
            self._animate(artist)


def _horizon_label(gamma: float) -> str:
    """Return 1 / (1 − γ), the effective horizon in agent steps."""
    steps = 1.0 / max(1.0 - gamma, 1e-9)
    return f"{steps:.1f}" if steps < 9.95 else number(round(steps))


def _limits(values: np.ndarray) -> tuple[float, float]:
    """Return the limits of an axis for some values."""
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or 0.05 * max(abs(high), 1.0)
    return low - margin, high + margin
