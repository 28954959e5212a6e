import builtins
import json
import os
import pickle
import resource
import shutil
import threading

import numpy as np
import pytest
import torch
from scripted import assert_same

from rigor.errors import UserError
from rigor.learning import checkpoint
from rigor.learning.checkpoint import KEEP, CorruptCheckpoint, checkpoints, load, save


def tree():
    generator = np.random.default_rng(7)
    return {
        "a.b": torch.tensor([1.0]),
        "a": {"b": torch.tensor([2.0]), "0": [np.arange(2), {"x": np.arange(3)}]},
        "generator": generator.bit_generator.state,  # integers of 128 bits
        "scalars": [1, 2.5, -0.0, 1e-300, True, False, None, "a\nword", float("inf")],
        "zero_dim": [torch.tensor(3.0), np.array(2.5), np.array(True)],
        "empty": [torch.zeros(0), np.zeros((0, 3)), [], {}],
        "types": [
            np.array([[True, False]]),
            np.arange(6, dtype=np.uint8).reshape(2, 3).T,
            np.array([0.1, np.nan, -np.inf]),
            np.array([2**62, -1]),
            torch.arange(4, dtype=torch.uint8),
            torch.tensor([0.1], dtype=torch.float64),
            torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        ],
        "numpy": [np.float64(0.1), np.int64(3), np.bool_(True)],
    }


def test_a_tree_comes_back_as_it_was(tmp_path):
    state = tree()
    back = load(save(tmp_path, 5, state))
    state["numpy"] = [0.1, 3, True]
    assert_same(state, back)
    assert str(back["scalars"][2]) == "-0.0"
    generator = np.random.default_rng(0)
    generator.bit_generator.state = back["generator"]
    assert generator.random() == np.random.default_rng(7).random()


def test_arrays_are_copies_that_can_be_written(tmp_path):
    state = {"array": np.zeros(2), "tensor": torch.zeros(2)}
    path = save(tmp_path, 1, state)
    state["array"][0] = state["tensor"][0] = 1.0
    back = load(path)
    back["array"][1] = back["tensor"][1] = 5.0
    assert back["array"].tolist() == back["tensor"].tolist() == [0.0, 5.0]


def test_the_newest_two_stay_in_order_of_steps(tmp_path):
    directory = tmp_path / "checkpoints"
    assert checkpoints(directory) == []
    for steps in (9, 10, 100, 2_000_000_000):
        save(directory, steps, {"steps": steps})
    assert KEEP == 2
    assert [load(path)["steps"] for path in checkpoints(directory)] == [100, 2_000_000_000]
    assert len(list(directory.iterdir())) == 2


def test_saving_the_same_step_again_replaces_it(tmp_path):
    save(tmp_path, 1, {"x": "first"})
    save(tmp_path, 2, {"x": "second"})
    save(tmp_path, 2, {"x": "third"})
    assert [load(path)["x"] for path in checkpoints(tmp_path)] == ["first", "third"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("moment", ["save_file", "_digests", "_sync"])
def test_a_crash_while_saving_leaves_what_was_there(tmp_path, monkeypatch, moment):
    save(tmp_path, 1, {"x": np.arange(3)})
    save(tmp_path, 2, {"x": np.arange(4)})

    def crash(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, moment, crash)
        for steps in (2, 3):  # a step that is there already, and a new one
            with pytest.raises(KeyboardInterrupt):
                save(tmp_path, steps, {"x": np.arange(9)})
    assert [len(load(path)["x"]) for path in checkpoints(tmp_path)] == [3, 4]
    save(tmp_path, 4, {"x": np.arange(5)})
    assert [len(load(path)["x"]) for path in checkpoints(tmp_path)] == [4, 5]
    assert len(list(tmp_path.iterdir())) == 2  # what the crashes left is gone


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["arrays.safetensors", "state.json", "digests.json"])
@pytest.mark.parametrize(
    "damage", [cut, flip, lambda path: path.unlink(), lambda p: p.write_text("")]
)
def test_a_damaged_file_is_corrupt_and_named(tmp_path, name, damage):
    path = save(tmp_path, 1, {"x": np.arange(3), "y": 1})
    damage(path / name)
    with pytest.raises(CorruptCheckpoint, match="step_000000000001"):
        load(path)


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"state.json": 1}'])
def test_digests_that_vouch_for_nothing_are_corrupt(tmp_path, content):
    path = save(tmp_path, 1, {"x": np.arange(3)})
    (path / "digests.json").write_text(content)
    with pytest.raises(CorruptCheckpoint):
        load(path)


