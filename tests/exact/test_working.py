from rigor.exact import working
from rigor.exact.working import Working


def test_a_solver_shows_that_it_is_alive(tmp_path, monkeypatch):
    now, beats = [0.0], []
    monkeypatch.setattr(working.time, "monotonic", lambda: now[0])
    with Working("put s0", tmp_path / "train.log", lambda: beats.append(now[0])) as work:
        for _ in range(10):  # batches of four seconds
            now[0] += 4.0
            work(16)
    assert beats == [12.0, 24.0, 36.0]
