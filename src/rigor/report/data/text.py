"""Texts of runs as they are shown: without control characters, with short numbers."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DIGITS = 6
_PLAIN_EXPONENTS = range(-2, 6)  # of ten; outside, a number is shown as 1.3e-3


def plain(text: object) -> str:
    """Return a text without terminal sequences and without characters that XML forbids.

    Errors of other libraries and values of users may hold both; an SVG with them does not open.
    """
    return _CONTROL.sub("", _ESCAPES.sub("", str(text)))


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
