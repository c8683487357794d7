"""Run → Estimate: who holds what (mesh, ranks), what each block does to memory (blocks), and what is alive when (step)."""
