"""What facts of several sources mean together: cards, engine, in which dtype weights are held, micro-batches, adapters.

The dtype rules are those of the frameworks (accelerate 1.15: `Accelerator.prepare_model`, `fsdp2_prepare_model`; transformers 5.24: `Trainer`): trained
weights under FSDP and mixed precision are held in fp32, DeepSpeed holds them in the dtype of its own configuration, DDP as they were loaded.
"""

from __future__ import annotations

from typing import Any

from memcalc.errors import InputError
from memcalc.importers import liger
from memcalc.importers.facts import Facts, whole

FUSED_LOSSES = ("fused_linear", "cut_cross_entropy", "chunked", "chunked_output")
WHOLE_LOGITS = ("simpo", "orpo", "reward", "distill")
"""Tasks that take no loss in tiles, either."""
HEADS = ("lm_head", "output_layer", "embed_out")
MEGATRON_NAMES = {"word_embeddings": "embed_tokens", "output_layer": "lm_head"}
SERVERS_OWN = ("gpu_memory_utilization", "tensor_parallel_size", "sleep_level", "bucket_mb")
PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16", "bfloat16": "bfloat16", "float16": "float16"}
FP8 = {"te": "te", "transformer_engine": "te", "ao": "torchao", "torchao": "torchao", "auto": "torchao", "no": "torchao"}
"""Whose products in fp8; accelerate takes torchao's where it finds it, before Transformer Engine's (accelerator.py, Accelerator.__init__)."""
DEGREES = ("sharding.tp", "sharding.pp", "sharding.cp")


def settle(facts: Facts) -> None:
    """Put what follows from several facts beside them, and drop what has no meaning without others.

    Raises:
        InputError: facts that contradict each other.
    """
    _cards(facts)
    _engine(facts)
    _adapters(facts)
    _dtypes(facts)
    _products(facts)
    _batches(facts)
    liger.settle(facts)
    _loss(facts)
    _offloaded(facts)
    for name in [name for name in facts.found if name.startswith("roles.teacher.") and facts.get("task") != "distill"]:
        fact = facts.found.pop(name)
        facts.unused.append(f"{fact.where}: a teacher beside task {facts.get('task', 'train')}")
    if facts.get("rollout.engine") in ("transformers", "deepspeed"):
        for key in SERVERS_OWN:  # written for a server, and of no use to what generates here
            facts.found.pop(f"rollout.{key}", None)
    if facts.get("~reentrant", False) and facts.get("recompute") == "full":
        facts.derive("use_reentrant", value=True, where=facts.where("~reentrant"))


def _loss(facts: Facts) -> None:
    """A fused loss where memcalc cannot count it: whole logits are counted, which is more, and the estimate says so."""
    brought, task = liger.brings_loss(facts), facts.get("task", "train")
    loss = "fused_linear" if brought else facts.get("loss")
    if loss not in FUSED_LOSSES or (loss == "fused_linear" and facts.get("code") == "megatron" and "rl.framework" in facts.found):
        return
    why = None
    if facts.get("code", "transformers") != "transformers":
        why = f"beside {facts.get('code')}'s own head"
    elif task not in ("train", "inference") and (loss != "chunked" or task in WHOLE_LOGITS):
        why = f"of task {task}"
    elif {*_names(facts.get("lora.target_modules")), *_names(facts.get("lora.modules_to_save"))} & set(HEADS) and facts.get("~lora", False):
        why = "over a head that is adapted"
    elif _head_is_cut(facts, str(loss)):
        why = "over a head that is cut"
    if why is not None:
        where = facts.where(liger.ON if brought else "loss")
        facts.unused.append(f"{where}: a {loss} loss {why} is not counted; whole logits are")
        facts.override("loss", "cross_entropy", where)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)


def _stage(facts: Facts) -> Any:
    config = facts.get("sharding.deepspeed")
    block = config.get("zero_optimization") if isinstance(config, dict) else None
    return block.get("stage", 0) if isinstance(block, dict) else facts.get("sharding.zero", 0)


