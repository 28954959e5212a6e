import numpy as np
import pytest

from rigor.envs.vector import as_batch, check_actions, copy_seeds
from rigor.errors import UserError


def test_copy_seeds_are_repeatable_far_apart_and_fit_a_signed_32_bit_integer():
    seeds = copy_seeds(np.random.SeedSequence(0), 1000)
    assert seeds.dtype == np.int64
    assert seeds.shape == (1000,)
    assert (seeds >= 0).all()
    assert (seeds < 2**31).all()
    assert (seeds > 2**30).any()
    assert len(set(seeds.tolist())) == 1000
    np.testing.assert_array_equal(seeds, copy_seeds(np.random.SeedSequence(0), 1000))
    # Runs with neighbouring seeds have no seed in common.
    assert not set(seeds) & set(copy_seeds(np.random.SeedSequence(1), 1000))


def test_copy_seeds_do_not_change_the_sequence():
    sequence = np.random.SeedSequence(3)
    first = copy_seeds(sequence, 4)
    np.testing.assert_array_equal(first, copy_seeds(sequence, 4))
    np.testing.assert_array_equal(first[:2], copy_seeds(sequence, 2))


def test_check_actions_accepts_all_valid_actions():
    check_actions(np.array([0, 3]), n_envs=2, n_actions=4)
    check_actions(np.array([0, 3], dtype=np.int32), n_envs=2, n_actions=4)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0, 4]), r"0\.\.\.3"),
        (np.array([-1, 0]), r"0\.\.\.3"),
        (np.array([0, 1, 2]), r"shape \(2,\)"),
        (np.array(0), r"shape \(2,\)"),
        (np.array([[0], [1]]), r"shape \(2,\)"),
        (np.array([0.0, 1.0]), "integers"),
    ],
)
def test_check_actions_refuses_invalid_actions(actions, message):
    with pytest.raises(ValueError, match=message):
        check_actions(actions, n_envs=2, n_actions=4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"observation": [0.0, np.nan]}, "observation: holds nan; must hold finite numbers"),
        ({"observation": [[0.0, 1.0], [0.0]]}, "observation: no array"),
        ({"observation": None}, "observation of object: must hold numbers"),
        ({"observation": np.zeros(2, complex)}, "observation of complex128: must hold numbers"),
        ({"stock": np.inf}, "stock: holds inf; must hold finite numbers"),
        ({"stock": None}, "stock of object: must hold numbers"),
        ({"stock": "3"}, "stock of <U1: must hold numbers"),
    ],
)
def test_a_policy_is_not_asked_for_an_action_without_numbers(changes, said):
    given = {"observation": [0.0, 1.0], "t": 0, "stock": 0.0} | changes
    with pytest.raises(UserError, match=f"^{said}") as caught:
        as_batch((2,), **given)
    assert "\n" not in str(caught.value)
    assert as_batch((2,), [0, 1], 0, 3)[2].dtype == np.float64
