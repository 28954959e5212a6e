import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scripted import Episode, ScriptedEnv

from rigor.errors import UserError
from rigor.learning.checkpoint import KEEP, CorruptCheckpoint
from rigor.learning.frames import frame_shape
from rigor.learning.replay import Layout, Replay, place_frames, rows_for
from rigor.learning.replay_file import ReplayFile
from rigor.runs.memory import RUNS_ON_GPU, SHARE

CPU = torch.device("cpu")

SCRIPTS = [
    [
        Episode((1.0, -2.0, 3.0, 0.5, 4.0, 1.0, 7.0), lives_lost=(1, 4)),
        Episode((5.0,)),
        Episode((6.0, 6.5), truncated=True),
    ],
    [Episode((-1.0, 8.0, 9.0), truncated=True), Episode((2.0,) * 6, lives_lost=(0,))],
    [Episode((1.5,) * 11, truncated=True)],
]


def layout_of(env):
    return Layout(env.n_envs, frame_shape(env), env.observation_dtype, env.frame_stack)


def record(env, replay, n_rows):
    """Step and store as the training loop does; return what each row should give back."""
    rng = np.random.default_rng(0)
    observation, t = env.reset(np.random.SeedSequence(0)), np.zeros(env.n_envs, np.int64)
    rows = []
    for _ in range(n_rows):
        actions = rng.integers(0, env.n_actions, env.n_envs)
        stock = rng.normal(size=env.n_envs)
        step = env.step(actions)
        replay.add(
            observation,
            t=t,
            stock=stock,
            stock_start=stock - 1.0,
            action=actions,
            reward=step.reward,
            terminated=step.terminated,
            valid=~step.dummy,
        )
        rows.append((observation, step, t, stock, actions))
        t = np.where(step.dummy, 0, t + 1)
        observation = step.observation
    return rows


def sample(replay, n, seed):
    """Draw a batch whose observations are arrays."""
    batch = replay.sample(n, np.random.default_rng(seed))
    batch.observation, batch.observation_next = (
        one.numpy() for one in (batch.observation, batch.observation_next)
    )
    return batch


def assert_batch_is_what_was_seen(batch, rows, stack):
    """Match every sampled transition with the recorded one of the same newest frame."""
    newest = (lambda o: bytes(o[-1])) if stack > 1 else bytes
    known = {}
    for row, (observation, *rest) in enumerate(rows):
        for i, one in enumerate(observation):
            known[newest(one)] = (row, i, one, rest)
    found = set()
    for k in range(len(batch.t)):
        row, i, before, (step, t, stock, actions) = known[newest(batch.observation[k])]
        found.add((row, i))
        np.testing.assert_array_equal(batch.observation[k], before)
        np.testing.assert_array_equal(batch.observation_next[k], step.observation[i])
        assert not step.dummy[i]
        assert (batch.t[k], batch.stock[k], batch.action[k]) == (t[i], stock[i], actions[i])
        assert batch.stock_start[k] == stock[i] - 1.0
        assert batch.reward[0, k] == step.reward[i]
        assert batch.terminated[0, k] == step.terminated[i]
    return found


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("n_rows", [9, 60, 62, 130])
def test_batches_hold_what_the_environment_showed_at_every_boundary(stack, n_rows):
    env = ScriptedEnv(SCRIPTS, stack)
    replay = Replay(60 * env.n_envs - env.n_envs, layout_of(env))
    assert replay.n_rows == 60
    rows = record(env, replay, n_rows)
    batch = sample(replay, 1500, 1)
    assert batch.observation.shape == (1500, *env.observation_shape)
    assert batch.observation.dtype == env.observation_dtype
    assert [batch.t.dtype, batch.action.dtype] == [np.int64, np.int64]
    found = assert_batch_is_what_was_seen(batch, rows, stack)
    # whole: the next row is written, and the frames of the stack are still in the ring
    oldest = max(0, n_rows - 60)
    first = oldest + stack - 1 if oldest else 0
    whole = {
        (row, i)
        for row in range(first, n_rows - 1)
        for i in range(env.n_envs)
        if not rows[row][1].dummy[i]
    }
    assert found == whole