def _head_is_cut(facts: Facts, loss: str) -> bool:
    if whole(facts.get("sharding.tp", 1), name="sharding.tp") > 1:
        return loss != "chunked_output"
    return loss == "chunked" and facts.get("sharding.engine") == "deepspeed" and _stage(facts) == 3


def _offloaded(facts: Facts) -> None:
    """accelerate puts DeepSpeed's CPU Adam in the place of whatever it offloads (utils/deepspeed.py, map_pytorch_optim_to_deepspeed)."""
    config, asked = facts.get("sharding.deepspeed"), facts.get("optimizer")
    block = config.get("zero_optimization") if isinstance(config, dict) else None
    device = block.get("offload_optimizer") if isinstance(block, dict) else None
    if not isinstance(device, dict) or device.get("device", "none") == "none" or facts.get("sharding.deepspeed_auto") != "trainer":
        return
    if isinstance(asked, str) and asked.startswith(("adamw_", "paged_adamw_")) and asked not in ("adamw_torch", "adamw_torch_fused"):
        fact = facts.found["optimizer"]
        facts.assumed.append(f"{fact.where}: DeepSpeed's CPU Adam in the place of {asked}, as accelerate steps what is offloaded")
        facts.found["optimizer"] = fact._replace(value="adamw_torch")


def _cards(facts: Facts) -> None:
    """The number of cards: a total, or cards of a node times nodes."""
    nodes, each = facts.get("~nodes", 1), facts.get("~gpus_per_node")
    if facts.get("~world") is not None:
        facts.derive("hardware.gpus", whole(facts.get("~world"), name="number of processes"), facts.where("~world"))
    elif each is not None:
        made = whole(each, name="cards of a node") * whole(nodes, name="number of nodes")
        facts.derive("hardware.gpus", made, facts.where("~gpus_per_node", "~nodes"))
        facts.derive("hardware.gpus_per_node", whole(each, name="cards of a node"), facts.where("~gpus_per_node"))
    shard, replicate, where = facts.get("~dp_shard"), facts.get("~dp_replicate", 1), facts.where("~dp_shard", "~dp_replicate")
    if facts.get("~sequence_ranks", 1) > 1:
        shard = None  # such ranks share the states, too: all cards do
    if shard is not None and shard > 0:
        facts.derive("sharding.dp", shard * max(replicate, 1), where)
    if replicate > 1:
        facts.derive("sharding.dp_replicate", replicate, where)


def _engine(facts: Facts) -> None:
    """Which engine shards; a DeepSpeed configuration beside another engine is of no use."""
    engine, config = facts.get("~engine"), facts.get("~deepspeed")
    if config is not None and engine in (None, "deepspeed"):
        edits = {name.removeprefix("~deepspeed."): fact.value for name, fact in facts.found.items() if name.startswith("~deepspeed.")}
        facts.derive("sharding.deepspeed", _edited(config, edits), facts.where("~deepspeed"))
        facts.derive("sharding.deepspeed_auto", facts.get("~auto_by", "trainer"), "who starts DeepSpeed")
        engine = "deepspeed"
    elif config is not None:
        facts.unused.append(f"{facts.where('~deepspeed')}: a DeepSpeed configuration beside {engine}, which shards")
    if engine is not None:
        facts.derive("sharding.engine", engine, facts.where("~engine", "~deepspeed"))
    engine = facts.get("sharding.engine")
    if engine == "fsdp2":
        facts.derive("sharding.fsdp_wrap_ends", value=True, where="as accelerate groups modules")
    if engine not in ("fsdp1", "fsdp2"):
        for name in [
            name for name in facts.found if name.startswith("sharding.fsdp_") or name in ("sharding.reshard_after_forward", "sharding.sync_each_batch")
        ]:
            if facts.found[name].rank > 1 or facts.found[name].is_default:
                del facts.found[name]
    elif engine == "fsdp1":
        facts.found.pop("sharding.reshard_after_forward", None)
    else:
        for name in ("sharding.fsdp_sharding_strategy", "sharding.fsdp_backward_prefetch", "sharding.fsdp_forward_prefetch", "sharding.fsdp_auto_wrap_policy"):
            facts.found.pop(name, None)


