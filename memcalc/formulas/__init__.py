"""Pure arithmetic by physical topic: plain numbers in, bytes out, each formula with its source and a worked value.

Numbers are ints or integer arrays; formulas use only arithmetic that serves both.
"""
