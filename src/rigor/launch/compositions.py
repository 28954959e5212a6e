"""What Hydra composes for sets of options, with as few compositions as possible.

Options of a group whose files differ in plain values only, such as the games of Atari, give the
same config but for these values. So two are composed, to see that it is so, and the others made.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf


class Compositions:
    """The configs of sets of options, by the overrides that choose them."""

    def __init__(
        self,
        repository: "CachedRepository",
        parse: Callable[[str], Override],
        is_group: Callable[[str], bool],
        by_hydra: Callable[[Iterable[str]], DictConfig],
    ) -> None:
        """Take what the composer has: the files, the parser, the groups, and Hydra itself."""
        self._repository, self._parse, self._is_group = repository, parse, is_group
        self._by_hydra = by_hydra
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._options: dict[str, Option | None] = {}
        self._first: dict[tuple[str, ...], tuple[str, ...]] = {}  # choices, by `_shapes`
        self._alike: dict[tuple[str, ...], bool] = {}  # likewise

    def of(self, choices: tuple[str, ...]) -> DictConfig:
        """Return the config of a set of options, made from a set with one like option if possible.

        Whether it is possible is seen in the second set: another file may set the same value again.
        """
        if choices not in self._composed:
            shapes = self._shapes(choices)
            like = next((shape for shape in shapes if self._alike.get(shape)), None)
            composed = self._made(self._first[like], choices) if like else self._by_hydra(choices)
            for shape in shapes if not like else ():
                first = self._first.setdefault(shape, choices)
                if first != choices and shape not in self._alike:
                    same = without_hydra(self._made(first, choices)) == without_hydra(composed)
                    self._alike[shape] = same and not self._decides_more(first, choices)
            self._composed[choices] = composed
        return self._composed[choices]

    def _shapes(self, choices: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the choices with the shape of one of them in its place, for each of them."""
        found = [(i, self._option(text)) for i, text in enumerate(choices)]
        return [(*choices[:i], one.shape, *choices[i + 1 :]) for i, one in found if one]

    def _made(self, first: tuple[str, ...], choices: tuple[str, ...]) -> DictConfig:
        """Return the config of `choices`, made from that of choices of the same shape."""
        made = copy.deepcopy(self._composed[first])
        for text in set(choices) - set(first):
            override, found = self._parse(text), self._option(text)
            assert found is not None
            made.hydra.runtime.choices[override.key_or_group] = override.value()
            for key, value in found.values.items():
                OmegaConf.update(made, key, value, merge=True)
        return made

    def _decides_more(self, first: tuple[str, ...], choices: tuple[str, ...]) -> bool:
        """Return whether the name of the option that differs also chooses other options."""
        groups = [self._parse(text).key_or_group for text in set(choices) - set(first)]
        read = " ".join(str(found.defaults_list) for found in self._repository.loaded() if found)
        return any(f"${{{group}}}" in read for group in groups)

    def _option(self, text: str) -> "Option | None":
        """Return the option of a group that an override chooses; None: it is no such override."""
        if text not in self._options:
            override = self._parse(text)
            group, name = override.key_or_group, override.value()
            found = None
            if override.package is None and isinstance(name, str) and self._is_group(group):
                found = self._repository.load_config(f"{group}/{name}")
            self._options[text] = option(f"{group}/{name}", found) if found else None
        return self._options[text]


@dataclass(frozen=True)
class Option:
    """A file of a config group.

    Attributes:
      shape: equal for options that differ in plain values only.
      values: those values, by their keys in the composed config.
    """

    shape: str
    values: dict[str, Any]


def option(path: str, found: ConfigResult) -> Option:
    """Return the option that Hydra has read from a file, such as `env/atari/pong`."""
    values: dict[str, Any] = {}
    group = path.rpartition("/")[0]
    package = found.header.get("package") or group.replace("/", ".")
    prefix = "" if package == "_global_" else f"{package}."
    content = OmegaConf.to_container(found.config, resolve=False)
    rest = _without_values(content, prefix, values)
    return Option(f"{group} {found.header} {found.defaults_list} {rest}", values)


def _without_values(node: Any, key: str, values: dict[str, Any]) -> Any:
    """Return a mapping with null for every plain value, which is put into `values` by its key."""
    if isinstance(node, dict):
        return {name: _without_values(node[name], f"{key}{name}.", values) for name in node}
    if isinstance(node, list) or "${" in str(node):
        return node
    values[key.removesuffix(".")] = node
    return None


class CachedRepository(ConfigRepository):
    """Reads each config file once; Hydra reads all of them for each job, a third of its time."""

    def __init__(self, path: ConfigSearchPath) -> None:
        self._read: dict[str, ConfigResult | None] = {}
        self._places: list[str] = []
        super().__init__(path)

    def __deepcopy__(self, memo: Any) -> "CachedRepository":
        # Hydra copies it for each job because jobs may change the search path; see below
        return self

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Take the directories that are searched, unless they are the present ones."""
        places = [str(place) for place in config_search_path.get_path()]
        if places != self._places:
            self._places, self._read = places, {}
            super().initialize_sources(config_search_path)

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Return a copy of a config file, None if there is no such file."""
        if config_path not in self._read:
            self._read[config_path] = super().load_config(config_path)
        return copy.deepcopy(self._read[config_path])

    def loaded(self) -> Iterable[ConfigResult | None]:
        """Return all that was read."""
        return self._read.values()


def without_hydra(composed: DictConfig) -> Any:
    """Return what a job is made of: the config without Hydra's own, and the choices."""
    keys = [str(key) for key in composed if key != "hydra"]
    rest = OmegaConf.to_container(OmegaConf.masked_copy(composed, keys), resolve=False)
    return rest, dict(composed.hydra.runtime.choices)
