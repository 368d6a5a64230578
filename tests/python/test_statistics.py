"""torch.cuda's statistics, beside native's for the same program."""

from harness import run

PROGRAM = """
torch.cuda.init()
kept = [torch.empty(size, dtype=torch.uint8, device="cuda")
        for size in (1, 511, 512, 513, 100_000, 1 << 20, (1 << 20) + 1, 5_000_000, 50_000_000)]
for size in (700, 3_000_000, 20_000_000):
    torch.empty(size, dtype=torch.uint8, device="cuda")
del kept[::2]
"""


def test_all_keys_are_there() -> None:
    keys = {}
    for name, enable in (("native", False), ("offcut", True)):
        keys[name] = run(
            "torch.cuda.init(); report(list(torch.cuda.memory_stats()))", enable=enable
        ).value
    assert len(keys["native"]) == 122
    assert keys["offcut"] == keys["native"]


def test_what_the_program_did_is_counted_as_native_counts_it() -> None:
    native, ours = (
        run(PROGRAM + "report(torch.cuda.memory_stats())", enable=enable).value
        for enable in (False, True)
    )
    for key in native:
        array = key.split(".")[0]
        if array in ("allocation", "active", "requested_bytes"):
            assert ours[key] == native[key], key
    for key in ("allocated_bytes.all.current", "active_bytes.all.current"):
        assert native[key] <= ours[key] <= 1.2 * native[key], key
    # Arenas are no segments: nothing in them keeps a piece from being given back but its granule.
    for key in ("segment", "inactive_split", "inactive_split_bytes"):
        assert ours[f"{key}.all.current"] == 0, key
    assert ours["max_split_size"] == native["max_split_size"]
    assert ours["num_ooms"] == 0


def test_peaks_and_totals_are_reset() -> None:
    done = run(
        PROGRAM
        + """
before = torch.cuda.memory_stats()
torch.cuda.reset_peak_memory_stats()
torch.cuda.reset_accumulated_memory_stats()
after = torch.cuda.memory_stats()
report([before, after])
"""
    )
    before, after = done.value
    assert before["requested_bytes.all.peak"] > after["requested_bytes.all.peak"]
    for key, value in after.items():
        if key.endswith(".peak"):
            assert value == after[key.removesuffix("peak") + "current"], key
            assert value == before[key.removesuffix("peak") + "current"], key
        if key.endswith((".allocated", ".freed")):
            assert value == 0, key
    assert after["num_device_alloc"] == 0


def test_memory_summary_works() -> None:
    done = run(PROGRAM + "report(torch.cuda.memory_summary())")
    assert "Requested memory" in done.value


def test_a_device_without_allocations_is_all_zero() -> None:
    done = run("torch.cuda.init(); report(torch.cuda.memory_stats(1))", sim={"devices": 2})
    assert set(done.value.values()) <= {0, -1}


def test_counters_and_accounting_agree_with_torch() -> None:
    done = run(
        PROGRAM
        + """
report([torch.cuda.memory_stats(), offcut.counters(), offcut.accounting(),
        list(torch.cuda.mem_get_info())])
"""
    )
    stats, counters, accounting, (free, total) = done.value
    for pool, index in (("all", "all"), ("small_pool", "small"), ("large_pool", "large")):
        live = counters["live_bytes"][index]  # [current, peak, risen, fallen]
        assert live[:2] == [stats[f"requested_bytes.{pool}.{k}"] for k in ("current", "peak")]
    parts = (
        "live_bytes",
        "rounding_bytes",
        "pending_bytes",
        "private_pools_free_bytes",
        "pinned_bytes",
        "idle_bytes",
        "driver_pool_free_bytes",
    )
    assert sum(accounting[part] for part in parts) == accounting["reserved_bytes"]
    assert accounting["reserved_bytes"] == stats["reserved_bytes.all.current"]
    assert accounting["live_bytes"] == stats["requested_bytes.all.current"]
    assert accounting["reserved_bytes"] + accounting["outside_bytes"] == total - free
    assert accounting["device_used_bytes"] == total - free


def test_counters_list_is_the_librarys_own() -> None:
    done = run("torch.empty(1, device='cuda'); report(offcut.counters())")
    assert done.value["device_total_bytes"] == 150109880320
    assert done.value["limit_bytes"] == 2**64 - 1
    assert done.value["device_used_bytes"] > 0


def test_an_unknown_device_is_refused() -> None:
    done = run("""
        try:
            offcut.counters(-3)
        except offcut.Error as error:
            report(str(error))
    """)
    assert "-3" in done.value
