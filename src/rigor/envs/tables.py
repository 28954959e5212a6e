"""The tables of a finite Markov decision problem: built in, or read from a file and checked.

A file is a numpy archive (`numpy.savez`) of these arrays, for S states, A actions and K possible
rewards of a transition:

| array                | shape        | meaning                                                    |
|----------------------|--------------|------------------------------------------------------------|
| `P`                  | [S, A, S]    | probability of the next state; every row sums to 1         |
| `reward`             | [S, A, S, K] | the rewards that a transition can have                     |
| `reward_probability` | [S, A, S, K] | of each; sums to 1 over K; may be left out when K = 1      |
| `initial`            | [S]          | probability of the first state; state 0 when left out      |
| `terminal`           | [S], bool    | entering such a state ends the episode; none when left out |

`reward` and `reward_probability` have four axes, of which any may have length 1: a reward of state
and action alone is `reward[:, :, None, None]`. The reward of the transition into a terminal state
is earned. Rows of `P` that are never used, as those of terminal states, must sum to 1 all the same.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

ARRAYS = ("P", "reward", "reward_probability", "initial", "terminal")
TOLERANCE = 1e-9  # of sums of probabilities


@dataclass(eq=False)
class Problem:
    """A finite decision problem, all arrays in full.

    Attributes:
      P: probability of the next state, float64 [S, A, S].
      reward: what a transition can pay, float64 [S, A, S, K].
      reward_probability: of each of these, float64 [S, A, S, K].
      initial: probability of the first state, float64 [S].
      terminal: whether entering the state ends the episode, bool [S].
    """

    P: np.ndarray
    reward: np.ndarray
    reward_probability: np.ndarray
    initial: np.ndarray
    terminal: np.ndarray


def read(path: str) -> Problem:
    """Return the problem in a file; nothing in it is executed.

    Raises:
      ValueError: the file is unreadable, or holds no problem: which array is wrong, and where.
    """
    try:
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array, not an archive of them")
            arrays = {key: np.asarray(archive[key]) for key in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(
            f"env.path={path}: cannot be read ({reason}); write it with numpy.savez"
        ) from error
    return checked(arrays, f"env.path={path}")


def digest(path: str | None) -> str | None:
    """Return the first 16 hex digits of a file's SHA-256; None without a file, or if unreadable."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError:
        return None  # `read` says what is wrong


def chain(n_states: int) -> Problem:
    """Return states in a row, of which the last pays 1 to whoever leaves it.

    Action 1 moves right with probability .9 and stays otherwise; action 0 goes back to the start
    and pays 0 or .2. From the last state, both go back to the start and pay 1.
    """
    P = np.zeros((n_states, 2, n_states))
    P[:, 0, 0] = 1
    for state in range(n_states - 1):
        P[state, 1, [state, state + 1]] = 0.1, 0.9
    P[-1, :, :] = np.eye(n_states)[0]
    reward = np.zeros((n_states, 2, 1, 2))
    reward[:-1, 0, 0, 1] = 0.2
    reward[-1] = 1
    chance = np.full((n_states, 2, 1, 2), 0.5)
    chance[:-1, 1] = 1, 0
    chance[-1] = 1, 0
    arrays = {"P": P, "reward": reward, "reward_probability": chance}
    return checked(arrays, "env.builtin=chain")


def random(n_states: int, n_actions: int, seed: int) -> Problem:
    """Return transitions from Dirichlet(1), and two whole rewards of each state and action."""
    rng = np.random.default_rng(seed)
    likely = rng.random((n_states, n_actions, 1))
    arrays = {
        "P": rng.dirichlet(np.ones(n_states), (n_states, n_actions)),
        "reward": rng.integers(-2, 5, (n_states, n_actions, 1, 2)),
        "reward_probability": np.stack([likely, 1 - likely], axis=-1),
    }
    return checked(arrays, "env.builtin=random")


