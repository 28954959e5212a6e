"""Texts of runs as they are shown: without control characters, with short numbers."""

import re

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def plain(text: object) -> str:
    """Return a text without terminal sequences and without characters that XML forbids.

    Errors of other libraries and values of users may hold both; an SVG with them does not open.
    """
    return _CONTROL.sub("", _ESCAPES.sub("", str(text)))


def clock(seconds: float | None) -> str:
    """Return a duration as `1:02:03`, or `-:--:--` if it is unknown."""
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def short(number: float) -> str:
    """Return a number of steps in at most five characters: 950, 12.3k, 1.2M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            scaled = number / limit
            # Rounded down, so that 999,999 of 1,000,000 steps do not look finished.
            return f"{int(scaled)}{unit}" if scaled >= 100 else f"{int(scaled * 10) / 10:g}{unit}"
    return f"{number:.0f}"
