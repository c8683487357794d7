"""Run → Job: read the model, work out the mesh, decide what was left open, and say so."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import TYPE_CHECKING

from memcalc.engine.deepspeed_run import settle
from memcalc.engine.degrees import check_degrees
from memcalc.engine.effect import ignored_knobs, refuse
from memcalc.engine.finetuning import assumed_of, ignored_by_training, load_quantised, refuse_elsewhere, refuse_finetuning, with_mini_batches
from memcalc.engine.images import images_of, with_images
from memcalc.engine.optimizers import optimizer_for
from memcalc.engine.optimizers.check import check_optimizer, ignored_by_optimizer
from memcalc.engine.precision import OWN_ENGINES, with_precision
from memcalc.engine.ranks import pieces_of
from memcalc.engine.settings import is_encoder
from memcalc.errors import InputError, ShardingError
from memcalc.specs.job import Job, Mesh
from memcalc.specs.run import Run, ShardingSpec

if TYPE_CHECKING:
    from memcalc.specs.deepspeed import DeepSpeed
    from memcalc.specs.model import ModelSpec

DEFAULT_SEQ_LEN = 4096
SERVERS = ("vllm", "sglang", "trtllm", "llamacpp")
"""Code that serves, by budgets of its own; one file of `memcalc.engine.serving` each."""


def resolve(run: Run) -> Job:
    """Everything that a run leaves open, decided.

    Raises:
        InputError: names that are not known, degrees that do not go together, sizes that the model cannot have.
    """
    run = _of_file(run)
    refuse_elsewhere(run, serves=run.code in SERVERS)
    if run.code in SERVERS:
        from memcalc.engine.serving.resolve import resolve_server

        return resolve_server(run)
    if run.task not in ("train", "inference"):
        from memcalc.engine.rlhf.cast import resolve_cast

        return resolve_cast(run)
    given = [key for key in ("roles", "rollout", "rl") if getattr(run, key) not in (None, type(run).model_fields[key].default)]
    if given:
        raise InputError(f"task {run.task} has one model; it is for dpo, ppo, grpo and their kin", where=given[0])
    from memcalc.models.read import read_model

    model = read_model(run.model)
    if not any(block.role == "embedding" for block in model.blocks):
        raise InputError(f"{model.name} reads no text, so no step of it is known; `memcalc models show {model.name}` counts its parameters", where="model")
    settled = settle(with_precision(_with_kernels(with_mini_batches(run), model)), hidden_size=model.hidden_size)
    run, model = as_built(with_images(settled.run, model), model)
    run, model, assumed = load_quantised(run, model)
    tied, model = model.tied, remade(run, model)
    assumptions = [*settled.assumptions, *assumed, *model.presumed, *assumed_of(run, model)]
    if tied and not model.tied:
        assumptions.append("the head has a table of its own: parallelize_module makes a new parameter of it, which unties it")
    if model.quantization is not None and run.quantization is None:
        assumptions.append(f"the checkpoint is stored in {model.quantization.name}: its weights are dequantised first")
    notes = [f"counted, not run: {what}" for what in model.untraced]
    optimizer = optimizer_for(run.optimizer)
    seq_len = run.seq_len
    if seq_len is None:
        seq_len = min(DEFAULT_SEQ_LEN, model.max_position_embeddings or DEFAULT_SEQ_LEN)
        assumptions.append(f"seq_len {seq_len}")
    if run.attention not in model.attentions:
        assumptions.append(f"attention eager: transformers' {model.model_type} has no {run.attention}")
    image_size, sight = images_of(run, model, seq_len)
    assumptions += sight
    engine, zero = engine_of(run, settled.deepspeed)
    refuse(run, engine)
    refuse_finetuning(run, model, engine=engine, zero=zero)
    mesh = mesh_of(run)
    assumptions += check_degrees(run, model, mesh)
    if zero > 0 and mesh.dp * mesh.cp == 1:
        what = engine if engine in ("fsdp1", "fsdp2") else f"ZeRO-{zero}"
        notes.append(f"{what} over one data-parallel rank shards nothing: give more ranks with --dp or --gpus")
    run, model = of_code(run, model, mesh, engine=engine, seq_len=seq_len)
    notes += notes_of_code(run, model, seq_len=seq_len)
    job = Job(
        run=run,
        model=model,
        mesh=mesh,
        engine=engine,
        zero=zero,
        micro_batch=run.micro_batch * run.num_beams,
        seq_len=seq_len,
        foreach=optimizer.has_foreach and steps_all_at_once(run, engine),
        assumptions=(*assumptions, *_assumed_cache(run, model)),
        notes=tuple(notes),
        ignored=once(
            (
                *settled.ignored,
                *ignored_by_training(run),
                *_idle_kernels(run, model, engine=engine, zero=zero),
                *ignored_knobs(run, engine, mesh),
                *ignored_by_optimizer(run),
                *_unused_generation(run, model),
            )
        ),
        deepspeed=settled.deepspeed,
        image_size=image_size,
    )
    check_optimizer(job, optimizer)
    return job


def of_code(run: Run, model: ModelSpec, mesh: Mesh, *, engine: str, seq_len: int) -> tuple[Run, ModelSpec]:
    """Both as the modules of the code have them."""
    if run.code == "torchtune":
        from memcalc.engine.torchtune_run import refuse_torchtune

        refuse_torchtune(run, model, mesh, engine=engine)
    if run.code == "litgpt":
        from memcalc.engine.litgpt_run import refuse_litgpt, with_buffers

        refuse_litgpt(run, mesh, engine=engine)
        return run, with_buffers(model, seq_len=seq_len)
    if run.code != "torchtitan":
        return run, model
    from memcalc.engine.torchtitan_run import as_torchtitan, refuse_torchtitan

    refuse_torchtitan(run, model, mesh, engine=engine)
    return as_torchtitan(run, model, seq_len=seq_len)


def notes_of_code(run: Run, model: ModelSpec, *, seq_len: int) -> list[str]:
    """What other releases of a framework do otherwise."""
    if run.code != "torchtune":
        return []
    from memcalc.engine.torchtune_run import notes_of

    return notes_of(run, model, seq_len=seq_len)


def as_built(run: Run, model: ModelSpec) -> tuple[Run, ModelSpec]:
    """Both as a framework with layers of its own has them, before anything is made of those."""
    if run.code == "torchtune":
        from memcalc.engine.torchtune_run import as_torchtune

        return as_torchtune(run, model)
    if run.code == "litgpt":
        from memcalc.engine.litgpt_run import as_litgpt

        return as_litgpt(run, model)
    return run, model


def remade(run: Run, model: ModelSpec) -> ModelSpec:
    """The model as it is cut, frozen, or given what is trained beside it."""
    if model.tied and run.code == "transformers" and run.sharding.tp > 1:
        from memcalc.models.untie import untie

        model = untie(model)
    if run.trainable_layers is not None:
        from memcalc.models.freeze import freeze

        model = freeze(model, run.trainable_layers)
    if run.lora is not None:
        from memcalc.models.fused_lora import adapt_fused
        from memcalc.models.lora import adapt

        model = adapt_fused(model, run.lora) if run.code == "megatron" else adapt(model, run.lora, converts=run.quantization is None)
    if run.contrastive is not None:
        from memcalc.models.embedder import with_pooling

        model = with_pooling(model, run.contrastive.pooling)
    if run.prompt is not None:
        from memcalc.models.prompt import prompted

        model = prompted(model, run.prompt)
    return model


def once(ignored: Iterable[str]) -> tuple[str, ...]:
    """Keys that are ignored, each with its first reason.

    >>> once(["momentum: nothing is trained", "momentum: adamw_torch has no such knob"])
    ('momentum: nothing is trained',)
    """
    found: dict[str, str] = {}
    for line in ignored:
        found.setdefault(line.partition(":")[0], line)
    return tuple(found.values())


def _of_file(run: Run) -> Run:
    """A GGUF file is served by llama.cpp unless something else is said; transformers would bring its weights back to the model's dtype."""
    if not run.model.endswith(".gguf") or run.task != "inference" or "code" in run.model_fields_set:
        return run
    from memcalc.specs.read import read_run

    return read_run(run, code="llamacpp")


