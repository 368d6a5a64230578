"""Settings that a program changes while it runs, and limits, beside native's."""

from __future__ import annotations

from harness import run
from parity import both
from test_statistics_parity import differences

# Each holds for a while. What a call does not name goes back to its default, or stays, as natively.
SETTINGS = """
torch.cuda.init()
settings = {
    100: "max_split_size_mb:40",
    300: "roundup_power2_divisions:[256:4,512:2,>:1]",
    500: "max_split_size_mb:64,max_non_split_rounding_mb:30",
    700: "large_segment_size_mb:32",
    900: "garbage_collection_threshold:0.3",
    1100: "pinned_use_background_threads:False",
}
seen = []
for step in walk(seed=6, steps=1300):
    if step in settings:
        torch.cuda.memory._set_allocator_settings(settings[step])
    if step == 200:
        torch.cuda.set_per_process_memory_fraction(0.7)
    if step == 1200:
        torch.cuda.set_per_process_memory_fraction(1.0)
    if step % 5 == 0:
        seen.append(torch.cuda.memory_stats())
report(seen)
"""


def test_settings_and_fractions_act_at_once() -> None:
    native, ours = both(SETTINGS, sim={"memory": "2GiB"})
    assert differences(native, ours) == []
    assert max(stats["oversize_allocations.current"] for stats in native) > 0


def test_what_pytorch_refuses_changes_nothing() -> None:
    code = """
    torch.cuda.init()
    outcome = []
    for text in ("nonsense:1", "max_split_size_mb:1", "garbage_collection_threshold:2"):
        try:
            torch.cuda.memory._set_allocator_settings(text)
        except (ValueError, RuntimeError) as error:
            outcome.append([type(error).__name__, str(error).splitlines()[0]])
    kept = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
    outcome.append(torch.cuda.get_per_process_memory_fraction())
    for fraction in (2.0, -1.0):
        try:
            torch.cuda.set_per_process_memory_fraction(fraction)
        except ValueError as error:
            outcome.append(str(error))
    report([outcome, torch.cuda.memory_stats()])
    """
    native, ours = both(code)
    assert native == ours


def test_offcuts_own_variable_wins() -> None:
    done = run(
        """
        torch.cuda.init()
        torch.cuda.memory._set_allocator_settings("max_split_size_mb:40")
        kept = torch.empty(70 << 20, dtype=torch.uint8, device="cuda")
        report(torch.cuda.memory_stats()["oversize_allocations.current"])
        """,
        environment={"OFFCUT_CONF": "expandable_segments:False,max_split_size_mb:100"},
    )
    assert done.value == 0
