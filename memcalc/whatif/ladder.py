"""The ladder of what can be changed in a run so that it needs less memory, from cheap to dear. A rung is one small entry.

Costs are relative and say where they are from; they are no promise of a throughput.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from memcalc.engine.liger import swaps_of
from memcalc.specs.job import Job

Keys = dict[str, Any]

EIGHT_BIT = {"adamw_torch": "adamw_bnb_8bit", "adamw_torch_fused": "adamw_bnb_8bit"}
MAX_TP = 8
"""Cards of a node: tensor parallelism stays inside."""


class Rung(NamedTuple):
    """One kind of change.

    Attributes:
        name: what is changed.
        variants: keys to change in a job, mild ones first; none where there is nothing to change.
        cost: what it costs, in words.
        changes_task: what is trained or answered, or on what, is no longer the same; taken only where nothing else suffices.
    """

    name: str
    variants: Callable[[Job], Iterator[Keys]]
    cost: str
    changes_task: bool = False


def _batch(job: Job) -> Iterator[Keys]:
    for batch in _parts(job) if job.run.task != "inference" else ():
        yield {"micro_batch": batch} | ({"grad_accum": job.run.grad_accum * (job.micro_batch // batch)} if _trains(job) else {})


def _sequences(job: Job) -> Iterator[Keys]:
    if job.run.task == "inference":
        yield from ({"micro_batch": batch} for batch in _parts(job))


def _parts(job: Job) -> Iterator[int]:
    """Of the micro-batch, by halves."""
    batch = job.micro_batch // 2
    while batch >= 1:
        if job.micro_batch % batch == 0:
            yield batch
        batch //= 2


def _length(job: Job) -> Iterator[Keys]:
    for part in (2, 4, 8):
        if job.seq_len // part >= 512:
            yield {"seq_len": job.seq_len // part}


def _precision(job: Job) -> Iterator[Keys]:
    if job.run.dtype == "float32":
        if job.run.autocast is None and job.run.code == "transformers":
            yield {"autocast": "bfloat16"}
        yield {"dtype": "bfloat16", "autocast": None}


def _attention(job: Job) -> Iterator[Keys]:
    if job.run.attention == "eager":
        yield {"attention": "sdpa"}
    if job.run.attention != "flash_attention_2":
        yield {"attention": "flash_attention_2"}


def _step(job: Job) -> Iterator[Keys]:
    if _trains(job) and job.foreach:
        yield {"optimizer": "adamw_torch_fused"} if job.run.optimizer == "adamw_torch" else {"optimizer_foreach": False}


def _loss(job: Job) -> Iterator[Keys]:
    if _trains(job) and job.run.code == "transformers" and job.run.loss == "cross_entropy":
        yield from ({"loss": "chunked"}, {"loss": "fused_linear"})


def _kernels(job: Job) -> Iterator[Keys]:
    if _trains(job) and job.run.code == "transformers" and job.run.liger is None and swaps_of(job.model) is not None:
        yield {"liger": True}


def _recompute(job: Job) -> Iterator[Keys]:
    if not _trains(job) or job.run.recompute == "full":
        return
    if job.run.code == "megatron" and job.run.recompute == "none":
        yield {"recompute": "selective"}
    yield {"recompute": "full"}


def _optimizer(job: Job) -> Iterator[Keys]:
    if _trains(job) and job.run.optimizer in EIGHT_BIT and job.engine in ("ddp", "fsdp1", "fsdp2"):
        yield {"optimizer": EIGHT_BIT[job.run.optimizer]}


def _shard(job: Job) -> Iterator[Keys]:
    if not _trains(job) or job.mesh.dp == 1:
        return
    if job.engine == "megatron":
        if job.zero == 0:
            yield {"zero": 1}
        return
    if job.engine == "ddp" or (job.engine == "deepspeed" and job.run.sharding.deepspeed is None):
        yield from ({"engine": "deepspeed", "zero": stage} for stage in range(job.zero + 1, 4))
    if job.engine == "ddp":
        yield {"engine": "fsdp2"}


def _tensor(job: Job) -> Iterator[Keys]:
    tp, dp = job.mesh.tp * 2, job.mesh.dp
    while tp <= MAX_TP and dp % 2 == 0:
        dp //= 2
        yield {"tp": tp, "dp": dp} | ({"sp": True} if job.run.code == "megatron" else {})
        tp *= 2


def _pipeline(job: Job) -> Iterator[Keys]:
    pp, dp = job.mesh.pp * 2, job.mesh.dp
    while pp <= 16 and dp % 2 == 0:
        dp //= 2
        yield {"pp": pp, "dp": dp}
        pp *= 2


def _context(job: Job) -> Iterator[Keys]:
    cp, dp = job.mesh.cp * 2, job.mesh.dp
    while cp <= 8 and dp % 2 == 0:
        dp //= 2
        yield {"cp": cp, "dp": dp}
        cp *= 2


def _offload(job: Job) -> Iterator[Keys]:
    if not _trains(job):
        return
    if job.engine == "deepspeed" and job.run.offload.optimizer is None:
        yield {"offload_optimizer": "cpu"}
    if (job.engine == "deepspeed" and job.zero == 3) or job.engine in ("fsdp1", "fsdp2"):
        yield {"offload_params": "cpu"} | ({"offload_optimizer": "cpu"} if job.engine == "deepspeed" else {})


def _adapters(job: Job) -> Iterator[Keys]:
    if _trains(job) and job.run.lora is None and job.run.code == "transformers":
        yield {"lora_r": 16}
        yield {"lora_r": 16, "quantization": "nf4"}


def _cards(job: Job) -> Iterator[Keys]:
    if _trains(job) and (job.zero or job.engine in ("fsdp1", "fsdp2")):
        yield from ({"dp": job.mesh.dp * times, "gpus": job.mesh.world * times} for times in (2, 4, 8))


def _put_away(job: Job) -> Iterator[Keys]:
    """Models that are not trained first, then the states of those that are."""
    if job.cast is None or job.cast.actor.idle:
        return
    asked = dict(job.asked.roles or {})
    frozen = [role.name for role in job.cast.others if role.on_card and not role.shares and role.job.run.task != "train" and not role.idle]
    if frozen:
        yield {"roles": asked | {name: {**(asked.get(name) or {}), "idle": {"params": "cpu"}} for name in frozen}}
    if job.cast.is_online and job.run.lora is None:
        away = {name: {**(asked.get(name) or {}), "idle": {"params": "cpu"}} for name in frozen}
        trained = ["actor", *(role.name for role in job.cast.others if role.on_card and role.job.run.task == "train")]
        away |= {name: {**(asked.get(name) or {}), "idle": {"params": "cpu", "optimizer": "cpu"}} for name in trained}
        yield {"roles": asked | away}


def _server(job: Job) -> Iterator[Keys]:
    rollout = job.asked.rollout
    if job.cast is None or job.cast.server is None or rollout.cards == "other":
        return
    if rollout.sleep_level == 0:
        yield from ({"rollout_sleep_level": 1}, {"rollout_sleep_level": 2})
    share = rollout.gpu_memory_utilization
    yield from ({"rollout_gpu_memory_utilization": less} for less in (0.6, 0.4, 0.3) if share is not None and less < share)


def _other_cards(job: Job) -> Iterator[Keys]:
    if job.cast is None:
        return
    asked = dict(job.asked.roles or {})
    here = [role.name for role in job.cast.others if role.on_card and not role.shares and role.job.run.task != "train"]
    if job.cast.server is not None and job.asked.rollout.cards == "same":
        yield {"rollout_cards": "other"}
    if here:
        yield {"roles": asked | {name: {**(asked.get(name) or {}), "cards": "other"} for name in here}}


def _answers(job: Job) -> Iterator[Keys]:
    if job.cast is not None and job.cast.is_online and job.asked.seq_len is None:
        from memcalc.engine.rlhf.cast import prompt_of

        answer = job.seq_len - prompt_of(job.cast.run, job.seq_len)
        yield from ({"rollout_response_length": answer // part} for part in (2, 4) if answer // part >= 128)


def _cache(job: Job) -> Iterator[Keys]:
    """Of transformers' inference: a cache in few bits where all layers see all tokens, or on the host."""
    if not _trains(job) and job.run.generation.cache_implementation == "dynamic":
        yield {"cache_implementation": "quantized"}
        yield {"cache_implementation": "offloaded"}