def test_an_empty_directory_is_corrupt(tmp_path):
    (tmp_path / "step_000000000001").mkdir()
    with pytest.raises(CorruptCheckpoint):
        load(tmp_path / "step_000000000001")


def test_the_newest_that_can_be_read(tmp_path, monkeypatch):
    assert checkpoint.newest(tmp_path / "nothing") is None
    old, new = (checkpoint.save(tmp_path, steps, {"steps": steps}) for steps in (5, 10))
    assert checkpoint.newest(tmp_path) == {"steps": 10}
    cut(new / "state.json")
    assert checkpoint.newest(tmp_path) == {"steps": 5}
    cut(old / "state.json")
    assert checkpoint.newest(tmp_path) is None
    assert old.exists()
    # a run that goes on removes both and writes another, between the look and the reading
    load = checkpoint.load

    def late(path):
        if path == new:
            checkpoint.save(tmp_path, 15, {"steps": 15})
            checkpoint.save(tmp_path, 20, {"steps": 20})
        return load(path)

    monkeypatch.setattr(checkpoint, "load", late)
    assert checkpoint.newest(tmp_path) == {"steps": 20}


def test_discard_removes_it(tmp_path):
    path = save(tmp_path, 1, {})
    checkpoint.discard(path)
    checkpoint.discard(path)
    assert checkpoints(tmp_path) == []


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a checkpoint ran code')",))


def test_loading_opens_no_pickle(tmp_path, monkeypatch):
    path = save(tmp_path, 1, {"x": torch.arange(3), "y": "z"})
    for name in ("state.pkl", "arrays.pt", "data.pickle"):
        (path / name).write_bytes(pickle.dumps(Bomb()))

    def refuse(*arguments, **options):
        raise AssertionError("unpickled")

    opened = []
    really = builtins.open
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    monkeypatch.setattr(
        builtins,
        "open",
        lambda file, *rest, **more: opened.append(file) or really(file, *rest, **more),
    )
    assert load(path)["x"].tolist() == [0, 1, 2]
    assert {file.name for file in opened} == {"arrays.safetensors", "state.json"}


def test_a_pickle_in_the_place_of_arrays_is_corrupt_even_with_its_digest(tmp_path):
    path = save(tmp_path, 1, {"x": torch.arange(3)})
    (path / "arrays.safetensors").write_bytes(pickle.dumps(Bomb()))
    (path / "digests.json").write_text(json.dumps(checkpoint._digests(path)))
    with pytest.raises(CorruptCheckpoint):
        load(path)


def test_a_checkpoint_can_be_moved(tmp_path):
    path = save(tmp_path / "here", 1, {"x": np.arange(3)})
    moved = shutil.move(path, tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere")["x"].tolist() == [0, 1, 2]
    assert str(moved).endswith("elsewhere")


def test_training_goes_on_while_a_copy_is_written(tmp_path, monkeypatch):
    """The writer waits at a gate here, while the state changes."""
    gate, write = threading.Event(), checkpoint._write

    def held(*arguments):
        gate.wait()
        return write(*arguments)

    monkeypatch.setattr(checkpoint, "_write", held)
    writer, state = checkpoint.Writer(tmp_path), {"x": torch.zeros(2)}
    writer.wait()  # nothing is being written
    writer.start(7, state)
    state["x"][0] = 1.0
    assert checkpoints(tmp_path) == []
    gate.set()
    writer.wait()
    assert load(*checkpoints(tmp_path))["x"].tolist() == [0.0, 0.0]
    writer.start(8, state)
    writer.close()  # ends after it
    assert len(checkpoints(tmp_path)) == 2


def test_an_error_of_the_background_reaches_the_next_save(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = checkpoint.Writer(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # as if the disk were full
    try:
        writer.start(7, {"x": torch.zeros(10_000)})
        with pytest.raises(UserError, match=r"no space left on device.*; free some space"):
            writer.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.start(8, {"x": torch.zeros(10_000)})
    writer.close()
    assert [path.name for path in checkpoints(tmp_path)] == ["step_000000000008"]


def test_the_files_of_a_checkpoint_have_the_users_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        path = save(tmp_path, 1, {"x": torch.zeros(2)})
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in path.iterdir()} == {"0o640"}
