"""Whole numbers as users write them: 10000, 10_000 and 1e4."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import IntegerNode


def whole(value: Any) -> int:
    """Return the integer that a number or a text means; `1e4` and `1_000` mean integers.

    Raises:
      ValueError: it means none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value} is not a whole number")
    try:
        return int(value) if not isinstance(value, float) else _integral(value)
    except ValueError:
        return _integral(float(value))


def accept_scientific_notation() -> None:
    """Let integer keys of every schema accept 1e4, on a command line and in a YAML file.

    Hydra and YAML read it as a float, which OmegaConf refuses. OmegaConf has no way to register a
    type of node, and a schema with `int | float` would refuse integers in text, such as those of
    `${oc.env:SEED}`.
    """
    from omegaconf import IntegerNode

    IntegerNode._validate_and_convert_impl = _of_node  # type: ignore[method-assign,assignment]


def _integral(number: float) -> int:
    if not number.is_integer():  # also false for inf and nan
        raise ValueError(f"{number} is not a whole number")
    return int(Decimal(repr(number)))  # 1e23 as it is written; int(1e23) ends in ...611392


def _of_node(node: "IntegerNode", value: Any) -> int:
    from omegaconf.errors import ValidationError

    try:
        return whole(value)
    except ValueError as error:
        raise ValidationError("$VALUE is not a whole number") from error
