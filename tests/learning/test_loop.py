import itertools
import types

import numpy as np
import pandas as pd
import pytest
from scripted import Episode, ScriptedConfig, assert_same, session

from rigor.errors import UserError
from rigor.learning import checkpoint, compiled_loss, fast_loss, milestones, value_targets
from rigor.learning.agent import Agent
from rigor.learning.agent_state import agent_state
from rigor.learning.training import Training
from rigor.runs.metrics import read

SCRIPTS = [
    [Episode((1.0, -2.0, 3.0, 0.5, 4.0), lives_lost=(1,)), Episode((5.0,))],
    [Episode((-1.0, 8.0, 9.0), truncated=True), Episode((2.0,) * 6, lives_lost=(0,))],
    [Episode((1.5,) * 11, truncated=True)],
]


@pytest.fixture
def scripted(compose):
    """Return a function from overrides to a job in scripted environments."""

    def build(*overrides, scripts=SCRIPTS, **options):
        few = ["train.steps=120", "train.replay_capacity=200", "agent.quantiles=3"]
        job = compose(*few, *overrides)
        job.config.env = ScriptedConfig(scripts, **options)
        return job

    return build


def crossed(marks, every):
    """Count multiples of `every` on the way through `marks`, one by one."""
    return sum(
        1 for a, b in itertools.pairwise(marks) for k in range(a + 1, b + 1) if k % every == 0
    )


def marks_of(env):
    """The counter after each call: agent steps, autoresets left out."""
    return [0, *np.cumsum([int((~step.dummy).sum()) for _, _, step in env.calls]).tolist()]


def test_counters_leave_autoresets_out(scripted):
    job = scripted()
    end = session(job)
    env = job.config.env.made[0]
    marks = marks_of(env)
    assert any(step.dummy.any() for _, _, step in env.calls)
    assert marks[-2] < 120 <= marks[-1] == end.state.steps
    assert end.training.memory.replay.added == len(env.calls)
    assert end.state.episodes == sum(int(step.episode_end.sum()) for _, _, step in env.calls)
    rewards = sum(float(step.reward.sum()) for _, _, step in env.calls)
    assert rewards == pytest.approx(end.training.memory.replay.columns["reward"].sum())


@pytest.mark.parametrize(("every", "starts"), [(1, 0.0), (7, 0.5), (50, 0.1)])
def test_updates_are_the_multiples_crossed_since_learning_started(
    scripted, monkeypatch, every, starts
):
    moved = []
    monkeypatch.setattr(Agent, "update_target", lambda self: moved.append(1))
    job = scripted(
        f"train.update_every={every}", f"train.learning_starts={starts}", "train.target_every=5"
    )
    end = session(job)
    marks = marks_of(job.config.env.made[0])[:-1]  # a step's updates come with the next step
    first = max(starts * 120, 6)  # two rows of three copies at least
    learning = [marks[k - 1] for k in range(1, len(marks)) if marks[k] >= first][:1]
    after = learning + [mark for mark in marks if mark >= first]
    assert end.state.updates == crossed(after, every)
    # never rarer than every hundredth of the schedule, here of 120 steps
    assert len(moved) == crossed(after, 1)


def test_the_loss_is_compiled_once_when_learning_starts(scripted, monkeypatch):
    asked = []
    monkeypatch.setattr(value_targets, "COMPILE_FROM", 0)
    monkeypatch.setattr(
        compiled_loss,
        "compiled_sum_over_pairs",
        lambda *shape: asked.append(shape) or fast_loss.sum_over_pairs,
    )
    end = session(
        scripted("train.learning_starts=1", "train.steps=119", "train.schedule_steps=500")
    )
    assert not asked
    log = end.training.run.log_path
    assert "compiling" not in log.read_text()
    end = session(scripted("train.learning_starts=0", "seed=1"))
    assert end.state.updates > 1
    assert len(asked) == 1
    assert end.training.run.log_path.read_text().count("compiling the loss") == 1


def test_nothing_is_learnt_before_learning_starts(scripted):
    end = session(
        scripted("train.learning_starts=1", "train.steps=119", "train.schedule_steps=500")
    )
    assert end.state.updates == 0
    agent = end.training.agent
    for online, target in zip(agent.online.parameters(), agent.target.parameters(), strict=True):
        assert (online == target).all()
    assert read(end.training.run.metrics_path)["loss"].isna().all()