def checked(arrays: Mapping[str, np.ndarray], name: str) -> Problem:
    """Return the problem that arrays describe.

    Args:
      arrays: as this module's table has them. name: what the messages begin with.

    Raises:
      ValueError: naming the array, the index and the value that are wrong.
    """
    for key in arrays:
        if key not in ARRAYS:
            raise ValueError(f"{name}: does not know the array {key}; it reads {', '.join(ARRAYS)}")
    for key in ("P", "reward"):
        if key not in arrays:
            raise ValueError(f"{name}: lacks the array {key}; it needs P and reward at least")
    P = _numbers(arrays, "P", name)
    if P.ndim != 3 or P.shape[0] != P.shape[2] or not P.size:
        raise ValueError(f"{name}: P has shape {P.shape}; it must be [S, A, S]")
    _distribution(P, "P", name)
    reward, chance = _rewards(arrays, P.shape, name)
    initial, terminal = _ends(arrays, len(P), name)
    return Problem(P, reward, chance, initial, terminal)


def _rewards(
    arrays: Mapping[str, np.ndarray], shape: tuple[int, ...], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return rewards and their probabilities in full, [S, A, S, K] both."""
    reward = _numbers(arrays, "reward", name)
    if "reward_probability" in arrays:
        chance = _numbers(arrays, "reward_probability", name)
    elif reward.ndim == 4 and reward.shape[3] > 1:
        raise ValueError(
            f"{name}: lacks the array reward_probability; reward has {reward.shape[3]} values a "
            "transition, so their probabilities are needed"
        )
    else:
        chance = np.ones((1, 1, 1, 1))
    full = (*shape, max(reward.shape[-1:] + chance.shape[-1:], default=1))
    reward = _broadcast(reward, full, "reward", name)
    if (bad := ~np.isfinite(reward)).any():
        raise ValueError(_first(reward, bad, "reward", name, "a reward must be finite"))
    chance = _broadcast(chance, full, "reward_probability", name)
    _distribution(chance, "reward_probability", name)
    return reward, chance


def _ends(
    arrays: Mapping[str, np.ndarray], n_states: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the law of the first state and which states are terminal, [S] both."""
    initial = np.eye(n_states)[0]
    if "initial" in arrays:
        initial = _numbers(arrays, "initial", name)
        if initial.shape != (n_states,):
            raise ValueError(f"{name}: initial has shape {initial.shape}; it must be ({n_states},)")
        _distribution(initial, "initial", name)
    terminal = arrays.get("terminal", np.zeros(n_states, dtype=bool))
    if terminal.shape != (n_states,) or terminal.dtype != bool:
        raise ValueError(
            f"{name}: terminal is {terminal.dtype} {terminal.shape}; it must be bool ({n_states},)"
        )
    if (bad := terminal & (initial > 0)).any():
        why = "the state is terminal, so no episode can start in it"
        raise ValueError(_first(initial, bad, "initial", name, why))
    return initial, terminal


def _numbers(arrays: Mapping[str, np.ndarray], key: str, name: str) -> np.ndarray:
    """Return an array as float64."""
    if arrays[key].dtype.kind not in "iuf":
        raise ValueError(f"{name}: {key} holds {arrays[key].dtype}; it must hold numbers")
    return arrays[key].astype(np.float64)


def _distribution(array: np.ndarray, key: str, name: str) -> None:
    """Refuse an array whose rows, along its last axis, are not probabilities."""
    if (bad := ~(np.isfinite(array) & (array >= 0))).any():
        raise ValueError(_first(array, bad, key, name, "a probability is finite and 0 or more"))
    sums = array.sum(axis=-1)
    if (bad := np.abs(sums - 1) > TOLERANCE).any():
        why = f"every row must sum to 1 within {TOLERANCE:g}"
        raise ValueError(_first(sums, bad, key, name, why, summed=True))


def _broadcast(array: np.ndarray, shape: tuple[int, ...], key: str, name: str) -> np.ndarray:
    """Return an array of four axes in full."""
    pairs = zip(array.shape, shape, strict=False)
    if array.ndim != 4 or any(one not in (1, full) for one, full in pairs):
        raise ValueError(
            f"{name}: {key} has shape {array.shape}; it must have four axes, [S, A, S, K] = "
            f"{list(shape)} or 1 in place of any"
        )
    return np.broadcast_to(array, shape).copy()


def _first(
    array: np.ndarray, bad: np.ndarray, key: str, name: str, why: str, summed: bool = False
) -> str:
    """Return the message about the first bad entry of an array."""
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    entry = f"{key}[{', '.join(map(str, index))}]" if index else key
    return f"{name}: {entry} {'sums to' if summed else 'is'} {float(array[index])}; {why}"
