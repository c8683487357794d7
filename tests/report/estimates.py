"""An estimate made by hand, so that what reports show of it stays the same whatever the engine learns."""

from __future__ import annotations

from dataclasses import replace

from memcalc.engine.result import Estimate, Instant, ModelFacts, RankEstimate, Reservation, Term, Verdict

GiB = 2**30
ASKED = {
    "model": "toy-7b", "task": "train", "code": "transformers", "attention": "sdpa", "micro_batch": 2, "seq_len": 4096, "grad_accum": 8, "dtype": "bfloat16",
    "optimizer": "adamw_torch", "recompute": "none", "loss": "cross_entropy", "gpus": 4, "hardware": {"gpu": "a100-80g"},
    "sharding": {"engine": "deepspeed", "zero": 2, "dp": 2, "tp": 2, "pp": 1, "cp": 1, "ep": 1},
}  # fmt: skip

WEIGHTS = (
    Term("weights/layers", 6 * GiB, "num_params * width", {"num_params": 3 * GiB, "width": 2}, "numel × element size"),
    Term("weights/embed_tokens", GiB // 4),
    Term("weights/lm_head", GiB // 4),
)
OPTIMIZER = (Term("optimizer/moments", 12 * GiB, "2 * num_params * width", {"num_params": 3 * GiB, "width": 2}, "torch/optim/adamw.py"),)
LAYERS = (
    Term("activations/layers/self_attn/query", 2 * GiB, "copies * heads * heads * head_dim/2", {"copies": 4, "heads": 2, "heads * head_dim/2": 8}, "a tensor"),
    Term("activations/layers/mlp/silu", 3 * GiB),
    Term("activations/layers/mlp/up_proj/output", 3 * GiB),
    Term("activations/layers/input_layernorm/output", GiB // 128),
)
LOGITS = (Term("activations/lm_head/logits in fp32", GiB), Term("activations/gradient of log-softmax", GiB))
GRADIENTS = (Term("gradients/layers/mlp/weight", 4 * GiB), Term("gradients/layers/self_attn/weight", 2 * GiB))
BATCH = (Term("batch/input_ids", 65536), Term("buffers", 512))


def instants(pp: int = 0, *, scale: int = 1) -> tuple[Instant, ...]:
    """The step of one kind of rank."""
    held = (*WEIGHTS, *OPTIMIZER, *BATCH)
    shots = {
        "start": held,
        "forward_peak": (*held, *LAYERS, LOGITS[0]),
        "forward_end": (*held, *LAYERS),
        "backward_peak": (*held, *LAYERS, *LOGITS),
        "optimizer_step": (*held, *GRADIENTS),
    }
    scaled = {name: tuple(replace(term, bytes=term.bytes // scale) for term in terms) for name, terms in shots.items()}
    return tuple(Instant(name, {"pp": pp}, terms) for name, terms in scaled.items())


def rank(pp: int = 0, *, scale: int = 1, count: int = 4) -> RankEstimate:
    """One kind of rank."""
    return RankEstimate({"pp": pp}, count, instants(pp, scale=scale), lambda: Reservation((Term("reserved/rounding", GiB // 2),)), (Term("context", GiB // 2),))


def estimate(*, capacity: int | None = 80 * GiB, kinds: int = 1) -> Estimate:
    """The answer."""
    ranks = tuple(rank(i, scale=i + 1, count=4 // kinds) for i in range(kinds))
    verdict = None if capacity is None else Verdict("a100-80g", capacity, ranks[0].device_bytes)
    return Estimate(
        ModelFacts("toy-7b", "toy", 6_738_415_616, 6_738_415_616, 6_738_415_616),
        ASKED,
        ranks,
        verdict,
        sanity=(Term("34·b·s·h per layer", 9 * GiB, "34 * 2 * 4096 * 4096 * 8"),),
        assumptions=("seq_len 4096",),
        notes=(
            "a note that is long enough to be wrapped at the width of the page, so that its second line stands below the first one and not below its label",
        ),
        ignored=("optimizer.params.betas",),
        host_bytes=3 * GiB,
    )
