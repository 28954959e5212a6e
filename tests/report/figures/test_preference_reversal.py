import numpy as np

from rigor.report.data import published
from rigor.report.figures.goal_probabilities import (
    GAMMAS,
    RATES,
    RISKS,
    SETTINGS,
    GoalProbabilities,
)
from rigor.report.figures.preference_reversal import reversal_figure


def test_the_figure_has_every_point():
    rng = np.random.default_rng(0)
    found = {
        (risk, *setting): GoalProbabilities(
            rng.random((len(GAMMAS), 2)), rng.random((len(RATES), 2))
        )
        for risk in RISKS
        for setting in SETTINGS
    }
    learned = {"risk": "cvar", "periods": 10, "late_utility": 1000, "discount": "k=0.05", "n": 1}
    learned |= {"p_early": (0.1, np.nan, np.nan), "p_late": (0.2, np.nan, np.nan)}
    mean, cvar, pair = reversal_figure(found, [learned], "x").axes
    # Each of four problems has two curves and three points; the published points are 12 and 8.
    assert len(mean.lines) == 4 * 5 + 12
    assert len(cvar.lines) == 4 * 5 + 8 + 1
    published_x = {one.get_xdata()[0] for one in cvar.lines if len(one.get_xdata()) == 1}
    table = published.wealth_table()
    assert set(table[table["risk"] == "cvar"]["p_early"]) <= published_x
    texts = [text.get_text() for text in pair.texts]
    assert any("0.964193" in text for text in texts)
    assert (found["mean", 10, 2000].of("gamma=1") == found["mean", 10, 2000].exponential[-1]).all()
