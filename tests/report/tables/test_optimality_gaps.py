import pytest
from synthetic import config_of, make_run

from rigor.report.data.agents import agents_of
from rigor.report.data.runs import load
from rigor.report.tables.optimality_gaps import gap_lines
from rigor.report.tables.solved import solved_sheets


@pytest.fixture
def folder(tmp_path):
    """Write runs on a put with the optimum 4: two exact ones, and two seeds of two agents."""

    def put(variant, quadrature, objective, seed=0, exact=False):
        multi = {"m": 10, "gamma_max": 0.999, "_target_": "rigor.maths.horizons.Multi"}
        config = config_of("american_put", variant, seed) | {
            "env": {"steps": 20, "_target_": "rigor.envs.american_put.AmericanPut"},
            "horizons": multi | {"quadrature": quadrature},
            "agent": {"bootstrap": "shared"},
        }
        result = {"objective": objective, "objective_exact": objective, "objective_optimal": 4.0}
        choices = {"agent": "backward_induction"} if exact else {}
        how = {"config": config, "choices": choices, "result": result}
        make_run(tmp_path, "american_put", variant, seed, 6.0, **how)

    put("time_inconsistent", "lower", 3.0, exact=True)
    put("time_inconsistent", "gauss_legendre", 3.9, exact=True)
    for seed, objective in enumerate((2.0, 3.0)):
        put("time_inconsistent", "lower", objective, seed)
        put("time_consistent", "lower", objective + 0.5, seed)
    return tmp_path


def gaps_in(folder):
    agents = agents_of([load(path) for path in sorted(folder.iterdir())])
    return next(sheet for sheet in solved_sheets(agents) if sheet.name == "put_consistency")


def test_the_gap_of_the_method_and_the_gap_of_learning(folder):
    sheet = gaps_in(folder)
    found = {(row["variant"], row["quadrature"]): row for row in sheet.rows}
    assert len(sheet.rows) == len(found) == 3
    both = found["time_inconsistent", "lower"]
    # optimum 4, exact 3, learned 2.5
    assert (both["learned"], both["exact"], both["optimal"], both["n"]) == (2.5, 3.0, 4.0, 2)
    assert (both["gap_method"], both["gap_learning"]) == (25.0, 12.5)
    # Student's interval of 2 and 3: 12.706 times .5 to both sides
    assert (both["learned_low"], both["learned_high"]) == pytest.approx((-3.853, 8.853), abs=1e-3)
    assert "exact" not in found["time_consistent", "lower"]  # it has no exact counterpart
    exact_only = found["time_inconsistent", "gauss_legendre"]
    assert (exact_only["gap_method"], "learned" in exact_only) == (2.5, False)


def test_the_price_of_the_released_quadrature(folder):
    (line,) = gap_lines(gaps_in(folder))
    assert "loses 25.00 % of the optimum with the released quadrature (lower)" in line
    assert "and 2.50 % with an accurate one (gauss_legendre)" in line


def test_an_exact_agent_of_another_discount_is_no_counterpart(folder):
    for path in folder.glob("*backward*"):
        text = (path / "config.yaml").read_text()
        (path / "config.yaml").write_text(text.replace("k: 0.05", "k: 0.2"))
    learned = [row for row in gaps_in(folder).rows if row.get("n")]
    assert len(learned) == 2
    assert not any("exact" in row for row in learned)
