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

from rigor.envs.gymnasium_forms import TabularEnv
from rigor.envs.tabular import Tabular


def tabular(**changes):
    return built(Tabular, "tabular", **changes)


def file(tmp_path, **arrays):
    """Write a problem of 2 alternating states and 1 action, with some arrays changed."""
    whole = {"P": np.array([[[0.0, 1.0]], [[1.0, 0.0]]]), "reward": np.ones((2, 1, 1, 1))}
    path = tmp_path / "model.npz"
    kept = {key: value for key, value in (whole | arrays).items() if value is not None}
    np.savez(path, **kept)
    return str(path)


def encoder(spec):
    """Return the function from observations of the Gymnasium form to those of the batch."""
    n, horizon = spec.n_states, spec.n_decisions
    one_hot = np.eye(n, dtype=np.float32)
    if horizon is None:
        return lambda state: one_hot[state]
    return lambda pair: np.append(one_hot[pair[0]], np.float32(pair[1] / horizon))


# --- builtins -------------------------------------------------------------------------------------


def test_the_cliff_by_hand():
    p = tabular(builtin="cliff", states=4, actions=None).tables()  # it has four, whatever the rest
    assert p.terminal.nonzero()[0].tolist() == [3, 6, 9]  # two cells of the cliff, and the goal
    up, right, left = 0, 1, 3
    # from the start, (0, 0): up leads to (0, 1); a slip to the right is a fall, to the left a wall
    assert p.P[0, up, [1, 3, 0]].tolist() == pytest.approx([0.9, 0.05, 0.05])
    assert p.P[0, right, [3, 1, 0]].tolist() == pytest.approx([0.9, 0.05, 0.05])
    assert p.P[0, left, [0, 1]].tolist() == pytest.approx([0.95, 0.05])
    assert p.reward[0, up, [1, 3, 9], 0].tolist() == [-1.0, -20.0, 20.0]


def test_the_inventory_by_hand():
    p = tabular(builtin="inventory", states=5, actions=3).tables()
    # two pieces and two more: four are held, and 4, 2 or 0 are left
    assert p.P[2, 2, [4, 2, 0]].tolist() == pytest.approx([0.3, 0.5, 0.2])
    assert p.reward[2, 2, [4, 2, 0], 0].tolist() == [-2.0 - 2.0, 6.0 - 2.0 - 1.0, 12.0 - 2.0]
    # beyond four pieces an order is refused without cost
    assert p.reward[4, 2, [4, 2, 0], 0].tolist() == [-2.0, 6.0 - 1.0, 12.0]


def test_the_ladder_by_hand():
    p = tabular(builtin="ladder", states=4).tables()
    assert p.P[0, 1].tolist() == [0.0, 0.8, 0.0, 0.2]
    assert p.reward[[0, 1, 2], 0, 3, 0].tolist() == [1.0, 1.5, 2.25]
    assert p.reward[[0, 1, 2], 1, 3, 0].tolist() == [0.0, 0.0, 2.25]
    assert p.terminal.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("builtin", "changes"),
    [("cliff", {"actions": 2}), ("cliff", {"actions": 4, "states": 2}), ("ladder", {"states": 2})],
)
def test_sizes_that_a_builtin_cannot_have_are_refused(builtin, changes):
    key = list(changes)[-1]
    with pytest.raises(ValueError, match=rf"env\.{key}={changes[key]}"):
        tabular(builtin=builtin, **changes)


def test_the_chain_by_hand():
    p = tabular(states=3).tables()
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


def test_the_seed_fixes_a_random_problem():
    first = tabular(builtin="random", states=4, actions=3).tables()
    again = tabular(builtin="random", states=4, actions=3).tables()
    other = tabular(builtin="random", states=4, actions=3, builtin_seed=1).tables()
    assert (first.P.shape, first.reward.shape) == ((4, 3, 4), (4, 3, 4, 2))
    np.testing.assert_allclose(first.P.sum(axis=-1), 1)
    np.testing.assert_allclose(first.reward_probability.sum(axis=-1), 1)
    np.testing.assert_array_equal(first.reward, first.reward.round())
    for name in ("P", "reward", "reward_probability"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))


# --- dynamics -------------------------------------------------------------------------------------


def test_every_step_of_a_finite_horizon(tmp_path):
    # alternating states with rewards 3 and 5; two decisions, then the next episode
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


def test_a_horizon_in_scientific_notation_is_a_whole_number():
    decisions = tabular(horizon=1e1).n_decisions
    assert (decisions, type(decisions)) == (10, int)


@pytest.mark.parametrize("horizon", [10, "inf"])
def test_entering_a_terminal_state_ends_the_episode_with_a_reward(tmp_path, horizon):
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


def test_states_and_rewards_have_the_probabilities_of_the_tables(tmp_path):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), (4, 2))
    P[0, 0] = [0, 0.5, 0, 0.5]  # impossible outcomes at either end of the cumulative sum
    P[1, 1] = [0.3, 0.7, 0, 0]
    chance = rng.dirichlet(np.ones(3), (4, 2, 4))
    reward = np.arange(4 * 2 * 4 * 3, dtype=float).reshape(4, 2, 4, 3)  # all different
    initial = np.array([0.5, 0.2, 0.3, 0])
    arrays = {"P": P, "reward": reward, "reward_probability": chance, "initial": initial}
    spec = tabular(path=file(tmp_path, **arrays))
    n = 100_000
    rng = np.random.default_rng(1)
    first = spec.begin(n, rng)
    close(np.bincount(first, minlength=4) / n, initial, n)
    for state, action in ((0, 0), (1, 1), (2, 0)):
        noise = spec.draw(n, rng)
        next_state, earned, _ = spec.move(
            np.zeros(n, np.int64), np.full(n, state), np.full(n, action), noise
        )
        close(np.bincount(next_state, minlength=4) / n, P[state, action], n)
        number = (earned - reward[state, action, 0, 0]).astype(np.int64)  # next state and atom
        joint = (P[state, action][:, None] * chance[state, action]).ravel()
        close(np.bincount(number, minlength=12) / n, joint, n)
        np.testing.assert_array_equal(number // 3, next_state)


def close(found, expected, n):
    """Check frequencies within five standard errors; impossible outcomes never happen."""
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / n)).all()


def test_the_ends_of_the_unit_interval_give_possible_outcomes(tmp_path):
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
    assert (env.max_time, env.time_scale, env.frame_stack) == (10, 10.0, 1)
    assert env.observation_dtype == env.reset(SEED).dtype == np.float32
    # −7 has probability 0
    P = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    reward = np.array([[-7.0, -3.0], [-7.0, 2.0]]).reshape(2, 1, 2, 1)
    assert tabular(path=file(tmp_path, P=P, reward=reward)).reward_bound == 3.0


def test_axes_of_length_one_are_broadcast(tmp_path):
    reward = np.array([4.0, 6.0]).reshape(1, 1, 1, 2)
    chance = np.array([0.25, 0.75]).reshape(1, 1, 1, 2)
    p = tabular(path=file(tmp_path, reward=reward, reward_probability=chance)).tables()
    assert p.reward.shape == p.reward_probability.shape == (2, 1, 2, 2)
    np.testing.assert_array_equal(p.reward_probability[1, 0, 1], [0.25, 0.75])


def test_the_exact_model_has_the_sizes_of_the_problem():
    model = tabular().problem.model()
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
    """Return a problem with two first states and a terminal one: copies end at different times."""
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
    """Return a copy with one entry changed."""
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
def test_a_file_with_a_wrong_array_is_refused(tmp_path, arrays, message):
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
