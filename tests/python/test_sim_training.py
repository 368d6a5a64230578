"""Stock PyTorch, with its own allocator, on the simulated GPU."""

import pytest
from harness import MIB, run

TRAINING = """
    import torch.nn.functional as F
    torch.manual_seed(0)
    dtype = getattr(torch, os.environ["DTYPE"])
    for each, enable in (("flash", torch.backends.cuda.enable_flash_sdp),
                         ("efficient", torch.backends.cuda.enable_mem_efficient_sdp),
                         ("math", torch.backends.cuda.enable_math_sdp)):
        enable(each == os.environ["ATTENTION"])

    class Block(torch.nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm = torch.nn.LayerNorm(width)
            self.qkv = torch.nn.Linear(width, 3 * width)
            self.out = torch.nn.Linear(width, width)
            self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                           torch.nn.Linear(4 * width, width))

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1)
                       .permute(2, 0, 3, 1, 4))
            attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attention.transpose(1, 2).reshape(x.shape))
            return x + self.mlp(x)

    model = torch.nn.Sequential(torch.nn.Embedding(1000, 256), Block(256, 4), Block(256, 4),
                                torch.nn.Linear(256, 1000)).to("cuda", dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    for step in range(4):
        ids = torch.randint(0, 1000, (8, 128)).pin_memory().to("cuda", non_blocking=True)
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        del loss
        seen.append(torch.cuda.memory_allocated())
    torch.cuda.synchronize()
    report({"allocated": seen, "peak": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
            "parameters": sum(p.numel() * p.element_size() for p in model.parameters())})
"""


@pytest.mark.parametrize(
    ("attention", "dtype"), [("flash", "bfloat16"), ("efficient", "float32"), ("math", "float32")]
)
@pytest.mark.parametrize(
    "settings",
    ["expandable_segments:False", "expandable_segments:True", "backend:cudaMallocAsync"],
)
def test_a_transformer_trains(attention: str, dtype: str, settings: str) -> None:
    environment = {"ATTENTION": attention, "DTYPE": dtype, "PYTORCH_CUDA_ALLOC_CONF": settings}
    done = run(TRAINING, enable=False, environment=environment)
    value = done.value
    assert value["allocated"][1] == value["allocated"][-1], "a steady state"
    # Parameters and the two moments of AdamW, workspaces, and little else.
    assert value["allocated"][-1] >= 3 * value["parameters"]
    assert value["allocated"][-1] < 3 * value["parameters"] + 80 * MIB
    assert value["allocated"][-1] < value["peak"] <= value["reserved"]
    assert "simulated CUDA:" not in done.stderr


def test_a_lag_of_the_device_changes_no_figure_of_one_stream() -> None:
    environment = {"ATTENTION": "flash", "DTYPE": "bfloat16"}
    prompt = run(TRAINING, enable=False, environment=environment).value
    late = run(TRAINING, enable=False, environment=environment, sim={"lag": "50ms"}).value
    assert late == prompt


def test_a_device_too_small_raises_out_of_memory() -> None:
    done = run(
        """
        kept = []
        try:
            while True:
                kept.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            text = str(error)
        free, total = torch.cuda.mem_get_info()
        report([len(kept), text, free, total, torch.cuda.memory_reserved()])
        """,
        enable=False,
        sim={"memory": "2GiB"},
    )
    count, text, free, total, reserved = done.value
    assert total == 2048 * MIB
    assert 10 <= count <= 20
    assert free < 100 * MIB
    assert reserved == count * 100 * MIB
    assert "total capacity of 2.00 GiB" in text


def test_the_figures_of_single_allocations_are_those_of_the_native_allocator() -> None:
    done = run(
        """
        before = torch.cuda.mem_get_info()[0]
        x = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
        y = torch.empty(1, device="cuda")
        report([torch.cuda.memory_allocated(), torch.cuda.memory_reserved(),
                before - torch.cuda.mem_get_info()[0]])
        """,
        enable=False,
    )
    assert done.value == [5 * MIB + 512, 22 * MIB, 22 * MIB]


def test_data_survives_a_round_trip() -> None:
    done = run(
        """
        host = torch.arange(1 << 20, dtype=torch.int64)
        pinned = host.pin_memory()
        there = host.to("cuda")
        also = pinned.to("cuda", non_blocking=True)
        report([torch.equal(there.cpu(), host), torch.equal(also.cpu(), host),
                torch.equal(there[100:200].cpu(), host[100:200]), pinned.is_pinned()])
        """,
        enable=False,
    )
    assert done.value == [True, True, True, True]


def test_two_devices_are_apart() -> None:
    done = run(
        """
        x = torch.zeros(1 << 20, device="cuda:1")
        y = x.to("cuda:0")
        report([torch.cuda.device_count(), torch.cuda.get_device_name(1),
                torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1),
                torch.cuda.can_device_access_peer(0, 1)])
        """,
        enable=False,
        sim={"card": "H100", "devices": 2},
    )
    assert done.value == [2, "NVIDIA H100 80GB HBM3", 4 * MIB, 4 * MIB, True]
