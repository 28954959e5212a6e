import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forms import PARTS, SEED, actions_for, autoreset_step, check_is_gymnasium
from minatar import Environment

from rigor.config import groups
from rigor.envs.gymnasium_forms import MinAtarEnv
from rigor.envs.minatar import GAMES, MinAtar
from rigor.envs.vector import copy_seeds
from rigor.errors import UserError
from rigor.learning import checkpoint

PLANES = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}
ACTIONS = {"asterix": 5, "breakout": 3, "freeway": 3, "seaquest": 6, "space_invaders": 4}


def game(name="breakout", **changes):
    values = {"sticky": 0.1, "full_actions": False, "max_steps": 10_000, "num_envs": 8}
    return MinAtar(game=name, **(values | changes))


def test_every_game_has_a_file_that_names_it():
    folder = Path(__file__).parents[2] / "conf/env/minatar"
    text = (folder / "breakout.yaml").read_text()
    files = {path.stem: path.read_text() for path in folder.glob("[!_]*.yaml")}
    assert files == {name: text.replace("game: breakout", f"game: {name}") for name in GAMES}
    assert {f"minatar/{name}" for name in GAMES} < set(groups.options()["env"])


@pytest.mark.parametrize("name", GAMES)
def test_the_facts_of_a_game(name):
    env = game(name).make(3, False)
    assert env.observation_shape == (PLANES[name], 10, 10)
    assert env.observation_dtype == np.dtype(bool)
    assert (env.n_actions, env.max_time, env.frame_stack) == (ACTIONS[name], 10_000, 1)
    assert game(name, full_actions=True).make(1, False).n_actions == 6
    observation = env.reset(SEED)
    assert (observation.shape, observation.dtype) == ((3, PLANES[name], 10, 10), np.dtype(bool))
    np.testing.assert_array_equal(env.learner_reward(np.array([10.0])), [10.0])  # not clipped


def test_names_of_actions():
    assert game("space_invaders").video_env().action_names == ["noop", "left", "right", "fire"]


@pytest.mark.parametrize("name", GAMES)
def test_copies_are_the_emulator_of_the_package(name):
    """Each copy is the package's game with the same stream of random numbers."""
    env = game(name).make(2, True)
    peers = []
    for number in copy_seeds(SEED, 2).tolist():
        peer = Environment(name, sticky_action_prob=0.1)
        peer.random = peer.env.random = np.random.RandomState(np.random.PCG64(number))
        peer.reset()
        peers.append(peer)
    observation, ended = env.reset(SEED), [False, False]
    numbers = peers[0].minimal_action_set()
    n_ended = 0
    for actions in actions_for(env, 600):
        for i, peer in enumerate(peers):
            np.testing.assert_array_equal(observation[i], peer.state().transpose(2, 0, 1))
        step = env.step(actions)
        for i, peer in enumerate(peers):
            assert step.dummy[i] == ended[i]
            reward, over = (0, False) if ended[i] else peer.act(numbers[actions[i]])
            if ended[i]:
                peer.reset()
            assert (step.reward[i], step.terminated[i]) == (reward, over)
            assert step.episode_end[i] == over
            ended[i] = over
        n_ended += step.episode_end.sum()
        observation = step.observation
    assert n_ended > 0 or name == "freeway"


@pytest.mark.parametrize("name", GAMES)
def test_gymnasium_accepts_the_form_of_a_single_game(name):
    check_is_gymnasium(MinAtarEnv(game(name, max_steps=300)))


def test_the_form_of_a_single_game_is_a_batch_of_one():
    spec = game("asterix", max_steps=40)
    batch, env = spec.make(1, False), MinAtarEnv(spec)
    first = batch.reset(SEED)[0]
    np.testing.assert_array_equal(first, env.reset(seed=int(copy_seeds(SEED, 1)[0]))[0])
    ended, ends = False, set()
    for action in actions_for(batch, 300)[:, 0]:
        step = batch.step(np.array([action]))
        expected = autoreset_step(env, action, ended, np.asarray)
        for part, value in zip(PARTS, expected, strict=True):
            np.testing.assert_array_equal(getattr(step, part)[0], value, err_msg=part)
        ended = step.episode_end[0]
        ends |= {bool(step.terminated[0])} if ended else set()
    assert ends == {True, False}  # games that were over, and games that were cut


def test_games_are_cut_at_the_limit():
    env = game("freeway", max_steps=3).make(2, False)
    env.reset(SEED)
    steps = [env.step(np.array([0, 1])) for _ in range(5)]
    assert [step.episode_end.tolist() for step in steps] == [[k == 2] * 2 for k in range(5)]
    assert [step.dummy.tolist() for step in steps] == [[k == 3] * 2 for k in range(5)]
    assert not any(step.terminated.any() for step in steps)


