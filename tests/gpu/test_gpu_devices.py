"""Two real GPUs: copies and kernels across them, and NCCL, on memory of ours."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
import torch
from harness import on_gpu, run

if TYPE_CHECKING:
    from pathlib import Path

needs_two = pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="fewer than two GPUs on this machine",
)


def on_hardware(code: str) -> Any:
    return run(code, machine="gpu").value


@needs_two
def test_copies_and_kernels_reach_across() -> None:
    assert on_hardware("""
        a = torch.arange(1 << 24, device="cuda:0")
        b = a.to("cuda:1")  # opens each to the other
        later = torch.arange(1 << 25, device="cuda:1")  # mapped after that
        strided = later[::3].to("cuda:0")  # a kernel that reads the peer's memory
        back = torch.empty_like(a)
        back.copy_(b.flip(0), non_blocking=True)
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        report([
            bool(torch.equal(b.cpu(), a.cpu())),
            bool(torch.equal(strided.cpu(), torch.arange(1 << 25)[::3])),
            bool(torch.equal(back.cpu(), a.cpu().flip(0))),
        ])
    """) == [True, True, True]


RANK = """
import sys
import torch
import torch.distributed as dist
import offcut
offcut.enable()
rank, rendezvous = int(sys.argv[1]), sys.argv[2]
torch.cuda.set_device(rank)
dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
layers = (torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
for step in range(20):
    x = torch.randn(64 + 13 * step, 512, device="cuda")
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
total = torch.stack([p.double().sum() for p in model.parameters()]).sum()
both = [torch.empty_like(total) for _ in range(2)]
dist.all_gather(both, total)
assert torch.equal(both[0], both[1]), both  # the ranks' weights have stayed one
assert torch.isfinite(loss)
dist.destroy_process_group()
"""


@needs_two
def test_data_parallel_training_over_nccl(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(RANK), str(rank), str(tmp_path / "rendezvous")],
            env=on_gpu(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        output, _ = rank.communicate(timeout=180)
        assert rank.returncode == 0, output[-6000:]
