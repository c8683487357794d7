"""docs/importers.md says what the tables say."""

from __future__ import annotations

from pathlib import Path

from memcalc.importers.documentation import text


def test_the_document_is_up_to_date(root: Path) -> None:
    assert (root / "docs" / "importers.md").read_text(encoding="utf-8") == text(), "run `make docs`"


def test_every_key_that_is_known_stands_in_it() -> None:
    for key in ("per_device_train_batch_size", "fsdp_config.fsdp_reshard_after_forward", "deepspeed_config.zero_stage", "gpu_memory_utilization"):
        assert f"`{key}`" in text()