def _edited(config: Any, edits: dict[str, Any]) -> Any:
    """A DeepSpeed configuration with what accelerate or a trainer puts into it."""
    if not edits or not isinstance(config, dict):
        return config
    made = {**config, "zero_optimization": dict(config.get("zero_optimization") or {})}
    for path, value in edits.items():
        inner: dict[str, Any] = made
        *outer, last = path.split(".")
        for part in outer:
            inner[part] = dict(inner.get(part) or {})
            inner = inner[part]
        inner.setdefault(last, value)
    return made


def _adapters(facts: Facts) -> None:
    """Adapters and quantised weights, where they are switched on."""
    if not facts.get("~lora", False):
        for name in [name for name in facts.found if name.startswith("lora.")]:
            del facts.found[name]
    elif "lora.r" not in facts.found:
        facts.derive("lora.r", 8, "default of PEFT")
    _megatron_names(facts)
    targets = facts.get("lora.target_modules")
    if isinstance(targets, (list, tuple)) and "all-linear" in targets:
        fact = facts.found["lora.target_modules"]
        others = " ".join(str(name) for name in targets if name != "all-linear")
        facts.unused.append(f"{fact.where}: {others} beside all-linear: adapters of linear layers alone are counted")
        facts.found["lora.target_modules"] = fact._replace(value="all-linear")
    elif isinstance(targets, str) and targets.strip().lower() in ("all", "all-linear", "all_linear"):
        facts.found["lora.target_modules"] = facts.found["lora.target_modules"]._replace(value="all-linear")
    elif isinstance(targets, str):
        names = tuple(name for name in targets.replace(",", " ").split() if name)
        value: Any = "all-linear" if names in (("all-linear",), ("all_linear",)) else names if len(names) > 1 else targets
        facts.found["lora.target_modules"] = facts.found["lora.target_modules"]._replace(value=value)
    if facts.get("~bits") is not None:
        _quantised(facts, facts.get("~bits"))


def _quantised(facts: Facts, bits: int) -> None:
    """How bitsandbytes stores the base; what is not packed keeps its dtype under engines that shard, whatever a framework does elsewhere."""
    upcast = facts.found.get("kbit_upcast")
    if upcast is not None and upcast.is_default and facts.get("sharding.engine", "ddp") != "ddp":
        del facts.found["kbit_upcast"]
    if bits == 4:
        kind = str(facts.get("~quant_type", "nf4"))
        name = f"{kind}-dq" if facts.get("~double_quant", False) else kind
    else:
        name = str(facts.get("~quant_type_8", f"int{bits}"))
    facts.derive("quantization", name, facts.where("~bits"))
    if bits == 4 and facts.get("~quant_storage") is not None:
        facts.derive("bnb_4bit_quant_storage", str(facts.get("~quant_storage")), facts.where("~quant_storage"))
    if bits == 4 and facts.get("~compute_dtype") is not None:
        compute = str(facts.get("~compute_dtype")).removeprefix("torch.")
        facts.derive("bnb_4bit_compute_dtype", PRECISIONS.get(compute, compute), facts.where("~compute_dtype"))


def _megatron_names(facts: Facts) -> None:
    """The token table and the head by their names in transformers."""
    for key in ("lora.target_modules", "lora.modules_to_save"):
        fact = facts.found.get(key)
        if fact is not None and facts.get("code") == "megatron" and isinstance(fact.value, (list, tuple)):
            facts.found[key] = fact._replace(value=tuple(MEGATRON_NAMES.get(str(name), str(name)) for name in fact.value))