def _with_kernels(run: Run, model: ModelSpec) -> Run:
    """The run with what the kernels that it asks for bring along."""
    if run.lora is not None and run.lora.kernels:
        from memcalc.engine.lora_kernels import refuse_lora_kernels

        refuse_lora_kernels(run)
    if run.liger is None:
        return run
    from memcalc.engine.liger import with_liger

    return with_liger(run, model)


def _idle_kernels(run: Run, model: ModelSpec, *, engine: str, zero: int) -> tuple[str, ...]:
    """Kernels that were asked for and find nothing to replace."""
    found: tuple[str, ...] = ()
    if run.liger is not None:
        from memcalc.engine.liger import ignored_by_liger

        found += ignored_by_liger(run, model)
    if run.lora is not None and run.lora.kernels:
        from memcalc.engine.lora_kernels import ignored_lora_kernels

        found += ignored_lora_kernels(run, model, engine=engine, zero=zero)
    return found


def _assumed_cache(run: Run, model: ModelSpec) -> tuple[str, ...]:
    told = is_encoder(model) or run.task != "inference" or run.code != "transformers" or "cache_implementation" in run.generation.model_fields_set
    return () if told else (f"cache_implementation dynamic: transformers' own, in {run.autocast or run.dtype}",)


def _unused_generation(run: Run, model: ModelSpec) -> tuple[str, ...]:
    if run.loading.model_fields_set:
        from memcalc.engine.loading import check_loading

        check_loading(run)
    if not run.generation.model_fields_set:
        return ()
    from memcalc.engine.keeping import check_generation

    return check_generation(run, model)