def _bits(job: Job) -> Iterator[Keys]:
    if not _trains(job) and job.run.quantization is None and job.model.quantization is None:
        yield from ({"quantization": "int8"}, {"quantization": "nf4"})


def _ranks(job: Job) -> Iterator[Keys]:
    """Of inference."""
    if not _trains(job):
        yield from wider(job)


def wider(job: Job) -> Iterator[Keys]:
    """More cards, over which layers are cut."""
    tp = job.mesh.tp * 2
    while tp <= MAX_TP:
        yield {"tp": tp, "gpus": job.mesh.world // job.mesh.tp * tp}
        tp *= 2


def _trains(job: Job) -> bool:
    return job.run.task == "train"


RUNGS: tuple[Rung, ...] = (
    Rung("smaller batches, accumulated", _batch, "the same gradients; smaller matrix products, which fill the card less well"),
    Rung("fewer sequences at once", _sequences, "more steps for as many answers, which fill the card less well"),
    Rung("others put away", _put_away, "weights and states of models cross PCIe in every phase (Sheng et al. 2024, HybridFlow)"),
    Rung("server asleep", _server, "its cache is built anew for each rollout; a smaller one holds fewer answers at a time"),
    Rung("shorter answers", _answers, "longer reasoning is cut", changes_task=True),
    Rung("shorter sequences", _length, "longer documents are cut", changes_task=True),
    Rung("precision", _precision, "bf16 rounds: with autocast products only, else weights and their updates, too"),
    Rung("attention kernel", _attention, "none: faster as well (FlashAttention-2, Dao 2023); flash_attention_2 is a package of its own"),
    Rung("cache of another kind", _cache, "quantized: packing and unpacking, a little accuracy; offloaded: keys and values cross PCIe for every token"),
    Rung("weights in fewer bits", _bits, "slower kernels, a little accuracy (Dettmers et al. 2022, 2023)"),
    Rung("more cards that share layers", _ranks, "cards, and two all-reduces of activations a layer between them (Shoeybi et al. 2019)"),
    Rung("fused optimizer step", _step, "none: one kernel instead of lists of temporaries"),
    Rung("fused kernels", _kernels, "none: faster as well, a package of its own (Liger Kernel, Hsu et al. 2024)"),
    Rung("loss in pieces", _loss, "little: logits are computed again in backward (Liger Kernel, Hsu et al. 2024)"),
    Rung(
        "recomputation",
        _recompute,
        "full: a second forward pass, up to a third more time (Chen et al. 2016); selective: a few per cent (Korthikanti et al. 2022)",
    ),
    Rung("8-bit optimizer states", _optimizer, "quantised moments, mostly the same loss (Dettmers et al. 2022)"),
    Rung("shard states", _shard, "stages 1, 2 communicate as data parallelism does, stage 3 and FSDP half as much again (Rajbhandari et al. 2020)"),
    Rung("tensor parallelism", _tensor, "two all-reduces of activations a layer each way, inside a node (Shoeybi et al. 2019); fewer data-parallel ranks"),
    Rung("pipeline", _pipeline, "a bubble of (pp - 1) / micro-batches (Narayanan et al. 2021); fewer data-parallel ranks"),
    Rung("context parallelism", _context, "keys and values are exchanged in every layer (Liu et al. 2023); fewer data-parallel ranks"),
    Rung("offload", _offload, "states cross PCIe every step (Ren et al. 2021, ZeRO-Offload)"),
    Rung("other cards", _other_cards, "cards for the models that move there, idle while others work"),
    Rung("more cards", _cards, "cards, and a larger global batch unless the accumulation is cut"),
    Rung("adapters", _adapters, "only low-rank adapters are trained (Hu et al. 2021); with nf4 on a quantised model (Dettmers et al. 2023)", changes_task=True),
)
"""From cheap to dear."""
