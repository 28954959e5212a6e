import pytest
from chaos import chaos, small_disk


@pytest.mark.slow
def test_ten_runs_disturbed_at_random_equal_undisturbed_ones(slurm, tmp_path):
    with small_disk(tmp_path / "disk", 200) as disk:
        counts = chaos(slurm, tmp_path, disk, n_runs=10, n_strikes=10, seed=1)
    assert counts["strikes"] == 10
    assert counts["resumed"] > 0
