from rigor.exact import solver_progress
from rigor.exact.solver_progress import SolverProgress


def test_a_solver_calls_its_beat_at_regular_intervals(tmp_path, monkeypatch):
    now, beats = [0.0], []
    monkeypatch.setattr(solver_progress.time, "monotonic", lambda: now[0])
    with SolverProgress("put s0", tmp_path / "train.log", lambda: beats.append(now[0])) as work:
        for _ in range(10):  # batches of four seconds
            now[0] += 4.0
            work(16)
    assert beats == [12.0, 24.0, 36.0]
