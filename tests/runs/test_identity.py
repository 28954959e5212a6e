import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rigor.runs.identity import OUTSIDE_HASH, config_hash, difference, directory_name

CONFIG = {
    "seed": 0,
    "out": "runs",
    "device": "cpu",
    "tracker": {"name": "none", "mode": "auto"},
    "train": {"steps": 100, "schedule_steps": 100, "progress": True},
    "env": {"game": "breakout", "threads": 2},
    "agent": {"lr": 1e-3, "layers": [64, 64], "clip": None, "double": True},
}


def changed(key, value):
    config = copy.deepcopy(CONFIG)
    node = config
    *parents, last = key.split(".")
    for name in parents:
        node = node[name]
    node[last] = value
    return config


def test_hash_is_sha256_and_does_not_depend_on_the_order():
    backwards = dict(reversed(CONFIG.items()))
    assert len(config_hash(CONFIG)) == 64
    assert config_hash(CONFIG) == config_hash(backwards)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("out", "/elsewhere"),
        ("device", "cuda"),
        ("tracker", {"name": "wandb"}),
        ("train.steps", 200),
        ("env.threads", 8),
        ("hydra", {"job": {"num": 3}}),
    ],
)
def test_keys_that_cannot_change_the_result_are_outside_the_hash(key, value):
    assert key in OUTSIDE_HASH
    assert config_hash(changed(key, value)) == config_hash(CONFIG)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1),
        ("train.schedule_steps", 200),
        ("agent.lr", 2e-3),
        ("agent.layers", [64]),
        ("agent.layers", []),
        ("agent.clip", 0),
        ("train.double", 1.5),
        ("agent.outside", 1),
        ("env.game", "pong"),
    ],
)
def test_all_other_keys_are_inside_the_hash(key, value):
    assert config_hash(changed(key, value)) != config_hash(CONFIG)


def test_numbers_have_one_form():
    assert config_hash({"lr": float("1e-3")}) == config_hash({"lr": 0.001})
    assert config_hash({"steps": 1.0}) == config_hash({"steps": 1})
    assert config_hash({"steps": 1}) != config_hash({"steps": "1"})
    assert config_hash({"steps": 1}) != config_hash({"steps": True})


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="$\\"))


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        LEAVES | TEXTS | st.lists(LEAVES | TEXTS, max_size=3),
        max_size=6,
    )
)
def test_the_hash_survives_the_file(config):
    text = OmegaConf.to_yaml(OmegaConf.create({"a": config}))
    assert config_hash(OmegaConf.to_container(OmegaConf.create(text))) == config_hash({"a": config})


def test_names():
    choices = {"env": "atari/breakout", "agent": "multihorizon", "risk": "mean"}
    assert directory_name(choices, 3, "1a2b3c4d5e6f") == "breakout-multihorizon-mean-s3-1a2b3c4d"
    other = directory_name(choices | {"env": "minatar/breakout"}, 3, "1a2b3c4d5e6f")
    assert other == "minatar_breakout-multihorizon-mean-s3-1a2b3c4d"


def test_names_are_safe_and_short():
    name = directory_name({"env": "a/ö x:*", "agent": "../..", "risk": "r" * 400}, 0, "1a2b3c4d5e")
    assert len(name) <= 200
    assert name.startswith("a__x_-_-rrr")
    assert name.endswith("r-s0-1a2b3c4d")
    assert directory_name({}, 0, "1a2b3c4d5e") == "s0-1a2b3c4d"


def test_difference_names_keys_and_values():
    text = difference(CONFIG, changed("agent.lr", 0.5) | {"out": "x", "seed": 7})
    assert text == "agent.lr: 0.001 there, 0.5 here; seed: 0 there, 7 here"
    assert difference({}, {str(i): i for i in range(5)}).endswith("; and 2 more")
