import pytest
from command_line import composed
from omegaconf import OmegaConf
from omegaconf.errors import ValidationError

from rigor.config.whole_numbers import whole


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ("7", 7),
        ("1_000", 1000),
        (1e4, 10_000),
        ("1e4", 10_000),
        ("-2.0e1", -20),
        (1e23, 10**23),
    ],
)
def test_a_whole_number_is_one_in_any_notation(value, number):
    found = whole(value)
    assert (found, type(found)) == (number, int)


@pytest.mark.parametrize("value", [1.5, "1.5", "abc", "", "inf", float("nan"), True, None, [1]])
def test_other_values_are_none(value):
    with pytest.raises(ValueError, match=r"whole number|could not convert"):
        whole(value)


def test_integer_keys_accept_scientific_notation():
    config = composed("train.steps=1e4", "env.num_envs=2e0", "network.hidden=[1e2,84]", "seed=3")
    found = config.train.steps, config.env.num_envs, *config.network.hidden
    assert found == (10_000, 2, 100, 84)
    assert {type(number) for number in found} == {int}
    # other keys stay as they are
    assert isinstance(composed("train.learning_rate=1e0").train.learning_rate, float)
    assert isinstance(composed("+env.kwargs.length=4e0").env.kwargs.length, float)


def test_integer_keys_accept_it_in_a_yaml_file_too_and_text_of_the_environment(monkeypatch):
    config = composed()
    config.merge_with(OmegaConf.create("train: {steps: 1e6}"))
    assert config.train.steps == 1_000_000
    monkeypatch.setenv("STEPS", "500")
    assert composed("train.steps=${oc.env:STEPS}").train.steps == 500


def test_a_fraction_is_refused():
    config = composed()
    with pytest.raises(ValidationError, match=r"^1\.5 is not a whole number"):
        config.train.steps = 1.5
