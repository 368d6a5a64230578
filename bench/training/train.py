"""Trains one workload of models.py under one allocator; writes losses, step times and peaks."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import torch

from models import WORKLOADS  # isort: skip - beside this file


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--offcut", action="store_true", help="under Offcut's allocator")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="of widths and lengths")
    # The simulated GPU has no cuDNN.
    parser.add_argument("--no-cudnn", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.offcut:
        import offcut  # noqa: PLC0415 - PyTorch's own must not need it

        offcut.enable()
    torch.manual_seed(arguments.seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.enabled = not arguments.no_cudnn
    torch.backends.cuda.enable_cudnn_sdp(not arguments.no_cudnn)

    workload = WORKLOADS[arguments.workload](arguments.seed, arguments.scale)
    model = workload.model.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    losses: list[float] = []
    step_seconds: list[float] = []
    for batch in itertools.islice(workload.batches, arguments.steps):
        start = time.perf_counter()
        inputs = [part.to("cuda") for part in batch]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            if workload.generate is not None:
                inputs = workload.generate(model, inputs)
            loss = workload.loss(model, inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())  # waits for the step
        del loss, inputs
        step_seconds.append(time.perf_counter() - start)

    statistics = torch.cuda.memory_stats()
    figures = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "losses": losses,
        "step_seconds": step_seconds,
        "allocations": statistics["allocation.all.allocated"],
        "peak_live_bytes": statistics["requested_bytes.all.peak"],
        "peak_allocated_bytes": statistics["allocated_bytes.all.peak"],
        "peak_reserved_bytes": statistics["reserved_bytes.all.peak"],
        "out_of_memory": statistics["num_ooms"],
    }
    if arguments.offcut:
        figures["moved_bytes"] = offcut.counters()["moved_bytes"]
    arguments.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
