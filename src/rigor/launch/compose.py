"""Compose and check the many jobs of a sweep quickly.

Hydra takes a tenth of a second for a job, a minute for 450 of them. Most jobs differ from another
one in plain values only, such as the seed, which change nothing about what is composed: Hydra
composes once for each set of choices, and the values are set on copies. Large sweeps are shared out
among processes.
"""

import copy
import gc
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rigor.errors import UserError
from rigor.launch import hints
from rigor.launch.job import Job, job
from rigor.launch.pool import cores

_SHARED_OUT = 20  # sets of choices above which processes pay
_MOST_PROCESSES = 8  # a login node is for everybody


class Composer:
    """Composes the jobs of one sweep, remembering what it has composed."""

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        """Take Hydra's loader, and the config of the sweep itself."""
        self._loader = ConfigLoaderImpl(loader.get_search_path())
        self._loader.repository = _Remembering(loader.get_search_path())
        self._master = master
        self._parser = OverridesParser.create()
        self._parsed: dict[str, Override] = {}
        self._groups: dict[str, bool] = {}
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._working: dict[str, Any] = {}
        self._asked = set[str]()  # overrides that are known to be no mistake

    def jobs(self, overrides: list[list[str]]) -> list[Job]:
        """Return a job for each list of overrides.

        Raises:
          UserError: the first one that cannot work, by its number.
        """
        sets: dict[tuple[str, ...], list[int]] = {}
        for number, one in enumerate(overrides):
            sets.setdefault(self._choices(one), []).append(number)
        processes = min(cores(), _MOST_PROCESSES)
        with _no_collections():
            if len(sets) <= _SHARED_OUT or processes == 1:
                return [self._job(number, one) for number, one in enumerate(overrides)]
            parts: list[list[int]] = [[] for _ in range(processes)]
            for i, members in enumerate(sets.values()):
                parts[i % processes] += members
            return self._shared_out(overrides, parts)

    def _shared_out(self, overrides: list[list[str]], parts: list[list[int]]) -> list[Job]:
        """Compose each part in a process of its own, a fork, which has all that is loaded here."""
        global _forked
        _forked = self, overrides
        fork = multiprocessing.get_context("fork")
        found: dict[int, Job | UserError] = {}
        with ProcessPoolExecutor(len(parts), mp_context=fork) as pool:
            for part in pool.map(_part, parts):
                found |= part
        for number in sorted(found):
            if isinstance(error := found[number], UserError):
                raise error
        return [one for _, one in sorted(found.items()) if isinstance(one, Job)]

    def _job(self, number: int, overrides: list[str]) -> Job:
        """Return one job; its error says which it is."""
        try:
            fresh = [one for one in overrides if one not in self._asked]
            hints.refuse_values_of_groups(fresh)
            self._asked.update(fresh)
            composed = self._compose(overrides)
            return job(composed, composed.hydra.runtime.choices, self._working)
        except UserError as error:
            raise UserError(f"job {number} ({' '.join(overrides)}): {error}") from error
        except HydraException as error:
            line = hints.line(error)
            raise UserError(f"job {number} ({' '.join(overrides)}): {line}") from error

    def _compose(self, overrides: list[str]) -> DictConfig:
        """Return what Hydra would compose."""
        if self._order_counts(overrides):
            return self._by_hydra(overrides)
        rest = self._choices(overrides)
        try:
            if rest not in self._composed:
                self._composed[rest] = self._by_hydra(rest)
            composed = copy.deepcopy(self._composed[rest])
            for one in map(self._parse, overrides):
                if self._is_value(one):
                    if not _is_leaf(composed, one.key_or_group):
                        return self._by_hydra(overrides)
                    OmegaConf.update(composed, one.key_or_group, one.value(), merge=True)
        except (HydraException, OmegaConfBaseException):
            return self._by_hydra(overrides)  # which says what is wrong, if it is
        return composed

    def _by_hydra(self, overrides: Iterable[str]) -> DictConfig:
        return self._loader.load_sweep_config(self._master, list(overrides))

    def _choices(self, overrides: list[str]) -> tuple[str, ...]:
        """Return the overrides that are more than plain values; Hydra composes each set once."""
        return tuple(one for one in overrides if not self._is_value(self._parse(one)))

    def _order_counts(self, overrides: list[str]) -> bool:
        """Tell whether two overrides set one value, or one of them a part of the other's.

        Options of groups are no values: they are composed first, wherever they stand.
        """
        parsed = [self._parse(one) for one in overrides]
        keys = [
            one.key_or_group
            for one in parsed
            if not self._is_group(one.key_or_group) or isinstance(one.value(), dict)
        ]
        return any(f"{b}.".startswith(f"{a}.") for a, b in itertools.permutations(keys, 2))

    def _is_group(self, key: str) -> bool:
        if key not in self._groups:
            self._groups[key] = bool(self._loader.get_group_options(key))
        return self._groups[key]

    def _parse(self, override: str) -> Override:
        if override not in self._parsed:
            self._parsed[override] = self._parser.parse_override(override)
        return self._parsed[override]

    def _is_value(self, one: Override) -> bool:
        """Tell whether an override sets a plain value: it adds nothing, and names no group."""
        if one.package is not None or one.is_add() or one.is_delete() or one.is_force_add():
            return False
        value = one.value()
        plain = value is None or isinstance(value, bool | int | float | str)
        return plain and not self._is_group(one.key_or_group) and "${" not in str(value)


class _Remembering(ConfigRepository):
    """Reads each config file once; Hydra reads every one for every job, a third of its time."""

    def __init__(self, path: ConfigSearchPath) -> None:
        self._read: dict[str, ConfigResult | None] = {}
        self._places: list[str] = []
        super().__init__(path)

    def __deepcopy__(self, memo: Any) -> "_Remembering":
        return (
            self  # Hydra takes a copy for each job, against changes of the search path: see below
        )

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        places = [str(one) for one in config_search_path.get_path()]
        if places != self._places:
            self._places, self._read = places, {}
            super().initialize_sources(config_search_path)

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._read:
            self._read[config_path] = super().load_config(config_path)
        return copy.deepcopy(self._read[config_path])


_forked: tuple[Composer, list[list[str]]]
"""What the processes of `Composer._shared_out` find in their memory; nothing of it is sent."""


def _part(numbers: list[int]) -> dict[int, Job | UserError]:
    """Return the jobs with these numbers, up to the first that cannot work."""
    composer, overrides = _forked
    found: dict[int, Job | UserError] = {}
    for number in sorted(numbers):
        try:
            found[number] = composer._job(number, overrides[number])
        except UserError as error:
            found[number] = UserError(str(error))  # without its causes, which may not travel
            break
    return found


@contextmanager
def _no_collections() -> Iterator[None]:
    """Let garbage lie for a short, busy time: looking for it takes a fifth of that time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _is_leaf(composed: DictConfig, key: str) -> bool:
    """Tell whether a key is there, and no container."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(composed, parent) if parent else composed
    if not isinstance(node, DictConfig) or name not in list(node):
        return False
    return OmegaConf.is_missing(node, name) or not OmegaConf.is_config(node._get_node(name))