def test_the_boundaries_are_among_them():
    """The script of the test above shows each case once a circle."""
    env = ScriptedEnv(SCRIPTS, 4)
    rows = record(env, Replay(200, layout_of(env)), 40)
    steps = [row[1] for row in rows]
    assert any((s.terminated & ~s.episode_end).any() for s in steps)  # a lost life
    assert any((s.episode_end & ~s.terminated).any() for s in steps)  # truncation
    assert any((s.episode_end & s.terminated).any() for s in steps)
    assert any(s.dummy.any() and not s.dummy.all() for s in steps)


def test_next_of_a_truncated_transition_is_the_final_observation():
    env = ScriptedEnv([[Episode((1.0, 2.0, 3.0), truncated=True)]], stack=4)
    replay = Replay(100, layout_of(env))
    rows = record(env, replay, 9)  # steps 0, 1, 2, an autoreset, 0, 1, 2, ...
    batch = sample(replay, 200, 0)
    last = batch.t == 2
    assert last.any()
    assert not batch.terminated.any()
    finals = {rows[2][1].observation[0].tobytes(), rows[6][1].observation[0].tobytes()}
    assert {one.tobytes() for one in batch.observation_next[last]} == finals
    # no frame of the episode before is left in a first observation
    first = batch.observation[batch.t == 0]
    assert not first[:, :3].any()
    assert first[:, 3].all()


def test_draws_are_uniform_over_transitions():
    env = ScriptedEnv(SCRIPTS, 1)
    replay = Replay(60, layout_of(env))
    record(env, replay, 50)
    n = 20_000
    batch = sample(replay, n, 3)
    _, counts = np.unique(batch.observation, axis=0, return_counts=True)
    columns = replay.columns
    newest = (replay.added - 1) % replay.n_rows
    assert len(counts) == columns["valid"].sum() - columns["valid"][newest].sum()
    assert stats.chisquare(counts).pvalue > 0.01


def test_same_generator_same_batch():
    env = ScriptedEnv(SCRIPTS, 2)
    replay = Replay(60, layout_of(env))
    record(env, replay, 50)
    first, second = (sample(replay, 32, 5) for _ in range(2))
    for name, value in vars(first).items():
        np.testing.assert_array_equal(value, getattr(second, name))


def test_rows_for_holds_the_capacity_and_the_row_after_the_newest():
    layout = Layout(8, (84, 84), np.dtype(np.uint8), 4)
    assert rows_for(100_000, layout) == 12_501
    assert rows_for(100_001, layout) == 12_502
    assert rows_for(1, layout) == 2


def test_row_bytes_is_one_frame_and_the_scalars_of_every_copy():
    layout = Layout(8, (84, 84), np.dtype(np.uint8), 4)
    assert layout.row_bytes() == 8 * (84 * 84 + 4 + 8 + 8 + 2 + 8 + 1 + 1)
    replay = Replay(100, layout)
    assert sum(column.nbytes for column in replay.columns.values()) == 14 * layout.row_bytes()


def test_oversized_replay_is_refused_with_a_capacity_that_fits():
    layout = Layout(8, (84, 84), np.dtype(np.uint8), 4)
    place_frames(100_000, 10**7, layout, CPU, free=10**9)
    place_frames(10**9, 50_000, layout, CPU, free=10**9)  # a short run never fills it
    with pytest.raises(UserError, match=r"^train.replay_capacity=1000000: needs 7\.09 GB") as error:
        place_frames(10**6, 10**7, layout, CPU, free=10**9)
    fits = int(re.search(r"train\.replay_capacity=(\d+) fits", str(error.value))[1])
    place_frames(fits, 10**7, layout, CPU, free=10**9)
    with pytest.raises(UserError):
        place_frames(fits + 8, 10**7, layout, CPU, free=10**9)


