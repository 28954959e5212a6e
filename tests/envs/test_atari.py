import math
import sys
import types
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from omegaconf import OmegaConf
from PIL import Image

from rigor.envs.atari import GAMES, PROTOCOLS, Atari, protocol_value

CONF = Path(__file__).parents[2] / "conf" / "env" / "atari"
SEED = np.random.SeedSequence(11)


def config(game="breakout", protocol="paper", **changes):
    values = {
        "game": game,
        "protocol": protocol,
        "num_envs": 2,
        "frame_skip": 4,
        "max_frames": 108_000,
        "threads": 2,
    }
    return Atari(**(values | PROTOCOLS[protocol] | changes))


def random_steps(env, n_steps, seed=0):
    """Yield n_steps random steps; the caller resets before."""
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        yield env.step(rng.integers(0, env.n_actions, env.n_envs))


def test_the_57_games_are_roms_with_a_file_each():
    assert len(set(GAMES)) == 57
    assert set(GAMES) <= set(ale_py.roms.get_all_rom_ids())
    files = {path.stem: path for path in CONF.glob("*.yaml") if not path.stem.startswith("_")}
    assert set(files) == set(GAMES)
    for game, path in files.items():
        assert path.read_text().startswith("# @package env\n")
        assert OmegaConf.load(path) == {
            "defaults": ["/env/atari/_base@_here_", "_self_"],
            "game": game,
        }


