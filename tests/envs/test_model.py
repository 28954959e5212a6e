"""The refusal of utilities that overflow over a model's range of returns."""

import numpy as np
import pytest

from rigor.envs.model import FLOAT64_EXPONENT, largest_exponent, refuse_overflow
from rigor.errors import UserError
from rigor.maths.utility import CVaR, Entropic, Mean


def test_overflow_is_refused_with_a_value_that_works():
    with pytest.raises(UserError, match=r"risk\.beta=-2\.0: .*from 0 to 350; risk\.beta=-1\.7"):
        refuse_overflow(Entropic(-2.0), 0.0, 350.0)
    refuse_overflow(Entropic(-1.0), 0.0, 350.0)
    for highest in np.linspace(100.0, 9999.0, 50):
        with pytest.raises(UserError) as refusal:
            refuse_overflow(Entropic(-50.0), 0.0, highest)
        suggested = float(str(refusal.value).split("risk.beta=")[2].split()[0])
        refuse_overflow(Entropic(suggested), 0.0, highest)
    refuse_overflow(CVaR(0.1), -1e300, 1e300)
    refuse_overflow(Mean(), -1e300, 1e300)


def test_a_model_may_state_its_largest_exponent() -> None:
    class OwnModel:
        pass

    assert largest_exponent(OwnModel()) == FLOAT64_EXPONENT
    OwnModel.largest_exponent = 3.0
    assert largest_exponent(OwnModel()) == 3.0
