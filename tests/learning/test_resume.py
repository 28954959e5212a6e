"""Stopped and resumed equals never stopped, bit for bit."""

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from scripted import Episode, ScriptedConfig, assert_same, session

from rigor.errors import UserError
from rigor.launch.execute import execute
from rigor.learning import checkpoint
from rigor.learning.agent_state import agent_state
from rigor.learning.rollout import play_episodes
from rigor.runs.metrics import read

# CartPole, 400 steps: rows every 20, evaluations every 100, checkpoints every 40, updates from 20
KINDS = {
    "mean": [],
    "cvar": ["risk=cvar", "outer.low=-9", "outer.high=-1"],
    "games": ["risk=cvar", "outer.low=-9", "outer.high=-1", "outer.rollouts=4"],
    "hyperbolic": ["agent=multihorizon", "discount=hyperbolic", "horizons.m=3", "risk=entropic"],
    "three copies": ["env.num_envs=3", "risk=cvar", "outer.low=-9", "outer.high=-1"],
    "units found": [
        "env.num_envs=2",
        "risk=mean_cvar",
        "train.reward_scale=null",
        "network.normalise=true",
        "network.embedding=4",
    ],
    "minatar": ["env=minatar/asterix", "env.num_envs=2", "env.max_steps=40", "network.hidden=16"],
    "expected utility": [
        "agent=expected_utility",
        "agent.quantiles=1",
        "risk=cvar",
        "env.num_envs=2",
    ],
    "time_inconsistent": ["variant=time_inconsistent", "evaluate.epsilon=0.1"],
}


def everything(end):
    """All that a run is, but for its wall clock and its metrics."""
    state = dict(vars(end.state))
    del state["seconds"]
    training = end.training
    return {
        "state": state,
        "agent": agent_state(training.agent),
        "replay": training.memory.replay.columns,
        "added": training.memory.replay.added,
        "exploration": training.exploration.bit_generator.state,
        "sampling": training.sampling.bit_generator.state,
        "torch": torch.get_rng_state(),
        "environment": training.env.state(),
    }


def table(end):
    return read(end.training.run.metrics_path).drop(columns=["seconds", "steps_per_second"])


def assert_equal_runs(there, here):
    assert_same(everything(there), everything(here))
    pd.testing.assert_frame_equal(table(there), table(here), check_exact=True)


class StopAt:
    """Asks for a stop once, at the first safe point where `when` holds."""

    def __init__(self, when):
        self.when, self.done = when, False

    def __call__(self, training, state):
        if not self.done and self.when(training, state):
            self.done = True
            return True
        return False


def at(steps):
    return lambda training, state: state.steps >= steps


def autoreset_is_next(training, state):
    return state.steps > 60 and training.env.state()["ended"][0]


def autoreset_was_just_done(training, state):
    return state.steps > 60 and state.t[0] == 0 and training.memory.replay.added > 0


POINTS = {
    "before the first step": at(0),
    "after the first step": at(1),
    "before learning starts": at(7),
    "in the middle of an episode": at(153),
    "at a row of metrics": at(180),
    "at a checkpoint": at(240),
    "at an evaluation": at(300),
    "with the ring full": at(333),
    "before an autoreset": autoreset_is_next,
    "after an autoreset": autoreset_was_just_done,
    "one step before the end": at(399),
    "at the end": at(400),
}


@pytest.fixture(scope="module")
def never_stopped():
    """Runs that were never stopped, by kind; each is made once."""
    return {}


@pytest.fixture
def reference(never_stopped, compose, tmp_path_factory):
    def of(kind):
        if kind not in never_stopped:
            out = tmp_path_factory.mktemp("reference")
            never_stopped[kind] = session(compose(*KINDS[kind], f"out={out}"))
            never_stopped[kind] = frozen(never_stopped[kind])
        return never_stopped[kind]

    return of


@dataclasses.dataclass
class Frozen:
    """What a run came to, before another run moves torch's generator."""

    tree: dict
    metrics: pd.DataFrame


def frozen(end):
    return Frozen(everything(end), table(end))


def assert_as_never_stopped(reference, end):
    assert_same(reference.tree, everything(end))
    pd.testing.assert_frame_equal(reference.metrics, table(end), check_exact=True)


QUICK = ("in the middle of an episode", "at an evaluation")


@pytest.mark.parametrize(
    "point", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in POINTS]
)
def test_stopped_once_and_resumed_is_never_stopped(compose, reference, point):
    job = compose(*KINDS["mean"])
    first = session(job, StopAt(POINTS[point]))
    assert first.stopped
    end = session(job)
    assert not end.stopped
    assert_as_never_stopped(reference("mean"), end)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_stopped_again_and_again_is_never_stopped(compose, reference, kind):
    job, sessions = compose(*KINDS[kind]), 0
    end = None
    while end is None or end.stopped:
        sessions += 1
        began = {}

        def after_61_rows(training, state, began=began):
            added = training.memory.replay.added
            return added - began.setdefault("rows", added) >= 61

        end = session(job, after_61_rows)
    assert sessions > 2
    assert end.state.updates > 90
    assert_as_never_stopped(reference(kind), end)


def test_the_reference_is_worth_comparing(reference):
    """Episodes ended, the ring wrapped, the stock moved: else the tests above say little."""
    run = reference("cvar")
    assert run.tree["state"]["episodes"] > 5
    assert run.tree["added"] > 2 * len(run.tree["replay"]["t"])
    assert run.tree["agent"]["initial_stock"] != 0.0
    assert run.metrics["eval_score"].notna().sum() == 4


