"""Stopped and resumed equals never stopped, bit for bit."""

import dataclasses
import shutil

import pandas as pd
import pytest
import torch
from scripted import assert_same, session
from stopping import StopAt, at, table

from rigor.errors import UserError
from rigor.launch.execute import execute
from rigor.learning import checkpoint
from rigor.learning.agent_state import agent_state
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


def assert_equal_runs(there, here):
    assert_same(everything(there), everything(here))
    pd.testing.assert_frame_equal(table(there), table(here), check_exact=True)


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
