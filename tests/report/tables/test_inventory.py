import pytest
from synthetic import make_run

from rigor.report.data.agents import agents_of
from rigor.report.data.runs import load
from rigor.report.tables import inventory


@pytest.fixture
def runs(tmp_path):
    """Two finished seeds of one agent on Pong; of the other agent, one finished and one failed."""
    done = [make_run(tmp_path, "pong", "time_aware", seed, 3.0) for seed in (0, 1)]
    done.append(make_run(tmp_path, "pong", "time_consistent", 0, 4.0))
    failed = make_run(tmp_path, "pong", "time_consistent", 1, state="failed", error="no memory")
    return [load(path) for path in (*done, failed)]


def test_agents_and_coverage(runs):
    agents = agents_of(runs)
    rows = inventory.agent_sheet(agents).rows
    assert [(row["agent"], row["done"], row["runs"], row["hours"]) for row in rows] == [
        ("time_consistent", 1, 2, 2.0),
        ("time_aware", 2, 2, 4.0),
    ]
    assert rows[0]["steps_per_second"] == 1388.9
    coverage = inventory.coverage_sheet(agents)
    assert coverage.cells == [["pong", "1 of 2", "2 of 2"]]
    assert not inventory.coverage_sheet(agents[1:])  # every run of this agent is done


def test_unfinished_runs_and_provenance(runs):
    (row,) = inventory.unfinished_sheet(runs).rows
    assert (row["state"], row["reason"], row["steps_total"]) == ("failed", "no memory", 10_000_000)
    (row,) = inventory.provenance_sheet(runs).rows
    assert (row["commit"], row["runs"]) == ("1a2b3c4d1a2b", 3)
    assert inventory.states(runs) == "3 done, 1 failed"
    assert [row["seed"] for row in inventory.run_sheet(agents_of(runs)).rows] == [0, 1, 0, 1]


def test_the_setup_shows_all_values_of_a_setting(runs):
    runs[0].settings["evaluate.epsilon"] = 0.05
    found = dict(inventory.setup(runs))
    assert found["ε in evaluation"] == "0.01 or 0.05"
    assert found["episodes of the final evaluation"] == "30"
    for run in runs:
        run.settings["evaluate.final_episodes"] = None  # as many as the risk needs
        run.result["episodes"] = 100
    assert dict(inventory.setup(runs))["episodes of the final evaluation"] == "100"


def test_the_setup_names_the_objective_and_sorts_numbers(runs):
    for run, steps in zip(runs, (4000, 100_000, 500, 4000), strict=True):
        run.settings |= {"train.schedule_steps": steps, "risk.tau": 0.25}
        run.choices["risk"] = "cvar"
    found = dict(inventory.setup(runs))
    assert found["risk"] == "cvar tau=0.25"
    assert found["discount"] == "hyperbolic k=0.05"
    assert found["agent steps"] == "500 or 4,000 or 100,000"
    rows = inventory.run_sheet(agents_of(runs)).rows
    objectives = {run.path.name: run.result.get("objective") for run in runs}
    assert {row["directory"]: row["objective"] for row in rows} == objectives
