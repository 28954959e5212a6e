import subprocess

import pytest
import torch

from rigor.learning.compiled_loss import compiled_sum_over_pairs
from rigor.learning.fast_loss import sum_over_pairs
from rigor.maths.quantile import levels

ROWS, N, N_TARGETS, KAPPA = 12, 20, 30, 0.25


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A user's empty cache, of rigor and of torch's compiler."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return tmp_path / "rigor"


@pytest.fixture
def levels_32():
    return torch.tensor(levels(N), dtype=torch.float32)


@pytest.mark.slow
def test_a_later_run_loads_what_an_earlier_one_compiled(cache, levels_32, monkeypatch):
    first = compiled_sum_over_pairs(ROWS, N_TARGETS, levels_32, KAPPA)

    def no_compiler(*arguments, **keywords):
        raise AssertionError(arguments)

    monkeypatch.setattr(subprocess, "run", no_compiler)
    second = compiled_sum_over_pairs(ROWS, N_TARGETS, levels_32, KAPPA)
    assert len(list(cache.glob("loss-*.pt2"))) == 1
    generator = torch.Generator().manual_seed(0)
    # not contiguous, as a slice may be
    x, y = (torch.randn(ROWS, 2 * k, generator=generator)[:, ::2] for k in (N, N_TARGETS))
    expected = sum_over_pairs(x, y, levels_32, KAPPA)
    for kernel in (first, second):
        for here, there in zip(kernel(x, y, levels_32, KAPPA), expected, strict=True):
            torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-5)
    with pytest.raises(AssertionError, match="11, 20"):
        second(x[1:], y[1:], levels_32, KAPPA)


@pytest.mark.slow
def test_a_compiler_that_fails_leaves_nothing(cache, levels_32, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(RuntimeError, match=r"C\+\+|[Cc]ompile"):
        compiled_sum_over_pairs(ROWS, N_TARGETS, levels_32, KAPPA)
    assert not list(cache.rglob("*.pt2"))
