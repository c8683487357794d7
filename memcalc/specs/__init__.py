"""What was asked, as types: `run` as typed, `job` as resolved, `model` what the model is made of. Frozen and closed."""