def test_stopped_within_an_evaluation_evaluates_again_and_once(compose, reference):
    job = compose(*KINDS["mean"])
    asked = []

    def third_question_at_200(training, state):
        asked.append(state.steps)
        return asked.count(200) == 3

    first = session(job, third_question_at_200)
    assert first.stopped
    assert table(first)["steps"].iloc[-1] == 180
    end = session(job)
    assert_as_never_stopped(reference("mean"), end)


@pytest.mark.parametrize("when", ["between evaluations", "in an evaluation"])
def test_stopped_within_the_rollouts_of_a_search_searches_again(compose, reference, when):
    job = compose(*KINDS["games"])
    asked = []

    def in_rollouts(training, state):
        """Return whether this is the third question at a step where a search is due."""
        due = (
            state.steps % 100 == 0
            if when == "in an evaluation"
            else (state.updates_searched < state.updates and state.updates // 7 > 3)
        )
        asked.append((state.steps, training.agent.initial_stock))
        return due and state.steps > 200 and [s for s, _ in asked].count(state.steps) == 3

    first = session(job, in_rollouts)
    assert first.stopped
    at, during = asked[-1]
    assert first.state.steps == at < 400
    saved = first.training.agent.initial_stock  # of before the search
    assert during != saved or when == "between evaluations"
    end = session(job)
    assert_as_never_stopped(reference("games"), end)


@pytest.mark.slow
def test_killed_after_a_stop_within_an_evaluation(compose, reference):
    """The evaluation's row is written, then nothing is saved: the row must not appear twice."""
    job = compose(*KINDS["mean"])
    asked = []

    def third_question_at_200(training, state):
        asked.append(state.steps)
        return asked.count(200) == 3

    session(job, third_question_at_200)

    def killed(training, state):
        if state.steps == 203:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        session(job, killed)
    execute(job, None)
    metrics = read(job.path / "metrics.csv").drop(columns=["seconds", "steps_per_second"])
    pd.testing.assert_frame_equal(reference("mean").metrics, metrics, check_exact=True)


@pytest.mark.parametrize(
    "steps",
    [pytest.param(39, marks=pytest.mark.slow), 41, pytest.param(250, marks=pytest.mark.slow)],
)
def test_killed_without_warning_goes_on_from_the_checkpoint(compose, reference, steps):
    job = compose(*KINDS["cvar"])

    def killed(training, state):
        if state.steps >= steps:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        session(job, killed)
    end = session(job)
    assert bool(end.notes) is (steps > 40)
    assert_as_never_stopped(reference("cvar"), end)


def damage_state(path):
    (path / "state.json").write_text("{}")


def damage_arrays(path):
    content = (path / "arrays.safetensors").read_bytes()
    (path / "arrays.safetensors").write_bytes(content[: len(content) // 2])


def remove_files(path):
    for file in path.iterdir():
        file.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damage_state,
        *(pytest.param(d, marks=pytest.mark.slow) for d in (damage_arrays, remove_files)),
    ],
)
def test_a_corrupt_newest_checkpoint_falls_back_to_the_one_before(compose, reference, damage):
    job = compose(*KINDS["cvar"])
    first = session(job, StopAt(at(253)))
    directory = first.training.run.checkpoints
    before, newest = checkpoint.checkpoints(directory)
    assert [before.name[-3:], newest.name[-3:]] == ["240", "253"]
    damage(newest)
    end = session(job)
    assert end.notes[0].startswith("step_000000000253 cannot be used")
    assert end.notes[1].startswith("resumed at step 240")
    assert_as_never_stopped(reference("cvar"), end)


@pytest.mark.slow
def test_no_checkpoint_that_can_be_used_starts_again(compose, reference):
    job = compose(*KINDS["mean"])
    first = session(job, StopAt(at(253)))
    for path in checkpoint.checkpoints(first.training.run.checkpoints):
        damage_state(path)
    end = session(job)
    assert len(end.notes) == 3
    assert "from the start" in end.notes[-1]
    assert_as_never_stopped(reference("mean"), end)


def test_a_missing_replay_is_refused_and_nothing_is_removed(compose):
    job = compose(*KINDS["mean"])
    first = session(job, StopAt(at(120)))
    checkpoints = checkpoint.checkpoints(first.training.run.checkpoints)
    (first.training.run.checkpoints / "replay.bin").unlink()
    with pytest.raises(UserError, match=r"replay\.bin: missing; .* put the file back"):
        session(job)
    assert checkpoint.checkpoints(first.training.run.checkpoints) == checkpoints


@pytest.mark.slow
def test_the_log_says_what_was_resumed_and_the_result_is_that_of_one_go(compose, tmp_path):
    one_go = compose("evaluate.final_episodes=20", f"out={tmp_path / 'one_go'}")
    objective = execute(one_go, None)
    job = compose("evaluate.final_episodes=20")
    # stopped after its last evaluation, so the final games are all that this process plays
    first = session(job, StopAt(lambda training, state: state.steps == 400 == state.steps_logged))
    damage_state(
        shutil.copytree(
            checkpoint.checkpoints(first.training.run.checkpoints)[-1],
            first.training.run.checkpoints / "step_000000000401",
        )
    )
    assert execute(job, None) == objective
    log = (job.path / "train.log").read_text()
    assert "step_000000000401 cannot be used" in log
    assert "all 400 steps are trained; only the final evaluation follows" in log
    results = [pd.read_json(one.path / "result.json", typ="series") for one in (one_go, job)]
    for key in (
        "scores",
        "objective",
        "score",
        "objective_low",
        "objective_bundle",
        "updates",
    ):
        assert results[0][key] == results[1][key], key


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
