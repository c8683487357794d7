"""torchtune's modules (its last commit, bd2a0fc of April 2026).

Rotary positions are in fp32, keys and values repeated for the queries that share them, and all is held in one dtype.

What release 0.6 has otherwise: its RMSNorm casts down after the product with the weight, so that it keeps the normalised input in fp32, two bytes more for each
number of it; its chunked loss cuts the sequence with one ``chunk``.
"""
