"""Megatron-core: gradients accumulate in contiguous buffers that are always there, and the distributed optimizer shares its states.

Sources: megatron/core/distributed/param_and_grad_buffer.py; optimizer/distrib_optimizer.py and optimizer.py;
transformer_engine/pytorch/optimizers/fused_adam.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from memcalc.code.context import Settings
from memcalc.code.megatron.options import MODULES, Options
from memcalc.code.megatron.wgrad import adapter_shapes, shapes
from memcalc.components import Attention
from memcalc.components.mla import LatentAttention
from memcalc.engine.plan import Plan, Shard
from memcalc.engine.result import Term
from memcalc.engine.settings import components
from memcalc.engine.strategies._fp8 import fp8_copies
from memcalc.engine.strategies._routed import Routed, experts_of
from memcalc.engine.walk import Reason, Walk
from memcalc.errors import InputError, UnknownNameError
from memcalc.formulas import megatron
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.run import Run
from memcalc.tape.span import maximum


class Buffer(NamedTuple):
    """The parameters that share a buffer and a data-parallel group.

    Attributes:
        name: what terms call it.
        shards: which parameters.
        ranks: of the group.
        num_params: elements.
        numel: elements with padding.
    """

    name: str
    shards: list[Shard]
    ranks: Any
    num_params: Any
    numel: Any


class Engine(Routed):
    """Megatron's data parallelism; `zero` 1 is the distributed optimizer."""

    keep_gradients = False
    accumulates_whole = False
    drops_sent = True

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:
        """With what the launch says beyond the sizes."""
        return replace(settings, options=options_of(job.run))

    @classmethod
    def communicators(cls, job: Job) -> dict[str, Any]:
        """Those of Megatron's process groups."""
        mesh, has_experts = job.mesh, any(weight.is_expert for _, weight, _ in job.model.weights())
        degrees = {name: getattr(mesh, name) for name in ("dp", "tp", "pp", "cp", "ep", "etp")}
        training = job.run.task != "inference"
        return megatron.communicator_ranks(**degrees, distributed=job.zero == 1, experts=has_experts, tied=job.model.tied, training=training)

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        if job.zero > 1:
            raise InputError(f"engine megatron has the distributed optimizer (zero 1) or none (zero 0), not zero {job.zero}", where="sharding.zero")
        self.distributed = job.zero == 1

    # ------------------------------------------------------------------ buffers
    def buffers(self) -> list[Buffer]:
        """One for dense and one for expert parameters that take a gradient."""
        mesh, found = self.job.mesh, []
        trained = [s for s in self.plan.shards() if s.trainable]
        groups = (
            ("", [s for s in trained if not s.is_expert], mesh.dp * mesh.cp),
            (" of experts", [s for s in trained if s.is_expert], megatron.expert_data_parallel(mesh.world, pp=mesh.pp, ep=mesh.ep, etp=mesh.etp)),
        )
        for name, shards, ranks in groups:
            if shards:
                num_params = sum(s.num_params * s.copies for s in shards)
                aligned = sum(megatron.aligned_numel(s.num_params) * s.copies for s in shards)
                found.append(Buffer(name, shards, ranks, num_params, megatron.buffer_numel(aligned, shards=ranks) if self.distributed else num_params))
        return found

    def resident(self, walk: Walk) -> None:
        """Weights, in training beside the gradient buffers and the optimizer's states; and what kernels and collectives keep for good."""
        super().resident(walk)
        settings = self.plan.settings
        self._angles(walk)
        self._workspaces(walk)
        if self.job.run.fp8 is not None:
            fp8_copies(walk, self.job, self.plan)
        if not settings.training:
            return
        if self.job.run.task == "train" and self.job.run.sharding.gradient_accumulation_fusion:
            self._dummies(walk)
        self._global_buffer(walk)
        self.tables(walk)
        self.behind(walk)

    def states(self, walk: Walk) -> None:
        """Gradient buffers, main parameters, moments; with the distributed optimizer the latter two of this rank's part of each buffer."""
        sharding, dtype = self.job.run.sharding, self.plan.settings.dtype
        gradient = self._gradient_bytes
        aware = sharding.use_precision_aware_optimizer and not self.hybrid
        main = megatron.main_param_bytes(precision_aware=aware, main_params=sharding.main_params_dtype, dtype=dtype)
        for buffer in self.buffers():
            padding = (buffer.numel - buffer.num_params) * self.plan.width
            if self.distributed:
                walk.alloc(f"weights/padding{buffer.name}", padding, Reason("padding of the parameter buffer to equal parts", {}, "param_layout.py"))
            inputs = {"elements": buffer.numel, "width": gradient}
            walk.alloc(f"gradients/main_grad{buffer.name}", buffer.numel * gradient, Reason("elements * width", inputs, "param_and_grad_buffer.py"))
            part = self._on_card(self._part_of(buffer))
            inputs = {"elements": part, "data_parallel": buffer.ranks}
            walk.alloc(f"optimizer/main parameters{buffer.name}", part * main, Reason(f"elements * {main}", inputs, "distrib_optimizer.py"))
            for name, width in self._moments().items():
                walk.alloc(f"optimizer/{name}{buffer.name}", part * width, Reason(f"elements * {width}", inputs, "fused_adam.py"))

    @property
    def hybrid(self) -> bool:
        """Some states are on the host; of those that are not, all are fp32 (hybrid_optimizer.py, ``param_update_in_fp32``)."""
        return self.job.run.offload.optimizer is not None

    def _part_of(self, buffer: Buffer) -> Any:
        """Elements whose states are this rank's."""
        return megatron.shard_numel(buffer.numel, shards=buffer.ranks) if self.distributed else buffer.num_params

    def _on_card(self, numel: Any) -> Any:
        """Elements whose states are on the card, where some step on the host (HybridDeviceOptimizer)."""
        share = round(1000 * self.job.run.sharding.optimizer_offload_fraction) if self.job.run.offload.optimizer else 0
        return numel - numel * share // 1000

    def host(self) -> tuple[Term, ...]:
        """Of what steps on the host: weights, gradients and moments, in fp32 (hybrid_optimizer.py, ``_get_sub_optimizer_param_groups``)."""
        if self.job.run.offload.optimizer is None:
            return ()
        part = sum(numel - self._on_card(numel) for numel in map(self._part_of, self.buffers()))
        width = 4 * (2 + len(self._moments()))
        return (Term("host/optimizer", part * width, f"elements * {width}", {"elements": part}, "hybrid_optimizer.py"),)

    def _moments(self) -> dict[str, int]:
        run = self.job.run
        if run.optimizer == "sgd":
            return {"momentum": 4} if run.momentum else {}
        if self.hybrid:
            return {"exp_avg": 4, "exp_avg_sq": 4}
        s = run.sharding
        return {"exp_avg": megatron.STATE_BYTES[s.exp_avg_dtype], "exp_avg_sq": megatron.STATE_BYTES[s.exp_avg_sq_dtype]}

    @property
    def _gradient_bytes(self) -> int:
        s = self.job.run.sharding
        return megatron.gradient_bytes(dtype=self.plan.settings.dtype, in_bf16=s.grad_reduce_in_bf16, main_grads=s.main_grads_dtype)

    def accumulated(self, walk: Walk) -> None:
        """They are in the buffers."""

    # ------------------------------------------------------------------ what stays
    def _angles(self, walk: Walk) -> None:
        """Rotary angles, which each stage computes once for a length and keeps."""
        kinds = (Attention, LatentAttention)
        dims = {m.rotary.dim for part in self.plan.parts for m in components(part.block.module) if isinstance(m, kinds) and m.rotary is not None}
        if dims:
            length = self.plan.settings.seq
            reason = Reason("seq_len * dim * 4", {"dim": sum(dims)}, "megatron/core/models/common/embeddings/rotary_pos_embedding.py")
            walk.alloc("buffers/rotary angles", 4 * length * sum(dims), reason)

    def _dummies(self, walk: Walk) -> None:
        """What autograd is given in place of gradients that are in their buffers already: one tensor for each shape."""
        degrees, width = self.plan.settings.degrees, self.plan.width
        of = shapes if self.job.run.lora is None else adapter_shapes
        found = {shape for part in self.plan.parts for shape in of(part.block.module, degrees)}
        total = sum(rows * columns for rows, columns in found)
        source = "transformer_engine/pytorch/module/base.py, get_dummy_wgrad"
        walk.alloc(
            "buffers/dummy weight gradients", total * width, Reason("elements of the distinct shapes * width", {"elements": total, "width": width}, source)
        )

    def _workspaces(self, walk: Walk) -> None:
        """What Transformer Engine's products work in."""
        card, together = self.job.run.hardware.gpu, self.job.run.sharding.moe_grouped_gemm and any(map(experts_of, self.plan.parts))
        size = megatron.workspace_bytes(hopper=card is not None and find_gpu(card).hopper, experts=together)
        walk.alloc("buffers/workspaces of products", size, Reason("one, and one for each stream of experts' products", {}, "TransformerEngine, gemm.py"))

    def _global_buffer(self, walk: Walk) -> None:
        """The buffer that the output layer gathers its input in, a group's tokens for their experts, and unfused attention its scores (GlobalMemoryBuffer)."""
        settings, job = self.plan.settings, self.job
        tokens, sizes = settings.batch * settings.seq, []
        if settings.sp and any(part.block.role == "head" for part in self.plan.parts):
            sizes.append(tokens)
        if settings.options.dispatcher == "allgather" and any(map(experts_of, self.plan.parts)):
            sizes.append(tokens // (settings.tp if settings.sp else 1) * settings.ep * settings.etp)
        total = reduce(maximum, sizes, 0) * job.model.hidden_size
        if settings.attention == "eager":
            total = total + tokens * settings.seq * (job.model.num_heads // settings.tp)
        if sizes or settings.attention == "eager":
            walk.alloc(
                "buffers/global memory buffer",
                total * self.plan.width,
                Reason("gathered input of the logits or of experts, attention scores", {}, "megatron/core/utils.py"),
            )

    # ------------------------------------------------------------------ the step
    def step(self, walk: Walk) -> None:
        """Gradients that are not fp32 are copied to it, and so are states in fp16 or fp8 (FusedAdam.get_unscaled_state)."""
        s = self.job.run.sharding
        aware = s.use_precision_aware_optimizer and not self.hybrid
        narrow = [name for name in ("exp_avg_dtype", "exp_avg_sq_dtype") if getattr(s, name) in ("fp16", "fp8")] if aware else []
        copies = len(narrow) + (self._gradient_bytes != 4 and not aware)
        for buffer in self.buffers():
            part = self._on_card(self._part_of(buffer))
            reason = Reason(
                "elements * 4 * copies", {"elements": part, "copies": copies}, "distrib_optimizer.py, _copy_model_grads_to_main_grads; fused_adam.py"
            )
            walk.alloc(f"optimizer/copies in fp32{buffer.name}", 4 * part * copies, reason)

    # ------------------------------------------------------------------ before the first step
    def initialize(self, walk: Walk) -> None:
        """Each buffer is made beside the parameters that move into it, with the distributed optimizer; they go when the buffer is whole.

        Source: megatron/core/distributed/param_and_grad_buffer.py, ``_ParamAndGradBuffer``. Main parameters and moments come later.
        """
        super().initialize(walk)
        source = "param_and_grad_buffer.py"
        for buffer in self.buffers():
            path, width = f"weights/buffer{buffer.name}", self.plan.width
            if self.distributed:
                walk.alloc(path, buffer.numel * width, Reason("elements * width", {"elements": buffer.numel, "width": width}, source))
            inputs = {"elements": buffer.numel, "width": self._gradient_bytes}
            walk.alloc(f"gradients/main_grad{buffer.name}", buffer.numel * self._gradient_bytes, Reason("elements * width", inputs, source))
            if self.distributed:
                walk.free(path, buffer.num_params * width)

    # ------------------------------------------------------------------ between steps
    def save(self, walk: Walk) -> None:
        """Shards are written from where they are; of states narrower than fp32, and fp16 main parameters, all are copied to it first.

        Source: megatron/core/optimizer/distrib_optimizer.py, ``_get_main_param_and_optimizer_states`` (``dp_reshardable``, the default format);
        transformer_engine/pytorch/optimizers/fused_adam.py, ``get_unscaled_state``.
        """
        s = self.job.run.sharding
        kept = (s.exp_avg_dtype, s.exp_avg_sq_dtype, s.main_params_dtype) if s.use_precision_aware_optimizer and not self.hybrid else ()
        copies = sum(dtype != "fp32" for dtype in kept)
        for buffer in self.buffers():
            part = self._on_card(self._part_of(buffer))
            reason = Reason("elements * 4 * copies", {"elements": part, "copies": copies}, "fused_adam.py, get_unscaled_state")
            walk.alloc(f"checkpoint/states in fp32{buffer.name}", 4 * part * copies, reason)


def options_of(run: Run) -> Options:
    """What Megatron's programs are told.

    Raises:
        UnknownNameError: a module that cannot be recomputed.
    """
    s = run.sharding
    modules: tuple[str, ...] = ()
    if run.recompute == "selective":
        asked = run.recompute_modules
        modules = ("core_attn",) if asked is None else (asked,) if isinstance(asked, str) else tuple(asked)
        for name in modules:
            if name not in MODULES:
                raise UnknownNameError("module", name, MODULES, where="recompute_modules")
    fused = {"chunked": "native", "fused_linear": "te"}.get(run.loss, "unfused")
    return Options(
        fused_wgrad=s.gradient_accumulation_fusion,
        recompute=frozenset(modules),
        recompute_full=run.recompute == "full",
        hidden_dropout=run.hidden_dropout,
        attention_dropout=run.attention_dropout,
        cross_entropy=s.cross_entropy_fusion_impl or fused,  # type: ignore[arg-type]
        cp_comm_type=s.cp_comm_type,
        dispatcher=s.moe_token_dispatcher_type,
        router_dtype={"fp32": "float32", "fp64": "float64"}.get(s.moe_router_dtype or ""),
        permute_fusion=s.moe_permute_fusion,
        rope_fusion=s.apply_rope_fusion,
        fp8=run.fp8 is not None,
    )
