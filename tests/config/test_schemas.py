import dataclasses

import pytest
from command_line import changed

from rigor.config import schemas
from rigor.errors import UserError
from rigor.runs.job import job

OUT_OF_RANGE = [
    ("agent.learns", "values"),
    ("agent.bootstrap", "both"),
    ("train.double", "none"),
    ("agent.quantiles", 0),
    ("env.num_envs", 0),
    ("env.max_steps", 0),
    ("evaluate.every", 0.0),
    ("evaluate.every", 1.5),
    ("evaluate.episodes", 0),
    ("evaluate.final_episodes", 0),
    ("evaluate.epsilon", -0.1),
    ("network.hidden", [-1]),
    ("network.hidden", [64, 0]),
    ("outer.points", 1),
    ("outer.every", 0),
    ("outer.rollouts", -1),
    ("outer.batch", 0),
    ("outer.relabel", 2.0),
    ("tracker.name", "comet"),
    ("tracker.mode", "sometimes"),
    ("train.steps", 0),
    ("train.steps", 10**19),
    ("train.schedule_steps", 0),
    ("train.schedule_steps", 10**19),
    ("train.batch_size", 0),
    ("train.batch_size", 60_000),  # does not fit into the replay
    ("train.learning_rate", 0.0),
    ("train.learning_rate", float("inf")),
    ("train.learning_rate", float("nan")),
    ("train.learning_rate_end", -1.0),
    ("train.adam_eps", -1e-8),
    ("train.weight_average", 1.0),
    ("train.weight_average", -0.1),
    ("train.reward_scale", 0.0),
    ("train.next_state_samples", 0),
    ("train.huber", -1.0),
    ("train.huber", float("nan")),
    ("train.reduction", "max"),
    ("train.precision", "fp16"),
    ("train.update_every", 0),
    ("train.learning_starts", 1.1),
    ("train.target_every", 0),
    ("train.target_smoothing", 0.0),
    ("train.target_smoothing", 1.5),
    ("train.replay_capacity", 0),
    ("train.epsilon_start", 1.1),
    ("train.epsilon_end", -0.1),
    ("train.epsilon_fraction", 2.0),
    ("train.log_every", 0.0),
    ("train.checkpoint_every", 0),
    ("discount.gamma", 1.5),
    ("seed", -1),
    ("seed", 2**63),
    ("device", "gpu"),
]


@pytest.mark.parametrize(("key", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_by_key_and_value(cartpole, key, value):
    refuses(cartpole, key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env.game", "pongg"),
        ("env.protocol", "nature"),
        ("env.life_loss", "sometimes"),
        ("env.sticky", 1.0),
        ("env.frame_skip", 0),
        ("env.noop_max", -1),
        ("env.max_frames", 0),
        ("env.threads", 0),
        ("horizons.m", 0),
        ("horizons.gamma_max", 1.0),
        ("horizons.quadrature", "trapezoid"),
        ("network.hidden", 0),
        ("network.embedding", 0),
        ("discount.k", 0.0),
        ("train.replay_capacity", 100),  # fewer rows of 8 than a stack of frames needs
    ],
)
def test_a_value_out_of_range_on_atari_is_refused_by_key_and_value(pong, key, value):
    refuses(pong, key, value)


@pytest.mark.parametrize(
    ("risk", "key", "value"),
    [
        ("cvar", "risk.tau", 0.0),
        ("cvar", "risk.tau", 1.5),
        ("mean_cvar", "risk.kappa", -0.5),
        ("entropic", "risk.beta", 0.5),
        ("mean_variance", "risk.kappa", 0.0),
    ],
)
def test_a_risk_out_of_range_is_refused_by_key_and_value(cartpole, nodes, risk, key, value):
    refuses(changed(cartpole, risk=nodes["risk", risk]), key, value)


def refuses(one, key, value):
    with pytest.raises(UserError) as caught:
        job(changed(one, **{key: value}), {})
    message = str(caught.value)
    assert key in message, message
    assert str(value) in message, message
    assert "\n" not in message


def test_every_field_of_train_and_evaluate_is_tested_out_of_range():
    tested = {key for key, _ in OUT_OF_RANGE}
    for group, schema in (("train", schemas.Train), ("evaluate", schemas.Evaluate)):
        fields = [one for one in dataclasses.fields(schema) if one.type is not bool]
        assert {f"{group}.{field.name}" for field in fields} <= tested
