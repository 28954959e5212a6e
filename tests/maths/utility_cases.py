"""One utility of each kind and at the ends of its parameters."""

from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance

ALL = [
    Mean(),
    CVaR(0.1),
    CVaR(1.0),
    MeanCVaR(0.5, 0.1),
    MeanCVaR(0.0, 0.25),
    MeanCVaR(1.0, 0.3),
    Entropic(-1.0),
    Entropic(-0.01),
    MeanVariance(0.1),
    MeanVariance(2.0),
]
WITH_STOCK = [utility for utility in ALL if utility.needs_stock]
