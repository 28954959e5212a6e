"""The tables of a finite Markov decision problem: built in, or read from a file and checked.

A file is a numpy archive (`numpy.savez`) of these arrays, for S states, A actions and K possible
rewards of a transition:

| array                | shape        | meaning                                                    |
|----------------------|--------------|------------------------------------------------------------|
| `P`                  | [S, A, S]    | probability of the next state; every row sums to 1         |
| `reward`             | [S, A, S, K] | the possible rewards of a transition                       |
| `reward_probability` | [S, A, S, K] | their probabilities, sum 1 over K; optional if K = 1       |
| `initial`            | [S]          | probability of the first state; default: state 0           |
| `terminal`           | [S], bool    | whether entering a state ends the episode; default: none   |

`reward` and `reward_probability` have four axes, and any of these may have length 1. For example, a
reward that depends on state and action only is `reward[:, :, None, None]`. The reward of the
transition into a terminal state is earned. Every row of `P` must sum to 1, even the rows of
terminal states, which are never used.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rigor.envs.vector import LARGEST_REWARD

ARRAYS = ("P", "reward", "reward_probability", "initial", "terminal")
TOLERANCE = 1e-9  # of sums of probabilities


@dataclass(eq=False)
class TransitionTables:
    """The tables of a finite decision problem, with every axis at its full length.

    Attributes:
      P: probability of the next state, float64 [S, A, S].
      reward: the possible rewards of a transition, float64 [S, A, S, K].
      reward_probability: probabilities of these rewards, float64 [S, A, S, K].
      initial: probability of the first state, float64 [S].
      terminal: whether entering the state ends the episode, bool [S].
    """

    P: np.ndarray
    reward: np.ndarray
    reward_probability: np.ndarray
    initial: np.ndarray
    terminal: np.ndarray


def read(path: str) -> TransitionTables:
    """Return the tables in a file, without executing anything in it.

    Raises:
      ValueError: the file is unreadable, or an array is wrong.
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
        return None  # `read` refuses the file with a reason


def chain(n_states: int) -> TransitionTables:
    """Return a row of states, where leaving the last state gives reward 1.

    Action 1 moves right with probability .9 and stays otherwise; action 0 returns to the start and
    gives 0 or .2. From the last state both actions return to the start and give 1.
    """
    if n_states < 2:
        raise ValueError(f"env.states={n_states}: the chain has at least 2 states")
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


def random(n_states: int, n_actions: int, seed: int) -> TransitionTables:
    """Return Dirichlet(1) transitions, and two integer rewards of each state and action."""
    rng = np.random.default_rng(seed)
    likely = rng.random((n_states, n_actions, 1))
    arrays = {
        "P": rng.dirichlet(np.ones(n_states), (n_states, n_actions)),
        "reward": rng.integers(-2, 5, (n_states, n_actions, 1, 2)),
        "reward_probability": np.stack([likely, 1 - likely], axis=-1),
    }
    return checked(arrays, "env.builtin=random")


def cliff(n_columns: int) -> TransitionTables:
    """Return a walk of three rows along a cliff, from the lower left to the lower right corner.

    The actions are up, right, down and left; one move in ten goes to either side instead. Each move
    costs 1. The cells between the corners are the cliff: falling costs 20 and ends the episode, and
    the goal pays 20 and ends it. State 3 x + y is column x and row y, with y = 0 at the bottom.
    """
    if n_columns < 3:
        raise ValueError(f"env.states={n_columns}: the cliff has at least 3 columns")
    n = 3 * n_columns
    P, reward = np.zeros((n, 4, n)), np.full((n, 4, n, 1), -1.0)
    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))
    for state, action in np.ndindex(n, 4):
        x, y = divmod(state, 3)
        for turn, chance in ((0, 0.9), (1, 0.05), (3, 0.05)):
            dx, dy = moves[(action + turn) % 4]
            arrived = 3 * min(max(x + dx, 0), n_columns - 1) + min(max(y + dy, 0), 2)
            P[state, action, arrived] += chance
    fallen, goal = np.arange(3, n - 3, 3), n - 3
    reward[:, :, fallen], reward[:, :, goal] = -20.0, 20.0
    terminal = np.zeros(n, bool)
    terminal[[*fallen, goal]] = True
    arrays = {"P": P, "reward": reward, "terminal": terminal}
    return checked(arrays, "env.builtin=cliff")


