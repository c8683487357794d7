"""memcalc: will this model fit — on every rank, at every instant of the step?"""

__version__ = "0.1.0"
