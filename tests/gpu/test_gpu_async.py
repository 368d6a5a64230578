"""The async layout on hardware: the driver's own pools, as no simulation can promise them."""

from __future__ import annotations

from typing import Any

from harness import run

ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


def on_hardware(code: str, **options: Any) -> Any:
    return run(code, machine="gpu", environment=ASYNC, **options).value


TRAINING = """
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(),
                                torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(30):
        x = torch.randn(64 + 32 * (step % 7), 1024, device="cuda")
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    report([losses, torch.cuda.get_allocator_backend(), torch.cuda.memory_reserved() > 0])
"""


def test_losses_are_those_of_pytorchs_own_to_the_bit() -> None:
    deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    stock, again, ours = (
        run(TRAINING, machine="gpu", enable=enable, environment={**ASYNC, **deterministic}).value
        for enable in (False, False, True)
    )
    assert stock == again, "this machine cannot tell"
    assert ours == stock
    assert ours[0][-1] < ours[0][0], "the model learns"


def test_a_block_is_kept_until_the_other_stream_has_read_it() -> None:
    assert (
        on_hardware("""
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
        report(wrong)
    """)
        == 0
    )


def test_streams_hand_memory_over_in_order() -> None:
    # The driver's own reuse between streams, as its options allow: no value is overwritten early.
    assert (
        on_hardware("""
        streams = [torch.cuda.Stream() for _ in range(4)]
        wrong = 0
        for n in range(400):
            with torch.cuda.stream(streams[n % 4]):
                x = torch.full((8 << 20,), float(n), device="cuda")
                torch.cuda._sleep(200_000)
                y = x.clone()
                del x
                wrong += int((y != n).sum()) if n % 50 == 49 else 0
                del y
        torch.cuda.synchronize()
        report(wrong)
    """)
        == 0
    )


def test_a_captured_graph_gives_right_values_and_leaves_no_memory() -> None:
    wrong, leaked = on_hardware("""
        x = torch.ones(8 << 20, device="cuda")
        side = torch.cuda.Stream()
        # What the first graph of a process loads is none of its memory.
        warm = torch.cuda.CUDAGraph()
        with torch.cuda.graph(warm):
            w = x + 1
        warm.replay()
        del warm, w
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        wrong = 0
        for n in range(10):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x * 2
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    z = y + 1
                    y.record_stream(side)
                torch.cuda.current_stream().wait_stream(side)
                del y
                out = z + x
                del z
            for _ in range(5):
                x.add_(1)
                graph.replay()
                torch.cuda.synchronize()
                wrong += int((out != 3 * x + 1).sum())
            x.fill_(1)
            del out
            graph.replay()
            del graph
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        report([wrong, before - torch.cuda.mem_get_info()[0]])
    """)
    assert wrong == 0
    # The driver keeps what graphs held for the next ones (cuDeviceGraphMemTrim), once.
    assert leaked <= 256 << 20, "ten graphs of 64 MiB and more each"


def test_pools_of_their_own_and_the_cache_go_back_to_the_device() -> None:
    held, left = on_hardware("""
        x = torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        free = torch.cuda.mem_get_info()[0]
        big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            y = torch.full((256 << 20,), 7, dtype=torch.uint8, device="cuda")
        held = free - torch.cuda.mem_get_info()[0]
        assert int((y != 7).sum()) == 0
        del big, y, pool
        torch.cuda.empty_cache()
        report([held, free - torch.cuda.mem_get_info()[0]])
    """)
    assert held >= (1 << 30) + (256 << 20)
    assert left <= 32 << 20


def test_out_of_memory_is_raised_and_training_goes_on() -> None:
    raised, again = on_hardware("""
        torch.cuda.set_per_process_memory_fraction(0.05)
        kept, raised = [], 0
        for _ in range(3):
            try:
                while True:
                    kept.append(torch.empty(300 << 20, dtype=torch.uint8, device="cuda"))
            except torch.cuda.OutOfMemoryError:
                raised += 1
            kept.clear()
        again = torch.ones(1 << 20, device="cuda")
        total = torch.cuda.get_device_properties(0).total_memory
        report([raised, float(again.sum()) == 1 << 20
                and torch.cuda.max_memory_reserved() <= total // 20 + (64 << 20)])
    """)
    assert raised == 3
    assert again
