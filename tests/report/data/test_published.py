from synthetic import PAPER_WEALTH

from rigor.report.data import published


def test_the_row_of_the_paper_has_the_same_problem():
    settings = {f"env.{key}": value for key, value in PAPER_WEALTH.items()}
    settings |= {"discount.gamma": 1, "risk.tau": 0.1}
    choices = {"discount": "exponential", "risk": "cvar"}
    row = published.wealth(choices, settings)
    assert (row["objective"], row["bound"], row["p_early_affordable"]) == (510, "at most", 0.895)
    for key, value in (
        ("env.wealth", 90),
        ("env.periods", 20),
        ("risk.tau", 0.25),
        ("discount.gamma", 0.98),
    ):
        assert published.wealth(choices, settings | {key: value}) is None
    assert published.wealth(choices | {"discount": "cir"}, settings) is None
    assert published.wealth(choices | {"risk": "entropic"}, settings) is None


def test_the_papers_tables_of_wealth_management():
    """By hand from its tables 3 and 4; the rows of 30 periods fit covariance scaling (E26)."""
    table = published.wealth_table()
    assert table["source"].value_counts().to_dict() == {"table 3": 12, "table 4": 8}
    assert (table["scaling"] == "covariance").tolist() == (table["periods"] == 30).tolist()
    rows = table.set_index(["periods", "late_utility", "risk", "discount"])
    columns = ["expected_utility", "p_early_affordable", "p_early", "p_late"]
    for key, numbers in (
        ((10, 1000, "mean", "gamma=0.99"), [1112, 0.845, 0.845, 0.267]),
        ((10, 2000, "mean", "k=0.05"), [1757, 0.844, 0.283, 0.737]),
        ((30, 2000, "mean", "gamma=1"), [1702, 0.770, 0.228, 0.737]),
        ((10, 1000, "cvar", "gamma=1"), [999, 0.998, 0.998, 0.001]),
        ((30, 2000, "cvar", "gamma=1"), [1014, 0.895, 0.889, 0.062]),
    ):
        assert rows.loc[key, columns].tolist() == numbers
    mean = table[table["risk"] == "mean"]
    # E[U] = 1000 P1 + u_T P2, up to the rounding to three digits
    computed = 1000 * mean["p_early"] + mean["late_utility"] * mean["p_late"]
    assert (computed - mean["expected_utility"]).abs().max() < 2.0


def test_the_atari_table_is_complete():
    table = published.atari()
    assert (len(table), int(table["in_paper_50"].sum())) == (57, 50)
    assert table[["random", "human"]].notna().all(axis=None)
    assert (table["random"] != table["human"]).all()
