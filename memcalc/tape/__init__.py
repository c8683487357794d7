"""Tensors that are only sizes, and a ledger of when they are alive.

A model's step is run on tensors that hold a shape and a dtype but no data. They are born, saved for backward and freed
exactly as PyTorch's are: a storage lives while something refers to it (a local variable, a node of the autograd graph),
and the ledger records each birth and death. What is alive at the worst moment is then read off, to the byte.

Sizes may be ints or numpy integer arrays: one run over arrays answers for every element of them.

Layers: ``tensor`` (Axis, Storage, Tensor) < ``tape`` (Tape: graph, backward, checkpoint) < ``functional`` (the operators)
< ``span`` (a stretch of recorded events summed up: net change and peak).
"""
