"""Blocks: out, back, kept for other streams; as PyTorch's users see them."""

from harness import MIB, run


def test_memory_is_reused_and_aligned() -> None:
    done = run("""
        seen = []
        for _ in range(3):
            x = torch.empty(5_000_001, dtype=torch.uint8, device="cuda")
            seen.append(x.data_ptr())
            del x
        report(seen)
    """)
    assert len(set(done.value)) == 1
    assert done.value[0] % 512 == 0


def test_data_survives_a_round_trip() -> None:
    done = run("""
        host = torch.arange(1 << 20, dtype=torch.int32)
        copies = [host.to("cuda") for _ in range(4)]
        del copies[1], copies[1]
        copies.append((host + 1).to("cuda"))
        report([torch.equal(copies[0].cpu(), host), torch.equal(copies[1].cpu(), host),
                torch.equal(copies[2].cpu(), host + 1)])
    """)
    assert done.value == [True, True, True]


def test_an_empty_tensor_takes_no_memory() -> None:
    done = run("""
        x = torch.empty(0, device="cuda")
        report([x.data_ptr(), torch.cuda.memory_allocated()])
    """)
    assert done.value == [0, 0]


def test_a_block_used_on_another_stream_is_not_reused_before_that_stream_has_passed() -> None:
    done = run(
        """
        side = torch.cuda.Stream()
        x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        first = x.data_ptr()
        with torch.cuda.stream(side):
            x.fill_(1)
        x.record_stream(side)
        del x
        stats = torch.cuda.memory_stats()
        pending = stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"]
        y = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        z = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        report([pending, y.data_ptr() != first, z.data_ptr() == first,
                stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"]])
        """,
        sim={"lag": "500ms"},
    )
    assert done.value == [32 * MIB, True, True, 0]


def test_a_block_used_on_a_stream_of_a_peer_is_not_reused_before_that_stream_has_passed() -> None:
    done = run(
        """
        def reused(record):
            x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda:0")
            first = x.data_ptr()
            with torch.cuda.device(1):
                side = torch.cuda.Stream()
                with torch.cuda.stream(side):
                    torch.ones(1, device="cuda:1")
            if record:
                x.record_stream(side)
            torch.cuda.synchronize(0)
            del x
            before = torch.empty(32 << 20, dtype=torch.uint8, device="cuda:0").data_ptr()
            torch.cuda.synchronize(1)
            after = torch.empty(32 << 20, dtype=torch.uint8, device="cuda:0").data_ptr()
            return [before == first, after == first]
        report([reused(False), reused(True)])
        """,
        sim={"lag": "500ms", "devices": 2},
    )
    assert done.value == [[True, True], [False, True]]


def test_recording_the_own_stream_changes_nothing() -> None:
    done = run(
        """
        x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        first = x.data_ptr()
        x.record_stream(torch.cuda.current_stream())
        del x
        y = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        report(y.data_ptr() == first)
        """,
        sim={"lag": "500ms"},
    )
    assert done.value is True


def test_streams_do_not_share_free_blocks() -> None:
    done = run(
        """
        x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        first = x.data_ptr()
        del x
        with torch.cuda.stream(torch.cuda.Stream()):
            y = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        report(y.data_ptr() != first)
        """,
        sim={"lag": "500ms"},
    )
    assert done.value is True


def test_empty_cache_gives_idle_memory_back() -> None:
    done = run("""
        x = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        keep = torch.empty(2 << 20, dtype=torch.uint8, device="cuda")
        full = torch.cuda.memory_reserved()
        free_before = torch.cuda.mem_get_info()[0]
        del x
        idle = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        report([full, idle, torch.cuda.memory_reserved(),
                torch.cuda.mem_get_info()[0] - free_before])
    """)
    full, idle, after, given_back = done.value
    assert full >= 258 * MIB
    assert idle == full
    assert 2 * MIB <= after <= 16 * MIB
    assert given_back == full - after


def test_empty_cache_before_cuda_is_initialised_does_nothing() -> None:
    assert run("torch.cuda.empty_cache(); report(torch.cuda.is_initialized())").value is False


def test_caching_allocator_alloc_and_delete() -> None:
    done = run("""
        torch.cuda.init()
        stream = torch.cuda.Stream()
        p = torch.cuda.caching_allocator_alloc(3 << 20, stream=stream)
        held = torch.cuda.memory_allocated()
        torch.cuda.caching_allocator_delete(p)
        report([held, torch.cuda.memory_allocated()])
    """)
    assert done.value == [3 * MIB, 0]


def test_deleting_a_foreign_pointer_raises_and_is_counted() -> None:
    done = run("""
        x = torch.empty(1 << 20, device="cuda")
        message = ""
        try:
            torch.cuda.caching_allocator_delete(x.data_ptr() + 512)
        except RuntimeError as error:
            message = str(error)
        p = torch.cuda.caching_allocator_alloc(1 << 20)
        torch.cuda.caching_allocator_delete(p)
        again = ""
        try:
            torch.cuda.caching_allocator_delete(p)
        except RuntimeError as error:
            again = str(error)
        report([message, again, offcut.counters()["invalid_frees"], torch.cuda.memory_allocated()])
    """)
    message, again, counted, live = done.value
    assert "invalid device pointer" in message
    assert "invalid device pointer" in again
    assert counted == 2
    assert live == 4 * MIB


def test_every_tensor_has_the_standard_deleter() -> None:
    done = run("""
        x = torch.empty(1000, device="cuda")
        report(torch._C._has_Standard_Deleter(x.untyped_storage()._cdata))
    """)
    assert done.value is True


def test_cudnn_asks_for_the_largest_free_block() -> None:
    # cacheInfo is reached from Python by nothing but cuDNN's benchmark; the value is ours.
    done = run("""
        x = torch.empty(96 << 20, dtype=torch.uint8, device="cuda")
        del x
        import ctypes
        from offcut import _library
        out = ctypes.c_size_t()
        status = _library.load().offcut_largest_free_block(0, ctypes.byref(out))
        report([status, out.value])
    """)
    status, largest = done.value
    assert status == 0
    assert largest >= 96 * MIB


def test_tensors_on_two_devices() -> None:
    done = run(
        """
        a = torch.arange(1 << 18, device="cpu").to("cuda:0")
        b = torch.empty(1 << 20, dtype=torch.uint8, device="cuda:1")
        assert b.device.index == 1
        report([torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)])
        """,
        sim={"devices": 2},
    )
    assert done.value == [2 * MIB, MIB]


def test_the_profiler_is_told_of_memory() -> None:
    done = run("""
        from torch.profiler import ProfilerActivity, profile
        torch.cuda.init()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            x = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
            del x
        totals = [e.device_memory_usage for e in p.events() if e.device_memory_usage]
        report([max(totals), min(totals)])
    """)
    assert done.value == [8 * MIB, -8 * MIB]


def test_the_cuda_trace_is_told_of_memory() -> None:
    done = run("""
        import torch.cuda._gpu_trace as gpu_trace
        seen = []
        gpu_trace.register_callback_for_memory_allocation(lambda p: seen.append(["alloc", p]))
        gpu_trace.register_callback_for_memory_deallocation(lambda p: seen.append(["free", p]))
        torch._C._activate_gpu_trace()
        x = torch.empty(1 << 20, device="cuda")
        pointer = x.data_ptr()
        del x
        report(seen == [["alloc", pointer], ["free", pointer]])
    """)
    assert done.value is True
