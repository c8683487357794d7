"""A watched loop: the readings of a real one stand beside the estimate's instants."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError, MissingExtraError
from memcalc.watch.counters import Card

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 200, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "use_cache": False,
}  # fmt: skip
RUN = {"micro_batch": 2, "seq_len": 64, "dtype": "float32", "optimizer": "adamw_torch", "optimizer_foreach": False}


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """A tiny model, and the folder of its config.json."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)), str(tmp_path)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_a_trainer_is_watched(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two steps on the CPU: from the second on every instant is the estimate's, to within what clipping and labels take."""
    import torch
    from transformers import Trainer, TrainingArguments

    from memcalc.watch import JsonLines, Stdout, callback

    net, folder = model
    log = tmp_path / "watch.jsonl"
    rows = [{"input_ids": torch.randint(0, 200, (64,)), "labels": torch.randint(0, 200, (64,))} for _ in range(8)]
    shared = {"per_device_train_batch_size": 2, "max_steps": 2, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    arguments = TrainingArguments(str(tmp_path / "out"), optim="adamw_torch", logging_strategy="no", **shared)
    watching = callback(run={"model": folder, **RUN}, sinks=[Stdout(), JsonLines(log)])
    Trainer(net, arguments, train_dataset=rows, callbacks=[watching]).train()
    first, second = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    for name in ("start", "forward_peak", "backward_peak", "optimizer_step"):
        reading = second["instants"][name]
        assert reading["bytes"] == pytest.approx(reading["estimate_bytes"], rel=0.02), name
    assert first["instants"]["start"]["bytes"] < second["instants"]["start"]["bytes"] / 2
    assert set(second["gradient_norm"]) == set(second["activation_max"])
    assert "model.layers.2" in second["gradient_norm"]
    assert all(value > 0 for value in second["gradient_norm"].values())
    assert second["warnings"] == []
    out = capsys.readouterr().out
    assert "memcalc watch: step 2: start" in out
    assert "gradient norm" in out


@pytest.mark.torch
def test_a_loop_of_ones_own_is_watched_and_left_as_it_was(model: Any) -> None:
    """Hooks go, a step that fails is told, and norms are those of the gradients."""
    import torch

    from memcalc.watch import Watch

    net, folder = model
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    seen: list[Any] = []

    class Kept:
        def write(self, record: Any) -> None:
            seen.append(record)

        def close(self) -> None:
            seen.append("closed")

    ids = torch.randint(0, 200, (2, 64))
    net.train()

    def loop() -> None:
        with Watch(net, optimizer, run={"model": folder, **RUN}, sinks=[Kept()]) as watch:
            for _ in range(2):
                net(input_ids=ids, labels=ids).loss.backward()
                norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in net.parameters()]))
                optimizer.step()
                optimizer.zero_grad()
                record = watch.step()
                assert sum(value**2 for value in record.gradient_norms.values()) ** 0.5 == pytest.approx(float(norm), rel=1e-5)
            net(input_ids=ids)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert [one if isinstance(one, str) else one.step for one in seen] == [1, 2, 2, "closed"]
    assert [reading.name for reading in seen[2].readings] == ["start", "forward_peak"]
    assert not net._forward_hooks
    assert not net.model.layers[0]._forward_hooks


@pytest.mark.torch
def test_a_calibration_is_of_a_card(model: Any, tmp_path: Path) -> None:
    """What a card reads is taken down after a few steps; of a CPU there is nothing to take down."""
    from memcalc.watch import Watch
    from memcalc.whatif.calibration import read_calibration

    net, _ = model
    with pytest.raises(InputError, match="is of a card"):
        Watch(net, calibration=tmp_path / "calibration.json")
    file = tmp_path / "calibration.json"
    with Watch(net, sinks=[], counter=_Card(), calibration=file) as watch:
        for _ in range(3):
            watch.step()
    found = read_calibration(str(file))
    assert (found.device, found.steps, found.outside_bytes, found.held_bytes) == ("a card", 3, 700, 50)


class _Card:
    """Readings of a card that is not there."""

    name, is_card, counts_tensors = "a card", True, True

    def allocated(self) -> int:
        return 900

    def reserved(self) -> int:
        return 1050

    def peak(self) -> int:
        return 1000

    def outside(self) -> int:
        return 700

    def reset(self) -> None:
        return None


def test_a_card_is_asked_for_what_its_allocator_and_its_driver_say() -> None:
    class Cuda:
        """`torch.cuda`, as far as it is asked."""

        def __getattr__(self, name: str) -> Any:
            found = {
                "memory_allocated": 5,
                "max_memory_allocated": 7,
                "max_memory_reserved": 11,
                "memory_reserved": 9,
                "mem_get_info": (60, 100),
                "get_device_name": "A100",
            }
            return lambda device: found[name]

    card = Card(Cuda(), 0)
    assert (card.name, card.allocated(), card.peak(), card.reserved(), card.outside()) == ("A100", 5, 7, 11, 100 - 60 - 9)


def test_without_torch_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from memcalc.watch import Watch, callback

    monkeypatch.setitem(sys.modules, "torch", None)
    for attempt in (callback, lambda: Watch(None)):
        with pytest.raises(MissingExtraError) as refused:
            attempt()
        assert str(refused.value) == "watching a run needs the extra 'watch': pip install 'gpu-memcalc[watch]'"