def _dtypes(facts: Facts) -> None:
    """In which dtype weights are held, and in which they compute."""
    if "dtype" in facts.found or facts.get("task") == "inference" or not {"~mixed_precision", "~load_dtype"} & set(facts.found):
        return
    mixed, load = str(facts.get("~mixed_precision", "no")), facts.get("~load_dtype")
    low = PRECISIONS.get(mixed)
    load = PRECISIONS.get(str(load), str(load)) if load is not None else low or "float32"
    engine, where = facts.get("sharding.engine"), facts.where("~mixed_precision", "~load_dtype")
    held, as_loaded = str(load), True
    full = not facts.get("~lora", False) and not {"quantization", "prompt.type"} & set(facts.found)
    if engine == "deepspeed":
        held = low or held
    elif engine in ("fsdp1", "fsdp2") and low:
        held, as_loaded = ("float32", False) if full else (held, True)
        facts.derive("sharding.reduce_dtype", low, where)
    elif full and facts.get("~upcast", False):
        held = "float32"
    facts.derive("dtype", held, where)
    loaded = facts.found.get("~load_dtype")
    if loaded is not None and loaded.is_default and held == load and as_loaded and not facts.found["dtype"].is_default:
        facts.assumed.append(f"dtype {held}: {loaded.where}")
    if low and (low != held or facts.get("~lora", False)) and engine != "deepspeed":
        facts.derive("autocast", low, where)
    if facts.get("~lora", False) and "lora.dtype" not in facts.found:
        facts.derive("lora.dtype", "float32", "PEFT's autocast_adapter_dtype")


def _products(facts: Facts) -> None:
    """Products in fp8, where memcalc knows them."""
    if facts.get("~mixed_precision") != "fp8" and not facts.get("~fp8", False):
        return
    backend, where = str(facts.get("~fp8_backend", "auto")).lower(), facts.where("~mixed_precision", "~fp8", "~fp8_backend")
    adapted = facts.get("~lora", False) or {"quantization", "prompt.type"} & set(facts.found)
    if backend not in FP8 or adapted or facts.get("task", "train") != "train" or whole(facts.get("sharding.tp", 1), name="sharding.tp") > 1:
        facts.unused.append(f"{where}: products in fp8 ({backend}) are counted of whole training without tp, by TE or AO; bf16 is counted")
        return
    facts.derive("fp8", FP8[backend], where)
    if backend in ("auto", "no"):
        facts.assumed.append(f"{where}: products in fp8 by torchao, which accelerate takes first where it is installed")


def _batches(facts: Facts) -> None:
    """Micro-batches of a step, from the global batch where only that is said."""
    total = facts.get("~global_batch")
    accum = facts.found.get("grad_accum")
    if total is not None and (accum is None or accum.is_default):
        micro, cards = whole(facts.get("micro_batch", 1), name="micro_batch"), facts.get("hardware.gpus")
        inner = 1
        for name in DEGREES:
            inner *= max(whole(facts.get(name, 1), name=name), 1)
        ranks = facts.get("sharding.dp") or (cards // inner if cards and cards % inner == 0 else 1)
        size = whole(total, name="global batch", where=facts.where("~global_batch"))
        if micro > 0 and ranks > 0 and size % (micro * ranks):
            raise InputError(
                f"a global batch of {size} is no multiple of micro-batch {micro} times {ranks} data-parallel ranks", where=facts.where("~global_batch")
            )
        facts.found.pop("grad_accum", None)
        facts.derive("grad_accum", max(size // max(micro * ranks, 1), 1), facts.where("~global_batch", "micro_batch"))
    if facts.get("sharding.engine") in ("fsdp1", "fsdp2") and facts.get("~no_sync", False) and whole(facts.get("grad_accum", 1), name="grad_accum") > 1:
        facts.derive("sharding.sync_each_batch", value=False, where="accelerate reduces gradients at the last micro-batch")


__all__ = ["settle"]
