import pytest

from rigor.runs.plain_text import plain, short


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (950, "950"), (12_345, "12.3k"), (999_999, "999k"), (1e6, "1M"), (1.25e9, "1.2G")],
)
def test_short_numbers(number, text):
    assert short(number) == text


def test_control_characters_are_dropped():
    assert plain("\x1b[31mred\x1b[0m \x1b]8;;x\x07link\x00 and\x1b") == "red link and"
    assert plain("κ, − and\ttabs") == "κ, − and\ttabs"
