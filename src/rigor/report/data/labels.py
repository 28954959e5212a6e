"""Short labels of runs, from their names and their configs."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rigor.errors import UserError
from rigor.report.data.runs import option_of
from rigor.report.data.text import value_text
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import settings
from rigor.runs.plain_text import plain

_DIRECTORY = re.compile(r"(?P<base>.*)-(?P<seed>s\d+)-[0-9a-f]{8}$")
_HASH = re.compile(r"(^|-)(?P<digest>[0-9a-f]{8})$")
_TARGET = "._target_"


def curve_labels(paths: Sequence[Path | str]) -> list[str]:
    """Return the label of each run for the figure of learning curves.

    The figure groups labels that differ only in the seed. A label is the run's name without its
    hash, and the settings that distinguish runs of equal names:
    `gbwm-...-mean learning_rate=1e-3 s0`.
    """
    labels = []
    for path, differs in zip(paths, distinctions(paths), strict=True):
        base, seed = _split(RunDirectory(path).name())
        labels.append(" ".join(part for part in (base, differs, seed) if part))
    return labels


def distinctions(paths: Sequence[Path | str]) -> list[str]:
    """Return the settings that distinguish each run from runs of its name and seed.

    The text is empty for a run whose name and seed are unique. Configs are read only for the
    other runs, because reading hundreds of them takes seconds.
    """
    members: dict[str, list[int]] = {}
    names = [_split(RunDirectory(path).name()) for path in paths]
    for i, (base, _) in enumerate(names):
        members.setdefault(base, []).append(i)
    found = [""] * len(paths)
    for group in members.values():
        seeds = [names[i][1] for i in group]
        if len(set(seeds)) == len(seeds):
            continue
        configs = [_settings(Path(paths[i])) for i in group]
        keys = sorted({key for config in configs for key in config})
        # Values are compared as text, because lists cannot be elements of a set.
        differing = [key for key in keys if len({config.get(key, "") for config in configs}) > 1]
        own = [{key: config[key] for key in differing if key in config} for config in configs]
        texts = [settings_text(values, differing) for values in own]
        if len(set(texts)) < len({tuple(values.items()) for values in own}):  # too short
            texts = [" ".join(f"{k}={plain(v)}" for k, v in values.items()) for values in own]
        for i, text in zip(group, texts, strict=True):
            found[i] = text
    return found


def settings_text(values: Mapping[str, str], keys: Iterable[str]) -> str:
    """Return settings as short text, such as `network=mlp learning_rate=1.3e-3`.

    Args:
      values: by dotted key. keys: of all settings that are shown; a key is shortened to its last
        part unless another key of them has the same.
    """
    names = short_keys(keys)
    return " ".join(f"{names[key]}={setting_value(key, value)}" for key, value in values.items())


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return the shown name of each dotted key: its last part, or itself if that is ambiguous."""
    bare = {key: key.removesuffix(_TARGET) for key in keys}
    last = {key: name.rpartition(".")[2] for key, name in bare.items()}
    counts = Counter(last.values())
    return {key: last[key] if counts[last[key]] == 1 else bare[key] for key in bare}


def setting_value(key: str, value: object) -> str:
    """Return the text of a setting's value; that of a class is the name of its option."""
    return plain(option_of(value)) if key.endswith(_TARGET) else value_text(value)


def with_settings(name: str, differs: str) -> str:
    """Return a directory's name with the settings that distinguish the run before its hash."""
    if not differs:
        return name
    found = _HASH.search(name)
    if not found:
        return f"{name} {differs}"
    return f"{name[: found.start()]} {differs} {found['digest']}".strip()


def shorten(names: list[str]) -> tuple[str, list[str]]:
    """Return the common pattern of some names and the varying rest of each name.

    The pattern has `*` for varying parts. Names are compared part by part between dashes; where
    their numbers of parts differ, only the parts at the start are compared. Settings behind a space
    belong to the last part.
    """
    parts = [_parts(name) for name in names]
    if len(set(names)) < 2:
        return "", names
    shared = [len(set(column)) == 1 for column in zip(*parts, strict=False)]
    if len({len(part) for part in parts}) > 1:
        shared = shared[: shared.index(False)] if False in shared else shared[:-1]
    if not any(shared):
        return "", names
    shown = [part if same else "*" for part, same in zip(parts[0], shared, strict=False)]
    if len(shared) < max(map(len, parts)):
        shown.append("*")
    rests = [
        "-".join(piece for i, piece in enumerate(part) if i >= len(shared) or not shared[i])
        for part in parts
    ]
    return re.sub(r"(\*-)+\*", "*", "-".join(shown)), rests


def _parts(name: str) -> list[str]:
    head, space, behind = name.partition(" ")
    *first, last = head.split("-")
    return [*first, last + space + behind]


def _split(name: str) -> tuple[str, str]:
    match = _DIRECTORY.match(name)
    return (match["base"], match["seed"]) if match else (name, "")


def _settings(path: Path) -> dict[str, str]:
    try:
        config = RunDirectory(path).config()
    except UserError:
        return {}
    return {key: str(value) for key, value in settings(config).items() if key != "seed"}
