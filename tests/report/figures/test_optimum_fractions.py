import pytest

from rigor.report.figures.optimum_fractions import drawn_rows, optimum_fractions_figure

NAN = float("nan")


def row(percent, paper=None, note="", **more):
    return {
        "optimal": 200.0,
        "percent": percent,
        "objective": percent,
        "objective_low": NAN,
        "objective_high": NAN,
        "periods": 30,
        "late_utility": 1000,
        "scaling": "covariance",
        "risk": "mean",
        "discount": "hyperbolic k=0.05",
        "environment": "gbwm",
        "agent": "mine",
        **({"paper_objective": paper} if paper else {}),
        "note": note,
        **more,
    }


def drawn(axes):
    """Return (marker, x, y) of every point."""
    return [
        (line.get_marker(), pytest.approx(line.get_xdata()[0]), line.get_ydata()[0])
        for line in axes.lines
        if line.get_marker() != "None"
    ]


def test_a_row_has_the_agents_percentage_and_the_papers():
    rows = [
        row(99.5, "180.0"),
        row(98.0, "≤ 90.0"),
        row(97.0, "150.0", "paper: covariance scaling"),
        row(None),
    ]
    assert len(drawn_rows(rows)) == 3
    whole, near = optimum_fractions_figure(rows).axes
    # The first row is at the top; a number of another problem is not drawn.
    assert drawn(whole) == [
        ("o", 97.0, 0),
        ("o", 98.0, 1),
        ("<", 45.0, 1),
        ("o", 99.5, 2),
        ("D", 90.0, 2),
    ]
    assert drawn(near) == [("o", 97.0, 0), ("o", 98.0, 1), ("o", 99.5, 2)]
    assert whole.get_xlim()[0] == 0
    assert near.get_xlim()[0] == 95.0
    label = "T=30 u=1000 covariance, mean, hyperbolic k=0.05"
    assert [one.get_text() for one in whole.get_yticklabels()] == [f"{label}, gbwm mine"] * 3


def test_several_seeds_have_an_interval_and_a_poor_row_does_not_widen_the_second_panel():
    whole, near = optimum_fractions_figure(
        [row(80.0, objective_low=150.0, objective_high=170.0)]
    ).axes
    assert list(whole.lines[0].get_xdata()) == [75.0, 85.0]
    assert near.get_xlim()[0] == 95.0
    label = "T=30 u=1000 covariance, mean, hyperbolic k=0.05"
    assert [one.get_text() for one in whole.get_yticklabels()] == [label]
