"""A film of one episode: what is seen, and beside it what the agent makes of it."""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rigor.envs.vector import FilmedEnv
from rigor.learning.agent import Agent
from rigor.learning.prediction import Prediction, came_true, predict
from rigor.maths import quantile
from rigor.report.played import OWN_SEEDS, Asked, Subject
from rigor.report.style import COLOURS, new_figure, number
from rigor.tracking.disk import disk_errors

LONGEST = 900  # pictures; a film of a whole game of 27,000 steps would be seen by nobody
SLOWEST, FASTEST = 8.0, 25.0  # pictures per second, between which the numbers can be read
SIZE = (9.6, 5.44)  # inches; players want sides that 16 divides
DPI = 100
_SIDE = 420  # pixels: a larger picture is thinned before it is kept
_FAINT = "0.85"


@dataclass
class Moment:
    """What there was at one agent step: the picture, squeezed, and the agent's view of it.

    shape: of the picture. score: raw, so far. stock: S_t. action: the one taken.
    """

    picture: bytes
    shape: tuple[int, ...]
    score: float
    stock: float
    action: int
    prediction: Prediction


def film(one: Subject, asked: Asked, place: Path, title: str) -> Path:
    """Play one more game, film it as `episode.mp4` in a directory, and return its path.

    Raises:
      UserError: the environment cannot draw itself, or the place refuses.
    """
    import imageio_ffmpeg

    # without a screen, and without a word on standard output
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    assert isinstance(one.player, Agent)
    env: FilmedEnv = one.env.filmed()
    try:
        moments, true, length = _played(one.player, env, one.epsilon, asked.seed)
        rate = float(np.clip(env.pictures_per_second, SLOWEST, FASTEST))
        names = env.action_names
    finally:
        env.close()
    canvas = Canvas(one.player, moments, true, names, length, title)
    path, partial = place / "episode.mp4", place / ".episode.partial.mp4"
    with disk_errors(place):
        writer = imageio_ffmpeg.write_frames(
            str(partial), canvas.size, fps=rate, quality=None, output_params=["-crf", "26"]
        )
        writer.send(None)
        for k in range(len(moments)):
            writer.send(canvas.draw(k))
        writer.close()
        partial.replace(path)
    return path


def _played(
    agent: Agent, env: FilmedEnv, epsilon: float, seed: int
) -> tuple[list[Moment], np.ndarray, int]:
    """Play a whole game; return its first LONGEST moments, what came true of each, its length."""
    env_seed, action_seed = np.random.SeedSequence([OWN_SEEDS, seed]).spawn(2)[1].spawn(2)
    rng = np.random.default_rng(action_seed)
    observation = env.reset(env_seed)
    t, stock = np.zeros(1, np.int64), np.full(1, agent.initial_stock)
    moments: list[Moment] = []
    rewards: list[float] = []
    terminated: list[bool] = []
    ended = False
    while not ended:
        action = agent.act(observation, t, stock, epsilon, rng)
        if len(moments) < LONGEST:
            picture = _thinned(env.picture())
            squeezed = zlib.compress(np.ascontiguousarray(picture).tobytes(), 1)
            seen = predict(agent, observation, t, stock)
            score = float(sum(rewards))
            moments.append(
                Moment(squeezed, picture.shape, score, float(stock[0]), int(action[0]), seen)
            )
        step = env.step(action)
        rewards.append(float(step.reward[0]))
        terminated.append(bool(step.terminated[0]))
        observation, ended = step.observation, bool(step.episode_end[0])
        stock = agent.next_stock(stock, t, step.reward)
        t = t + 1
    true = came_true(agent, np.array(rewards), np.array(terminated))
    return moments, true, len(rewards)