@pytest.mark.parametrize("stack", [1, 4])
def test_replay_holds_clock_and_stock_at_every_boundary(scripted, stack):
    c0 = []  # of each step
    job = scripted(
        "risk=cvar",
        "discount.gamma=0.5",
        "evaluate.every=1",
        "outer.every=3",
        "outer.low=-3",
        "outer.high=-1",
        stack=stack,
    )
    end = session(job, lambda training, state: c0.append(training.agent.initial_stock))
    env, columns = job.config.env.made[0], end.training.memory.replay.columns
    assert len(set(c0)) > 1
    t, total, start = np.zeros(3, np.int64), np.zeros(3), np.zeros(3)
    for row, (before, actions, step) in enumerate(env.calls):
        frame = before[:, -1] if stack > 1 else before
        np.testing.assert_array_equal(columns["frame"][row], frame)
        np.testing.assert_array_equal(columns["t"][row], t)
        np.testing.assert_array_equal(columns["stock"][row], total)
        np.testing.assert_array_equal(columns["stock_start"][row], start)
        np.testing.assert_array_equal(columns["action"][row], actions)
        np.testing.assert_array_equal(columns["reward"][row], step.reward)
        np.testing.assert_array_equal(columns["terminated"][row], step.terminated)
        np.testing.assert_array_equal(columns["valid"][row], ~step.dummy)
        for i in range(3):
            if step.dummy[i]:
                t[i], total[i], start[i] = 0, c0[row], c0[row]
            else:  # a lost life and a truncation as well
                total[i] += 0.5 ** t[i] * step.reward[i]
                t[i] += 1


def test_clipped_rewards_move_the_stock_and_raw_ones_are_stored(scripted):
    job = scripted(
        "risk=cvar", "outer.every=100000", scripts=[[Episode((8.0, -0.5, 3.0))]], clip=True
    )
    end = session(job)
    columns = end.training.memory.replay.columns
    assert columns["reward"][:3, 0].tolist() == [8.0, -0.5, 3.0]
    assert columns["stock"][:4, 0].tolist() == pytest.approx(
        [0, 1, 1 - 0.5 * 0.99, 0.505 + 0.99**2]
    )


def test_initial_observations_are_kept_for_the_outer_search(scripted):
    job = scripted("risk=cvar", "outer.batch=4")
    end = session(job)
    env = job.config.env.made[0]
    firsts = [step.observation[i] for _, _, step in env.calls for i in np.flatnonzero(step.dummy)]
    np.testing.assert_array_equal(end.state.starts, firsts[-4:])


def test_metrics_have_their_columns_and_rows_at_every_multiple(scripted):
    end = session(scripted("train.log_every=0.1", "evaluate.every=0.25", scripts=SCRIPTS[:1]))
    table = read(end.training.run.metrics_path)
    assert list(table.columns) == milestones.COLUMNS
    # one copy: rows exactly at the multiples of 12, and of 30 with an evaluation
    assert table["steps"].tolist() == [12, 24, 30, 36, 48, 60, 72, 84, 90, 96, 108, 120]
    evaluated = table.loc[table["eval_score"].notna(), "steps"]
    assert evaluated.tolist() == [30, 60, 90, 120]
    for name in ("frames", "episodes", "updates", "seconds"):
        assert table[name].is_monotonic_increasing
    assert (table["frames"] == table["steps"]).all()
    # the script earns 6.5 in 5 steps, then 5 in 1
    scores = table["train_score"].dropna()
    assert scores.between(5.0, 6.5).all()
    assert table["train_length"].dropna().between(1.0, 5.0).all()
    assert table["loss"].dropna().gt(0).all()


