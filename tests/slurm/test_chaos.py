import pytest
from chaos import chaos


@pytest.mark.slow
def test_ten_runs_disturbed_at_random_equal_undisturbed_ones(slurm, tmp_path):
    counts = chaos(slurm, tmp_path, n_runs=10, n_strikes=10, seed=1)
    assert counts["strikes"] == 10
    assert counts["resumed"] > 0
