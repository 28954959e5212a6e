import struct

from tensorboardX.proto.event_pb2 import Event, SessionLog

from rigor.config.schemas import Tracker
from rigor.runs.tensorboard_sink import TensorBoardSink
from rigor.runs.trackers import open_trackers


def events(folder):
    """Yield the events of all files, oldest first; a record is length, checksum, data, checksum."""
    for path in sorted((folder / "tensorboard").iterdir(), key=lambda one: one.stat().st_mtime_ns):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            yield Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length


def scalars(folder):
    return [
        (event.step, value.tag, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
        if value.HasField("simple_value")
    ]


def test_rows_are_scalars_over_steps(tmp_path):
    sink = TensorBoardSink(tmp_path, {"seed": 3}, print)
    sink.log({"steps": 10, "loss": 0.5, "eval_score": None})
    sink.log({"steps": 20, "eval_score": 2.0})
    sink.log_episodes(20, {"score": [1.0, 3.0]})
    sink.finish(0, {"objective": 1.5, "scores": [1.0], "commit": "1a2b"})
    assert scalars(tmp_path) == [
        (10, "loss", 0.5),
        (20, "eval_score", 2.0),
        (20, "final/objective", 1.5),
    ]
    texts = [str(event.summary) for event in events(tmp_path) if "seed" in str(event.summary)]
    assert len(texts) == 1


def test_a_resumed_run_replaces_the_rows_after_its_checkpoint(tmp_path):
    for start in (10, 20):
        sink = TensorBoardSink(tmp_path, {}, print)
        for steps in (start, start + 10):
            sink.log({"steps": steps, "loss": 1.0})
        sink.finish(0, {})
    begun = [event.step for event in events(tmp_path) if event.session_log.status]
    assert begun == [10, 20]  # TensorBoard drops earlier rows from this step on
    assert {event.session_log.status for event in events(tmp_path)} == {0, SessionLog.START}


def test_a_failure_ends_the_copy_and_not_the_run(tmp_path):
    (tmp_path / "tensorboard").write_text("in the way")
    notes = []
    sink = TensorBoardSink(tmp_path, {}, notes.append)
    sink.log({"steps": 10, "loss": 0.5})
    sink.log({"steps": 20, "loss": 0.5})
    sink.finish(1, {})
    assert not sink.active
    (note,) = notes
    assert note.startswith("TensorBoard: no longer mirrored")


def test_every_tracker_of_the_name_gets_the_metrics(tmp_path, monkeypatch):
    kinds = {
        name: [
            type(one).__name__
            for one in open_trackers(tracker(name), tmp_path, {}, {}, print).sinks
        ]
        for name in ("none", "tensorboard")
    }
    assert kinds == {"none": [], "tensorboard": ["TensorBoardSink"]}
    monkeypatch.setattr(
        "rigor.runs.trackers.open_sink", lambda *_: TensorBoardSink(tmp_path, {}, print)
    )
    assert len(open_trackers(tracker("wandb+tensorboard"), tmp_path, {}, {}, print).sinks) == 2


def tracker(name):
    return Tracker(name, "offline", "p", False)
