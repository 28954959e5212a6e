import numpy as np
import pytest

from rigor.envs.batched import stratified_uniforms


def test_stratified_uniforms_have_one_number_in_each_part():
    numbers = stratified_uniforms(50, 4, np.random.default_rng(0)).reshape(50, 4)
    assert (np.floor(4 * numbers) == [0, 1, 2, 3]).all()
    assert len(np.unique(numbers)) == 200


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_stratified_uniforms_come_in_pairs(k):
    numbers = np.sort(stratified_uniforms(20, k, np.random.default_rng(1)).reshape(20, k), axis=1)
    pairs = k // 2
    sums = numbers[:, :pairs] + numbers[:, ::-1][:, :pairs]
    np.testing.assert_allclose(sums, 1.0, atol=1e-11)