def steps_all_at_once(run: Run, engine: str) -> bool:
    """Whether torch's optimizer steps all tensors in one list; by default not where tensor parallelism mixes DTensors and plain ones.

    Source: torch/optim/optimizer.py, _default_to_fused_or_foreach.
    """
    if run.optimizer_foreach is not None:
        return run.optimizer_foreach
    return not (run.sharding.tp > 1 and run.code == "transformers" and engine != "deepspeed")


def engine_of(run: Run, deepspeed: DeepSpeed | None = None) -> tuple[str, int]:
    """Who shards, and the ZeRO stage: as said, or as the other keys imply."""
    if deepspeed is not None:
        return "deepspeed", deepspeed.zero.stage
    sharding = run.sharding
    engine: str = sharding.engine or OWN_ENGINES.get(run.code, "ddp")
    zero = sharding.zero
    if zero is None:
        zero = 3 if engine in ("fsdp1", "fsdp2") else int(engine == "megatron" and bool(sharding.use_distributed_optimizer))
    if zero and engine == "ddp":
        raise InputError(f"engine ddp shards nothing, so zero {zero} cannot be; use engine deepspeed, fsdp2 or megatron", where="sharding.zero")
    return engine, zero


def mesh_of(run: Run) -> Mesh:
    """The degrees, with dp from the number of cards where it was left open, without that as many ranks as experts spread over.

    One process where a device map spreads layers over the cards.
    """
    if run.loading.device_map is not None:
        return Mesh()
    s, gpus = run.sharding, run.hardware.gpus
    inner = s.tp * s.pp * s.cp
    if gpus is not None and gpus % inner:
        raise ShardingError(f"tp {s.tp} * pp {s.pp} * cp {s.cp} = {inner} does not divide {gpus} gpus", where="hardware.gpus")
    spread = s.ep * (s.etp or s.tp) if s.ep > 1 else 1
    dp = s.dp if s.dp is not None else gpus // inner if gpus is not None else spread // gcd(spread, s.tp * s.cp)
    if gpus is not None and dp * inner != gpus:
        raise ShardingError(f"dp {dp} * tp {s.tp} * pp {s.pp} * cp {s.cp} = {dp * inner}, not the {gpus} gpus", where="hardware.gpus")
    return Mesh(dp=dp, tp=s.tp, pp=s.pp, vpp=_chunks(s), cp=s.cp, ep=s.ep, etp=s.etp or s.tp, sp=s.sp, dp_replicate=s.dp_replicate)


def _chunks(asked: ShardingSpec) -> int:
    """Model chunks of each stage: as said, or as many as a layout has pieces for them (Megatron-core, arguments.py)."""
    if asked.pipeline_model_parallel_layout is None or "vpp" in asked.model_fields_set:
        return asked.vpp
    return max(len(pieces_of(asked.pipeline_model_parallel_layout)) // asked.pp, 1)
