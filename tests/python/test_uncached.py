"""Memory without a cache, as tools ask for it that check each cudaMalloc."""

from __future__ import annotations

import pytest
from harness import run
from parity import both

PROGRAM = """
def one(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")

def used():
    free, total = torch.cuda.mem_get_info()
    return total - free

def figures():
    stats = torch.cuda.memory_stats()
    return [stats[f"{key}.all.current"] for key in ("allocation", "active", "segment")]

torch.cuda.init()
out = []
cached = one(3 << 20)
out.append(figures())
torch.cuda.caching_allocator_enable(False)
before = used()
uncached = one(50 << 20)
out.append([used() - before, figures()])
uncached.record_stream(torch.cuda.Stream())
standard = torch._C._has_Standard_Deleter(uncached.untyped_storage()._cdata)
try:
    one(60 << 30)
except RuntimeError as error:
    out.append([type(error).__name__, str(error).splitlines()[0]])
torch.cuda.caching_allocator_enable(True)
del uncached, cached
out.append([used() - before, figures(), standard])
torch.cuda.empty_cache()
out.append(figures())
report(out)
"""


@pytest.mark.parametrize("forced", [False, True])
def test_it_is_as_natively(forced: bool) -> None:
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if forced else {}
    native, ours = both(PROGRAM, sim={"memory": "40GiB"}, environment=environment)
    assert native == ours
    assert native[1][0] == 50 << 20
    assert native[0][0] == (0 if forced else 1)


def test_arenas_are_left_alone() -> None:
    done = run("""
        kept = torch.empty(1000, device="cuda")
        torch.cuda.caching_allocator_enable(False)
        other = torch.empty(1000, device="cuda")
        torch.cuda.caching_allocator_enable(True)
        del kept
        del other
        report(torch.cuda.memory_stats()["allocation.all.current"])
    """)
    assert done.value == 0
