"""torchtitan's modules (0.2.2): PyTorch's own fused norms, complex rotary positions, DTensor with sequence parallelism, per-operator checkpoints.

What a GPU's kernels keep is counted where a CPU's differ: the fused RMSNorm saves its input and a reciprocal root for each row. Collectives are
what DTensor makes of them: those along the sequence gather or scatter ranks first, and copy.
"""