def test_copies_in_training_do_not_end_together():
    """A game of freeway has 2,501 steps; copy i has played i * 2,500 / 5 of them."""
    env = game("freeway").make(5, False)
    env.reset(SEED)
    ends = np.zeros(5, np.int64)
    for k in range(1, 2502):
        ends = np.where(env.step(np.zeros(5, np.int64)).episode_end & (ends == 0), k, ends)
    assert ends.tolist() == [2501, 2001, 1501, 1001, 501]


def test_the_end_of_a_game_at_its_limit_is_no_cut():
    env = game("freeway", max_steps=2501).make(1, False)
    env.reset(SEED)
    for _ in range(2500):
        assert not env.step(np.array([0])).episode_end[0]
    step = env.step(np.array([0]))
    assert step.terminated[0]
    assert step.episode_end[0]


def test_the_same_seed_gives_the_same_games_and_copies_differ():
    first, second = (game().make(8, False) for _ in range(2))
    a, b = first.reset(SEED), second.reset(SEED)
    np.testing.assert_array_equal(a, b)
    assert len({row.tobytes() for row in a}) > 1
    for actions in actions_for(first, 100):
        np.testing.assert_array_equal(
            first.step(actions).observation, second.step(actions).observation
        )
    np.testing.assert_array_equal(first.reset(SEED), a)  # whatever was played before


def test_sticky_actions_repeat_the_last_action():
    env = game("breakout", sticky=0.5).make(1, False)
    env.reset(SEED)
    moved = 0
    for _ in range(400):  # left until the wall, then right: a stuck action is a step that fails
        before = env._games[0].env.pos
        action = 1 if before == 9 else 2
        step = env.step(np.array([action]))
        moved += env._games[0].env.pos != before
        if step.episode_end[0]:
            env.step(np.array([0]))
    assert 0 < moved < 400


@pytest.mark.parametrize("name", GAMES)
def test_restored_games_continue_bit_for_bit(name, tmp_path):
    env, other = (game(name, max_steps=60).make(4, False) for _ in range(2))
    env.reset(SEED)
    other.reset(np.random.SeedSequence(99))
    actions = actions_for(env, 400)
    for start in (0, 1, 60, 150):
        for row in actions[:start]:
            env.step(row)
        saved = checkpoint.load(checkpoint.save(tmp_path, start, env.state()))
        restored = other.restore(saved)
        for row in actions[200:]:
            ours, theirs = env.step(row), other.step(row)
            for part in PARTS:
                np.testing.assert_array_equal(getattr(ours, part), getattr(theirs, part), part)
        assert restored.shape == (4, *env.observation_shape)
        assert json.dumps(env.state()["generators"]) == json.dumps(other.state()["generators"])


def test_a_state_is_a_copy_and_of_these_games_only():
    env = game().make(2, False)
    env.reset(SEED)
    state = env.state()
    before = state["games"][0]["brick_map"].copy()
    for row in actions_for(env, 100):
        env.step(row)
    np.testing.assert_array_equal(state["games"][0]["brick_map"], before)
    assert game().make(3, False).restore(state) is None
    assert game("asterix").make(2, False).restore(state) is None


def test_observations_are_not_overwritten():
    env = game("asterix").make(2, False)
    first = env.reset(SEED)
    kept = first.copy()
    for row in actions_for(env, 20):
        env.step(row)
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("bad", [np.array([0, 3]), np.array([-1, 0]), np.array([0.0, 1.0])])
def test_unknown_actions_are_refused(bad):
    env = game().make(2, False)
    env.reset(SEED)
    with pytest.raises(ValueError, match="actions"):
        env.step(bad)


def test_a_picture_has_a_colour_for_each_kind_of_object():
    env = game("breakout").video_env()
    env.reset(SEED)
    frame = env.frame()
    assert (frame.shape, frame.dtype) == ((160, 160, 3), np.uint8)
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) == 3  # the ball starts among bricks
    for _ in range(2):
        env.step(np.array([0]))
    assert len(np.unique(env.frame().reshape(-1, 3), axis=0)) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"game": "breakot"}, r"env\.game=breakot: .* did you mean breakout\?"),
        ({"game": "pong"}, r"env\.game=pong: .* choose one of asterix, breakout"),
        ({"sticky": 1.0}, r"env\.sticky=1\.0: a probability"),
        ({"max_steps": 0}, r"env\.max_steps=0: must be 1 or more"),
        ({"num_envs": 0}, r"env\.num_envs=0: must be 1 or more"),
    ],
)
def test_bad_values_are_refused(changes, message):
    name = changes.pop("game", "breakout")
    with pytest.raises(ValueError, match=message):
        game(name, **changes)


def test_without_the_package_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar", None)
    with pytest.raises(UserError, match=r"env=minatar/breakout: .* pip install minatar"):
        game().make(1, False)


def test_the_package_is_imported_late():
    # it imports seaborn and matplotlib, which takes seconds
    program = "import sys; import rigor.envs.minatar; print('minatar' in sys.modules, end='')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False", "")
