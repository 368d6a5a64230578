"""The order of things on the simulated GPU, as stock PyTorch sees it."""

from harness import MIB, run


def test_an_event_is_done_when_the_device_has_caught_up() -> None:
    done = run(
        """
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.zeros(1000, device="cuda")
        end.record()
        before = end.query()
        end.synchronize()
        report([before, end.query(), start.elapsed_time(end) >= 0])
        """,
        enable=False,
        sim={"lag": "1000s"},
    )
    assert done.value == [False, True, True]


def test_a_recorded_stream_keeps_a_block_until_the_device_has_passed() -> None:
    done = run(
        """
        side = torch.cuda.Stream()
        x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        first = x.data_ptr()
        with torch.cuda.stream(side):
            x.fill_(1)
        x.record_stream(side)
        del x
        y = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        z = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        report([y.data_ptr() == first, z.data_ptr() == first])
        """,
        enable=False,
        sim={"lag": "1000s"},
    )
    assert done.value == [False, True]


def test_a_graph_is_captured_and_replayed() -> None:
    done = run(
        """
        x = torch.zeros(1 << 20, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2 + 1
        graph.replay()
        torch.cuda.synchronize()
        report([list(y.shape), torch.cuda.memory_reserved()])
        """,
        enable=False,
    )
    assert done.value[0] == [1 << 20]
    assert done.value[1] >= 12 * MIB
    assert "graph is empty" not in done.stderr.lower()


def test_a_layer_is_made_into_graphs() -> None:
    done = run(
        """
        layer = torch.nn.Linear(64, 64).cuda()
        sample = torch.zeros(8, 64, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(layer, (sample,))
        out = graphed(torch.zeros(8, 64, device="cuda", requires_grad=True))
        out.sum().backward()
        report(list(layer.weight.grad.shape))
        """,
        enable=False,
    )
    assert done.value == [64, 64]
    assert "Graph is empty" not in done.stderr


def test_a_memory_pool_is_apart() -> None:
    done = run(
        """
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.zeros(1 << 20, device="cuda")
        y = torch.zeros(1 << 20, device="cuda")
        segments = pool.snapshot()
        report([len(segments), segments[0]["address"] <= x.data_ptr(),
                segments[0]["address"] <= y.data_ptr()
                < segments[0]["address"] + segments[0]["total_size"]])
        """,
        enable=False,
    )
    assert done.value == [1, True, False]