def inventory(n_states: int, n_actions: int) -> TransitionTables:
    """Return a shop that holds up to S − 1 pieces and orders 0 ... A − 1 of them each day.

    A piece costs 1, sells for 3, and costs 0.5 to keep overnight. The day's demand is none, two or
    five pieces with probabilities .3, .5 and .2. The shop is full at S − 1 pieces, and orders
    beyond that are refused without cost.
    """
    full = n_states - 1
    P = np.zeros((n_states, n_actions, n_states))
    reward = np.zeros((n_states, n_actions, n_states, 1))
    for state, action in np.ndindex(n_states, n_actions):
        held = min(state + action, full)
        for demand, chance in ((0, 0.3), (2, 0.5), (5, 0.2)):
            left = max(held - demand, 0)
            P[state, action, left] += chance
            reward[state, action, left] = 3.0 * (held - left) - (held - state) - 0.5 * left
    return checked({"P": P, "reward": reward}, "env.builtin=inventory")


def ladder(n_states: int) -> TransitionTables:
    """Return a ladder of S − 1 rungs: action 0 takes the rung's prize and ends the episode.

    The prize of rung k is 1.5^k. Action 1 climbs with probability .8, or else falls without a prize
    and ends the episode. From the highest rung both actions take the prize.
    """
    if n_states < 3:
        raise ValueError(
            f"env.states={n_states}: the ladder has at least 3 states, the last its end"
        )
    over = n_states - 1
    P, reward = np.zeros((n_states, 2, n_states)), np.zeros((n_states, 2, n_states, 1))
    for rung in range(over):
        P[rung, 0, over], reward[rung, 0] = 1.0, 1.5**rung
        P[rung, 1, [rung + 1, over]] = 0.8, 0.2
    P[over - 1, 1], reward[over - 1, 1] = P[over - 1, 0], reward[over - 1, 0]
    P[over, :, over] = 1.0
    arrays = {"P": P, "reward": reward, "terminal": np.arange(n_states) == over}
    return checked(arrays, "env.builtin=ladder")


def checked(arrays: Mapping[str, np.ndarray], name: str) -> TransitionTables:
    """Return the tables that arrays describe.

    Args:
      arrays: as in the table at the top of this module.
      name: the beginning of every message, such as `env.path=model.npz`.

    Raises:
      ValueError: an array is wrong; the message names its index and value.
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
    return TransitionTables(P, reward, chance, initial, terminal)


def _rewards(
    arrays: Mapping[str, np.ndarray], shape: tuple[int, ...], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return rewards and their probabilities, [S, A, S, K] each."""
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
    if (bad := ~(np.abs(reward) <= LARGEST_REWARD)).any():  # also of nan
        rule = f"a reward must be finite, of size {LARGEST_REWARD:g} at most"
        raise ValueError(_first(reward, bad, "reward", name, rule))
    chance = _broadcast(chance, full, "reward_probability", name)
    _distribution(chance, "reward_probability", name)
    return reward, chance


def _ends(
    arrays: Mapping[str, np.ndarray], n_states: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distribution of the first state, and which states are terminal, [S] each."""
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
    """Refuse an array whose rows, along the last axis, are not probabilities."""
    if (bad := ~(np.isfinite(array) & (array >= 0))).any():
        raise ValueError(_first(array, bad, key, name, "a probability is finite and 0 or more"))
    sums = array.sum(axis=-1)
    if (bad := np.abs(sums - 1) > TOLERANCE).any():
        why = f"every row must sum to 1 within {TOLERANCE:g}"
        raise ValueError(_first(sums, bad, key, name, why, summed=True))


def _broadcast(array: np.ndarray, shape: tuple[int, ...], key: str, name: str) -> np.ndarray:
    """Return an array of four axes, each at its full length."""
    pairs = zip(array.shape, shape, strict=False)
    if array.ndim != 4 or any(length not in (1, full) for length, full in pairs):
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
