import numpy as np
import pytest
from forms import (
    SEED,
    built,
    check_batch_is_single_copies,
    check_is_gymnasium,
    check_one_copy_is_the_gymnasium_form,
    check_restored_continues,
)
from gymnasium import spaces

from rigor.envs.single import TabularEnv
from rigor.envs.tabular import Tabular


def tabular(**changes):
    return built(Tabular, "tabular", **changes)


def file(tmp_path, **arrays):
    """Write a problem of 2 states and 1 action that goes to and fro, with some arrays changed."""
    whole = {"P": np.array([[[0.0, 1.0]], [[1.0, 0.0]]]), "reward": np.ones((2, 1, 1, 1))}
    path = tmp_path / "model.npz"
    kept = {key: value for key, value in (whole | arrays).items() if value is not None}
    np.savez(path, **kept)
    return str(path)


def encoder(spec):
    """Return how the batch shows what the Gymnasium form shows."""
    n, horizon = spec.n_states, spec.n_decisions
    one_hot = np.eye(n, dtype=np.float32)
    if horizon is None:
        return lambda state: one_hot[state]
    return lambda seen: np.append(one_hot[seen[0]], np.float32(seen[1] / horizon))


# --- builtins -------------------------------------------------------------------------------------


def test_the_chain_by_hand():
    p = tabular(states=3).problem()
    assert p.P.shape == (3, 2, 3)
    np.testing.assert_array_equal(p.P[:, 0], [[1, 0, 0], [1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(p.P[:, 1], [[0.1, 0.9, 0], [0, 0.1, 0.9], [1, 0, 0]])
    mean = (p.reward * p.reward_probability).sum(axis=-1)  # [S, A, S]
    np.testing.assert_allclose(mean[:2, 0], 0.1)
    np.testing.assert_array_equal(mean[:2, 1], 0)
    np.testing.assert_array_equal(mean[2], 1)
    assert set(np.unique(p.reward[0, 0])) == {0.0, 0.2}
    np.testing.assert_array_equal(p.initial, [1, 0, 0])
    assert not p.terminal.any()


def test_a_random_problem_is_its_seeds():
    one = tabular(builtin="random", states=4, actions=3).problem()
    again = tabular(builtin="random", states=4, actions=3).problem()
    other = tabular(builtin="random", states=4, actions=3, builtin_seed=1).problem()
    assert (one.P.shape, one.reward.shape) == ((4, 3, 4), (4, 3, 4, 2))
    np.testing.assert_allclose(one.P.sum(axis=-1), 1)
    np.testing.assert_allclose(one.reward_probability.sum(axis=-1), 1)
    np.testing.assert_array_equal(one.reward, one.reward.round())
    for name in ("P", "reward", "reward_probability"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))


# --- dynamics -------------------------------------------------------------------------------------


def test_every_step_of_a_finite_horizon(tmp_path):
    # to and fro with rewards 3 and 5; two decisions, then the next episode
    reward = np.array([3.0, 5.0]).reshape(2, 1, 1, 1)
    env = tabular(path=file(tmp_path, reward=reward), horizon=2).make(1, False)
    np.testing.assert_array_equal(env.reset(SEED), [[1, 0, 0]])
    expected = [
        ((0, 1, 0.5), 3, False, False, False),
        ((1, 0, 1.0), 5, True, True, False),
        ((1, 0, 0.0), 0, False, False, True),
        ((0, 1, 0.5), 3, False, False, False),
    ]
    for number, row in enumerate(expected):
        step = env.step(np.array([0]))
        parts = (step.observation, step.reward, step.terminated, step.episode_end, step.dummy)
        for part, value in zip(parts, row, strict=True):
            np.testing.assert_array_equal(part[0], value, err_msg=f"step {number}")


@pytest.mark.parametrize("horizon", ["inf", float("inf")])
def test_an_infinite_horizon_truncates(tmp_path, horizon):
    spec = tabular(path=file(tmp_path), horizon=horizon, max_steps=3)
    assert spec.n_decisions is None
    env = spec.make(1, False)
    assert (env.max_time, env.observation_shape) == (3, (2,))
    env.reset(SEED)
    steps = [env.step(np.array([0])) for _ in range(4)]
    assert [bool(step.episode_end[0]) for step in steps] == [False, False, True, False]
    assert not any(step.terminated[0] for step in steps)
    assert steps[3].dummy[0]


@pytest.mark.parametrize("horizon", [10, "inf"])
def test_entering_a_terminal_state_ends_the_episode_and_pays(tmp_path, horizon):
    path = file(tmp_path, terminal=np.array([False, True]))
    env = tabular(path=path, horizon=horizon).make(2, False)
    env.reset(SEED)
    step = env.step(np.array([0, 0]))
    assert (step.terminated.all(), step.episode_end.all()) == (True, True)
    np.testing.assert_array_equal(step.observation[:, :2], [[0, 1]] * 2)
    np.testing.assert_array_equal(step.reward, [1, 1])


def test_a_terminal_state_at_the_limit_is_no_truncation(tmp_path):
    path = file(tmp_path, terminal=np.array([False, True]))
    env = tabular(path=path, horizon="inf", max_steps=1).make(1, False)
    env.reset(SEED)
    assert env.step(np.array([0])).terminated[0]


def test_states_and_rewards_have_the_laws_of_the_tables(tmp_path):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), (4, 2))
    P[0, 0] = [0, 0.5, 0, 0.5]  # outcomes that never happen, at either end of the running sum
    P[1, 1] = [0.3, 0.7, 0, 0]
    chance = rng.dirichlet(np.ones(3), (4, 2, 4))
    reward = np.arange(4 * 2 * 4 * 3, dtype=float).reshape(4, 2, 4, 3)  # each of its own
    initial = np.array([0.5, 0.2, 0.3, 0])
    arrays = {"P": P, "reward": reward, "reward_probability": chance, "initial": initial}
    spec = tabular(path=file(tmp_path, **arrays))
    n = 100_000
    rng = np.random.default_rng(1)
    first = spec.begin(n, rng)
    close(np.bincount(first, minlength=4) / n, initial, n)
    for state, action in ((0, 0), (1, 1), (2, 0)):
        noise = spec.draw(n, rng)
        arrived, earned, _ = spec.move(
            np.zeros(n, np.int64), np.full(n, state), np.full(n, action), noise
        )
        close(np.bincount(arrived, minlength=4) / n, P[state, action], n)
        number = (earned - reward[state, action, 0, 0]).astype(np.int64)  # next state and atom
        joint = (P[state, action][:, None] * chance[state, action]).ravel()
        close(np.bincount(number, minlength=12) / n, joint, n)
        np.testing.assert_array_equal(number // 3, arrived)


def close(found, expected, n):
    """Five standard errors apart at most; what is impossible never happens."""
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / n)).all()