def test_rows_of_several_copies_stand_at_the_step_that_crossed_a_multiple(scripted):
    job = scripted("train.log_every=0.1")
    steps = read(session(job).training.run.metrics_path)["steps"].tolist()
    marks = marks_of(job.config.env.made[0])
    expected = [b for a, b in itertools.pairwise(marks) if b // 12 > a // 12 or b // 30 > a // 30]
    assert steps == expected


def test_training_scores_are_raw_and_each_episode_counts_once(scripted):
    job = scripted("train.log_every=0.1", scripts=[[Episode((8.0, 2.0))]], clip=True)
    end = session(job)
    table = read(end.training.run.metrics_path)
    assert set(table["train_score"].dropna()) == {10.0}
    assert set(table["train_length"].dropna()) == {2.0}
    assert table["episodes"].iloc[-1] == 60


def test_epsilon_falls_to_its_end_and_stays(scripted):
    job = scripted(
        "train.epsilon_start=0.9",
        "train.epsilon_end=0.1",
        "train.epsilon_fraction=0.5",
        "train.log_every=0.1",
        scripts=SCRIPTS[:1],
    )
    table = read(session(job).training.run.metrics_path).set_index("steps")["epsilon"]
    assert table[12] == pytest.approx(0.9 - 0.8 * 12 / 60)
    assert table[48] == pytest.approx(0.9 - 0.8 * 48 / 60)
    assert (table[table.index >= 60] == 0.1).all()


@pytest.mark.parametrize(("steps", "rate"), [(120, 1.05e-3), (60, 4.05e-3), (150, 1e-3)])
def test_learning_rate_moves_with_the_schedule_and_then_stays(scripted, steps, rate):
    rates = ["train.learning_rate=0.007", "train.learning_rate_end=0.001"]
    length = [f"train.steps={steps}", "train.schedule_steps=120"]
    end = session(scripted(*rates, *length, scripts=SCRIPTS[:1]))
    assert end.state.steps_learned == steps - 1
    (group,) = end.training.agent.optimizer.param_groups
    assert group["lr"] == pytest.approx(rate)


def test_evaluation_plays_whole_games_in_an_environment_of_its_own(scripted):
    job = scripted("evaluate.episodes=5")
    end = session(job)
    training_env, *evaluations = job.config.env.made
    assert len(evaluations) == 4
    assert all(env.n_envs == 5 and env.closed for env in evaluations)
    assert training_env.closed
    table = read(end.training.run.metrics_path).dropna(subset="eval_score")
    # first episodes of copies 0, 1, 2, 0, 1: 6.5, 16, 16.5, 6.5, 16
    assert table["eval_score"].tolist() == pytest.approx([12.3] * 4)
    assert table["eval_length"].tolist() == pytest.approx([(5 + 3 + 11 + 5 + 3) / 5] * 4)
    assert table["eval_cut"].tolist() == [3] * 4  # the episodes of copies 1, 2 and 1
    assert (table["eval_score_low"] < table["eval_score"]).all()
    seeds = [tuple(env.seed.generate_state(2)) for env in job.config.env.made]
    assert len(set(seeds)) == 5  # no evaluation repeats another, nor the training


def test_what_is_trained_by_many_is_evaluated_by_as_many(scripted):
    job = scripted("evaluate.episodes=18", "train.replay_capacity=400", scripts=SCRIPTS * 6)
    session(job)
    _, first, *_ = job.config.env.made
    assert first.n_envs == 18


def test_evaluation_does_not_change_the_training(scripted, compose, tmp_path):
    """Without a stock: the search before an evaluation also sets the c₀ of training."""
    one = session(scripted("evaluate.every=1"))
    other = session(scripted("evaluate.every=0.1"))
    assert_same(agent_state(one.training.agent), agent_state(other.training.agent))
    assert_same(one.training.memory.replay.columns, other.training.memory.replay.columns)


def test_the_end_is_saved(scripted):
    end = session(scripted("train.checkpoint_every=50"))
    directory = end.training.run.checkpoints
    newest = checkpoint.load(checkpoint.checkpoints(directory)[-1])
    assert newest["state"]["steps"] == end.state.steps
    assert newest["replay_rows"] == end.training.memory.replay.added
    assert end.training.run.status()["step"] == end.state.steps
    assert len(checkpoint.checkpoints(directory)) == checkpoint.KEEP


@pytest.mark.parametrize(("every", "steps"), [(40, range(12, 121, 12)), (5, range(5, 121, 5))])
def test_checkpoints_are_due_at_multiples_and_never_more_than_a_tenth_apart(
    scripted, monkeypatch, every, steps
):
    saved = []
    monkeypatch.setattr(checkpoint, "_write", lambda directory, steps, *_: saved.append(steps))
    # the autoresets of these episodes fit into the slack
    scripts = [[Episode((1.0,) * 7), Episode((1.0,) * 5)]]
    session(scripted(f"train.checkpoint_every={every}", scripts=scripts))
    assert saved == list(steps)


def test_rows_that_count_no_step_force_a_checkpoint_before_the_slack_is_used_up(
    scripted, monkeypatch
):
    rows = [0]
    save = Training.save

    def spy(training, state, wait):
        rows.append(training.memory.replay.added)
        save(training, state, wait)

    monkeypatch.setattr(Training, "save", spy)
    # every second row is an autoreset
    end = session(scripted(scripts=[[Episode((1.0,))]] * 2))
    gaps = np.diff(rows)
    assert max(gaps[:-1] + gaps[1:]) <= end.training.memory._slack


def test_an_oversized_replay_is_refused_before_it_is_allocated(scripted):
    job = scripted("train.replay_capacity=1000000000000", "train.steps=1000000000000")
    with pytest.raises(UserError, match=r"train\.replay_capacity=1000000000000: needs"):
        session(job)


def test_a_finished_run_is_extended_under_its_old_schedule(scripted, compose, tmp_path):
    """The extended run is the one that was asked for at once."""
    first = scripted("risk=cvar")
    assert session(first).state.steps >= 120
    longer = ["risk=cvar", "train.schedule_steps=120", "train.steps=200"]
    extended = scripted(*longer)
    assert extended.path == first.path
    end = session(extended)
    assert "in the middle of its episodes" in end.notes[0]
    at_once = session(scripted(*longer, f"out={tmp_path / 'at_once'}"))
    assert_same(agent_state(at_once.training.agent), agent_state(end.training.agent))
    assert_same(at_once.training.memory.replay.columns, end.training.memory.replay.columns)
    wall_clock = ["seconds", "steps_per_second"]
    tables = [read(one.training.run.metrics_path) for one in (at_once, end)]
    pd.testing.assert_frame_equal(*(table.drop(columns=wall_clock) for table in tables))
    assert tables[0]["steps"].iloc[-1] > 190
    assert (tables[0]["epsilon"].iloc[-10:] == 0.05).all()


def test_a_shortened_run_ends_where_it_is(scripted):
    end = session(scripted())
    again = session(scripted("train.schedule_steps=120", "train.steps=60"))
    assert again.state.steps == end.state.steps
    assert again.state.updates == end.state.updates


@pytest.mark.parametrize("games", [0, 4])
def test_games_of_the_greedy_policy_correct_the_initial_stock(scripted, games):
    """From every c₀ the returns are 1, 2, 3 and 10: CVaR of the worst half is best at −2."""
    scripts = [[Episode((1.0,)), Episode((2.0,)), Episode((3.0,)), Episode((10.0,))]]
    risk = ["risk=cvar", "risk.tau=0.5", "discount.gamma=1"]
    search = [f"outer.rollouts={games}", "outer.low=-9", "outer.high=-0.5"]
    end = session(scripted(*risk, *search, scripts=scripts))
    agent = end.training.agent
    if games:
        assert agent.initial_stock == -2.0  # the best one nearest 0
        assert all(env.closed for env in end.training.config.env.made[1:])
    else:
        assert -9.0 <= agent.initial_stock <= -0.5
    narrow = session(scripted(*risk, f"outer.rollouts={games}", "outer.low=-9", "outer.high=-7",
                              "seed=1", scripts=scripts))  # fmt: skip
    assert -9.0 <= narrow.training.agent.initial_stock <= -7.0


def test_a_lucky_initial_stock_is_not_taken_for_a_sure_one(scripted, monkeypatch):
    """Both CVaRs of the worst tenth: 20 · (100 − 48)/100 and 10, less a failure in a thousand."""
    games = 1000
    risk = ["risk=cvar", "risk.tau=0.1", "discount.gamma=1"]
    end = session(scripted(*risk, "outer.low=-30", "outer.high=-1"))
    training, agent = end.training, end.training.agent
    training.config.outer.rollouts = games
    luck = np.where(np.arange(games) < 48, 0.0, 20.0)
    sure = np.where(np.arange(games) < 1, 0.0, 10.0)
    assert agent.utility.oce(luck)[0] == pytest.approx(10.4)
    assert agent.utility.oce(sure)[0] == pytest.approx(9.9)

    def play(agent, *others, **named):
        returns = luck if agent.initial_stock == -20.0 else sure
        return types.SimpleNamespace(learner=returns, length=np.full(games, 2))

    monkeypatch.setattr("rigor.learning.training.play_episodes", play)
    for found, before in ((-20.0, -10.0), (-10.0, -20.0)):
        agent.initial_stock = found
        assert training._confirm_initial_stock(before, updates=0) == 2 * 2 * games
        assert agent.initial_stock == -10.0
    luck[10:48] = 20.0  # a CVaR of 18 is clearly more
    agent.initial_stock = -20.0
    training._confirm_initial_stock(-10.0, updates=0)
    assert agent.initial_stock == -20.0
