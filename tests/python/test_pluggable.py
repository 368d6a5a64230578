"""liboffcut.so by itself, plugged into any PyTorch: CUDAPluggableAllocator and MemPool."""

from harness import LIBRARY, MIB, run

LOAD = f"""
from torch.cuda.memory import CUDAPluggableAllocator, change_current_allocator
plugged = CUDAPluggableAllocator({str(LIBRARY)!r}, "offcut_malloc", "offcut_free")
"""


def test_serves_as_the_current_allocator() -> None:
    done = run(
        LOAD
        + """
change_current_allocator(plugged)
x = torch.arange(1 << 20, dtype=torch.uint8).to("cuda")
first = x.data_ptr()
assert torch.equal(x.cpu(), torch.arange(1 << 20, dtype=torch.uint8))
held = offcut.counters()["live_bytes"]["all"].current
del x
y = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
report([held, y.data_ptr() == first, offcut.counters()["allocations"]["all"].current])
""",
        enable=False,
    )
    assert done.value == [MIB, True, 1]


def test_serves_a_training_step() -> None:
    done = run(
        LOAD
        + """
change_current_allocator(plugged)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 8))
model = model.to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
counters = offcut.counters()
report([counters["allocations"]["all"].risen > 50, counters["invalid_frees"],
        counters["failed_requests"]])
""",
        enable=False,
    )
    assert done.value == [True, 0, 0]


def test_gives_null_when_memory_is_out_as_its_documentation_says() -> None:
    done = run(
        LOAD
        + """
change_current_allocator(plugged)
x = torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
report([x.data_ptr(), offcut.counters()["out_of_memory"]])
""",
        enable=False,
        sim={"memory": "8GiB"},
    )
    assert done.value == [0, 1]


def test_serves_as_the_allocator_of_a_memory_pool() -> None:
    done = run(
        LOAD
        + """
pool = torch.cuda.MemPool(plugged.allocator())
outside = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
with torch.cuda.use_mem_pool(pool):
    inside = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
held = offcut.counters()["live_bytes"]["all"].current
del inside
del pool
torch.cuda.empty_cache()
report([held, offcut.counters()["live_bytes"]["all"].current])
""",
        enable=False,
    )
    held, after = done.value
    assert held >= 30 * MIB
    assert after == 0


def test_null_in_a_memory_pool_is_pytorchs_out_of_memory_error() -> None:
    done = run(
        LOAD
        + """
pool = torch.cuda.MemPool(plugged.allocator())
with torch.cuda.use_mem_pool(pool):
    try:
        torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
        report("nothing was raised")
    except torch.OutOfMemoryError:
        report("raised")
""",
        enable=False,
        sim={"memory": "8GiB"},
    )
    assert done.value == "raised"
