"""What could rot in `benchmarks/`: the peer's loss, the verdicts and the arithmetic."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rigor.learning.replay import Transitions

HERE = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


@pytest.mark.parametrize("case", ["4x10x50", "4x1x200"])
def test_the_single_file_peer_computes_the_same_loss_and_actions(case):
    import pieces

    _, agent, games = pieces.make_agent(case)
    peer = pieces.make_peer(agent, games)
    assert pieces.losses_agree(agent, peer) < 1e-5
    batch = pieces.random_batch(agent.online.head.shape[0])
    frames = batch.observation.numpy()
    there, here = peer.act(frames, batch.t), agent.greedy(frames, batch.t, batch.stock)
    assert (there == here).mean() > 0.9  # of equal values rounding may choose another
    games.close()


def test_the_single_file_peer_learns_from_the_same_gradient():
    import pieces

    _, agent, games = pieces.make_agent("4x10x50")
    peer = pieces.make_peer(agent, games)
    batch = pieces.random_batch(agent.online.head.shape[0])
    agent.loss(Transitions(*map(torch.as_tensor, agent.transitions(batch)))).backward()
    peer.loss(*pieces.for_peer(batch)).backward()
    pairs = list(zip(peer.online.parameters(), agent.online.parameters(), strict=True))
    assert all(float(here.grad.abs().max()) > 0 for _, here in pairs)
    for there, here in pairs:
        largest = float(there.grad.abs().max())
        assert float((there.grad - here.grad.view_as(there)).abs().max()) < 1e-4 * largest
    games.close()


@pytest.mark.parametrize("case", ["4x10x50", "4x10x1"])
def test_the_parallel_peer_computes_the_same_targets_and_loss(case):
    import pieces

    targets, loss = pieces.parallel_differences(case)
    assert targets < 1e-5
    assert loss < 1e-5


def test_arms_take_turns():
    from timing import interleaved

    order = []
    arms = {name: lambda name=name: order.append(name) for name in "ab"}
    samples = interleaved(arms, 3, warm=1)
    turns = [name for i, name in enumerate(order) if i == 0 or name != order[i - 1]]
    assert turns == list("ab" * 4)
    assert {name: len(own) for name, own in samples.items()} == {"a": 3, "b": 3}


def test_the_peer_counts_the_steps_that_it_stores():
    import pieces

    _, agent, games = pieces.make_agent("4x1x200")
    peer = pieces.make_peer(agent, games)
    plays, calls = games.step, []
    games.step = lambda actions: calls.append(plays(actions)) or calls[-1]
    taken = peer.run(3200, learns=False)
    autoresets = sum(int(step.dummy.sum()) for step in calls)
    assert autoresets > 0
    assert peer.size == peer.pos == taken == 8 * len(calls) - autoresets
    games.close()


def test_the_conclusions_add_up_by_hand():
    from bench import conclusions

    found = {
        "environment": {
            "emulator, 8 steps": [4.0],
            "store, 8 steps": [1.0],
            "sample a batch": [1.5],
        },
        "trunk x": {"forward+backward": [20.0, 30.0, 25.0], "forward": [7.5]},
        "update x": {"rigor": [60.0]},
        "training x": {"rigor": [20.0], "single file": [40.0]},
    }
    update, training = conclusions({"cpu_ms": {"tuned": found}})
    assert "60.0 ms, 1.50 of the floor (40.0 ms" in update
    # 4 ms of games, 1 of storing and two batches of 1.5 for 8 steps: 1 ms of 20
    assert training.endswith("rigor 50.0, single file 25.0; data 5.0%")


def file_of(samples, yardstick, commit="a"):
    arms = {"rigor": samples, "single file": yardstick}
    machine = {"cpu": "EPYC", "commit": commit, "torch": "2"}
    return {"machine": machine, "cpu_ms": {"default": {"update": arms}}}


def test_noise_is_told_from_a_change():
    from compare import compare

    old = file_of([10.0, 11.0, 12.0], [20.0, 22.0, 24.0])  # half of the yardstick
    noisy = file_of([11.0, 12.0, 13.0], [20.0, 26.0, 28.0])  # .55, .46, .46
    assert compare(old, noisy)[-1] == "1 times did not move"
    # the machine is twice as slow, and so is everything
    slow = compare(old, file_of([20.0, 22.0, 24.0], [40.0, 44.0, 48.0]))
    assert slow[1:] == [
        "the yardsticks themselves, new over old: 2 [2, 2]",
        "1 times did not move",
    ]
    # only the yardstick moved
    assert compare(old, file_of([10.0, 11.0, 12.0], [10.0, 11.0, 12.0]))[-1][:1] == "1"
    # apart, but by less than a tenth
    assert compare(old, file_of([10.5, 11.5, 12.5], [20.0, 22.0, 24.0]))[-1][:1] == "1"
    assert compare(old, file_of([20.0, 22.0, 24.0], [20.0, 22.0, 24.0], commit="b")) == [
        "a on EPYC, torch 2 → b on EPYC, torch 2",
        "default / update / rigor: 11 → 22 ms; over single file: 0.5 [0.5, 0.5] → 1 [1, 1], "
        "2.00× (slower)",
        "the yardsticks themselves, new over old: 1 [1, 1]",
        "0 times did not move",
    ]


def test_what_one_file_lacks_is_told():
    from compare import compare

    old, new = (file_of([10.0], [20.0]) for _ in range(2))
    del new["cpu_ms"]["default"]["update"]["rigor"]
    assert compare(old, new)[1] == "only in the old file: update / rigor"
    new["cpu_ms"] = {}
    assert compare(new, old)[1] == "only in the new file: update / rigor, update / single file"


def test_the_grid_adds_up_by_hand():
    from grid import cost

    # 9 runs of 10 million steps are 9e7: at 10 ms and 1/100 s each 9e7 * .02 / 3600 = 500 hours
    hours = cost({"pong": 100.0, "skiing": 1.0}, learner_ms=10.0)
    assert set(hours) == {"pong"}
    assert hours["pong"]["core_hours"] == pytest.approx(500.0)
    assert "gpu_hours" not in hours["pong"]
    assert hours["pong"]["emulator_core_hours"] == pytest.approx(250.0)
    # 2 cores give 200 steps/s where the GPU would take 500
    assert cost({"pong": 100.0}, 10.0, 500.0, cores=2)["pong"]["gpu_hours"] == pytest.approx(125.0)
    assert cost({"pong": 1e6}, 10.0, 500.0, cores=2)["pong"]["gpu_hours"] == pytest.approx(50.0)


def test_the_grid_is_told_by_learner(capsys, monkeypatch):
    import grid

    docs = HERE.parent / "docs" / "results"
    files = ["--bench", str(docs / "speed.json"), "--learners", str(docs / "learners.json")]
    monkeypatch.setattr(sys, "argv", ["grid.py", *files])
    grid.main()
    shown = capsys.readouterr().out
    # 4.5e9 steps at 60 steps/s are 20,833 hours; other emulators are slower or faster
    assert re.search(r"replay fp32 +60 agent steps/s +20,\d{3} core-hours", shown)
    assert re.search(r"parallel bf16 +379 agent steps/s +3,\d{3} core-hours", shown)
    monkeypatch.setattr(sys, "argv", ["grid.py", "--bench", "no.json", "--learners", "no.json"])
    with pytest.raises(SystemExit):
        grid.main()
    assert "make bench-learners" in capsys.readouterr().err


def test_fifty_games_of_the_emulator_table_are_in_the_grid():
    import csv

    from grid import EMULATOR, cost

    with open(EMULATOR, newline="") as file:
        rows = {
            row["game"]: float(row["agent_steps_per_cpu_second"]) for row in csv.DictReader(file)
        }
    assert len(rows) == 57
    assert len(cost(rows, 10.0)) == 50


@pytest.mark.slow
def test_the_gpu_script_works_without_a_gpu(tmp_path):
    out = tmp_path / "gpu.json"
    command = ["bash", str(HERE / "gpu.sh"), "--smoke", "--out", str(out)]
    environment = {"PYTHON": sys.executable, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(command, env=environment, check=True, timeout=400)
    rows = json.loads(out.read_text())["rows"]
    assert [(row["learner"], row["runs"]) for row in rows] == [("replay", 1), ("parallel", 2)]
    assert not any(row["recorded"] for row in rows)  # a CPU records nothing, asked or not
    assert [len(row["steps_per_second"]) for row in rows] == [1, 2]
    assert all(speed > 0 for row in rows for speed in row["steps_per_second"])
    assert all(row[key] > 0 for row in rows for key in ("update_ms", "act_ms"))
