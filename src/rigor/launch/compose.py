"""Fast composition of the jobs of a sweep.

Hydra takes 0.2 s to compose a job, which is minutes for 450 jobs. Most jobs differ only in plain
values, which do not change the composition. Hydra therefore composes once for each set of options,
and plain values are set on copies. So are those of options that differ in nothing else, such as the
games of Atari. Jobs that differ only in the seed are checked once. Large sweeps are composed in
several processes.
"""

import copy
import itertools
import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from rigor.config import hints
from rigor.config.validate import SEEDS
from rigor.cores import cores
from rigor.errors import UserError
from rigor.launch.compositions import CachedRepository, Compositions, without_hydra
from rigor.runs.job import Job, job, with_seed
from rigor.runs.memory import no_garbage_collection

_PARALLEL_ABOVE = 100  # jobs but for seeds; below it, processes that share nothing take longer
_MOST_PROCESSES = 8  # login nodes are shared


class Composer:
    """Composes the jobs of one sweep and caches what they have in common."""

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        """Take Hydra's loader and the config of the sweep itself."""
        self._loader = ConfigLoaderImpl(loader.get_search_path())
        repository = CachedRepository(loader.get_search_path())
        self._loader.repository = repository
        self._master = master
        self._parser = OverridesParser.create()
        self._parsed: dict[str, Override] = {}
        self._groups: dict[str, bool] = {}
        self._composed = Compositions(repository, self._parse, self._is_group, self._by_hydra)
        self._working: dict[str, Any] = {}
        self._checked = set[str]()  # overrides without a mistake
        self._seedless: dict[tuple[str, ...], Job | None] = {}  # one job of those with other seeds

    def jobs(self, overrides: list[list[str]]) -> list[Job]:
        """Return a job for each list of overrides.

        Raises:
          UserError: the first one that cannot work, by its number.
        """
        groups: dict[tuple[str, ...], dict[tuple[str, ...], list[int]]] = {}
        for number, texts in enumerate(overrides):
            seedless = groups.setdefault(self._choices(texts), {})
            seedless.setdefault(self._without_seed(texts)[0], []).append(number)
        # neighbours have most in common
        alike = [members for seedless in groups.values() for members in seedless.values()]
        processes = min(cores(), _MOST_PROCESSES)
        with no_garbage_collection():  # it would take a fifth of the time
            if len(alike) <= _PARALLEL_ABOVE or processes == 1:
                return [self._job(number, texts) for number, texts in enumerate(overrides)]
            size = -(-len(alike) // processes)
            parts = [
                list(itertools.chain(*alike[i : i + size])) for i in range(0, len(alike), size)
            ]
            return self._in_parallel(overrides, parts)

    def _in_parallel(self, overrides: list[list[str]], parts: list[list[int]]) -> list[Job]:
        """Compose each part in its own forked process, which inherits everything loaded here."""
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
        return [job for _, job in sorted(found.items()) if isinstance(job, Job)]

    def _job(self, number: int, overrides: list[str]) -> Job:
        """Return a job; its error names the job's number and overrides."""
        try:
            unchecked = [text for text in overrides if text not in self._checked]
            hints.refuse_values_of_groups(unchecked)
            self._checked.update(unchecked)
            rest, seed = self._without_seed(overrides)
            if seed is not None and (like := self._seedless.get(rest)):
                return with_seed(like, seed)
            composed = self._compose(overrides)
            found = job(composed, composed.hydra.runtime.choices, self._working)
            if seed is not None and rest not in self._seedless:
                self._seedless[rest] = None if _mentions_seed(composed) else found
            return found
        except UserError as error:
            raise UserError(f"job {number} ({' '.join(overrides)}): {error}") from error
        except HydraException as error:
            line = hints.line(error)
            raise UserError(f"job {number} ({' '.join(overrides)}): {line}") from error

    def _without_seed(self, overrides: list[str]) -> tuple[tuple[str, ...], int | None]:
        """Return the overrides but that of the seed, and the seed; None if it needs Hydra."""
        seeds = [text for text in overrides if self._parse(text).key_or_group == "seed"]
        if len(seeds) != 1 or not self._is_value(self._parse(seeds[0])):
            return tuple(overrides), None
        value = self._parse(seeds[0]).value()
        if type(value) is not int or not 0 <= value < SEEDS:
            return tuple(overrides), None
        return tuple(text for text in overrides if text != seeds[0]), value

    def _compose(self, overrides: list[str]) -> DictConfig:
        """Return the config that Hydra would compose."""
        if self._order_matters(overrides):
            return self._by_hydra(overrides)
        choices = self._choices(overrides)
        try:
            composed = copy.deepcopy(self._composed.of(choices))
            for override in map(self._parse, overrides):
                if self._is_value(override):
                    if not _is_leaf(composed, override.key_or_group):
                        return self._by_hydra(overrides)
                    OmegaConf.update(composed, override.key_or_group, override.value(), merge=True)
        except (HydraException, OmegaConfBaseException):
            return self._by_hydra(overrides)  # which raises a better error, if any
        return composed

    def _by_hydra(self, overrides: Iterable[str]) -> DictConfig:
        """Return what Hydra composes, of whose own node only the choices, as it is often copied."""
        composed = self._loader.load_sweep_config(self._master, list(overrides))
        choices = {"runtime": {"choices": dict(composed.hydra.runtime.choices)}}
        with open_dict(composed):
            del composed["hydra"]
            composed["hydra"] = choices
        return composed

    def _choices(self, overrides: list[str]) -> tuple[str, ...]:
        """Return the overrides that are not plain values; Hydra composes each set of them once."""
        return tuple(text for text in overrides if not self._is_value(self._parse(text)))

    def _order_matters(self, overrides: list[str]) -> bool:
        """Return whether an override sets the same value as another, or a part of its value.

        Options of groups do not count: Hydra composes them first, whatever their position.
        """
        keys = [
            override.key_or_group
            for override in map(self._parse, overrides)
            if not self._is_group(override.key_or_group) or isinstance(override.value(), dict)
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

    def _is_value(self, override: Override) -> bool:
        """Return whether an override sets a plain value of an existing key that is no group."""
        if override.package is not None or override.is_delete():
            return False
        if override.is_add() or override.is_force_add():
            return False
        value = override.value()
        plain = value is None or isinstance(value, bool | int | float | str)
        return plain and not self._is_group(override.key_or_group) and "${" not in str(value)


_forked: tuple[Composer, list[list[str]]]
"""The input of the forked processes of `Composer._in_parallel`, inherited without pickling."""


def _part(numbers: list[int]) -> dict[int, Job | UserError]:
    """Return the jobs with these numbers, up to the first error."""
    composer, overrides = _forked
    found: dict[int, Job | UserError] = {}
    for number in sorted(numbers):
        try:
            found[number] = composer._job(number, overrides[number])
        except UserError as error:
            found[number] = UserError(str(error))  # without its causes, which may not be picklable
            break
    return found


def _mentions_seed(composed: DictConfig) -> bool:
    """Return whether a value of a config may depend on the seed."""
    text = str(without_hydra(composed)[0])
    return any("seed" in part.partition("}")[0] for part in text.split("${")[1:])


def _is_leaf(composed: DictConfig, key: str) -> bool:
    """Return whether a key exists and is not a container."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(composed, parent) if parent else composed
    if not isinstance(node, DictConfig) or name not in list(node):
        return False
    return OmegaConf.is_missing(node, name) or not OmegaConf.is_config(node._get_node(name))
