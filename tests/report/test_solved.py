import pytest
from synthetic import config_of, make_run

from rigor.report import published
from rigor.report.agents import agents_of
from rigor.report.runs import load
from rigor.report.solved import solved_sheets

WEALTH = {
    "periods": 30,
    "wealth": 100.0,
    "early_cost": 100.0,
    "early_utility": 1000.0,
    "late_cost": 150.0,
    "late_utility": 2000.0,
    "scaling": "covariance",
    "_target_": "rigor.envs.wealth.Wealth",
}


@pytest.fixture
def sheets(tmp_path):
    def sheets(env, results, **config):
        runs = []
        for seed, result in enumerate(results):
            whole = config_of("gbwm", "time_consistent", seed) | {"env": env} | config
            path = make_run(
                tmp_path, "gbwm", "time_consistent", seed, 1.0, config=whole, result=result
            )
            runs.append(load(path))
        return solved_sheets(agents_of(runs))

    return sheets


def test_wealth_beside_the_optimum_and_the_paper(sheets):
    result = {"objective_optimal": 800.0, "expected_utility": 1700.0, "p_early": 0.4, "p_late": 0.6}
    result |= {"p_early_affordable": 0.7}
    wealth, put, split, other = sheets(
        WEALTH, [{**result, "objective": 1.0, "objective_exact": one} for one in (700.0, 740.0)]
    )
    assert not put
    assert not split
    assert not other
    (cells,) = wealth.cells
    row = dict(zip(wealth.headings, cells, strict=True))
    assert row["objective"] == "720 [700, 740]"
    assert (row["optimum"], row["of optimum"], row["n"]) == ("800", "90 %", "2")
    assert (row["discount"], row["risk"]) == ("hyperbolic k=0.05", "mean")
    # the paper's row of T = 30, u = 2000, k = .05: 4/7 of 1000 x .438 and .4 of 2000 x .587
    assert row["paper: objective"] == "720"
    assert [row[name] for name in ("problem", "T", "u_T")] == ["gbwm", "30", "2,000"]
    assert row["scaling"] == "covariance"
    ours = ("E[U]", "P(affordable)", "P1", "P2")
    assert [row[name] for name in ours] == ["1700", "0.7", "0.4", "0.6"]
    assert [row[f"paper: {name}"] for name in ours] == ["1612", "0.735", "0.438", "0.587"]
    assert row["note"] == ""


def test_the_papers_rows_at_30_periods_are_of_covariance_scaling(sheets):
    result = {"objective": 700.0, "objective_optimal": 800.0}
    wealth, *_ = sheets(WEALTH | {"scaling": "volatility"}, [result])
    assert wealth.rows[0]["note"] == "paper: covariance scaling"
    assert wealth.rows[0]["objective"] == 700.0  # no exact value: the sampled one
    assert "expected_utility" not in wealth.rows[0]


def test_the_put_and_the_rest(sheets):
    result = {"objective": 4.0, "objective_optimal": 5.0, "undiscounted_return": 6.5, "regret": 1.0}
    _, put, *_ = sheets({"steps": 20, "_target_": "rigor.envs.option.Put"}, [result])
    assert (put.rows[0]["percent"], put.rows[0]["undiscounted_return"]) == (80.0, 6.5)
    losses = {"objective": -5.0, "objective_optimal": -4.0, "regret": 1.0}
    *_, other = sheets({"path": "m.npz", "_target_": "rigor.envs.tabular.Tabular"}, [losses])
    assert (other.rows[0]["percent"], other.rows[0]["regret"]) == (None, 1.0)


def test_the_papers_row_is_of_the_same_problem():
    settings = {f"env.{key}": value for key, value in WEALTH.items()}
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
    """By hand from its tables 3 and 4; those of 30 periods fit covariance scaling (E26)."""
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
    # E[U] = 1000 P1 + u_T P2, but for the rounding of three digits
    told = 1000 * mean["p_early"] + mean["late_utility"] * mean["p_late"]
    assert (told - mean["expected_utility"]).abs().max() < 2.0


def test_the_atari_table_is_whole():
    table = published.atari()
    assert (len(table), int(table["in_paper_50"].sum())) == (57, 50)
    assert table[["random", "human"]].notna().all(axis=None)
    assert (table["random"] != table["human"]).all()