def test_oversized_replay_asks_the_system_when_not_told(monkeypatch):
    layout = Layout(1, (84, 84), np.dtype(np.uint8), 4)
    with pytest.raises(UserError, match="GB are free; train"):
        place_frames(10**12, 10**13, layout, CPU)
    place_frames(10**4, 10**4, layout, CPU)
    monkeypatch.setenv(SHARE, str(10**7))  # of several runs at once
    with pytest.raises(UserError, match=r"0\.01 GB are free for each of the runs at once; train"):
        place_frames(10**4, 10**4, layout, CPU)


def test_runs_at_once_share_a_gpu(monkeypatch):
    layout = Layout(1, (84, 84), np.dtype(np.uint8), 4)
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9 * 10**8, 10**9))
    assert place_frames(50_000, 10**7, layout, gpu) == gpu  # 0.35 GB of 0.9
    monkeypatch.setenv(RUNS_ON_GPU, "2")
    assert place_frames(50_000, 10**7, layout, gpu) == CPU  # of 0.5 each
    assert place_frames(30_000, 10**7, layout, gpu) == gpu


def copy_of(replay):
    """The rows that the ring holds now, by their place in it."""
    rows = np.arange(max(0, replay.added - replay.n_rows), replay.added) % replay.n_rows
    return {name: column[rows].copy() for name, column in replay.columns.items()}


def assert_reads_back(path, layout, capacity, slack, added, rows):
    fresh = Replay(capacity, layout)
    ReplayFile(path, fresh, slack).read(added)
    assert fresh.added == added
    for name, column in copy_of(fresh).items():
        np.testing.assert_array_equal(column, rows[name])


@settings(max_examples=15, deadline=None)
@given(
    capacity=st.integers(2, 12),
    interval=st.integers(1, 9),
    data=st.data(),
)
def test_no_write_touches_a_row_that_a_kept_checkpoint_needs(capacity, interval, data):
    """The loop saves after at most slack / KEEP rows; the file may be written before a crash."""
    env = ScriptedEnv([[Episode((1.0, 2.0))], [Episode((3.0,) * 5)]], stack=2)
    layout = layout_of(env)
    slack = KEEP * interval
    counts = data.draw(st.lists(st.integers(0, interval), min_size=1, max_size=12))
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(capacity, layout)
        file = ReplayFile(Path(folder) / "replay.bin", replay, slack)
        kept = []
        for count in counts:
            record(env, replay, count)
            file.write()
            now = (replay.added, copy_of(replay))
            for added, rows in [*kept, now]:
                assert_reads_back(file.path, layout, capacity, slack, added, rows)
            kept = [*kept, now][-KEEP:]


def test_a_file_that_was_read_goes_on_being_written(tmp_path):
    env = ScriptedEnv(SCRIPTS, 4)
    layout, path = layout_of(env), tmp_path / "replay.bin"
    replay = Replay(30, layout)
    file = ReplayFile(path, replay, 8)
    record(env, replay, 17)
    file.write()
    again = Replay(30, layout)
    resumed = ReplayFile(path, again, 8)
    resumed.read(17)
    for one in (replay, again):
        one.add(np.full((3, 4, 3, 1), 9, np.uint8), t=np.arange(3), valid=np.ones(3, bool))
    resumed.write()
    assert_reads_back(path, layout, 30, 8, 18, copy_of(replay))


def test_file_is_the_size_of_its_rows_and_does_not_grow(tmp_path):
    env = ScriptedEnv(SCRIPTS, 4)
    replay = Replay(30, layout_of(env))
    file = ReplayFile(tmp_path / "replay.bin", replay, 6)
    for _ in range(20):
        record(env, replay, 3)
        file.write()
    assert file.path.stat().st_size == (11 + 6) * layout_of(env).row_bytes()


