"""The plugin on hardware: what the simulated GPU cannot show, because its kernels do nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from harness import LIBRARY, inspect, offcut_program, on_gpu, program_text, run

if TYPE_CHECKING:
    from pathlib import Path


def on_hardware(code: str, **options: Any) -> Any:
    return run(code, machine="gpu", **options).value


def test_values_are_right() -> None:
    assert on_hardware("""
        x = torch.arange(10_000_000, device="cuda", dtype=torch.float64)
        parts = [x * n for n in range(5)]
        del parts[2]
        parts.append(x + 1)
        report([float(part.sum()) for part in parts])
    """) == [n * 49999995000000.0 for n in (0, 1, 3, 4)] + [50000005000000.0]


def test_a_block_is_kept_until_the_other_stream_has_read_it() -> None:
    # Without record_stream's wait, `y` would take the memory of `x` and overwrite it.
    assert on_hardware("""
        side = torch.cuda.Stream()
        wrong = 0
        for _ in range(20):
            x = torch.ones(16 << 20, device="cuda")
            seen = torch.zeros_like(x)
            seen.record_stream(side)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                seen.copy_(x)
            x.record_stream(side)
            del x
            y = torch.full((16 << 20,), 2.0, device="cuda")
            side.synchronize()
            wrong += int((seen != 1).sum())
            del y, seen
        report([wrong, offcut.counters()["stream_uses"]])
    """) == [0, 40]


def test_a_plain_free_on_one_stream_is_reused_at_once_and_in_order() -> None:
    assert (
        on_hardware("""
        wrong = 0
        for n in range(200):
            x = torch.full((4 << 20,), float(n), device="cuda")
            torch.cuda._sleep(100_000)
            y = x.clone()
            del x
            z = torch.full((4 << 20,), -1.0, device="cuda")  # takes x's place
            wrong += int((y != n).sum())
            del y, z
        report(wrong)
    """)
        == 0
    )


def test_memory_moves_between_sizes_without_a_wrong_word() -> None:
    # Holes of one size have to serve another: granules move, and the data beside them must stay.
    value = on_hardware("""
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, (4 << 30) / total))
        kept, wrong = [], 0
        for n in range(60):
            x = torch.full((10 << 20,), float(n), device="cuda")  # 40 MiB
            if n % 2:
                kept.append((n, x))
        del x
        for n in range(3):
            big = torch.full((150 << 20,), -1.0, device="cuda")  # 600 MiB
            wrong += sum(int((x != n).sum()) for n, x in kept)
            kept = kept[::2]
            del big
        report([wrong, torch.cuda.memory_stats()["num_ooms"]])
    """)
    assert value == [0, 0]


def test_out_of_memory_by_fraction_raises_and_is_recovered_from() -> None:
    message, values = on_hardware("""
        torch.cuda.set_per_process_memory_fraction(0.05)
        limit = int(0.05 * torch.cuda.mem_get_info()[1])
        x = torch.empty(limit // 2, dtype=torch.uint8, device="cuda")
        message = ""
        try:
            torch.empty(limit, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            message = str(error)
        del x
        y = torch.full((limit * 9 // 10,), 7, dtype=torch.uint8, device="cuda")
        report([message, [int(y.min()), int(y.max())]])
    """)
    assert message.startswith("CUDA out of memory. Tried to allocate")
    assert values == [7, 7]


def test_out_of_memory_of_the_device_raises_and_is_recovered_from() -> None:
    assert on_hardware("""
        total = torch.cuda.mem_get_info()[1]
        blocks, failed = [], False
        try:
            while True:
                blocks.append(torch.empty(total // 10, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            failed = True
        held = len(blocks)
        del blocks
        whole = torch.full((total * held // 12,), 3, dtype=torch.uint8, device="cuda")
        report([failed, held >= 5, int(whole.min()), int(whole.max())])
    """) == [True, True, 3, 3]


def test_threads_and_streams_share_the_device() -> None:
    assert on_hardware("""
        import random, threading
        torch.cuda.init()
        wrong = []
        def work(seed):
            sizes = random.Random(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                for n in range(150):
                    x = torch.full((sizes.randrange(1, 1 << 20),), float(n), device="cuda")
                    y = x + seed
                    del x
                    if int((y != n + seed).sum()):
                        wrong.append(n)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for t in threads: t.start()
        for t in threads: t.join()
        torch.cuda.empty_cache()
        report([wrong, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
    """) == [[], 0, 0]


def test_serves_as_a_pluggable_allocator() -> None:
    assert on_hardware(
        f"""
        from torch.cuda.memory import CUDAPluggableAllocator, change_current_allocator
        change_current_allocator(
            CUDAPluggableAllocator({str(LIBRARY)!r}, "offcut_malloc", "offcut_free"))
        x = torch.arange(1000, device="cuda")
        report([int((x + x).sum()), offcut.counters()["allocations"]["all"].risen > 0])
        """,
        enable=False,
    ) == [999000, True]


def test_the_recording_of_a_run_is_whole(tmp_path: Path) -> None:
    counters = on_hardware(
        """
        for n in range(50):
            offcut.step(n)
            x = torch.ones(n * 100_000 + 1, device="cuda")
            y = x @ x
            del x
        report(offcut.counters())
        os._exit(0)
        """,
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    offcut_program("check", tmp_path)
    inspected = inspect(tmp_path)
    assert inspected["allocations"] == counters["allocations"]["all"][2]
    assert inspected["peak_reserved_bytes"] == counters["reserved_bytes"]["all"][1]
    assert inspected["accounting"]["outside_bytes"] > 0


def test_a_killed_run_leaves_a_readable_recording(tmp_path: Path) -> None:
    text = program_text(
        """
x = torch.ones(1 << 20, device="cuda")
while True:
    for size in range(1000, 200_000, 1000):
        x[:size].clone()
    report(offcut.counters()["allocations"]["all"].risen)
""",
        enable=True,
    )
    with subprocess.Popen(
        [sys.executable, "-c", text],
        env={**on_gpu(), "OFFCUT_RECORD": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        seen = 0
        while seen < 50_000:
            seen = int(process.stdout.readline().removeprefix("REPORT "))
        process.send_signal(signal.SIGKILL)
    offcut_program("check", tmp_path)
    assert inspect(tmp_path)["allocations"] >= seen


def test_cudnn_chooses_its_algorithm_by_the_largest_free_block() -> None:
    # benchmark mode asks the allocator (cacheInfo); a pluggable allocator fails here.
    assert (
        on_hardware("""
        torch.backends.cudnn.enabled = True
        torch.backends.cudnn.benchmark = True
        convolution = torch.nn.Conv2d(3, 8, 3, padding=1).to("cuda")
        image = torch.randn(4, 3, 64, 64, device="cuda")
        seen = convolution(image)
        torch.backends.cudnn.enabled = False
        report(bool(torch.allclose(seen, convolution(image), atol=1e-2)))
    """)
        is True
    )
