"""vLLM's V1 engine: a share of the card, less weights, less the peak of a profiling run, less graphs; the rest is cache.

Source: vLLM 0.33, v1/worker/gpu_worker.py, ``determine_available_memory``; engine/arg_utils.py for the defaults by card.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.engine.result import Term
from memcalc.engine.serving.budget import Budget, card_of, policy_of
from memcalc.engine.serving.groups import grouped
from memcalc.engine.serving.loaded import generation, loaded
from memcalc.engine.serving.rank import Rank, adapters_bytes, forward_bytes, has_experts, hidden_bytes
from memcalc.engine.serving.refusals import share
from memcalc.formulas import overheads
from memcalc.formulas import serving as formulas
from memcalc.specs.gpus import Gpu
from memcalc.specs.job import Job
from memcalc.units import DTYPE_BYTES, GiB, gib

UTILIZATION = 0.92
BLOCK = 16
LARGEST_GRAPH = 512
"""No graph is captured for more tokens."""
FP32_STATES = ("qwen3_5", "nemotron_h")
"""Model types whose config.json asks for recurrent states in fp32 (``mamba_ssm_dtype``); those of others have the model's dtype."""
PROFILE = "vllm/v1/worker/gpu_model_runner.py, profile_run"


def budget(job: Job, rank: Rank) -> Budget:
    """What the engine makes of the card on this rank."""
    asked, card = job.run.serving, card_of(job)
    rank = rank._replace(weights=(*rank.weights, *loaded(job, rank, card)))
    tokens, seqs, assumptions = sizes(job)
    utilization = asked.gpu_memory_utilization or UTILIZATION
    if asked.gpu_memory_utilization is None:
        assumptions.append(f"gpu_memory_utilization {UTILIZATION}")
    requested = formulas.vllm_requested_bytes(card.capacity_bytes, utilization)
    activations, notes = profile(job, rank, tokens=tokens, seqs=seqs)
    workspace = overheads.workspace_bytes(hopper=generation(card) != "other", training=False)
    others = (*graphs(job, rank, seqs=seqs), *held(job, rank), Term("workspaces", workspace, "cublas + cublasLt", {}, "ATen/cuda"))
    together = job.mesh.dp if has_experts(rank) else 1
    groups = overheads.communicators({"tp": job.mesh.tp, "pp": job.mesh.pp, "dp": together, "ep": job.mesh.tp * together if together > 1 else 1})
    shared = (
        *(Term(f"device/communicator of {name}", n, "read", {}, "aiconfigurator, nccl_mem") for name, n in groups.items()),
        Term("device/kernels", formulas.VLLM_KERNELS_BYTES, "read", {}, "vLLM's start-up logs, non_torch_memory"),
    )
    context = Term("device/context", overheads.CUDA_CONTEXT_BYTES, "read", {}, "outside vLLM's budget: there before it looks")
    taken = rank.weights_bytes + sum(t.bytes for t in (*activations, *others, *shared))
    policy = policy_of(job, block=BLOCK, step_tokens=tokens)
    if job.model.model_type.startswith(FP32_STATES):
        policy = replace(policy, state_width=DTYPE_BYTES["float32"])
    free = card.capacity_bytes - overheads.CUDA_CONTEXT_BYTES
    taken_already = share(free_bytes=free, total_bytes=card.capacity_bytes, utilization=utilization, requested_bytes=requested)
    refusal = taken_already if free < requested else ""
    kv = asked.kv_cache_memory_bytes or requested - taken
    if job.model.quantization is not None:
        notes = (*notes, repacked(rank, card))
    if asked.num_speculative_tokens:
        notes = (*notes, checking(job, seqs=seqs))
    if any(block.sees_images for block in rank.blocks):
        notes = (*notes, "images: weights of the tower are counted; what vLLM's profiling run of it and its cache of seen images take is not")
    divided = grouped(rank.caches, policy)
    if divided is not None and divided.num_groups > 1:
        notes = (*notes, f"the cache is divided into {divided.num_groups} groups of layers with equal pages; vLLM counts a token as if it stood in all of them")
    return Budget(requested, rank.weights, activations, others, (context, *shared), kv, policy, refusal, tuple(assumptions), notes, groups=divided)


