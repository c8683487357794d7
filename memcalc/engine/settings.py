"""What a job's programs see: sizes, dtypes, how weights are cut and which of them are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from memcalc.code.context import Settings
from memcalc.code.contrastive import Contrastive
from memcalc.code.keeping import keeping_of
from memcalc.code.liger import NO_KERNELS, Liger
from memcalc.components import Attention
from memcalc.components.mla import LatentAttention
from memcalc.engine.flow import Flow
from memcalc.formulas import experts
from memcalc.specs.job import Job
from memcalc.specs.model import Block, Component, Degrees, ModelSpec
from memcalc.specs.run import Run


def degrees_of(job: Job) -> Degrees:
    """How this job's code cuts weights."""
    mesh = job.mesh
    vocab = mesh.tp if job.run.code in ("megatron", "torchtitan") else 1
    return Degrees(column=mesh.tp, row=mesh.tp, vocab=vocab, expert=mesh.ep, expert_column=mesh.etp, expert_row=mesh.etp)


def settings_of(job: Job) -> Settings:
    """The part of a job that programs see."""
    run, mesh = job.run, job.mesh
    capacity, padded = run.sharding.capacity_factor, run.sharding.moe_pad_expert_input_to_capacity
    limit = None if capacity is None else experts.share(capacity)
    virtual, prefix = virtual_tokens(run)
    contrastive = contrast_of(job)
    return Settings(
        code=run.code,
        attention=run.attention if run.code != "transformers" or run.attention in job.model.attentions else "eager",
        batch=job.micro_batch if contrastive is None else contrastive.mini_batch or contrastive.texts,
        seq=virtual + job.seq_len if isinstance(mesh.cp, int) and mesh.cp == 1 else job.seq_len // mesh.cp,
        dtype=run.dtype,
        autocast=run.autocast,
        training=run.task == "train",
        cached=not is_encoder(job.model),
        options=run.recompute if run.code == "torchtitan" else run.torch_compile if run.code == "torchtune" else None,
        loss=run.loss,
        holds_logits=run.holds_logits,
        upcast_logits=run.upcast_logits or run.autocast is not None,
        logits_to_keep=run.logits_to_keep,
        degrees=degrees_of(job),
        tp=mesh.tp,
        sp=mesh.sp,
        ep=mesh.ep,
        etp=mesh.etp,
        cp=mesh.cp,
        windows=windows_of(job.model),
        two_sided_windows=tuple(w for w in windows_of(job.model, causal=False) if w is not None or run.attention_mask),
        trainable=trainable_of(job),
        liger=_liger(job),
        lora_kernels=lora_kernels_of(job),
        padded=run.attention_mask or run.packing,
        packed=run.packing,
        fp8=run.fp8 or "",
        contrastive=contrastive,
        keeping=keeping_of(run, job.seq_len),
        virtual=virtual,
        leaf_inputs=(virtual > 0 or run.lora is not None) and run.recompute == "full",
        prefix=prefix,
        offloads=run.offload.activations is not None,
        submodules=run.recompute == "submodules",
        sent=experts.sent_share(limit, padded=padded),
        received=experts.received_share(job.expert_share, limit, padded=padded),
    )


def _liger(job: Job, *, tower: bool = False) -> Liger:
    if job.run.liger is None:
        return NO_KERNELS
    from memcalc.engine.liger import kernels_of

    return kernels_of(job.run, job.model, tower=tower)


def lora_kernels_of(job: Job) -> tuple[str, ...]:
    """Which kernels for adapters run: none where DeepSpeed gathers weights as their modules are called, which these kernels go past."""
    lora = job.run.lora
    return () if lora is None or (job.engine == "deepspeed" and job.zero == 3) else lora.kernels or ()


def contrast_of(job: Job) -> Contrastive | None:
    """What a contrastive loss is over."""
    asked = job.run.contrastive
    if asked is None:
        return None
    texts = job.micro_batch * asked.texts
    candidates = job.micro_batch * (asked.texts - 1) * (job.mesh.dp if asked.gather_across_devices else 1)
    return Contrastive(job.micro_batch, candidates, texts, asked.mini_batch, job.model.hidden_size)


def virtual_tokens(run: Run) -> tuple[int, int]:
    """Virtual tokens that make sequences longer, and those that only keys and values have."""
    if run.prompt is None:
        return 0, 0
    num = run.prompt.num_virtual_tokens
    return (0, num) if run.prompt.type == "prefix_tuning" else (num, 0)


def trainable_of(job: Job) -> Callable[[str], bool] | None:
    """Which weights take a gradient, by path: with adapters only they do. None: all."""
    if job.run.prompt is not None:
        from memcalc.models.prompt import is_prompt

        return is_prompt
    if job.run.lora is None and job.run.trainable_layers is not None:
        from memcalc.models.freeze import is_trained

        return is_trained
    if job.run.lora is None:
        return None
    from memcalc.models.lora import is_adapter

    return is_adapter


def tied_paths(blocks: Sequence[Block]) -> tuple[str, str] | None:
    """Where both ends of a model share a table: the path of the head's weight, and that of the table; of one whose copy is trained, the original."""
    head = next((b for b in blocks if b.role == "head" and getattr(b.module, "tied", False)), None)
    front = next((b for b in blocks if b.role == "embedding"), None)
    if head is None or front is None:
        return None
    original = getattr(front.module, "original", None)
    table = next(front.module.own_weights()) if original is None else original.weight
    return f"{head.path}/{head.module.proj.name}/weight", f"{front.path}/{table.name}"  # type: ignore[attr-defined]


def num_trainable(job: Job) -> int:
    """Elements of the whole model that take a gradient."""
    if job.run.task == "inference":
        return 0
    takes = trainable_of(job) or (lambda path: True)
    blocks = [block for block in job.model.blocks if job.run.images or not block.sees_images]
    found = ((path, weight, block.repeat) for block in blocks for path, weight in block.module.weights(f"{block.path}/"))
    return sum(weight.num_params * copies for path, weight, copies in found if takes(path) and not weight.frozen)


def sight_of(job: Job, settings: Settings) -> tuple[Settings, Flow] | None:
    """How the vision tower runs, and the pixels that it begins with; None where there are no images. Every rank holds all of a tower."""
    vision = job.model.vision
    if vision is None or vision.alone or not job.run.images:
        return None
    images, size = settings.batch * job.run.images, job.image_size
    tower = replace(
        settings,
        batch=vision.rows(images),
        seq=vision.length(images, size),
        images=images,
        cached=False,
        liger=_liger(job, tower=True),
        axes=("rows", "patches") if vision.packed else ("images", "patches"),
        degrees=Degrees(),
        tp=1,
        sp=False,
        ep=1,
        etp=1,
        cp=1,
    )
    return tower, Flow(vision.pixels(images, size), "float32" if vision.casts else settings.dtype, requires_grad=False)


def windows_of(model: ModelSpec, *, causal: bool = True) -> tuple[int | None, ...]:
    """The distinct windows of its attention layers that hide later keys, or of those that do not."""
    found = (m.window for block in model.blocks for m in components(block.module) if isinstance(m, (Attention, LatentAttention)) and m.causal == causal)
    return tuple(dict.fromkeys(found))


def is_encoder(model: ModelSpec) -> bool:
    """Whether every token sees all others, so that nothing is worth remembering."""
    found = [m.causal for block in model.blocks for m in components(block.module) if isinstance(m, (Attention, LatentAttention))]
    return bool(found) and not any(found)


def components(module: Component) -> Iterator[Component]:
    """A component and all below it."""
    yield module
    for _, child in module.children():
        yield from components(child)
