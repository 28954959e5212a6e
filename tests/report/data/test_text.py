import pytest

from rigor.report.data.text import signed, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0013, "1.3e-3"),
        ("1e-05", "1e-5"),
        (-0.0005, "-5e-4"),
        (0.05, "0.05"),
        (100, "100"),
        (999999, "999999"),
        (2_500_000, "2.5e6"),
        ("0.0", "0"),
        (True, "true"),
        ("nan", "nan"),
        ("[1, 2]", "[1, 2]"),
        ("lower", "lower"),
    ],
)
def test_values_are_short(value, text):
    assert value_text(value) == text


def test_values_drawn_at_random_have_four_digits():
    assert value_text(9.886249232070857e-3) == "9.886e-3"
    assert value_text(0.1 + 0.2) == "0.3"
    assert value_text(1.30001e-3) == "1.30001e-3"
    assert value_text(1_234_567) == "1.235e6"


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(34.2, 0, "+34"), (-3.21, 1, "−3.2"), (1234.0, 0, "+1,234"), (-0.04, 1, "0"), (0.0, 0, "0")],
)
def test_differences_have_a_sign(value, decimals, text):
    assert signed(value, decimals) == text
