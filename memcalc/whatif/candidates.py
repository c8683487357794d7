"""Every way to spread a training run over so many cards, with its relative cost. Pure enumeration: nothing is walked here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from memcalc.engine.degrees import num_experts
from memcalc.engine.ranks import num_layers
from memcalc.formulas import step_costs as costs
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run

BATCHES = (1, 2, 4, 8, 16, 32)
TENSOR, CONTEXT = (1, 2, 4, 8), (1, 2, 4, 8, 16)
MAX_STAGES, MAX_CHUNKS, MAX_EXPERT_RANKS = 64, 8, 64
MIN_LOCAL = 2048
"""No sequence is cut into shorter pieces."""


HOST_BYTES = 2 * 10**12
"""What a node's memory takes of offloaded states; a DGX H100 has 2 TB (NVIDIA's data sheet)."""


class Model(NamedTuple):
    """What costs depend on: counts of a model."""

    spec: ModelSpec
    params: int
    expert_params: int
    active: int
    layers: int
    experts: int
    top_k: int
    kv_size: int
    seq_len: int
    global_batch: int
    gpus: int


class Way(NamedTuple):
    """One way.

    Attributes:
        engine, zero, tp, pp, vpp, cp, ep, dp: who shards, and the degrees.
        recompute, offload: what is run again; whether states live on the host.
        micro_batch, grad_accum: so that the global batch comes out.
        cost: time over that of the arithmetic alone, on as many cards.
        parts: what makes the cost, by name.
    """

    engine: str
    zero: int
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    dp: int
    recompute: str
    offload: bool
    micro_batch: int
    grad_accum: int
    cost: float = 0.0
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def group(self) -> tuple[Any, ...]:
        """All but the batch, and how many micro-batches as far as that matters: what shares one walk."""
        return (*self[:10], min(self.grad_accum, 3 * self.pp) if self.pp > 1 else self.grad_accum > 1)

    def keys(self) -> dict[str, Any]:
        """The run's keys."""
        found: dict[str, Any] = {
            "engine": self.engine, "tp": self.tp, "pp": self.pp, "vpp": self.vpp, "cp": self.cp, "ep": self.ep, "dp": self.dp,
            "recompute": self.recompute, "micro_batch": self.micro_batch, "grad_accum": self.grad_accum,
        }  # fmt: skip
        if self.engine == "megatron":
            found |= {"code": "megatron", "sp": self.tp > 1, "zero": self.zero} | ({"etp": 1} if self.ep > 1 else {})
        elif self.engine == "deepspeed":
            found |= {"zero": self.zero} | ({"offload_optimizer": "cpu"} if self.offload else {})
        elif self.engine == "fsdp2":
            found |= {"dtype": "float32", "autocast": "bfloat16"} | ({"offload_params": "cpu"} if self.offload else {})
        return found


def model_of(spec: ModelSpec, *, seq_len: int, global_batch: int, gpus: int) -> Model:
    """The counts of a model."""
    expert = sum(weight.num_params * repeat for _, weight, repeat in spec.weights() if weight.is_expert)
    total, experts = spec.num_params, num_experts(spec)
    active = spec.active_params or total
    dense = total - expert
    top_k = max(1, round((active - dense) / expert * experts)) if expert else 1
    heads = max(spec.num_heads or 1, 1)
    kv_size = (spec.hidden_size or 0) // heads * (spec.num_kv_heads or heads)
    return Model(spec, total, expert, active, num_layers(spec), experts, top_k, kv_size, seq_len, global_batch, gpus)


def ways(model: Model, engines: tuple[str, ...]) -> Iterator[Way]:
    """Every way, with its cost."""
    for way in _ways(model, engines):
        share = model.global_batch // way.dp
        for batch in BATCHES:
            if share % batch:
                continue
            accum = share // batch
            if way.vpp > 1 and accum % way.pp:
                continue
            here = way._replace(micro_batch=batch, grad_accum=accum)
            parts = tuple((name, value) for name, value in cost_parts(here, model).items() if value > 0)
            yield here._replace(cost=1 + sum(value for _, value in parts), parts=parts)


def allowed(way: Way, run: Run) -> bool:
    """Whether a way keeps to what the run says itself."""
    given, sharding = run.model_fields_set, run.sharding
    said: dict[str, Any] = {key: getattr(sharding, key) for key in ("engine", "zero", "tp", "pp", "vpp", "cp", "ep", "dp") if key in sharding.model_fields_set}
    said |= {key: getattr(run, key) for key in ("micro_batch", "grad_accum", "recompute") if key in given}
    return all(getattr(way, key) == value for key, value in said.items())


def least_bytes(way: Way, model: Model) -> float:
    """A bound from below on what a rank holds between forward and step: weights, gradients, states, evenly spread; and what forward keeps at the very least.

    Weights and their fp32 copies, moments and gradients as the engines hold them; of each layer its input alone, or a third of Korthikanti's 34.
    """
    dense, expert = (model.params - model.expert_params) / (way.tp * way.pp), model.expert_params / (way.ep * (1 if way.ep > 1 else way.tp) * way.pp)
    ranks = way.dp * way.cp
    held, shared = {"megatron": (6, 12), "ddp": (4, 4), "fsdp2": (0, 16)}.get(way.engine, ({0: (4, 12), 1: (4, 12), 2: (2, 14), 3: (0, 16)}[way.zero]))
    shared = 0 if way.offload else shared
    over = ranks if way.zero else 1
    copies = max(over * (way.tp if way.ep > 1 else 1) / way.ep, 1)  # of an expert, over which its states are shared
    states = dense * (held + shared / over) + expert * (held + shared / copies)
    per_layer = 2 if way.recompute == "full" else 11
    kept = min(way.pp, way.grad_accum) * model.layers / way.pp * per_layer * way.micro_batch * model.seq_len / (way.cp * way.tp) * (model.spec.hidden_size or 0)
    return states + kept


