"""Closed forms of what engines, optimizers and kernels ask for in one piece, beside the tensors of the model's own modules. One form is one function."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memcalc.engine.walk import Walked
from memcalc.specs.job import Job
from memcalc.units import DTYPE_BYTES, ceil_div
from memcalc.whatif.diagnose.tensors import Request

WIDTHS = {2: "in 16 bits", 4: "in fp32"}
GATHERS = ("gathering of weights", "forward_peak", "backward_peak")
SAVES = ("checkpoint_save", "checkpoint save")


def partition(job: Job, walked: Walked) -> Iterator[Request]:
    """DeepSpeed's flat vectors: one of this rank's share of all trainable parameters, one of all of them, one of a sub-group."""
    if job.engine != "deepspeed" or not job.zero:
        return
    num, ranks = walked.plan.num_trainable, job.mesh.dp * job.mesh.cp
    own = ceil_div(num, ranks)
    for width, said in WIDTHS.items():
        where = ("optimizer_step", "optimizer step", "initialize", "engine construction")
        inputs = {"num_params": num, "ranks": ranks, "width": width}
        if job.zero == 3:
            group = min(job.deepspeed.zero.sub_group_size, own) if job.deepspeed is not None else own
            yield Request(
                f"one vector {said} of a sub-group of this rank's partition", group * width, "min(sub_group_size, num_params / ranks) * width", inputs, where
            )
        yield Request(f"one vector {said} of this rank's partition", own * width, "num_params * width / ranks", inputs, where)
        yield Request(
            f"one flat vector {said} of all trainable parameters", num * width, "num_params * width", {"num_params": num, "width": width}, ("initialize",)
        )


def buckets(job: Job, _: Walked) -> Iterator[Request]:
    """Gradients and weights that travel together."""
    if job.engine == "deepspeed" and job.deepspeed is not None and job.zero:
        elements, width = job.deepspeed.zero.reduce_bucket_size, DTYPE_BYTES[job.deepspeed.reduce_dtype]
        yield Request(
            "a bucket of gradients to be reduced",
            elements * width,
            "reduce_bucket_size * width",
            {"reduce_bucket_size": elements, "width": width},
            ("backward_peak",),
        )
    if job.engine == "ddp" and job.mesh.dp > 1:
        size = int(job.run.sharding.bucket_cap_mb * 2**20)
        yield Request(
            "a bucket of gradients to be reduced", size, "bucket_cap_mb * 2^20", {"bucket_cap_mb": job.run.sharding.bucket_cap_mb}, ("backward_peak",)
        )


def units(job: Job, walked: Walked) -> Iterator[Request]:
    """FSDP's units: gathered whole, their gradients whole, and this rank's share of either."""
    every = getattr(walked.strategy, "all_units", None)
    if every is None:
        return
    ranks = getattr(walked.strategy, "ranks", 1)
    stored = DTYPE_BYTES[job.run.dtype]
    for unit in {u.path: u for u in every()}.values():
        num = sum(s.num_params for s in unit.shards)
        for width, said in WIDTHS.items():
            inputs = {"num_params": num, "width": width}
            where = (*GATHERS, *SAVES) if width == stored else GATHERS
            yield Request(f"the unit {unit.path} gathered {said}", num * width, "num_params * width", inputs, where)
            yield Request(
                f"this rank's share of the unit {unit.path} {said}",
                num * width // ranks,
                "num_params * width / ranks",
                inputs | {"ranks": ranks},
                ("backward_peak",),
            )


def parameters(job: Job, walked: Walked) -> Iterator[Request]:
    """Single weights: gathered or loaded whole, copied, their gradients."""
    shares = job.zero == 3 or job.engine in ("fsdp1", "fsdp2")
    where = (*GATHERS, *SAVES) if shares else ("loading", "backward_peak", "optimizer_step")
    named: dict[int, list[str]] = {}
    for shard in walked.plan.shards():
        named.setdefault(shard.num_params, []).append(_name(shard.path))
    for num, names in named.items():
        for width, said in WIDTHS.items():
            kind = "gathered whole" if shares else "or as much"
            yield Request(f"{_either(names)} {kind} {said}", num * width, "num_params * width", {"num_params": num, "width": width}, where)


def whole_model(job: Job, _: Walked) -> Iterator[Request]:
    """All weights in one piece, or one after the other on one card."""
    num = job.model.num_params
    for width, said in WIDTHS.items():
        yield Request(f"the whole model {said}", num * width, "num_params * width", {"num_params": num, "width": width}, ("initialize", "loading", *SAVES))


def logits(job: Job, _: Walked) -> Iterator[Request]:
    """The output over the vocabulary, as the head gives it and upcast, whatever loss the run asks for."""
    batch, seq, vocab = job.micro_batch, job.seq_len, ceil_div(job.model.vocab_size, job.mesh.tp)
    for width, said in WIDTHS.items():
        inputs = {"micro_batch": batch, "seq_len": seq, "vocab_size": vocab, "width": width}
        yield Request(
            f"logits {said}", batch * seq * vocab * width, "micro_batch * seq_len * vocab_size * width", inputs, ("forward_peak", "loss", "evaluation"), 1
        )


def attention_matrix(job: Job, _: Walked) -> Iterator[Request]:
    """Scores of every token with every other, of one layer: what kernels avoid and their fallbacks do not; and the mask that makes them fall back."""
    batch, seq, heads = job.micro_batch, job.seq_len, job.model.num_heads // job.mesh.tp
    supposed = job.run.attention != "eager"
    where = ("forward_peak", "backward_peak")
    for width, said in WIDTHS.items():
        inputs = {"micro_batch": batch, "heads": heads, "seq_len": seq, "width": width}
        name = f"attention scores of one layer {said}"
        yield Request(name, batch * heads * seq * seq * width, "micro_batch * heads * seq_len^2 * width", inputs, where, 2, supposed)
        yield Request(f"a mask for attention {said}", batch * seq * seq * width, "micro_batch * seq_len^2 * width", inputs, ("forward_peak",), 2, supposed)


FORMS: tuple[Callable[[Job, Walked], Iterator[Request]], ...] = (partition, units, buckets, logits, attention_matrix, parameters, whole_model)


def requests(job: Job, walked: Walked) -> Iterator[Request]:
    """All of them, for one kind of rank."""
    for form in FORMS:
        yield from form(job, walked)


def _name(path: str) -> str:
    """As a state dict has it, nearly: a module inside one of its own name is named once."""
    parts = path.split("/")
    return ".".join(part for i, part in enumerate(parts) if i == 0 or part != parts[i - 1])


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} or {names[1]}" if len(names) == 2 else f"{names[0]} or one of {len(names) - 1} others"


__all__ = ["FORMS", "requests"]
