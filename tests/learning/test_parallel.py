"""The parallel learner: rollouts, targets, updates, and runs that stop and resume."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scripted import Episode, ScriptedConfig, ScriptedEnv, assert_same, session

from rigor.errors import UserError
from rigor.learning.agent import Agent
from rigor.learning.agent_state import agent_state
from rigor.learning.parallel import Rollouts
from rigor.learning.replay import Batch
from rigor.runs.metrics import read

CPU = torch.device("cpu")
SMALL = [
    *("tracker=none", "device=cpu", "learner=parallel", "network.hidden=[16]"),
    *("agent.quantiles=5", "train.steps=600", "train.batch_size=8", "train.rollout_steps=6"),
    *("env.num_envs=4", "train.log_every=0.05", "evaluate.every=0.25", "evaluate.episodes=3"),
    *("evaluate.final_episodes=3", "outer.points=11", "outer.every=7", "outer.batch=4"),
]
# a lost life and a termination; a truncation; an episode beyond the rollout
SCRIPTS = [
    [Episode((1.0, -2.0, 3.0, 0.5), lives_lost=(1,)), Episode((5.0,))],
    [Episode((-1.0, 8.0), truncated=True)],
    [Episode((2.0,) * 9)],
]
# rows of six steps in each copy: transitions, and those whose next row does not follow
VALID = [[1, 1, 1, 1, 0, 1], [1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]]
TERMINATED = [[0, 1, 0, 1, 0, 1], [0] * 6, [0] * 6]


@pytest.fixture
def rollout(compose):
    """Return a function from overrides to an agent and its first rollout in the scripts."""

    def play(*overrides, epsilon=0.5, stack=1):
        config = compose("env.num_envs=3", *overrides, small=SMALL).config
        env = ScriptedEnv(SCRIPTS, stack)
        agent = Agent(config, env, CPU, 0)
        rollouts, rng = Rollouts(agent, env, config.train), np.random.default_rng(0)
        observation = env.reset(None)
        t, stock = np.zeros(3, np.int64), np.linspace(-1.0, 1.0, 3)
        for k in range(6):
            actions = rollouts.act(k, observation, t, stock, epsilon, rng)
            step = env.step(actions)
            rollouts.store(k, step)
            stock = np.where(step.dummy, 0.25, agent.next_stock(stock, t, step.reward))
            t = np.where(step.dummy, 0, t + 1)
            observation = step.observation
        rollouts.predict(6, observation, t, stock)
        return agent, rollouts, env, observation

    return play


def test_a_rollout_holds_what_was_played(rollout):
    agent, rollouts, env, last = rollout("risk=cvar")
    rows = rollouts.rows
    assert rows.valid.T.tolist() == VALID
    assert rows.terminated.T.tolist() == TERMINATED
    before, actions, steps = zip(*env.calls, strict=True)
    np.testing.assert_array_equal(rows.action, actions)
    np.testing.assert_array_equal(rows.reward, [step.reward for step in steps])
    for k, observation in enumerate([*before, last]):
        seen = rollouts.frames.read(3 * k + torch.arange(3), torch.from_numpy(rows.t[k]))
        np.testing.assert_array_equal(seen.numpy(), observation)
        greedy = agent.greedy(observation, rows.t[k], rows.stock[k])
        assert (rows.greedy[k] == greedy[:, None]).all()
        at = map(torch.from_numpy, (observation, rows.t[k], rows.stock[k]))
        predicted = agent.online(*at)[torch.arange(3), torch.from_numpy(greedy)]
        torch.testing.assert_close(rollouts._predicted[k], predicted)


def test_acting_and_learning_read_the_stacks_that_were_shown(rollout, monkeypatch):
    agent, rollouts, env, last = rollout(stack=4)
    shown = np.stack([call[0] for call in env.calls] + [last])
    read = []
    real = agent.engine.hidden
    monkeypatch.setattr(
        agent.engine, "hidden", lambda net, seen, *at: (read.append(seen), real(net, seen, *at))[1]
    )
    rollouts.predict(6, last, rollouts.rows.t[6], rollouts.rows.stock[6])
    rollouts.learn(np.random.default_rng(0))
    np.testing.assert_array_equal(read[0].numpy(), last)
    learned = {seen.numpy().tobytes() for batch in read[1:] for seen in batch}
    valid = shown[:6][rollouts.rows.valid].astype(np.float32) / np.float32(255.0)
    assert learned == {observation.tobytes() for observation in valid}


@pytest.mark.parametrize("risk", ["mean", "cvar"])
def test_without_a_trace_the_targets_are_those_of_the_replay_learner(compose, rollout, risk):
    choices = ["agent=multihorizon", "discount=hyperbolic", f"risk={risk}", "horizons.m=3"]
    agent, rollouts, env, last = rollout(*choices, "train.trace_decay=0")
    rows, seen = rollouts.rows, [call[0] for call in env.calls] + [last]
    choices += ["learner=replay", "network.norm=layer", "train.double=target"]
    small = [one for one in SMALL if not one.startswith(("learner", "train.rollout_steps"))]
    other = Agent(compose("env.num_envs=3", *choices, small=small).config, env, CPU, 0)
    for network in (other.online, other.target):
        network.load_state_dict(agent.online.state_dict())
    targets = rollouts.targets(np.random.default_rng(0))
    for k in range(6):
        reward, terminated = rows.reward[k : k + 1], rows.terminated[k : k + 1]
        shared = rows.t[k], rows.stock[k], rows.stock[k], rows.action[k]
        batch = Batch(seen[k], seen[k + 1], *shared, reward, terminated, np.ones(3, np.int64))
        transitions = map(other.engine.upload, other.transitions(batch))
        expected = other.targets(type(other.transitions(batch))(*transitions))
        valid = rows.valid[k]
        torch.testing.assert_close(targets[k][valid], expected[valid], rtol=1e-6, atol=1e-6)


def test_traces_end_at_autoresets_at_the_end_and_before_exploration(rollout):
    _, rollouts, *_ = rollout("agent.quantiles=1", "train.huber=inf", "train.trace_decay=0.7")
    goes = rollouts.continues(np.random.default_rng(0))[..., 0]
    follows = np.array(VALID).T[1:] == 1
    np.testing.assert_array_equal(goes[:-1], 0.7 * follows)
    assert not goes[-1].any()
    _, rollouts, *_ = rollout(
        "agent.quantiles=1", "train.huber=inf", "train.trace_decay=0.7", "train.trace=watkins"
    )
    rows = rollouts.rows
    explored = rows.action[1:] != rows.greedy[1:-1, :, 0]
    assert 0 < explored.sum() < explored.size
    goes = rollouts.continues(np.random.default_rng(0))[..., 0]
    np.testing.assert_array_equal(goes[:-1], 0.7 * (follows & ~explored))


def test_of_quantiles_lengths_are_drawn(rollout):
    _, rollouts, *_ = rollout("train.trace_decay=0.7")
    drawn = np.stack([rollouts.continues(np.random.default_rng(i)) for i in range(400)])
    assert set(np.unique(drawn)) == {0.0, 1.0}
    follows = np.array(VALID).T[1:] == 1
    np.testing.assert_allclose(drawn[:, :-1, :, 0].mean(0)[follows], 0.7, atol=0.1)
    assert not drawn[:, :-1, :, 0].mean(0)[~follows].any()


def test_an_update_uses_every_transition_and_no_autoreset(rollout, monkeypatch):
    agent, rollouts, *_ = rollout("train.epochs=3", "train.batch_size=5")
    used = []
    real = rollouts.gradient_step_on_device
    monkeypatch.setattr(
        rollouts, "gradient_step_on_device", lambda rows: (used.append(rows), real(rows))
    )
    weights = [one.clone() for one in agent.online.parameters()]
    assert rollouts.learn(np.random.default_rng(0)) == len(used) == 9
    valid = np.flatnonzero(np.array(VALID).T)
    for epoch in range(3):
        rows = torch.cat(used[3 * epoch : 3 * epoch + 3]).numpy()
        assert len(rows) == 15  # 14 transitions, one of them twice
        assert set(rows) == set(valid)
    after = zip(agent.online.parameters(), weights, strict=True)
    assert all((one != old).any() for one, old in after)


def test_a_rollout_of_autoresets_alone_teaches_nothing(rollout):
    agent, rollouts, *_ = rollout()
    rollouts.rows.valid[:] = False
    weights = [one.clone() for one in agent.online.parameters()]
    assert rollouts.learn(np.random.default_rng(0)) == 0
    after = zip(agent.online.parameters(), weights, strict=True)
    assert all((one == old).all() for one, old in after)


def test_of_each_head_its_own_action_follows(rollout):
    choices = ["agent=multihorizon", "discount=hyperbolic", "horizons.m=4"]
    agent, rollouts, env, _ = rollout(*choices, "agent.bootstrap=per_head")
    observation = torch.from_numpy(env.calls[0][0])
    at = torch.zeros(3, dtype=torch.int64), torch.linspace(-1.0, 1.0, 3, dtype=torch.float64)
    quantiles = agent.online(observation, *at)  # [E, A, M, N]
    best = quantiles.mean(3).argmax(1)
    assert rollouts.rows.greedy[0].tolist() == best.tolist()
    expected = quantiles[torch.arange(3)[:, None], best, torch.arange(4)]
    torch.testing.assert_close(rollouts._predicted[0], expected)


@pytest.mark.parametrize(
    "choices",
    [
        [],
        ["agent=multihorizon", "discount=hyperbolic", "risk=cvar", "train.weight_average=0.9"],
        ["agent=multihorizon", "agent.bootstrap=per_head", "train.trace=watkins"],
    ],
)
@pytest.mark.parametrize("copyable", [True, False])
def test_a_stopped_run_resumes_bit_for_bit(compose, choices, copyable):
    def job(name):
        one = compose("env.num_envs=3", *choices, f"out={name}", small=SMALL)
        one.config.env = ScriptedConfig(SCRIPTS, copyable=copyable)
        return one

    def everything(end):
        state = {key: value for key, value in vars(end.state).items() if key != "seconds"}
        training = end.training
        streams = training.exploration.bit_generator.state, training.sampling.bit_generator.state
        agent = agent_state(training.agent)
        return {"state": state, "agent": agent, "streams": streams, "env": training.env.state()}

    at_once = session(job("a"))
    assert not at_once.stopped
    assert at_once.state.steps >= 600
    stopped = session(job("b"), lambda training, state: state.steps >= 250)
    assert stopped.stopped
    resumed = session(job("b"))
    if not copyable:
        assert any("fresh episodes" in note for note in resumed.notes)
        assert resumed.state.steps >= 600
        return
    assert_same(everything(at_once), everything(resumed))
    tables = [
        read(end.training.run.metrics_path).drop(columns=["seconds", "steps_per_second"])
        for end in (at_once, resumed)
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_episodes_start_from_stocks_spread_over_the_candidates(compose):
    one = compose("env.num_envs=3", "risk=cvar", "outer.relabel=0.5", small=SMALL)
    one.config.env = ScriptedConfig(SCRIPTS)
    starts = []
    session(one, lambda training, state: starts.extend(state.stock_start) and False)
    assert len(np.unique(starts)) > 10


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["train.batch_size=100"], "larger than a rollout of env.num_envs=4"),
        (["train=control_replay"], "learner=parallel with train=control_replay"),
        (["train.trace=peng2"], "train.trace=peng2: choose one of peng, watkins"),
        (["train.trace_decay=1.5"], "train.trace_decay=1.5: must lie in"),
        (["train.max_grad_norm=0"], "must be above 0"),
        (["train.rollout_steps=0"], "must be 1 or more"),
    ],
)
def test_settings_that_do_not_fit_are_refused(compose, overrides, said):
    small = [one for one in SMALL if "rollout_steps" not in one or "train=" not in overrides[0]]
    with pytest.raises(UserError, match=said):
        compose(*overrides, small=small).config  # noqa: B018


@pytest.mark.slow
def test_a_small_problem_is_learned_to_its_exact_optimum(tmp_path):
    from command_line import rigor_train

    done = rigor_train(
        *("env=tabular", "env.builtin=ladder", "env.horizon=5", "env.states=6"),
        *("learner=parallel", "tracker=none", "risk=cvar", "risk.tau=0.25", "train.steps=40000"),
        *("evaluate.every=1", "out=out", "train.learning_rate=3e-3"),
        cwd=tmp_path,
    )
    assert (done.code, done.err) == (0, "")
    result = json.loads(next((tmp_path / "out").glob("*/result.json")).read_bytes())
    gap = result["objective_optimal"] - result["objective_random"]
    assert result["regret"] <= 0.05 * gap
