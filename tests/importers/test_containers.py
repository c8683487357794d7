"""`memcalc.importers.containers`: compose files and Kubernetes manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files

COMPOSE = """
services:
  cache: {image: "redis:7"}
  llm:
    image: vllm/vllm-openai:v0.10
    environment:
      - CUDA_VISIBLE_DEVICES=0,1
      - MODEL=gpt2
      - HF_TOKEN
    command: >
      --model $$MODEL
      --tensor-parallel-size 2
      --max-model-len ${MAX_LEN:-512}
  web: {build: ., command: ["uvicorn", "app:app"]}
"""
ENTRY = """
services:
  sglang:
    image: lmsysorg/sglang:latest
    entrypoint: python3 -m sglang.launch_server
    command: --model-path gpt2
      --mem-fraction-static 0.8
"""
MANIFESTS = """---
# storage
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: models}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:latest
        command: ["/bin/sh", "-c"]
        args: ["vllm serve gpt2 --max-model-len $(MAX_LEN)"]
        env:
        - {name: MAX_LEN, value: "256"}
        - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: token, key: token}}}
      - {name: proxy, image: nginx}
---
apiVersion: v1
kind: Service
"""
JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
          - name: pytorch
            image: pytorch/pytorch
            command: [torchrun, --nproc-per-node, "2", train.py]
            args: [--model_name_or_path, gpt2, --per_device_train_batch_size, "4", --max_length, "128"]
"""


def imported(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "file.yaml"
    path.write_text(text, encoding="utf-8")
    return {origin.key: origin.value for origin in import_files([str(path)]).origins}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (COMPOSE, {"model": "gpt2", "sharding.tp": 2, "serving.max_model_len": 512}),
        (ENTRY, {"model": "gpt2", "serving.mem_fraction_static": "0.8"}),
        (MANIFESTS, {"model": "gpt2", "serving.max_model_len": 256}),
        (JOB, {"model": "gpt2", "micro_batch": 4, "seq_len": 128, "hardware.gpus": 2}),
    ],
    ids=["compose", "entrypoint", "manifests", "job"],
)
def test_the_launch_of_a_container_is_read(tmp_path: Path, text: str, keys: dict[str, Any]) -> None:
    found = imported(tmp_path, text)
    assert {key: found.get(key) for key in keys} == keys


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("services:\n  a: {image: nginx}\n", "starts no launch"),
        ("services:\n  a: {image: vllm/vllm-openai, command: --model gpt2}\n  b: {image: vllm/vllm-openai, command: --model gpt2}\n", "starts a, b: leave one"),
        ("apiVersion: v1\n---\n" * 101, "holds 102 documents"),
        ("services:\n  a: {image: [1], command: {x: 1}, environment: 3}\n", "starts no launch"),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: [1, {command: 2, args: [[]], env: [x, {value: 1}]}]}\n", "starts no launch"),
    ],
    ids=["none", "several", "documents", "odd service", "odd pod"],
)
def test_a_file_without_one_launch_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        imported(tmp_path, text)


def test_such_a_file_and_a_command_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(ENTRY, encoding="utf-8")
    with pytest.raises(InputError, match="without another"):
        import_files([str(path)], command=["vllm", "serve", "gpt2"])
