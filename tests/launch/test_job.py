from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import hydra_plugins.rigor.sweeper  # noqa: F401  registers what conf/train.yaml names
from rigor import config
from rigor.errors import UserError
from rigor.launch.job import NAMED, explain, job, tracked_as
from rigor.tracking.identity import config_hash

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


def test_what_cannot_change_the_result_does_not_change_the_directory(pong):
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
def test_what_changes_the_result_changes_the_directory(pong, key, value):
    other = changed(pong, **{key.replace(".", "__"): value})
    assert other.digest != changed(pong).digest
    assert other.path != changed(pong).path


def test_what_a_run_is_called_in_wandb(pong):
    one = changed(pong)
    choices = ["pong", "multihorizon", "hyperbolic", "mean", "time_consistent"]
    assert tracked_as(one, "grid") == {
        "group": "grid",
        "name": "pong · time_consistent · s3",
        "tags": choices,
        "job_type": "train",
        "problem": "pong",
        "choices": dict(zip(NAMED, choices, strict=True)),
    }
    assert tracked_as(one, None)["group"] == "-".join(choices)
    exact = composed("env=gbwm", "agent=backward_induction")
    assert tracked_as(job(exact, exact.hydra.runtime.choices), None)["job_type"] == "solve"


def test_a_missing_value_names_its_key():
    one = composed("env=gymnasium")
    with pytest.raises(UserError, match=r"^env\.id: has no value yet; add env\.id=VALUE$"):
        job(one, {})


def test_a_key_that_nobody_reads_is_refused():
    one = composed("+foo=3")
    with pytest.raises(UserError, match=r"^foo: no such key; "):
        job(one, {})
    with pytest.raises(UserError, match=r"^train: .*'foo'"):
        job(composed("+train.foo=3"), {})


def test_an_error_of_a_resolver_is_told_in_its_own_words(pong):
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


def test_a_job_without_choices_is_named_by_its_seed(pong):
    assert job(pong, {}).path.name.startswith("s3-")
