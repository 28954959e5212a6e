"""Working objects of config options, for figures that need no run."""

from collections.abc import Mapping, Sequence
from typing import Any

from rigor.errors import UserError

# hydra and the schemas are imported where they are used, so that `rigor-figure --help` is quick.

_PAPER = ("cir", "exponential", "hyperbolic", "mean")  # the first options get the first colours
_SYMBOLS = {
    "beta": "β",
    "gamma": "γ",
    "gamma_tail": "tail γ",
    "kappa": "κ",
    "sigma": "σ",
    "tau": "τ",
    "r0": "r₀",
}


def option_names(group: str) -> list[str]:
    """Return the options of a config group; those of the paper's figures come first."""
    from importlib import resources

    files = [node.name for node in (resources.files("rigor.conf") / group).iterdir()]
    names = [name.removesuffix(".yaml") for name in files if name.endswith(".yaml")]
    return sorted(names, key=lambda name: (name not in _PAPER, name))


def all_options(group: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the working object of every option of a group, by its label.

    Args:
      group: of the config. values: changed parameters, by `OPTION.PARAMETER`.

    Raises:
      UserError: a parameter or a value does not fit.
    """
    from hydra.errors import HydraException, InstantiationException

    from rigor.config import hints

    found = {}
    for name in option_names(group):
        typed = [
            f"{group}{key.removeprefix(name)}={value}"
            for key, value in values.items()
            if key.startswith(f"{name}.")
        ]
        try:
            option = working_object(f"{group}/{name}", group, typed)
        except HydraException as error:
            cause = error.__cause__ if isinstance(error, InstantiationException) else None
            line = str(cause) if cause else hints.line(error)
            raise UserError(line.replace(f"{group}.", f"{name}.")) from error
        found[_label(name, option)] = option
    return found


def working_object(config_name: str, group: str, overrides: Sequence[str]) -> Any:
    """Compose a config file of `conf/` and return the working object of a group in it."""
    from hydra import compose, initialize_config_module
    from hydra.utils import instantiate

    from rigor.config import config

    config.register()
    with initialize_config_module("rigor.conf", version_base="1.3"):
        return instantiate(compose(config_name, list(overrides))[group], _convert_="all")


def _label(name: str, option: object) -> str:
    """Return a label such as `generalized_hyperbolic (k = 0.05, b = 1.5)`."""
    parts = []
    for key, value in vars(option).items():
        if isinstance(value, int | float):
            parts.append(_equation(key, value))
        else:  # `capped` has a discount as its base
            base = ", ".join(_equation(*item) for item in vars(value).items())
            parts.append(f"{type(value).__name__.lower()} {base}")
    return f"{name} ({', '.join(parts)})" if parts else name


def _equation(key: str, value: float) -> str:
    return f"{_SYMBOLS.get(key, key)} = {value:g}".replace("-", "−")
