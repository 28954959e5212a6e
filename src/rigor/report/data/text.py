"""Settings and differences as short texts."""

from decimal import Decimal, InvalidOperation
from typing import Any

from rigor.runs.plain_text import plain

_DIGITS = 6
_PLAIN_EXPONENTS = range(-2, 6)  # of ten; outside, a number is shown as 1.3e-3


def value_text(value: Any) -> str:
    """Return a setting's value as short text: `1.3e-3`, `0.5`, `true`, `mlp`.

    Of more than `_DIGITS` digits four are shown, so different values may have the same text.
    """
    if isinstance(value, bool):
        return str(value).lower()
    text = plain(value)
    try:
        number = Decimal(text).normalize()
    except InvalidOperation:
        return text
    if not number.is_finite() or number == 0:
        return text if not number.is_finite() else "0"
    if len(number.as_tuple().digits) > _DIGITS:  # drawn at random, as by Optuna
        number = Decimal(f"{number:.3e}").normalize()
    exponent = number.adjusted()
    if exponent in _PLAIN_EXPONENTS:
        return f"{number:f}"
    sign, digits, _ = number.as_tuple()
    mantissa = str(digits[0]) + ("." + "".join(map(str, digits[1:])) if digits[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{exponent}"


def signed(value: float, decimals: int = 0) -> str:
    """Return a difference with its sign: `+34`, `−3.2`, and `0` where it rounds to nought."""
    text = f"{value:+,.{decimals}f}".replace("-", "−")
    return text if text.strip("+−0.,") else "0"