def checking(job: Job, *, seqs: int) -> str:
    """What checking guessed tokens takes at most: logits in fp32 of every token, for which the profiling run makes no room (v1/sample/rejection_sampler.py)."""
    rows = seqs * (1 + (job.run.serving.num_speculative_tokens or 0))
    size = gib(rows * job.model.vocab_size * DTYPE_BYTES["float32"])
    return f"checking the guesses of {seqs} sequences at once takes logits of {rows:,} tokens in fp32, {size}, which the profiling run does not foresee"


def repacked(rank: Rank, card: Gpu) -> str:
    """What is not shown of packed weights: they may stand twice before they serve."""
    both = 2 * rank.weights_bytes
    beyond = f", which {card.name} does not have: a failure would be at load" if both > card.capacity_bytes else ""
    return (
        "shown is the steady state: while packed weights are loaded and brought into the kernels' order a layer stands in both forms, "
        f"and where a backend does so at the end all of them do ({gib(both)}{beyond})"
    )


def sizes(job: Job) -> tuple[int, int, list[str]]:
    """Tokens and sequences of one step, and what was assumed: the defaults of ``vllm serve`` by the size of the card."""
    asked, card = job.run.serving, card_of(job)
    large = card.capacity_bytes >= 70 * GiB and not card.name.startswith("a100")
    tokens = 16384 if card.capacity_bytes >= 160 * GiB else 8192 if large else 2048
    seqs = 1024 if large else 256
    found = [] if asked.max_num_batched_tokens else [f"max_num_batched_tokens {tokens:,}: what vllm serve takes on this card"]
    found += [] if asked.max_num_seqs else [f"max_num_seqs {seqs:,}: likewise"]
    return asked.max_num_batched_tokens or tokens, asked.max_num_seqs or seqs, found


def profile(job: Job, rank: Rank, *, tokens: int, seqs: int) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """The peak of the profiling run: in a layer, or in the sampler, which then stands on the hidden states of all tokens."""
    layer = forward_bytes(job, rank, tokens)
    drawn = min(seqs, tokens) if rank.stage.is_last else 0
    sampler = int(formulas.sampler_bytes(num_seqs=drawn, vocab_size=job.model.vocab_size, width=DTYPE_BYTES[job.run.dtype]))
    hidden = hidden_bytes(job, tokens)
    if layer >= sampler + hidden:
        inputs = {"tokens": tokens}
        return (Term("activations/profiling run/layer", layer, "tokens * (2 * hidden_size + inside) * width", inputs, PROFILE),), ()
    note = "the profiling run peaks in the sampler, which sorts max_num_seqs rows of logits: with fewer sequences there is more cache"
    return (
        Term("activations/profiling run/sampler", sampler, "max_num_seqs * vocab_size * 38", {"max_num_seqs": drawn}, PROFILE),
        Term("activations/profiling run/hidden states", hidden, "tokens * hidden_size * width", {"tokens": tokens}, PROFILE),
    ), (note,)


def held(job: Job, rank: Rank) -> tuple[Term, ...]:
    """Room for adapters, and, as a negative term, weights that stay on the host."""
    asked = job.run.serving
    away = min(int(asked.cpu_offload_gb * GiB), rank.weights_bytes)
    found = [Term("adapters/room", adapters_bytes(job, rank), "max_loras * max_lora_rank * (inputs + outputs)", {}, "vllm/lora")] if asked.enable_lora else []
    return (*found, *([Term("weights on the host", -away, "cpu_offload_gb", {}, "vLLM")] if away else []))


def graphs(job: Job, rank: Rank, *, seqs: int) -> tuple[Term, ...]:
    """The pool that captured graphs share: a forward pass of the largest one. What the driver keeps for each graph is not known.

    A step of decoding has a token of each sequence, and those that were guessed.
    """
    if job.run.serving.enforce_eager:
        return ()
    size = min(2 * seqs * (1 + (job.run.serving.num_speculative_tokens or 0)), LARGEST_GRAPH)
    return (Term("cuda graphs/shared pool", forward_bytes(job, rank, size), "forward pass of the largest captured size", {"tokens": size}, "vLLM"),)
