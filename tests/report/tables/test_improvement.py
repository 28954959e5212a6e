import functools

import numpy as np
import pytest
from synthetic import config_of, make_run, scored_agents

from rigor.report.data.agents import agents_of
from rigor.report.data.runs import load
from rigor.report.tables.comparison import objective_sheet
from rigor.report.tables.improvement import (
    comparison_sheet,
    comparisons,
    improvement,
    shown_comparisons,
)


@pytest.fixture
def agents(tmp_path):
    """Published scores of Pong and Freeway: random −20.7 and 0, human 14.6 and 29.6."""
    return functools.partial(scored_agents, tmp_path)


def test_improvement_by_hand(agents):
    agent, baseline = agents(
        {
            ("pong", "time_consistent"): [-5.0, -15.0],
            ("pong", "time_inconsistent"): [-20.0, -20.0],
            ("freeway", "time_consistent"): [30.0, 30.0],
            ("freeway", "time_inconsistent"): [20.0, 20.0],
            ("qbert", "time_consistent"): [1000.0],
            ("qbert", "time_inconsistent"): [2000.0],
            ("bowling", "time_consistent"): [30.0],  # the baseline never finished it
        }
    )
    found = improvement(agent, baseline)
    # (-10 + 20) / 20, (30 - 20) / 20, (1000 - 2000) / 2000
    assert [(row["environment"], row["percent"]) for row in found.rows] == [
        ("pong", 50.0),
        ("freeway", 50.0),
        ("qbert", -50.0),
    ]
    pong, freeway, qbert = found.rows
    assert (pong["n"], pong["n_baseline"], pong["difference"]) == (2, 2, 10.0)
    # the standard error of -5 and -15 is 5, and t with one degree of freedom 12.706: 63.53 of 20
    assert (pong["percent_low"], pong["percent_high"]) == pytest.approx((-267.66, 367.66), abs=0.01)
    assert np.isnan([freeway["percent_low"], qbert["percent_low"]]).all()  # equal seeds, one seed
    assert {row["verdict"] for row in found.rows} == {"no difference can be told"}
    assert pong["note"] == "negative baseline: in percent of its absolute value"
    assert (found.mean, found.median, found.seeds) == (pytest.approx(50 / 3), 50.0, "1 to 2 seeds")


def test_a_baseline_near_zero_has_no_percentage(agents):
    """Freeway: a hundredth of the difference from 0 to 29.6 is .296."""
    agent, baseline = agents(
        {
            ("freeway", "time_consistent"): [20.0],
            ("freeway", "time_inconsistent"): [0.29],
            ("bowling", "time_consistent"): [20.0],
            ("bowling", "time_inconsistent"): [1.5],  # more than a hundredth of 137.6
            ("cartpole", "time_consistent"): [1.0],
            ("cartpole", "time_inconsistent"): [0.0],
        }
    )
    found = improvement(agent, baseline)
    assert [row["environment"] for row in found.drawn] == ["bowling"]
    notes = {row["environment"]: row["note"] for row in found.rows}
    assert notes["freeway"] == "baseline near zero (0.29): no percentage"
    assert notes["cartpole"] == "baseline near zero (0): no percentage"
    assert [row["difference"] > 0 for row in found.rows] == [True] * 3


@pytest.mark.parametrize(
    ("x", "y", "percent"),
    [
        ([3, 5], [2, 2], 100.0),
        ([1], [2], -50.0),
        ([-5], [-10], 50.0),
        ([-15], [-10], -50.0),
        ([5], [-10], 150.0),
    ],
)
def test_an_improvement_is_positive_for_scores_of_any_sign(agents, x, y, percent):
    pair = agents({("cartpole", "time_aware"): x, ("cartpole", "time_inconsistent"): y})
    assert improvement(*pair).rows[0]["percent"] == percent


def test_the_verdict_comes_first(agents):
    """Two seeds on one environment: 39 and 61 beside 50 and 100."""
    (found,) = comparisons(
        agents(
            {
                ("cartpole", "time_consistent"): [39.0, 61.0],
                ("cartpole", "time_inconsistent"): [50.0, 100.0],
            }
        )
    )
    # the standard errors are 11 and 25, together 27.3; t with 1.37 degrees of freedom is 6.85
    assert found.headline == (
        "No difference can be told between time_consistent and time_inconsistent: "
        "−33 % [−283, +216], 2 seeds (cartpole, score)."
    )