def test_the_ends_of_the_unit_interval_pick_possible_outcomes(tmp_path):
    # ten tenths sum to less than 1 in floating point
    P = np.full((10, 1, 10), 0.1)
    P[0, 0] = [0, *[1 / 8] * 8, 0]
    spec = tabular(path=file(tmp_path, P=P, reward=np.zeros((1, 1, 1, 1))))
    t, zero = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for state, uniform, arrived in (
        (0, 0.0, 1),
        (0, 1 - 2**-53, 8),
        (1, 0.0, 0),
        (1, 1 - 2**-53, 9),
    ):
        found, _, _ = spec.move(t, zero + state, zero, np.full((1, 2), uniform))
        assert found[0] == arrived


# --- facts ----------------------------------------------------------------------------------------


def test_facts(tmp_path):
    env = tabular().make(3, True)
    assert (env.n_envs, env.n_actions, env.observation_shape) == (3, 2, (6,))
    assert (env.max_time, env.time_scale, env.frame_stack, env.reward_bound) == (10, 10.0, 1, 1.0)
    assert env.observation_dtype == env.reset(SEED).dtype == np.float32
    # −7 is never earned
    P = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    reward = np.array([[-7.0, -3.0], [-7.0, 2.0]]).reshape(2, 1, 2, 1)
    assert tabular(path=file(tmp_path, P=P, reward=reward)).reward_bound == 3.0


