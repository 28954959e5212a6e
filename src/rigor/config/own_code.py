"""Digests of a user's own code, which belong to a run's identity as its values do."""

import ast
import functools
import hashlib
import importlib.util
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rigor.errors import UserError

_DIGITS = 16  # of a digest
_KNOWN = "rigor.", "gymnasium."  # recorded with each result


def own_code(config: Any) -> dict[str, str]:
    """Return the digest of each module outside rigor that a config names.

    `named` says how a config names one. Its digest covers its file and the files that it imports
    from its own folder; of an installed package only the file itself, as its version is recorded
    with the result.

    Args:
      config: resolved, as plain containers.
    """
    modules = {
        name.partition(":")[0] if ":" in name else _module_of(name) for _, name in named(config)
    }
    found = {module: _digest(module) for module in sorted(filter(None, modules))}
    return {name: digest for name, digest in found.items() if digest}


def refuse_changed_code(place: Path, config: Mapping[str, Any]) -> None:
    """Refuse to run a stored config with other code of the user than it was written with.

    Raises:
      UserError: naming the module, and `place`, the run's directory.
    """
    if change := changed_code(config):
        raise UserError(
            f"{place}: {change}; repeat the rigor-train command, which starts a run of the new "
            "code, or undo the change"
        )


def changed_code(config: Mapping[str, Any]) -> str | None:
    """Name the first module of the user that is other code than a stored config has, or None."""
    written = dict(config.get("code") or {})
    now = own_code({key: value for key, value in config.items() if key != "code"})
    for name in sorted(written.keys() | now.keys()):
        if written.get(name) != now.get(name):
            return (
                f"the code of {name} has changed since this run was made (digest "
                f"{written.get(name, 'none')} then, {now.get(name, 'none')} now)"
            )
    return None


def named(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key=value, name) of all code that a config names, but rigor's and Gymnasium's.

    A name is `module.Class` as a `_target_` or as a wrapper of an environment, or `module:Name-v0`
    as the id of an environment.

    Args:
      node: a part of the config, as plain containers. key: its own.
    """
    if isinstance(node, list | tuple):
        for item in node:
            yield from named(item, key)
            if key.rpartition(".")[2] == "wrappers":
                wrapper = item.get("wrapper") if isinstance(item, Mapping) else item
                if isinstance(wrapper, str) and not wrapper.startswith(_KNOWN):
                    yield f"{key}={wrapper}", wrapper
    if not isinstance(node, Mapping):
        return
    for name, value in node.items():
        if name == "_target_" and isinstance(value, str):
            if not value.startswith(_KNOWN):
                yield f"{key}={value}", value
        elif name == "id" and isinstance(value, str) and ":" in value:
            yield f"{key}.id={value}", value
        else:
            yield from named(value, f"{key}.{name}" if key else str(name))


@functools.cache
def _module_of(target: str) -> str | None:
    """Return the module of `module.Class` or `module.Class.method`, or None if there is none."""
    parts = target.split(".")
    for n in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:n])
        try:
            if importlib.util.find_spec(name):
                return name
        except (ImportError, ValueError):
            continue
    return None


# Cached, because the module that this process has imported does not change with its file.
@functools.cache
def _digest(module: str) -> str | None:
    """Return the digest of a module's code, or None for a module without a file."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    file = Path(spec.origin)
    depth = module.count(".") + (1 if file.name == "__init__.py" else 0)
    root = file.parents[depth]
    stdlib, *installed = (
        Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")
    )
    if root == stdlib:
        return None
    files = {file} if root in installed else _with_imports(file, root)
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.relative_to(root)}\0{len(content := path.read_bytes())}\0".encode())
        total.update(content)
    return total.hexdigest()[:_DIGITS]


def _with_imports(file: Path, root: Path) -> set[Path]:
    """Return a file of code and the files below `root` that it imports, directly or not."""
    found, left = set[Path](), [file]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported(path, root)
    return found


def _imported(file: Path, root: Path) -> Iterator[Path]:
    """Yield the files below `root` that the imports of a file name."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # compiled code
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names, above = [alias.name for alias in node.names], root
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)]
            above = file.parents[node.level - 1] if node.level else root  # of a relative import
        else:
            continue
        for name in names:
            place = above
            for part in name.split(".") if name else ():  # a package's own file is imported too
                place = place / part
                for path in (place.with_suffix(".py"), place / "__init__.py"):
                    if path.is_file() and path.is_relative_to(root):
                        yield path