def test_a_difference_that_many_seeds_show(agents):
    (found,) = comparisons(
        agents(
            {
                ("cartpole", "time_consistent"): [90.0, 100.0, 110.0],
                ("cartpole", "time_inconsistent"): [40.0, 50.0, 60.0],
            }
        )
    )
    # both standard errors are 10/√3, with four degrees of freedom: 2.776 · 8.165 = 22.67 of 50
    assert found.headline == (
        "time_consistent has a higher score than time_inconsistent: "
        "+100 % [+55, +145], 3 seeds (cartpole, score)."
    )


def test_several_environments_are_judged_by_the_probability_of_improvement(agents):
    games = ("pong", "qbert", "freeway", "bowling")
    scores = {(game, "time_consistent"): [20.0, 21.0] for game in games}
    scores |= {(game, "time_inconsistent"): [10.0, 11.0] for game in games}
    scores |= {("pong", "time_inconsistent"): [30.0, 31.0]}
    (found,) = comparisons(agents(scores))
    # Qbert's baseline is near zero; six of eight pairs are won; Wilson's interval of .75 of 8
    assert found.headline == (
        "No difference can be told between time_consistent and time_inconsistent: probability of "
        "improvement 0.75 [0.41, 0.93] over 4 environments, 2 seeds; 3 higher, 1 lower; "
        "mean +52.6 %, median +95.2 %."
    )


def test_equal_seeds_are_told_apart_if_they_are_enough(agents):
    """The seeds of both agents are equal, so that only their order can tell."""
    four = agents(
        {("cartpole", "time_aware"): [500.0] * 4, ("cartpole", "time_inconsistent"): [9.0] * 4}
    )
    assert comparisons(four)[0].rows[0]["verdict"] == "higher"
    text = comparisons(four)[0].headline
    assert text.startswith("time_aware has a higher score than time_inconsistent: +5,456 %, no int")


def test_every_two_agents_are_compared_without_a_baseline(tmp_path):
    def agent(network, game, scores):
        config = config_of(game, "time_consistent", 0, agent__network=network)
        return [
            load(
                make_run(
                    tmp_path, game, "time_consistent", seed, score, config=config | {"seed": seed}
                )
            )
            for seed, score in enumerate(scores)
        ]

    runs = [
        *agent("mlp", "cartpole", [10.0, 12.0]),
        *agent("cnn", "cartpole", [11.0, 13.0]),
        *agent("rbf", "cartpole", [30.0, 32.0]),
        *agent("mlp", "acrobot", [1.0]),
    ]
    agents = agents_of(runs)
    assert len(comparisons(agents)) == 3
    sheet = comparison_sheet(agents)
    rows = [(row["environment"], row["measure"]) for row in sheet.rows]
    assert rows == [("cartpole", "score"), ("cartpole", "objective")] * 3
    assert "fewer than two agents have finished it: acrobot." in sheet.caption


def test_a_problem_with_an_optimum_is_compared_by_its_objective(tmp_path):
    """The objective of an exact agent has no variation, so one learned seed is too few."""

    def run(variant, seed, objective, agent="multihorizon"):
        config = config_of("put", variant, seed)
        solver = {"_target_": "rigor.config.schemas.BackwardInduction"}
        config |= {"agent": solver} if agent == "backward_induction" else {}
        return load(
            make_run(
                tmp_path,
                "put",
                variant,
                seed,
                5.0,
                config=config,
                choices={"agent": agent},
                result={"objective_exact": objective, "objective_optimal": 4.0},
            )
        )

    learned = [run("time_consistent", seed, 3.0 + 0.01 * seed) for seed in (0, 1, 2)]
    exact = [run("time_consistent", 0, 4.0, "backward_induction")]
    worse = [run("time_inconsistent", 0, 3.9, "backward_induction")]
    texts = [pair.headline for pair in comparisons(agents_of(learned + exact + worse))]
    assert texts == [
        # 3.01 ± 4.303 · .00577 against 4 known exactly
        "time_consistent backward_induction has a higher objective than time_consistent "
        "multihorizon: +33 % [+32, +34], 1 to 3 seeds (put, objective).",
        "time_consistent backward_induction has a higher objective than time_inconsistent "
        "backward_induction: +2.6 %, exact values, 1 seed (put, objective).",
        "time_consistent multihorizon has a lower objective than time_inconsistent "
        "backward_induction: −23 % [−23, −22], 1 to 3 seeds (put, objective).",
    ]


