"""A video of one episode: each frame of the environment beside the agent's predictions."""

import os
import zlib
from pathlib import Path

import numpy as np

from rigor.envs.vector import VideoEnv
from rigor.learning.agent import Agent
from rigor.learning.prediction import predict, realised_returns
from rigor.report.evaluation.protocol import EvaluatedPolicy, EvaluationRequest
from rigor.report.evaluation.recording import SEED_PREFIX
from rigor.report.evaluation.video_figure import VideoFigure, VideoStep
from rigor.runs.disk import disk_errors

LONGEST = 900
"""The most frames of a video; an Atari game of 27,000 agent steps would be too long to watch."""

SLOWEST, FASTEST = 8.0, 25.0
"""Frames per second between which the numbers are readable."""

_SIDE = 840  # pixels; the longer side of a frame is thinned to about this size


def write_video(policy: EvaluatedPolicy, request: EvaluationRequest, place: Path) -> Path:
    """Play one more episode, write it as `episode.mp4` into a directory, and return its path.

    Raises:
      UserError: the environment cannot draw itself, or the file cannot be written.
    """
    import imageio_ffmpeg

    # Gymnasium draws with pygame, which must not open a window or print a greeting.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    assert policy.agent is not None
    env: VideoEnv = policy.env.video_env()
    try:
        steps, realised = _play(policy.agent, env, policy.epsilon, request.seed)
        rate = float(np.clip(env.frames_per_second, SLOWEST, FASTEST))
        names = env.action_names
    finally:
        env.close()
    figure = VideoFigure(policy.agent, steps, realised, names, policy.title)
    path, partial = place / "episode.mp4", place / ".episode.partial.mp4"
    with disk_errors(place):
        writer = imageio_ffmpeg.write_frames(
            str(partial), figure.size, fps=rate, quality=None, output_params=["-crf", "26"]
        )
        writer.send(None)
        for k in range(len(steps)):
            writer.send(figure.draw(k))
        writer.close()
        partial.replace(path)
    return path


def _play(
    agent: Agent, env: VideoEnv, epsilon: float, seed: int
) -> tuple[list[VideoStep], np.ndarray]:
    """Play a whole episode of L steps; return its first LONGEST steps and realised returns [L]."""
    env_seed, action_seed = np.random.SeedSequence([SEED_PREFIX, seed]).spawn(2)[1].spawn(2)
    rng = np.random.default_rng(action_seed)
    observation = env.reset(env_seed)
    t, stock = np.zeros(1, np.int64), np.full(1, agent.initial_stock)
    steps: list[VideoStep] = []
    rewards: list[float] = []
    terminated: list[bool] = []
    has_ended = False
    while not has_ended:
        action = agent.act(observation, t, stock, epsilon, rng)
        if len(steps) < LONGEST:
            frame = _thinned(env.frame())
            steps.append(
                VideoStep(
                    frame=zlib.compress(frame.tobytes(), 1),
                    shape=frame.shape,
                    score=float(sum(rewards)),
                    stock=float(stock[0]),
                    action=int(action[0]),
                    prediction=predict(agent, observation, t, stock),
                )
            )
        step = env.step(action)
        rewards.append(float(step.reward[0]))
        terminated.append(bool(step.terminated[0]))
        observation, has_ended = step.observation, bool(step.episode_end[0])
        stock = agent.next_stock(stock, t, step.reward)
        t = t + 1
    return steps, realised_returns(agent, np.array(rewards), np.array(terminated))


def _thinned(frame: np.ndarray) -> np.ndarray:
    """Return every n-th pixel of a frame, so that its longer side is at most about _SIDE."""
    every = -(-max(frame.shape[:2]) // _SIDE)
    return frame[::every, ::every].astype(np.uint8)
