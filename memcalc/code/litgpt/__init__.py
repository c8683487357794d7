"""LitGPT's modules (0.5.13): one projection for queries, keys and values with one adapter, angles in fp32, logits in pieces of 128 tokens.

Its tutorials' figures of 2023 are of modules whose RMSNorm did not cast up: it kept two bytes for each number where this one keeps four.
"""
