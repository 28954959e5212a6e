"""Copies of a registered Gymnasium environment, in the user's wrappers."""

import difflib
import importlib
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.envs import atari, minatar
from rigor.errors import UserError

if TYPE_CHECKING:
    import gymnasium


def make_copy(
    id: str, max_steps: int | None, wrappers: Sequence[Any], kwargs: Mapping[str, Any]
) -> "gymnasium.Env[Any, Any]":
    """Return a copy of an environment; the arguments are those of `rigor.envs.gymnasium.Gymnasium`.

    Raises:
      UserError: Gymnasium cannot make it, or a wrapper does not go around it.
    """
    import gymnasium

    _prefer_own(id)
    # a limit of the user's counts agent steps, so it stands outside the user's wrappers
    limit = None if max_steps is None else -1
    try:
        env = gymnasium.make(id, max_episode_steps=limit, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        message = f"env.id={id}: Gymnasium cannot make it; {_known(id, error)}"
        raise UserError(message) from error
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"env.id={id}: Gymnasium cannot make it; {error}") from error
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        if not kwargs:
            raise
        message = f"env.kwargs={kwargs}: {id} does not take them; {error}"
        raise UserError(message) from error
    for wrapper in wrappers:
        env = _wrapped(env, wrapper)
    if max_steps is not None:
        env = gymnasium.wrappers.TimeLimit(env, max_steps)
    return env


def frames_per_step(copy: "gymnasium.Env[Any, Any]") -> int:
    """Return the emulator frames of an agent step: Atari's frame skip, and that of its wrappers."""
    if not hasattr(copy.unwrapped, "ale"):
        return 1
    own = getattr(copy.unwrapped, "_frameskip", 1)  # a number, or a range to draw from
    frames = own if isinstance(own, int) else round(float(np.mean(range(*own))))
    for wrapper in _wrappers_of(copy):
        frames *= vars(wrapper).get("frame_skip", 1)
    return frames


def time_limit(copy: "gymnasium.Env[Any, Any]") -> int | None:
    """Return the steps of the longest episode, None if it has no limit."""
    import gymnasium

    limits = [
        wrapper._max_episode_steps
        for wrapper in _wrappers_of(copy)
        if isinstance(wrapper, gymnasium.wrappers.TimeLimit)
    ]
    return min(limits, default=None)


def _prefer_own(id: str) -> None:
    """Refuse the id of a game that is an option of `env`; naming its module insists on it."""
    module, _, name = id.rpartition(":")
    family, _, bare = name.rpartition("/")
    bare = re.sub(r"(-ram)?(NoFrameskip|Deterministic)?(-ram)?(-v\d+)?$", "", bare).lower()
    # the package minatar registers its ids on a call only, so there is no module to name
    insist = "" if family == "MinAtar" else f"; env.id=ale_py:{name} insists on this one"
    option, games = ("minatar", minatar.GAMES) if family == "MinAtar" else ("atari", atari.GAMES)
    if module or family not in ("ALE", "MinAtar", ""):
        return
    for game in (game for game in games if game.replace("_", "") == bare):
        raise UserError(
            f"env.id={id}: use env={option}/{game}, which is faster and has the games' own "
            f"settings{insist}"
        )


def _known(id: str, error: Exception) -> str:
    """Return the way out for an id that is not registered: near ones, or the module to name."""
    import gymnasium

    nearest = difflib.get_close_matches(id, list(gymnasium.registry), n=3, cutoff=0.5)
    package = re.split(r"[-/]", id)[0].lower().replace("ale", "ale_py")
    if ":" not in id and package.isidentifier() and importlib.util.find_spec(package):
        return f"the module {package} may register it: env.id={package}:{id}"
    if ":" in id:
        return f"did you mean {' or '.join(nearest)}?" if nearest else str(error)
    own = f"if a module of yours registers it, name that module first: env.id=module:{id}"
    return f"did you mean {' or '.join(nearest)}? Or, {own}" if nearest else own


def _wrapped(env: "gymnasium.Env[Any, Any]", wrapper: Any) -> "gymnasium.Env[Any, Any]":
    """Put a user's wrapper around a copy."""
    import gymnasium

    made = getattr(wrapper, "func", wrapper)  # of a partial function
    shown = f"{made.__module__}.{made.__qualname__}" if hasattr(made, "__qualname__") else made
    key = f"env.wrappers=[{shown}]"
    arguments: dict[str, Any] = {}
    if isinstance(wrapper, dict):
        arguments = {name: value for name, value in wrapper.items() if name != "wrapper"}
        wrapper = wrapper.get("wrapper")
    if isinstance(wrapper, str):
        module, _, name = wrapper.replace(":", ".").rpartition(".")
        try:
            wrapper = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise UserError(f"{key}: must be module.Class that can be imported; {error}") from error
    if not callable(wrapper):
        raise UserError(f"{key}: must be module.Class, or {{wrapper: module.Class, ...}}")
    try:
        outer = wrapper(env, **arguments)
    except (TypeError, ValueError, AssertionError, gymnasium.error.Error) as error:
        raise UserError(f"{key}: does not go around {env.spec and env.spec.id}; {error}") from error
    if not isinstance(outer, gymnasium.Env):
        raise UserError(f"{key}: returns {type(outer).__name__}, and not a gymnasium.Env")
    return outer


def _wrappers_of(
    copy: "gymnasium.Env[Any, Any]",
) -> "Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]":
    """Yield the wrappers of a copy, the outermost first."""
    import gymnasium

    while isinstance(copy, gymnasium.Wrapper):
        yield copy
        copy = copy.env