def test_pairs_are_compared_in_one_direction(agents):
    three = agents(
        {
            ("pong", variant): [score]
            for variant, score in (
                ("time_consistent", -5.0),
                ("time_aware", -10.0),
                ("time_inconsistent", -20.0),
            )
        }
    )
    both = [("variant", "time_inconsistent"), ("variant", "time_aware")]
    found = comparisons(three, both)
    assert [(pair.agent, pair.baseline) for pair in found] == [
        ("time_consistent", "time_inconsistent"),
        ("time_aware", "time_inconsistent"),
        ("time_consistent", "time_aware"),
    ]
    assert {(pair.agent, pair.baseline) for pair in comparisons(three)} == {
        (pair.agent, pair.baseline) for pair in found
    }


def test_many_pairs_are_in_the_table_only(tmp_path):
    runs = [
        load(
            make_run(
                tmp_path,
                "pong",
                "time_aware",
                0,
                float(i),
                config=config_of("pong", "time_aware", 0, agent__quantiles=10 + i),
            )
        )
        for i in range(6)
    ]
    shown, others = shown_comparisons(agents_of(runs))
    assert (len(shown), others) == (12, 3)
    assert len(comparison_sheet(agents_of(runs)).rows) == 30  # 15 pairs, two measures


def test_many_pairs_of_variants_and_quadratures_are_shown_by_the_papers_baselines(tmp_path):
    """As of `experiment=minatar_variants`: six agents, and plain exponential discounting."""
    runs = []
    for variant in ("time_consistent", "time_aware", "time_inconsistent"):
        for rule in ("lower", "gauss_legendre"):
            config = config_of("pong", variant, 0, horizons__quadrature=rule)
            runs.append(load(make_run(tmp_path, "pong", variant, 0, 1.0, config=config)))
    config = config_of("pong", "time_consistent", 0) | {
        "discount": {"gamma": 0.99, "_target_": "rigor.maths.discount.Exponential"},
        "horizons": {"_target_": "rigor.maths.horizons.Single"},
    }
    choices = {"agent": "singlehorizon", "discount": "exponential"}
    runs.append(
        load(make_run(tmp_path, "pong", "time_consistent", 0, 1.0, config=config, choices=choices))
    )
    shown, _ = shown_comparisons(agents_of(runs))
    pairs = {(pair.agent, pair.baseline) for pair in shown}
    labels = [agent.label for agent in agents_of(runs)]

    def label(*words):
        (found,) = [name for name in labels if all(word in name for word in words)]
        return found

    for rule in ("lower", "gauss_legendre"):
        consistent, aware, inconsistent = (
            label(variant, "hyperbolic", rule)
            for variant in ("time_consistent", "time_aware", "time_inconsistent")
        )
        assert {(consistent, inconsistent), (aware, inconsistent), (consistent, aware)} <= pairs
    for variant in ("time_consistent", "time_aware", "time_inconsistent"):
        fine, coarse = (label(variant, "hyperbolic", rule) for rule in ("gauss_legendre", "lower"))
        assert (fine, coarse) in pairs
    # exponential differs from both inconsistent agents in as much, so neither is its baseline
    assert (label("exponential"), label("time_inconsistent", "lower")) not in pairs


@pytest.mark.parametrize(
    ("exact", "value", "solved"),
    [
        # the other agent has no exact value, so the sampled ones are compared: both are 1
        ((0.988, None), 1.0, False),
        ((0.9, 0.9 + 1e-16), 0.9, True),
    ],
)
def test_objectives_of_one_kind_are_compared(tmp_path, exact, value, solved):
    runs = []
    variants = ("time_consistent", "time_inconsistent")
    for variant, one in zip(variants, exact, strict=True):
        result = {"objective": 1.0}
        result |= {} if one is None else {"objective_exact": one, "objective_optimal": 1.0}
        path = tmp_path / str(value)
        runs.append(load(make_run(path, "pong", variant, 0, 1.0, result=result)))
    x, y = agents_of(runs)
    (row,) = [row for row in comparison_sheet([x, y]).rows if row["measure"] == "objective"]
    assert (row["value"], row["baseline"]) == pytest.approx((value, value), rel=1e-15)
    assert row["verdict"] == "equal"
    assert improvement(x, y).headline == f"{x.label} and {y.label} are equal: 0 %, 1 seed " + (
        "(pong, objective)."
    )
    rows = objective_sheet([x, y]).rows  # the estimates of both agents, or of neither
    found = [row[label] for row in rows for label in (x.label, y.label)]
    assert found == ([] if solved else [value, value])
