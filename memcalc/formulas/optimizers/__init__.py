"""States of the optimizers, and what a step needs on top, by how they keep states: dense, in blocks, factored, of low rank, orthogonal."""

from memcalc.formulas.optimizers.dense import (
    STEP_COUNTER_BYTES,
    adamw_foreach_temp_bytes,
    adamw_single_temp_bytes,
    adamw_state_bytes,
    sgd_state_bytes,
)

__all__ = ["STEP_COUNTER_BYTES", "adamw_foreach_temp_bytes", "adamw_single_temp_bytes", "adamw_state_bytes", "sgd_state_bytes"]
