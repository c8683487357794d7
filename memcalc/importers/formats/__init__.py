"""Foreign formats: every module beside this one declares one, `FORMAT`, and is found by its presence."""
