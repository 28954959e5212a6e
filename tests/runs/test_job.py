from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import hydra_plugins.rigor.sweeper  # noqa: F401  conf/train.yaml names it
from rigor.config import config
from rigor.errors import UserError
from rigor.runs.identity import config_hash
from rigor.runs.job import NAMED, explain, job, wandb_names

config.register()


def composed(*overrides: str):
    with initialize_config_module("rigor.conf", version_base="1.3"):
        return compose("train", list(overrides), return_hydra_config=True)


@pytest.fixture(scope="module")
def pong():
    return composed("env=atari/pong", "agent=multihorizon", "seed=3", "out='~/here'")


def changed(one, **values):
    one = one.copy()
    for key, value in values.items():
        OmegaConf.update(one, key.replace("__", "."), value)
    return job(one, one.hydra.runtime.choices)


def test_a_job_is_resolved_checked_and_named(pong):
    one = changed(pong)
    assert one.plain["train"]["schedule_steps"] == one.steps == 10_000_000
    assert one.plain["env"]["life_loss"] == "terminal"
    assert one.plain["horizons"]["quadrature"] == "lower"
    assert "hydra" not in one.plain
    assert one.digest == config_hash(one.plain)
    name = f"pong-multihorizon-hyperbolic-mean-time_consistent-s3-{one.digest[:8]}"
    assert one.path == Path.home() / "here" / name  # the shell leaves `out=~/here` as it is
    assert one.choices["env"] == "atari/pong"
    assert one.config.env.game == "pong"


def test_keys_without_effect_on_the_result_do_not_change_the_directory(pong):
    one = changed(pong)
    same = changed(
        pong, device="cpu", sweep="some", tracker__name="none", env__threads=2, out="~/here"
    )
    assert (same.digest, same.path) == (one.digest, one.path)
    # a run is extended by train.schedule_steps=OLD train.steps=NEW
    longer = changed(pong, train__steps=20_000_000, train__schedule_steps=10_000_000)
    assert longer.digest == one.digest
    assert longer.steps == 20_000_000


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 4), ("train.steps", 100), ("discount.k", 0.1), ("evaluate.epsilon", 0.02)],
)
def test_keys_with_effect_on_the_result_change_the_directory(pong, key, value):
    other = changed(pong, **{key.replace(".", "__"): value})
    assert other.digest != changed(pong).digest
    assert other.path != changed(pong).path


def test_the_names_of_a_run_in_wandb(pong):
    one = changed(pong)
    choices = ["pong", "multihorizon", "hyperbolic", "mean", "time_consistent"]
    assert wandb_names(one.plain, "grid") == {
        "group": "grid",
        "name": "pong · time_consistent · s3",
        "tags": choices,
        "job_type": "train",
        "problem": "pong",
        "choices": dict(zip(NAMED, choices, strict=True)),
    }
    assert wandb_names(one.plain, None)["group"] == "-".join(choices)
    exact = composed("env=gbwm", "agent=backward_induction")
    solved = job(exact, exact.hydra.runtime.choices)
    assert wandb_names(solved.plain, None)["job_type"] == "solve"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["env=gymnasium", "env.id=Acrobot-v1"], "Acrobot-v1"),
        (["env=gymnasium", "env.id=mine:Fragile-v0"], "Fragile-v0"),
        (["env=cartpole"], "cartpole"),
        (["env=cartpole", "env.id=Acrobot-v1"], "Acrobot-v1"),
        (["env=tabular"], "tabular"),
        (["env=tabular", "env.builtin=cliff", "env.actions=4"], "cliff"),
    ],
)
def test_a_run_is_named_by_its_problem(overrides, name):
    one = composed(*overrides)
    found = job(one, one.hydra.runtime.choices)
    assert found.path.name == (
        f"{name}-singlehorizon-exponential-mean-time_consistent-s0-{found.digest[:8]}"
    )
    assert found.label == f"{name} s0"
    names = wandb_names(found.plain, None)
    assert (names["problem"], names["tags"][0]) == (name, name)
    assert found.plain["name"] == found.path.name
    assert found.choices["env"] == overrides[0].removeprefix("env=")  # as it was typed


def test_a_missing_value_names_its_key():
    one = composed("env=gymnasium")
    with pytest.raises(UserError, match=r"^env\.id: has no value yet; add env\.id=VALUE$"):
        job(one, {})


def test_an_unknown_key_is_refused():
    one = composed("+foo=3")
    with pytest.raises(UserError, match=r"^foo: no such key; "):
        job(one, {})
    with pytest.raises(UserError, match=r"^train: .*'foo'"):
        job(composed("+train.foo=3"), {})


def test_an_error_of_a_resolver_keeps_its_message(pong):
    one = pong.copy()
    one.env.protocol = "nature"
    with pytest.raises(UserError, match=r"^env\.protocol=nature: choose one of paper, machado"):
        job(one, {})


def test_explain_names_the_key():
    node = OmegaConf.create({"a": {"b": "???"}, "c": "${nothing}"})
    with pytest.raises(OmegaConfBaseException) as caught:
        OmegaConf.to_container(node, throw_on_missing=True)
    assert explain(caught.value) == "a.b: has no value yet; add a.b=VALUE"
    with pytest.raises(OmegaConfBaseException) as caught:
        _ = node.c
    assert explain(caught.value) == "c: Interpolation key 'nothing' not found"


def test_a_missing_variable_of_the_environment_names_its_key_and_a_removed_key_too(monkeypatch):
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(UserError) as caught:
        job(composed("seed=${oc.env:NO_SUCH}"), {})
    assert str(caught.value) == "seed: Environment variable 'NO_SUCH' not found"
    with pytest.raises(UserError, match=r"^seed: a run needs it; leave ~seed out$"):
        job(composed("~seed"), {})


def test_an_exact_agent_has_no_steps_though_a_sweep_sets_them_for_its_other_agents():
    exact = job(composed("env=gbwm", "agent=backward_induction", "train.steps=100"), {})
    learned = job(composed("env=gbwm", "agent=expected_utility", "train.steps=100"), {})
    assert (exact.steps, learned.steps) == (0, 100)


def test_a_job_without_choices_is_named_by_its_seed(pong):
    assert job(pong, {}).path.name.startswith("s3-")