def test_protocols():
    assert protocol_value("paper", "life_loss") == "terminal"
    assert protocol_value("release", "life_loss") == "reset"
    assert protocol_value("machado", "life_loss") == "ignore"
    assert protocol_value("machado", "sticky") == 0.25
    assert PROTOCOLS["release"] == PROTOCOLS["paper"] | {"life_loss": "reset"}
    with pytest.raises(ValueError, match="paper, machado, release, dopamine"):
        protocol_value("papr", "sticky")
    with pytest.raises(ValueError, match="max_frames"):
        protocol_value("paper", "max_frames")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"game": "breakot"}, r"env\.game=breakot: .* did you mean breakout"),
        ({"game": "Pong"}, "did you mean pong"),
        ({"game": "xx"}, "choose one of alien"),
        ({"life_loss": "never"}, r"env\.life_loss=never: .*terminal, reset, ignore"),
        ({"sticky": 1.5}, r"env\.sticky=1\.5"),
        ({"num_envs": 0}, r"env\.num_envs=0"),
        ({"frame_skip": 0}, r"env\.frame_skip=0"),
        ({"threads": 0}, r"env\.threads=0"),
        ({"noop_max": -1}, r"env\.noop_max=-1"),
        ({"max_frames": 3}, r"env\.max_frames=3: .*env\.frame_skip=4"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_an_unknown_protocol_is_refused():
    schema = OmegaConf.merge(OmegaConf.structured(Atari), vars(config()))
    assert OmegaConf.to_object(schema) == config()
    schema.protocol = "papr"
    with pytest.raises(ValueError, match=r"env\.protocol=papr"):
        OmegaConf.to_object(schema)


def test_facts():
    env = config().make(2, False)
    assert (env.n_envs, env.n_actions) == (2, 4)
    assert (env.observation_shape, env.observation_dtype) == ((4, 84, 84), np.dtype(np.uint8))
    assert (env.max_time, env.time_scale, env.frame_stack) == (27_000, 1000.0, 4)
    assert config(protocol="machado").make(1, False).n_actions == 18
    observation = env.reset(SEED)
    assert (observation.shape, observation.dtype) == ((2, 4, 84, 84), np.uint8)
    assert env.state() is None
    env.close()


def test_an_action_out_of_range_is_refused():
    env = config("pong").make(2, False)
    env.reset(SEED)
    for actions in ([0, 6], [-1, 0], [0]):
        with pytest.raises(ValueError, match="actions must"):
            env.step(np.array(actions))
    assert not env.step(np.array([0, 5])).dummy.any()


@pytest.mark.parametrize("life_loss", ["terminal", "reset", "ignore"])
def test_the_stack_holds_the_frames_since_the_reset_and_zeros(life_loss):
    # A replay of single frames relies on this: frame t−j if j <= t, else zero.
    env = config(life_loss=life_loss).make(2, False)
    observation = env.reset(SEED)
    frames = [[stack[-1]] for stack in observation]
    n_resets = n_lives = 0
    for step in [None, *random_steps(env, 270)]:
        for i in range(2):
            if step is not None:
                observation = step.observation
                if step.dummy[i]:
                    frames[i] = []
                    n_resets += 1
                frames[i].append(observation[i, -1])
                n_lives += bool(step.terminated[i] and not step.episode_end[i])
            t = len(frames[i]) - 1
            assert frames[i][0].any()  # with a black first frame the test would check nothing
            for j in range(4):
                expected = frames[i][t - j] if j <= t else np.zeros((84, 84), np.uint8)
                np.testing.assert_array_equal(observation[i, 3 - j], expected)
    assert n_resets >= 2
    assert (n_lives >= 8) == (life_loss == "terminal")


@pytest.mark.parametrize("protocol", ["paper", "machado"])
def test_a_dummy_step_follows_the_end_and_gives_no_reward(protocol):
    env = config(protocol=protocol).make(2, False)
    env.reset(SEED)
    ended = np.zeros(2, dtype=bool)
    n_ends = 0
    for step in random_steps(env, 250):
        np.testing.assert_array_equal(step.dummy, ended)
        assert not (step.dummy & (step.terminated | step.episode_end)).any()
        assert not step.reward[step.dummy].any()
        ended = step.episode_end
        n_ends += ended.sum()
    assert n_ends >= 1


def test_effect_of_a_lost_life():
    plays = {}
    for life_loss in ("terminal", "reset", "ignore"):
        env = config(life_loss=life_loss).make(1, False)
        env.reset(SEED)
        plays[life_loss] = list(random_steps(env, 150))
    terminal, reset, ignore = plays["terminal"], plays["reset"], plays["ignore"]
    # Five lives in Breakout: four cut the bootstrap only, the fifth ends the game.
    first_end = next(i for i, step in enumerate(ignore) if step.episode_end[0])
    game = terminal[: first_end + 1]
    assert [bool(step.episode_end[0]) for step in game if step.terminated[0]] == [False] * 4 + [
        True
    ]
    # `terminal` plays the same game as `ignore`, whose only termination is its end.
    for a, b in zip(terminal, ignore, strict=True):
        np.testing.assert_array_equal(a.observation, b.observation)
        np.testing.assert_array_equal(a.episode_end, b.episode_end)
        np.testing.assert_array_equal(b.terminated, b.episode_end)
    # `reset` ends the episode at the first lost life, and a dummy step follows.
    lost = next(i for i, step in enumerate(reset) if step.terminated[0])
    assert lost == next(i for i, step in enumerate(terminal) if step.terminated[0])
    assert reset[lost].episode_end[0]
    assert reset[lost + 1].dummy[0]
    assert not terminal[lost + 1].dummy[0]


@pytest.mark.parametrize("life_loss", ["terminal", "reset"])
def test_evaluation_plays_whole_games(life_loss):
    env, whole = config(life_loss=life_loss).make(1, True), config(life_loss="ignore").make(1, True)
    np.testing.assert_array_equal(env.reset(SEED), whole.reset(SEED))
    for a, b in zip(random_steps(env, 150), random_steps(whole, 150), strict=True):
        np.testing.assert_array_equal(a.observation, b.observation)
        np.testing.assert_array_equal(a.terminated, b.terminated)
        np.testing.assert_array_equal(a.episode_end, b.episode_end)
        np.testing.assert_array_equal(a.terminated, a.episode_end)


@pytest.mark.parametrize(
    ("life_loss", "max_frames", "length"),
    [("terminal", 100, 25), ("terminal", 102, 26), ("reset", 102, 26), ("ignore", 102, 26)],
)
def test_max_frames_truncates_at_max_time(life_loss, max_frames, length):
    # Pong has no lives, so every episode has this number of steps, not counting no-ops.
    env = config("pong", max_frames=max_frames, life_loss=life_loss).make(2, False)
    assert env.max_time == length
    env.reset(SEED)
    steps = list(random_steps(env, 3 * (length + 1)))
    assert not any(step.terminated.any() for step in steps)
    ends = [i + 1 for i, step in enumerate(steps) if step.episode_end.all()]
    assert ends == [length, 2 * length + 1, 3 * length + 2]
    assert sum(step.episode_end.sum() for step in steps) == 6


class FakeEmulator:
    """Return lives, terminated and truncated of one copy from a script."""

    def __init__(self, *script):
        self.script = list(script)

    def step(self, actions):
        lives, *flags = self.script.pop(0)
        flags = (np.array([flag]) for flag in flags)
        return None, np.zeros(1, np.int32), *flags, {"lives": np.array([lives])}


def test_lives_won_and_lost_around_a_truncation():
    env = config().make(1, False)
    env.reset(SEED)
    env._games = FakeEmulator(
        (6, False, False),  # a life more than the five before
        (6, False, True),  # truncated
        (
            5,
            False,
            False,
        ),  # the dummy step: a new game starts with fewer lives, which is not a loss
        (4, False, True),  # a life lost in a truncated step cuts the bootstrap
    )
    steps = [env.step(np.array([0])) for _ in range(4)]
    assert [bool(step.terminated[0]) for step in steps] == [False, False, False, True]
    assert [bool(step.episode_end[0]) for step in steps] == [False, True, False, True]
    assert [bool(step.dummy[0]) for step in steps] == [False, False, True, False]


@pytest.mark.parametrize("noop_max", [0, 30])
def test_no_ops_make_games_start_differently(noop_max):
    # The invaders move during the no-ops.
    first = config("space_invaders", noop_max=noop_max).make(4, False).reset(SEED)
    assert (len(np.unique(first, axis=0)) > 1) == (noop_max > 0)


@pytest.mark.parametrize("fire_reset", [False, True])
def test_fire_starts_games_that_wait_for_it(fire_reset):
    env = config(fire_reset=fire_reset).make(1, False)
    env.reset(SEED)
    lost = [env.step(np.array([0])).terminated[0] for _ in range(60)]
    assert any(lost) == fire_reset


def test_rewards_are_raw_and_learned_rewards_are_clipped():
    env = config("qbert").make(2, False)
    env.reset(SEED)
    rewards = np.array([step.reward for step in random_steps(env, 100)])
    assert rewards.dtype == np.float64
    assert set(rewards.flat) == {0.0, 25.0}
    assert set(env.learner_reward(rewards).flat) == {0.0, 1.0}
    np.testing.assert_array_equal(env.learner_reward(np.array([-7.0, -1.0, 0.0])), [-1, -1, 0])


def test_a_seed_fixes_the_episode_for_any_number_of_threads():
    env, other = config().make(2, False), config(threads=1).make(2, False)
    np.testing.assert_array_equal(env.reset(SEED), other.reset(SEED))
    for a, b in zip(random_steps(env, 150), random_steps(other, 150), strict=True):
        np.testing.assert_array_equal(a.observation, b.observation)
        np.testing.assert_array_equal(a.reward, b.reward)


def test_copies_and_seeds_use_different_random_numbers():
    # All copies take the same actions, so only the emulator's sticky actions differ.
    play = []
    for seed in (11, 12):
        env = config("pong", protocol="machado").make(2, False)
        env.reset(np.random.SeedSequence(seed))
        rng = np.random.default_rng(0)
        steps = [env.step(np.full(2, rng.integers(0, 18))) for _ in range(40)]
        play += list(np.stack([step.observation for step in steps], axis=1))
    for i in range(4):
        for j in range(i):
            assert not np.array_equal(play[i], play[j])


def test_a_returned_observation_is_not_overwritten():
    env = config("pong").make(2, False)
    kept = [env.reset(SEED)]
    copies = [kept[0].copy()]
    for step in random_steps(env, 50):
        kept.append(step.observation)
        copies.append(step.observation.copy())
    np.testing.assert_array_equal(kept, copies)


@pytest.mark.parametrize(("game", "id"), [("breakout", "Breakout"), ("pong", "Pong")])
def test_is_gymnasiums_preprocessing_bit_for_bit(game, id, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", types.SimpleNamespace(resize=resize, INTER_AREA=3))
    gymnasium.register_envs(ale_py)
    inner = gymnasium.make(f"ALE/{id}-v5", frameskip=1, repeat_action_probability=0.0)
    peer = FrameStackObservation(AtariPreprocessing(inner, noop_max=0), 4, padding_type="zero")
    env = config(game, noop_max=0, fire_reset=False, threads=1).make(1, False)
    ours = env.reset(SEED)[0]
    theirs, _ = peer.reset(seed=0)
    ended, lives = False, inner.unwrapped.ale.lives()
    for action in np.random.default_rng(0).integers(0, env.n_actions, 300).tolist():
        np.testing.assert_array_equal(ours, theirs)
        step = env.step(np.array([action]))
        assert step.dummy[0] == ended
        if ended:
            (theirs, _), ended = peer.reset(), False
        else:
            theirs, reward, terminated, truncated, _ = peer.step(action)
            lost = inner.unwrapped.ale.lives() < lives
            ended = terminated or truncated
            assert (step.reward[0], step.episode_end[0]) == (reward, ended)
            assert step.terminated[0] == (terminated or lost)
        lives = inner.unwrapped.ale.lives()
        ours = step.observation[0]


def resize(image, size, interpolation):
    """Compute OpenCV's INTER_AREA of a grey frame, with its order of float32 sums."""
    assert (size, interpolation) == ((84, 84), 3)
    image = image.astype(np.float32)
    columns = sum(image[:, i] * w for i, w in area_weights(image.shape[1], 84))
    rows = sum(columns[i] * w[:, None] for i, w in area_weights(image.shape[0], 84))
    return np.rint(rows).astype(np.uint8)


def area_weights(n, m):
    """Return, for each k, the k-th pixel under each of m cells and its fraction of the cell."""
    scale = n / m
    parts = []
    for cell in range(m):
        low, high = cell * scale, (cell + 1) * scale
        pixels = range(math.floor(low + 1e-9), math.ceil(high - 1e-9))
        parts.append([(p, (min(high, p + 1) - max(low, p)) / scale) for p in pixels])
    longest = max(len(part) for part in parts)
    padded = np.array([part + [(0, 0.0)] * (longest - len(part)) for part in parts])
    return [(padded[:, k, 0].astype(int), padded[:, k, 1].astype("f4")) for k in range(longest)]


def test_frames_show_the_game_that_is_played():
    env = config(sticky=0.25).video_env()
    plain = config(sticky=0.25).make(1, evaluation=True)
    seed = np.random.SeedSequence(4)
    assert np.array_equal(env.reset(seed), plain.reset(seed))
    assert env.action_names == ["noop", "fire", "right", "left"]
    assert env.frames_per_second == 15.0
    frames = [env.frame()]
    rng = np.random.default_rng(0)
    for _ in range(120):
        actions = rng.integers(0, env.n_actions, 1)
        step, other = env.step(actions), plain.step(actions)
        assert np.array_equal(step.observation, other.observation)
        assert np.array_equal(step.reward, other.reward)
        assert np.array_equal(step.episode_end, other.episode_end)
        frames.append(env.frame())
        # the observation is the frame in grey, reduced to 84 x 84 pixels
        grey = frames[-1] @ [0.299, 0.587, 0.114]
        small = np.array(
            Image.fromarray(grey.astype(np.uint8)).resize((84, 84), Image.Resampling.BOX)
        )
        assert np.abs(small.astype(int) - step.observation[0, -1]).mean() < 3.0
    assert {frame.shape for frame in frames} == {(210, 160, 3)}
    assert np.ptp(frames[0], axis=2).max() > 100  # in colour
    assert not np.array_equal(frames[0], frames[-1])
    env.close()
    plain.close()
