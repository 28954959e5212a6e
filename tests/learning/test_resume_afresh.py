"""Environments that cannot be copied, as Atari's, are resumed with fresh episodes."""

import numpy as np
import pytest
import torch
from scripted import Episode, ScriptedConfig, assert_same, session
from stopping import StopAt, at, table

from rigor.learning import checkpoint
from rigor.learning.agent_state import agent_state
from rigor.learning.rollout import play_episodes


@pytest.fixture
def uncopied(compose):
    """A job whose environments cannot be copied, as Atari's cannot."""

    def build(first=0):
        job = compose("train.steps=120", "train.replay_capacity=300", "agent.quantiles=3")
        scripts = [
            [Episode((1.0, 2.0, 3.0, 4.0, 5.0)), Episode((6.0, 7.0))],
            [Episode((-1.0,) * 7, truncated=True)],
        ]
        job.config.env = ScriptedConfig(scripts, stack=4, copyable=False, first=first)
        return job

    return build


@pytest.mark.parametrize("steps", [44, 46, 47, 50])
def test_without_copies_fresh_episodes_follow_and_transitions_across_the_seam_are_whole(
    uncopied, steps
):
    job = uncopied()
    first = session(job, StopAt(at(steps)))
    ended = list(job.config.env.made[0].ended)
    stopped_at, rows = first.state.steps, first.training.memory.replay.added
    saved = first.state.observation.copy()
    last = job.config.env.made[0].calls[-1]
    second = uncopied(first=1000)
    end = session(second)
    assert end.notes == [f"resumed at step {stopped_at} with fresh episodes"]
    env = second.config.env.made[0]
    assert (
        env.seed.generate_state(2).tolist()
        != job.config.env.made[0].seed.generate_state(2).tolist()
    )
    replay, columns = end.training.memory.replay, end.training.memory.replay.columns
    assert replay.added == rows + 1 + len(env.calls)
    # the seam: the saved observation completes the newest transitions and is no start itself
    np.testing.assert_array_equal(columns["frame"][rows], saved[:, -1])
    assert not columns["valid"][rows].any()
    assert (columns["t"][rows + 1] == 0).all()
    assert (columns["stock"][rows + 1] == columns["stock_start"][rows + 1]).all()
    batch = replay.sample(4000, np.random.default_rng(0))
    batch.observation = batch.observation.numpy()
    batch.observation_next = batch.observation_next.numpy()
    whole = {bytes(one) for one in batch.observation}
    assert not whole & {bytes(one) for one in saved}
    for i in range(2):
        mine = [k for k in range(4000) if bytes(batch.observation[k]) == bytes(last[0][i])]
        assert bool(mine) is not last[2].dummy[i]
        for k in mine:
            np.testing.assert_array_equal(batch.observation_next[k], saved[i])
            assert batch.terminated[0, k] == last[2].terminated[i]
    # no frame from before the seam in a stack from after it
    firsts = batch.observation[batch.t == 0]
    assert not firsts[:, :3].any()
    # nothing counted twice
    metrics = table(end)
    assert metrics["steps"].is_unique
    assert metrics["steps"].is_monotonic_increasing
    counted = sum(int((~step.dummy).sum()) for _, _, step in env.calls)
    assert end.state.steps == stopped_at + counted
    assert int(columns["valid"].sum()) == end.state.steps
    episodes = sum(int(step.episode_end.sum()) for _, _, step in env.calls)
    assert end.state.episodes == first.state.episodes + episodes
    assert any(ended) or not last[2].episode_end.any()


def test_without_copies_a_run_that_is_done_stays_as_it_is(uncopied):
    first = session(uncopied())
    again = session(uncopied())
    assert again.state.steps == first.state.steps
    assert_same(agent_state(first.training.agent), agent_state(again.training.agent))
    assert len(checkpoint.checkpoints(again.training.run.checkpoints)) == checkpoint.KEEP


@pytest.mark.slow
def test_breakout_goes_on_from_fresh_games(compose):
    small = [
        "tracker=none",
        "device=cpu",
        "env=atari/breakout",
        "learner=replay",
        "env.num_envs=2",
        "agent=multihorizon",
        "horizons.m=2",
        "agent.quantiles=5",
        "network.hidden=16",
        "train.steps=240",
        "train.batch_size=4",
        "train.replay_capacity=600",
        "train.learning_starts=0.2",
        "train.update_every=8",
        "train.log_every=0.1",
        "evaluate.every=1",
        "evaluate.episodes=1",
        "env.max_frames=300",
    ]
    first = session(compose(small=small), StopAt(at(130)))
    rows, saved = first.training.memory.replay.added, first.state.observation.copy()
    weights = [one.clone() for one in first.training.agent.online.parameters()]
    end = session(compose(small=small))
    assert end.notes == ["resumed at step 130 with fresh episodes"]
    assert end.state.updates == 24  # every eighth step from 48 to 238, as in one go
    columns = end.training.memory.replay.columns
    np.testing.assert_array_equal(columns["frame"][rows], saved[:, -1])
    assert not columns["valid"][rows].any()
    assert int(columns["valid"].sum()) == end.state.steps == 240
    # other games than the first session's
    frames = columns["frame"]
    assert not np.array_equal(frames[: rows // 2], frames[rows + 1 : rows + 1 + rows // 2])
    metrics = table(end)
    assert metrics["steps"].tolist() == list(range(24, 241, 24))
    assert metrics["eval_score"].notna().sum() == 1
    moved = [
        not torch.equal(*pair)
        for pair in zip(weights, end.training.agent.online.parameters(), strict=True)
    ]
    assert all(moved)


@pytest.mark.slow
def test_breakout_evaluations_repeat_whoever_played_before(compose):
    """The emulator is seeded whole: the final games of a resumed run are those of one go."""
    small = ["tracker=none", "env=atari/breakout", "network.hidden=16", "agent.quantiles=5"]
    job = compose("env.max_frames=120", "env.num_envs=2", "learner=replay", small=small)
    env = job.config.env.make(2, evaluation=True)
    from rigor.learning.agent import Agent

    agent = Agent(job.config, env, torch.device("cpu"), 0)
    factors = job.config.discount.factor(np.arange(env.max_time + 1))
    played = [
        play_episodes(agent, one, 2, 0.9, factors, np.random.SeedSequence(seed))
        for one, seed in ((env, 1), (env, 2), (env, 1), (job.config.env.make(2, True), 1))
    ]
    assert_same(vars(played[0]), vars(played[2]))
    assert_same(vars(played[0]), vars(played[3]))
    assert played[0].length.tolist() != played[1].length.tolist() or (
        played[0].score.tolist() != played[1].score.tolist()
    )