def test_axes_of_length_one_stand_for_all(tmp_path):
    reward = np.array([4.0, 6.0]).reshape(1, 1, 1, 2)
    chance = np.array([0.25, 0.75]).reshape(1, 1, 1, 2)
    p = tabular(path=file(tmp_path, reward=reward, reward_probability=chance)).problem()
    assert p.reward.shape == p.reward_probability.shape == (2, 1, 2, 2)
    np.testing.assert_array_equal(p.reward_probability[1, 0, 1], [0.25, 0.75])


def test_the_exact_model_is_of_this_problem():
    model = tabular().model()
    assert (model.n_actions, model.n_decisions) == (2, 10)


# --- the two forms --------------------------------------------------------------------------------


SPECS = [
    {"horizon": 4},
    {"horizon": "inf", "max_steps": 6},
    {"builtin": "random", "actions": 3, "horizon": "inf", "max_steps": 6},
]


@pytest.mark.parametrize("changes", SPECS)
def test_one_copy_is_the_gymnasium_form(changes):
    spec = tabular(**changes)
    check_one_copy_is_the_gymnasium_form(spec, TabularEnv(spec), encoder(spec))


@pytest.mark.parametrize("changes", SPECS)
def test_a_batch_is_single_copies_with_the_batchs_noise(changes):
    spec = tabular(**changes)
    check_batch_is_single_copies(spec, lambda: TabularEnv(spec), encoder(spec))


def wandering(tmp_path, **changes):
    """A problem with two first states and a terminal one, so that copies fall out of phase."""
    P = np.array([[[0.5, 0.2, 0.3]], [[0.3, 0.3, 0.4]], [[0.0, 0.0, 1.0]]])
    chance = np.array([0.5, 0.5]).reshape(1, 1, 1, 2)
    ends = {"initial": np.array([0.6, 0.4, 0]), "terminal": np.array([False, False, True])}
    reward = np.array([1.0, 2.0]).reshape(1, 1, 1, 2)
    path = file(tmp_path, P=P, reward=reward, reward_probability=chance, **ends)
    return tabular(path=path, **changes)


def test_copies_out_of_phase_are_single_copies(tmp_path):
    spec = wandering(tmp_path)
    check_one_copy_is_the_gymnasium_form(spec, TabularEnv(spec), encoder(spec))
    assert check_batch_is_single_copies(spec, lambda: TabularEnv(spec), encoder(spec))


def test_restored_continues_bit_for_bit(tmp_path):
    check_restored_continues(wandering(tmp_path), tmp_path / "checkpoints")


def test_is_a_gymnasium_environment():
    finite, infinite = TabularEnv(tabular()), TabularEnv(tabular(horizon="inf", max_steps=20))
    assert finite.observation_space == spaces.MultiDiscrete([5, 11])
    assert infinite.observation_space == spaces.Discrete(5)
    check_is_gymnasium(finite)
    check_is_gymnasium(infinite)
    with pytest.raises(ValueError, match=r"2 is not in Discrete\(2\)"):
        finite.step(2)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("builtin", "ring"),
        ("states", 0),
        ("states", 1),
        ("actions", 3),
        ("builtin_seed", -1),
        ("horizon", 0),
        ("horizon", -1),
        ("horizon", 2.5),
        ("horizon", "ten"),
        ("max_steps", 0),
        ("num_envs", 0),
    ],
)
def test_a_value_out_of_range_is_refused(key, value):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        tabular(**{key: value})
    assert str(caught.value).startswith(f"env.{key}={value}: ")


