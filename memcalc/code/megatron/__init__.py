"""Megatron-core's modules (core 0.20) with Transformer Engine's kernels, as ``transformer_impl: transformer_engine`` composes them.

Activations are (sequence, batch, …). What a module keeps for backward is what its autograd function saves; what else it allocates is there
only while it runs. Fused kernels keep their inputs and recompute what the operators of PyTorch would have kept.
"""