def cost_parts(way: Way, model: Model) -> dict[str, float]:
    """Each cost over the arithmetic of the same micro-batch, by name."""
    tokens = way.micro_batch * model.seq_len // way.cp
    hidden, layers = model.spec.hidden_size or 1, -(-model.layers // way.pp)
    alone = costs.compute_seconds(model.active, tokens, ranks=way.tp * way.pp)
    again = way.recompute == "full"
    parts = {
        "recompute": costs.recompute_share(way.recompute, seq_len=model.seq_len, hidden_size=hidden),
        "bubble": costs.bubble_share(way.pp, way.vpp, way.grad_accum),
    }
    if way.tp > 1:
        parts["tensor"] = costs.tensor_seconds(way.tp, tokens=tokens, hidden_size=hidden, layers=layers, passes=6 if again else 4) / alone
    if way.cp > 1:
        inside = way.tp * way.cp <= costs.NODE
        parts["context"] = costs.ring_seconds(way.cp, tokens=tokens, kv_size=model.kv_size // way.tp, layers=layers, inside_node=inside) / alone
    if way.ep > 1:
        inside = way.ep <= costs.NODE
        sent = costs.expert_seconds(way.ep, tokens=tokens // way.tp, hidden_size=hidden, top_k=model.top_k, layers=layers, inside_node=inside)
        parts["expert"] = sent / alone
    if way.pp > 1:
        parts["stages"] = costs.stage_seconds(tokens=tokens // way.tp, hidden_size=hidden, vpp=way.vpp) / alone
    return parts | _data_parts(way, model, alone)


# ---------------------------------------------------------------------- inside
def _data_parts(way: Way, model: Model, alone: float) -> dict[str, float]:
    """What data parallelism exchanges beyond what backward hides, and what crosses PCIe."""
    ranks, whole = way.dp * way.cp, way.zero == 3
    local = (model.params - model.expert_params) // (way.tp * way.pp) + model.expert_params // (way.ep * way.pp * (1 if way.ep > 1 else way.tp))
    parts: dict[str, float] = {}
    if ranks > 1:
        sent = costs.data_seconds(local, ranks=ranks, passes=3 if whole else 2, inside_node=model.gpus <= costs.NODE)
        in_step = alone if whole else alone * way.grad_accum
        parts["data"] = max(0.0, sent / in_step - costs.HIDDEN)
    if way.offload:
        parts["offload"] = costs.offload_seconds(local // (ranks if way.zero else 1)) / (alone * way.grad_accum)
    return parts


def _ways(model: Model, engines: tuple[str, ...]) -> Iterator[Way]:
    if "megatron" in engines:
        yield from _megatron(model)
    for engine, zeros in (("ddp", (0,)), ("deepspeed", (1, 2, 3)), ("fsdp2", (3,))):
        if engine in engines:
            for zero in zeros:
                yield from _plain(model, engine, zero)


def _megatron(model: Model) -> Iterator[Way]:
    experts = [e for e in range(1, MAX_EXPERT_RANKS + 1) if e == 1 or (model.experts and model.experts % e == 0)]
    stages = [p for p in range(1, min(MAX_STAGES, model.layers) + 1) if model.gpus % p == 0]
    for tp in (t for t in TENSOR if (model.spec.num_heads or t) % t == 0):
        for pp in stages:
            for cp in (c for c in CONTEXT if c == 1 or model.seq_len // c >= MIN_LOCAL):
                dp, rest = divmod(model.gpus, tp * pp * cp)
                if rest or not dp or model.global_batch % dp:
                    continue
                for vpp in chunks_of(model.layers, pp):
                    for ep in (e for e in experts if (dp * cp * tp) % e == 0):
                        for recompute in ("none", "selective", "full"):
                            yield Way("megatron", int(dp * cp > 1), tp, pp, vpp, cp, ep, dp, recompute, offload=False, micro_batch=1, grad_accum=1)


def chunks_of(layers: int, pp: int) -> list[int]:
    """Model chunks of a stage that layers can be spread over evenly, the two ends standing for a layer each where that helps.

    >>> chunks_of(126, 16), chunks_of(32, 4)
    ([1, 2, 4], [1, 2, 4, 8])
    """
    return [1, *(v for v in range(2, MAX_CHUNKS + 1) if pp > 1 and (layers % (pp * v) == 0 or (layers + 2) % (pp * v) == 0) and layers >= pp * v)]


def _plain(model: Model, engine: str, zero: int) -> Iterator[Way]:
    for tp in TENSOR if engine == "fsdp2" else (1,):
        dp, rest = divmod(model.gpus, tp)
        if rest or not dp or model.global_batch % dp or (dp == 1 and zero):
            continue
        for recompute in ("none", "full"):
            host = 16 * model.params / dp * min(model.gpus, costs.NODE) / tp
            for offload in (False, True) if zero and host <= HOST_BYTES else (False,):
                yield Way(engine, zero, tp, 1, 1, 1, 1, dp, recompute, offload=offload, micro_batch=1, grad_accum=1)