def like(array, index, value):
    """A copy with one entry changed."""
    array = array.copy()
    array[index] = value
    return array


P = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
HALF = np.full((1, 1, 1, 2), 0.5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"P": None}, "lacks the array P;"),
        ({"reward": None}, "lacks the array reward;"),
        ({"reward": HALF}, "lacks the array reward_probability; reward has 2 values"),
        ({"rewards": HALF}, "does not know the array rewards; it reads P, reward,"),
        ({"P": like(P, (1, 0, 0), 0.9)}, r"P\[1, 0\] sums to 0\.9; every row must sum to 1"),
        ({"P": like(P, (1, 0, 0), 1 + 1e-8)}, r"P\[1, 0\] sums to 1\.00000001; every row"),
        ({"P": like(P, (0, 0, 0), -0.1)}, r"P\[0, 0, 0\] is -0\.1; a probability"),
        ({"P": like(P, (0, 0, 1), np.nan)}, r"P\[0, 0, 1\] is nan; a probability is finite"),
        ({"P": P[:, 0]}, r"P has shape \(2, 2\); it must be \[S, A, S\]"),
        ({"P": P[:1]}, r"P has shape \(1, 1, 2\)"),
        ({"P": np.zeros((2, 0, 2))}, r"P has shape \(2, 0, 2\)"),
        ({"P": np.array("x")}, "P holds <U1; it must hold numbers"),
        ({"reward": np.ones((2, 1))}, r"reward has shape \(2, 1\); it must have four axes"),
        ({"reward": np.ones((3, 1, 1, 1))}, r"reward has shape \(3, 1, 1, 1\)"),
        ({"reward": np.array(1.0)}, r"reward has shape \(\); it must have four axes"),
        ({"reward": np.full((1, 1, 1, 1), np.inf)}, r"reward\[0, 0, 0, 0\] is inf; a reward"),
        (
            {"reward": HALF, "reward_probability": HALF * 0.9},
            r"reward_probability\[0, 0, 0\] sums to 0\.9; every row",
        ),
        (
            {"reward": HALF, "reward_probability": np.ones((1, 1, 1, 3)) / 3},
            r"reward has shape \(1, 1, 1, 2\); .*\[2, 1, 2, 3\]",
        ),
        ({"initial": np.array([0.5, 0.4])}, r"initial sums to 0\.9; every row"),
        ({"initial": np.ones(1)}, r"initial has shape \(1,\); it must be \(2,\)"),
        ({"terminal": np.zeros(2)}, r"terminal is float64 \(2,\); it must be bool \(2,\)"),
        ({"terminal": np.zeros(3, bool)}, r"terminal is bool \(3,\); it must be bool \(2,\)"),
        ({"terminal": np.array([True, False])}, r"initial\[0\] is 1\.0; the state is terminal"),
    ],
)
def test_a_file_that_holds_no_problem_is_refused(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=rf"^env\.path=.*model\.npz: {message}"):
        tabular(path=file(tmp_path, **arrays))


def test_an_unreadable_file_is_refused(tmp_path):
    whole = (tmp_path / "model.npz").with_name("whole.npz")
    np.savez(whole, P=P, reward=np.ones((1, 1, 1, 1)))
    contents = {
        "text.npz": b"P = 1",
        "empty.npz": b"",
        "cut.npz": whole.read_bytes()[:-40],
        "changed.npz": whole.read_bytes().replace(P.tobytes(), P.tobytes()[::-1]),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "one.npy", P)
    np.savez(tmp_path / "objects.npz", P=np.array([{}], dtype=object))
    names = [*contents, "one.npy", "objects.npz", "none.npz", "."]
    for name in names:
        path = str(tmp_path / name)
        with pytest.raises(ValueError, match=r"^env\.path=.*: cannot be read \(.*numpy\.savez$"):
            tabular(path=path)
