"""Threads, forks, and the many ways in which a process ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import run

if TYPE_CHECKING:
    from pathlib import Path


def test_threads_allocate_and_free_each_others_blocks() -> None:
    done = run("""
        import queue, random, threading
        torch.cuda.init()
        shared = queue.SimpleQueue()
        def work(seed):
            sizes = random.Random(seed)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for n in range(400):
                    x = torch.empty(sizes.randrange(1, 4 << 20), dtype=torch.uint8, device="cuda")
                    if n % 3 == 0:
                        x.record_stream(torch.cuda.default_stream())
                    shared.put(x)
                    if n % 2:
                        shared.get()
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for t in threads: t.start()
        for t in threads: t.join()
        while not shared.empty():
            shared.get()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        stats = torch.cuda.memory_stats()
        report([stats["allocation.all.allocated"], stats["allocated_bytes.all.current"],
                stats["active_bytes.all.current"], stats["reserved_bytes.all.current"]])
    """)
    assert done.value == [2400, 0, 0, 0]


def test_enable_leaves_the_process_able_to_fork_and_use_cuda_in_the_child() -> None:
    done = run("""
        pid = os.fork()
        if pid == 0:
            x = torch.empty(1 << 20, device="cuda")
            report(torch.cuda.memory_allocated())
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """)
    assert done.value == 4 << 20


def test_forked_workers_of_a_data_loader_disturb_nothing(tmp_path: Path) -> None:
    done = run(
        """
        from torch.utils.data import DataLoader, Dataset
        class Numbers(Dataset):
            def __len__(self): return 64
            def __getitem__(self, i): return torch.full((1000,), float(i))
        x = torch.empty(1 << 20, device="cuda")
        loader = DataLoader(Numbers(), batch_size=4, num_workers=2,
                            multiprocessing_context="fork", pin_memory=True)
        total = 0
        for epoch in range(2):
            for batch in loader:
                y = batch.to("cuda", non_blocking=True)
                torch.cuda.synchronize()
                total += int(y.cpu()[:, 0].sum())
        del y
        report([total, torch.cuda.memory_allocated()])
        """,
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    assert done.value == [2 * sum(range(64)), 4 << 20]
    assert len(list(tmp_path.iterdir())) == 1, "the workers record nothing of their own"


ENDINGS = {
    "tensors alive at exit": "keep = [torch.empty(1 << 20, device='cuda') for _ in range(5)]",
    "tensors freed in atexit": """
import atexit
keep = [torch.empty(1 << 20, device='cuda')]
atexit.register(keep.clear)
""",
    "a tensor in a cycle": """
x = torch.empty(1 << 20, device='cuda')
cycle = [x]; cycle.append(cycle)
""",
    "pending frees": """
side = torch.cuda.Stream()
x = torch.empty(1 << 20, device='cuda')
x.record_stream(side)
del x
""",
    # By ctypes: a daemon thread inside PyTorch's own frames is aborted, under native too.
    "a thread that still allocates": """
import ctypes, threading
from offcut import _library
library = _library.load()
library.offcut_malloc.restype = ctypes.c_void_p
library.offcut_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
begun = threading.Event()
def work():
    while True:
        p = library.offcut_malloc(ctypes.c_ssize_t(1 << 20), 0, None)
        library.offcut_free(p, 1 << 20, 0, None)
        begun.set()
torch.cuda.init()
threading.Thread(target=work, daemon=True).start()
begun.wait()
""",
    "sys.exit": "x = torch.empty(1 << 20, device='cuda'); sys.exit(0)",
    "os._exit": "x = torch.empty(1 << 20, device='cuda'); os._exit(0)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_ends_quietly(ending: str, tmp_path: Path) -> None:
    done = run(ENDINGS[ending], environment={"OFFCUT_RECORD": str(tmp_path)}, sim={"lag": "50ms"})
    assert done.stderr == ""


def test_a_spawned_process_may_enable_for_itself() -> None:
    done = run("""
        import subprocess
        x = torch.empty(1000, device="cuda")
        code = ("import torch, offcut; offcut.enable(); y = torch.empty(1, device='cuda'); "
                "print(torch.cuda.memory_allocated())")
        report(int(subprocess.check_output([sys.executable, "-c", code])))
    """)
    assert done.value >= 512
