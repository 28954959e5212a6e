import json

import pytest
from synthetic import config_of, make_run

from rigor.errors import UserError
from rigor.report.data.runs import load
from rigor.report.page.workspace import outline, workspace_of

TRACKER = {"name": "wandb", "mode": "offline", "project": "mine", "episodes": False}


def run(out, game, variant, seed, score=None, sweep="grid", tracker=TRACKER, settings=None, **how):
    config = {
        **config_of(game, variant, seed, **(settings or {})),
        "tracker": tracker,
        "sweep": sweep,
    }
    path = make_run(out, game, variant, seed, score, config=config, **how)
    (path / "wandb").mkdir()
    (path / "wandb" / "id").write_text(f"{game}-{variant}-{seed}\n")
    return load(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    result = {"updates": 10, "objective": 1.0}
    return [
        run(out, game, variant, seed, score + seed, result=result)
        for game, scores in (("pong", (12.0, 10.0)), ("breakout", (5.0, 20.0)))
        for variant, score in zip(("time_consistent", "time_inconsistent"), scores, strict=True)
        for seed in (0, 1)
    ] + [run(out, "pong", "time_aware", 0, state="failed", error="MemoryError: too small")]


@pytest.fixture(scope="module")
def spec(runs):
    """Return the specification that W&B receives."""
    made = workspace_of("grid", runs, "me")._to_model()
    return json.loads(made.spec.model_dump_json(by_alias=True, exclude_none=True))["section"]


def panels(spec, section):
    (found,) = [part for part in spec["panelBankConfig"]["sections"] if part["name"] == section]
    return [panel["config"] for panel in found["panels"]]


def test_the_workspace_shows_the_runs_of_the_sweep_by_agent(spec):
    (runset,) = spec["runSets"]
    assert [key["name"] for key in runset["grouping"]] == ["choices.value.variant"]
    assert json.dumps(runset["filters"]).count('"grid"') == 1
    assert '"group"' in json.dumps(runset["filters"])
    assert runset["runFeed"]["columnPinned"]["run:state"]


def test_every_game_has_a_curve_and_bars(spec):
    curves = panels(spec, "Scores by environment")
    assert [panel["metrics"] for panel in curves] == [["score/breakout"], ["score/pong"]]
    assert {(panel["xAxis"], panel["groupAgg"], panel["groupArea"]) for panel in curves} == {
        ("steps", "mean", "stderr")
    }
    bars = panels(spec, "Final")
    assert [panel["metrics"] for panel in bars] == [["score/breakout"], ["score/pong"]]
    assert {panel["groupBy"] for panel in bars} == {"choices.value.variant"}
    assert [panel["metrics"] for panel in panels(spec, "Throughput")] == [
        ["steps_per_second"],
        ["seconds"],
    ]


def test_improvements_equal_the_reports(spec):
    (panel,) = panels(spec, "Improvement")
    # means of two seeds: pong 12.5 over 10.5, breakout 5.5 over 20.5
    assert panel["value"].splitlines() == [
        "**No difference can be told between time_consistent and time_inconsistent: probability of "
        "improvement 0.50 [0.15, 0.85] over 2 environments, 2 seeds; 1 lower, no difference can be "
        "told on 1; mean −27.1 %, median −27.1 %.**",
        "",
        "| | loss | % | gain |",
        "|---|---:|---:|---|",
        "| pong |  | +19.0 % | ████ |",
        "| breakout | ███████████████ | −73.2 % |  |",
    ]


def test_failures_have_their_reasons(spec):
    (panel,) = panels(spec, "Failures")
    first, _, bad = panel["value"].splitlines()
    assert first == "8 done, 1 failed"
    assert "pong-multihorizon-hyperbolic-mean-time_aware-s0" in bad
    assert bad.endswith(": MemoryError: too small")


def test_the_outline_is_plain_text(runs):
    text = outline(workspace_of("grid", runs, "me"), len(runs))
    assert text.splitlines()[:2] == ["grid", "project mine, 9 runs, by choices.variant"]
    assert "    pong                                       +19.0 % ████" in text
    assert "|" not in text
    assert all(line == line.rstrip() and len(line) <= 120 for line in text.splitlines())


def test_the_outline_of_many_games_is_cut(tmp_path):
    games = [run(tmp_path, f"game{i:02d}", "time_aware", 0) for i in range(20)]
    made = workspace_of("grid", games, "me")
    assert [len(section.panels) for section in made.sections[:2]] == [20, 20]
    lines = outline(made, 20).splitlines()
    assert lines[4:12] == [f"  curve  game{i:02d}: score/game{i:02d}" for i in range(7)] + [
        "  and 13 more"
    ]


def test_agents_may_differ_in_a_setting(tmp_path):
    both = []
    for rule in ("lower", "midpoint"):
        config = config_of("pong", "time_consistent", 0, horizons__quadrature=rule)
        path = make_run(
            tmp_path, "pong", "time_consistent", 0, config=config | {"tracker": TRACKER}
        )
        both.append(load(path))
    made = workspace_of("grid", both, "me")
    assert [key.name for key in made.runset_settings.groupby] == ["horizons.quadrature"]


def test_runs_that_joined_from_another_sweep_are_shown(tmp_path):
    first = run(tmp_path, "pong", "time_aware", 0)
    other = run(tmp_path, "pong", "time_aware", 1, sweep="earlier")
    found = json.dumps(workspace_of("grid", [first, other], "me")._to_model().spec.model_dump())
    assert "pong-time_aware-1" in found
    assert "pong-time_aware-0" not in found


def test_an_exact_sweep_has_no_curves(tmp_path):
    exact = {"objective": 2.0, "regret": 0.0, "objective_exact": 2.0, "objective_optimal": 2.0}
    solver = {"agent___target_": "rigor.config.schemas.BackwardInduction"}
    how = {"result": exact, "settings": solver, "choices": {"agent": "backward_induction"}}
    first = run(tmp_path, "gbwm", "time_consistent", 0, 1.0, **how)
    made = workspace_of("grid", [first], "me")
    assert [section.name for section in made.sections] == [
        "Final",
        "Improvement",
        "Throughput",
    ]
    assert [panel.metrics for panel in made.sections[0].panels][-1] == ["regret"]


def test_runs_of_no_or_of_two_projects_have_no_dashboard(tmp_path):
    first = run(tmp_path, "pong", "time_aware", 0)
    other = run(tmp_path, "pong", "time_aware", 1, tracker=TRACKER | {"project": "other"})
    with pytest.raises(UserError, match="in the projects mine, other"):
        workspace_of("grid", [first, other], "me")
    none = run(tmp_path, "pong", "time_aware", 2, tracker=TRACKER | {"name": "none"})
    with pytest.raises(UserError, match="not mirrored"):
        workspace_of("grid", [none], "me")