def _thinned(picture: np.ndarray) -> np.ndarray:
    """Return every n-th pixel of a picture, so that its longer side is at most about _SIDE."""
    every = -(-max(picture.shape[:2]) // (2 * _SIDE))
    return picture[::every, ::every].astype(np.uint8)


class Canvas:
    """The pictures of a film: what stays is drawn once, what changes on top of it.

    Args:
      agent: who plays. moments: of the episode. true: what came true of each moment's prediction,
      [L]. names: of the actions. length: of the whole game, agent steps. title: of the film.
    """

    def __init__(
        self,
        agent: Agent,
        moments: list[Moment],
        true: np.ndarray,
        names: list[str],
        length: int,
        title: str,
    ) -> None:
        self._agent, self._moments, self._true, self._length = agent, moments, true, length
        self._levels = quantile.levels(agent.online.shape[2])
        self._mass = agent.mass
        self._figure = new_figure(*SIZE, "")
        self._figure.suptitle(title, fontsize="medium")
        self._figure.set_dpi(DPI)
        grid = self._figure.add_gridspec(2, 3, width_ratios=(5, 3.4, 2.6), height_ratios=(1, 1))
        self._moving: list[Any] = []
        self._dress_picture(grid[:, 0])
        self._dress_actions(grid[0, 1], grid[0, 2], names)
        self._dress_law(grid[1, 1:])
        canvas: Any = self._figure.canvas
        canvas.draw()
        self._figure.set_layout_engine("none")  # as it is: nothing moves from picture to picture
        canvas.draw()
        self._background = canvas.copy_from_bbox(self._figure.bbox)
        self.size = canvas.get_width_height()

    def draw(self, k: int) -> np.ndarray:
        """Return the picture of moment k, uint8 [height, width, 3]."""
        moment = self._moments[k]
        self._show_picture(k, moment)
        self._show_actions(moment)
        self._show_law(k, moment)
        canvas: Any = self._figure.canvas
        canvas.restore_region(self._background)
        for artist in self._moving:
            artist.axes.draw_artist(artist)
        return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])

    def _moves(self, artist: Any) -> Any:
        artist.set_animated(True)
        self._moving.append(artist)
        return artist

    def _dress_picture(self, cell: Any) -> None:
        axes = self._figure.add_subplot(cell)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color(_FAINT)
        height, width, _ = self._moments[0].shape
        # pixels of the console are wider than high; elsewhere they are square
        aspect = 1.0 if width > height else 1.35 * width / height
        self._picture = self._moves(
            axes.imshow(np.zeros((height, width, 3), np.uint8), aspect=1 / aspect)
        )
        # two blank lines hold the place of the numbers
        axes.set_title(" \n ", fontsize="medium", family="monospace")
        self._numbers = self._moves(
            axes.text(
                0.0, 1.02, "", transform=axes.transAxes, fontsize="medium", family="monospace"
            )
        )

    def _show_picture(self, k: int, moment: Moment) -> None:
        pixels = np.frombuffer(zlib.decompress(moment.picture), np.uint8)
        self._picture.set_data(pixels.reshape(moment.shape))
        lines = f"t {k:>5} of {self._length}   score {number(moment.score)}\n"
        lines += f"discount {self._mass[k]:.3g}"
        if self._agent.utility.needs_stock:
            lines += f"   stock {moment.stock:.4g}"
        self._numbers.set_text(lines)

    def _dress_actions(self, cell: Any, beside: Any, names: list[str]) -> None:
        means = self._moments[0].prediction.quantiles.mean(-1)[0]  # [A, M]
        n_actions, n_horizons = means.shape
        self._heat = self._figure.add_subplot(cell)
        self._shades = self._moves(
            self._heat.imshow(np.zeros_like(means), cmap="Blues", vmin=0.0, vmax=1.4, aspect="auto")
        )
        size = "small" if n_actions <= 9 else "xx-small"
        self._heat.set_yticks(range(n_actions), names, fontsize=size)
        self._heat.set_title("value by horizon, steps (dark: best)", fontsize="small")
        gammas = self._agent.config.bundle.gammas
        reach = ["all"] if gammas is None else [_reach(gamma) for gamma in gammas]
        self._heat.set_xticks(range(n_horizons), reach, fontsize="x-small")
        for side in ("top", "right"):
            self._heat.spines[side].set_visible(False)
        # as many numbers as can be read
        self._cells = []
        if n_horizons <= 5 and n_actions <= 9:
            self._cells = [
                self._moves(self._heat.text(i, a, "", ha="center", va="center", fontsize="small"))
                for a in range(n_actions)
                for i in range(n_horizons)
            ]
        bars = self._figure.add_subplot(beside, sharey=self._heat)
        bars.tick_params(labelleft=False)
        bars.set_title("above the mean (orange: taken)", fontsize="small")
        leads = np.abs([_leads(moment) for moment in self._moments])
        reach_of_bars = float(np.quantile(leads, 0.98)) or 1.0  # the last steps may be far off
        bars.set_xlim(-reach_of_bars, reach_of_bars)
        bars.axvline(0.0, color=_FAINT, linewidth=0.8)
        bars.tick_params(axis="x", labelsize="x-small")
        self._bars = [self._moves(one) for one in bars.barh(range(n_actions), 0.0, height=0.7)]
        for side in ("top", "right"):
            bars.spines[side].set_visible(False)

    def _show_actions(self, moment: Moment) -> None:
        means = moment.prediction.quantiles.mean(-1)[0]  # [A, M]
        spread = np.ptp(means, axis=0)
        shares = (means - means.min(axis=0)) / np.where(spread > 0.0, spread, 1.0)
        self._shades.set_data(shares)
        cells = zip(self._cells, means.ravel(), shares.ravel(), strict=False)  # there may be none
        for text, value, share in cells:
            text.set_text(f"{value:.3g}")
            text.set_color("white" if share > 0.5 else "black")
        for (a, bar), lead in zip(enumerate(self._bars), _leads(moment), strict=True):
            bar.set_width(lead)
            bar.set_facecolor(COLOURS[1] if a == moment.action else COLOURS[4])

    def _dress_law(self, cell: Any) -> None:
        axes = self._figure.add_subplot(cell)
        shown = [m.prediction.outcomes[0, m.action] for m in self._moments]
        axes.set_xlim(*_limits(np.concatenate([*shown, self._true[: len(shown)]])))
        axes.set_ylim(0.0, 1.0)
        axes.set_title("predicted return of the action taken, from here on", fontsize="small")
        axes.set_xlabel("discounted from now (learned reward)", fontsize="small")
        axes.set_ylabel("share below", fontsize="small")
        axes.tick_params(labelsize="x-small")
        axes.grid(True, color=_FAINT, linewidth=0.7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        (self._law,) = axes.plot([], [], color=COLOURS[0], linewidth=2.0, label="predicted")
        self._mean = axes.axvline(0.0, color=COLOURS[0], linestyle=":", label="its mean")
        self._truth = axes.axvline(0.0, color=COLOURS[1], linewidth=1.6, label="came true")
        handles = [self._law, self._mean, self._truth]
        axes.legend(handles=handles, loc="lower right", fontsize="x-small", framealpha=0.8)
        for artist in handles:
            self._moves(artist)

    def _show_law(self, k: int, moment: Moment) -> None:
        outcomes = np.sort(moment.prediction.outcomes[0, moment.action])
        self._law.set_data(outcomes, self._levels)
        self._mean.set_xdata([outcomes.mean()] * 2)
        self._truth.set_xdata([self._true[k]] * 2)


def _leads(moment: Moment) -> np.ndarray:
    """Return the values by which the agent chooses, less their mean over the actions, [A]."""
    values = moment.prediction.values[0]
    return values - values.mean()


def _reach(gamma: float) -> str:
    """Return 1 / (1 − γ), the steps that a horizon looks ahead, in few letters."""
    steps = 1.0 / max(1.0 - gamma, 1e-9)
    return f"{steps:.1f}" if steps < 9.95 else number(round(steps))


def _limits(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of an axis on which values lie."""
    low, high = float(values.min()), float(values.max())
    room = 0.05 * (high - low) or 0.05 * max(abs(high), 1.0)
    return low - room, high + room