def test_a_short_run_leaves_a_short_file(tmp_path):
    layout = Layout(1, (84, 84), np.dtype(np.uint8), 4)
    replay = Replay(10_000, layout)
    file = ReplayFile(tmp_path / "replay.bin", replay, 100)
    for _ in range(20):
        replay.add(np.full((1, 4, 84, 84), 7, np.uint8))
    file.write()
    assert file.path.stat().st_blocks * 512 < 100 * layout.row_bytes()


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_missing_or_cut_file_is_corrupt(tmp_path, keep):
    env = ScriptedEnv(SCRIPTS, 4)
    replay = Replay(30, layout_of(env))
    file = ReplayFile(tmp_path / "replay.bin", replay, 6)
    with pytest.raises(CorruptCheckpoint, match=r"replay\.bin: missing"):
        file.read(3)
    record(env, replay, 17)
    file.write()
    content = file.path.read_bytes()
    file.path.write_bytes(content[:keep])
    with pytest.raises(CorruptCheckpoint, match="is cut"):
        ReplayFile(file.path, Replay(30, layout_of(env)), 6).read(17)


@pytest.mark.slow
@pytest.mark.parametrize("life_loss", ["terminal", "reset"])
def test_breakout_stacks_are_rebuilt_from_single_frames(life_loss):
    from rigor.envs.atari import PROTOCOLS, Atari

    settings = PROTOCOLS["paper"] | {"life_loss": life_loss}
    # a game of 45 steps or less: cut, lost and restarted within the 220
    config = Atari(
        "breakout", "paper", num_envs=2, frame_skip=4, max_frames=180, threads=1, **settings
    )
    env = config.make(2, evaluation=False)
    replay = Replay(300, layout_of(env))
    rows = record(env, replay, 220)
    env.close()
    steps = [row[1] for row in rows]
    assert any((s.episode_end & ~s.terminated).any() for s in steps)
    assert any(s.terminated.any() for s in steps)
    batch = sample(replay, 3000, 0)
    # frames repeat in a game, so rows are told apart by the stock, which is random here
    place = {stock[i]: (row, i) for row, (*_, stock, _) in enumerate(rows) for i in range(2)}
    found = set()
    for k in range(len(batch.t)):
        row, i = place[batch.stock[k]]
        found.add((row, i))
        assert np.array_equal(batch.observation[k], rows[row][0][i])
        assert np.array_equal(batch.observation_next[k], rows[row][1].observation[i])
        assert not rows[row][1].dummy[i]
    assert len(found) > 0.95 * sum((~rows[row][1].dummy).sum() for row in range(72, 219))


@pytest.mark.parametrize("stack", [1, 4])
def test_transitions_of_several_steps_end_with_their_episode_and_at_the_newest_row(stack):
    env, n = ScriptedEnv(SCRIPTS, stack), 3
    replay = Replay(40 * env.n_envs - env.n_envs, layout_of(env))
    rows = record(env, replay, 90)
    batch = replay.sample(1500, np.random.default_rng(0), n)
    newest = (lambda o: bytes(o[-1])) if stack > 1 else bytes
    known = {
        newest(one): (row, i) for row, seen in enumerate(rows) for i, one in enumerate(seen[0])
    }
    lengths = set()
    for k in range(1500):
        row, i = known[newest(batch.observation[k].numpy())]
        steps = []  # until the row before an autoreset, the newest row, or n steps
        while len(steps) < n and row + len(steps) < 89 and not rows[row + len(steps)][1].dummy[i]:
            steps.append(rows[row + len(steps)][1])
        length = len(steps)
        lengths.add((length, bool(steps[-1].terminated[i]), bool(steps[-1].episode_end[i])))
        assert batch.length[k] == length
        assert batch.reward[:length, k].tolist() == [step.reward[i] for step in steps]
        assert batch.terminated[:length, k].tolist() == [step.terminated[i] for step in steps]
        assert not batch.reward[length:, k].any()
        np.testing.assert_array_equal(batch.observation_next[k], steps[-1].observation[i])
    # whole ones, shorter ones that terminate, that are truncated, and at the newest row
    assert {(3, False, False), (1, True, True), (1, False, True), (1, False, False)} <= lengths
