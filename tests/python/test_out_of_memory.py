"""Memory runs out: the exception, what it says, and life after it."""

from pathlib import Path

from harness import inspect, offcut_program, run

CATCH = """
def attempt(size, device="cuda"):
    try:
        return torch.empty(size, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:
        return str(error)
"""


def test_raises_pytorchs_exception_with_our_report() -> None:
    done = run(
        CATCH + "x = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')\n"
        "report(attempt(64 << 30))",
        sim={"memory": "8GiB"},
    )
    first = done.value.split("\n")[0]
    assert first.startswith(
        "CUDA out of memory. Tried to allocate 64.00 GiB. "
        "GPU 0 has a total capacity of 8.00 GiB of which "
    )
    assert "live" in done.value
    assert "reserved" in done.value


def test_recovers_after_it() -> None:
    done = run(
        CATCH
        + """
x = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
message = attempt(4 << 30)
del x
y = attempt(6 << 30)
stats = torch.cuda.memory_stats()
report([isinstance(message, str), isinstance(y, torch.Tensor), stats["num_ooms"],
        torch.cuda.memory_allocated()])
""",
        sim={"memory": "8GiB"},
    )
    assert done.value == [True, True, 1, 6 << 30]


def test_idle_memory_of_another_size_is_reclaimed_before_failing() -> None:
    done = run(
        CATCH
        + """
parts = [torch.empty(512 << 20, dtype=torch.uint8, device="cuda") for _ in range(12)]
del parts
whole = attempt(6 << 30)
report(isinstance(whole, torch.Tensor))
""",
        sim={"memory": "8GiB"},
    )
    assert done.value is True


def test_the_memory_fraction_is_a_limit_and_can_be_lifted() -> None:
    done = run(
        CATCH
        + """
torch.cuda.set_per_process_memory_fraction(0.25)
fraction = torch.cuda.get_per_process_memory_fraction()
small = attempt(1 << 30)
message = attempt(2 << 30)
reserved = torch.cuda.memory_reserved()
torch.cuda.set_per_process_memory_fraction(1.0)
big = attempt(2 << 30)
report([fraction, isinstance(small, torch.Tensor), message.startswith("CUDA out of memory."),
        reserved <= 2 << 30, isinstance(big, torch.Tensor)])
""",
        sim={"memory": "8GiB"},
    )
    assert done.value == [0.25, True, True, True, True]


def test_a_fraction_that_makes_no_sense_is_refused() -> None:
    done = run("""
        try:
            torch.cuda.set_per_process_memory_fraction(1.5)
        except ValueError as error:
            report(str(error))
    """)
    assert "1.5" in done.value


def test_an_absurd_size_is_refused_in_pytorchs_words() -> None:
    done = run(CATCH + "report(attempt(1 << 60))")
    assert "Tried to allocate more than 1EB memory" in done.value


def test_observers_are_told() -> None:
    done = run(
        CATCH
        + """
seen = []
torch.cuda.init()
torch._C._cuda_attach_out_of_memory_observer(lambda *values: seen.append(values))
attempt(64 << 30)
report(seen)
""",
        sim={"memory": "8GiB"},
    )
    ((device, size, total, free),) = done.value
    assert (device, size) == (0, 64 << 30)
    assert free <= total == 8 << 30


def test_an_error_in_one_thread_leaves_the_others_report_alone() -> None:
    done = run(
        CATCH
        + """
import threading
torch.cuda.init()
sizes = [(16 + n) << 30 for n in range(4)]
messages = {}
def work(size):
    for _ in range(20):
        messages.setdefault(size, set()).add(attempt(size).split(". GPU")[0])
threads = [threading.Thread(target=work, args=(size,)) for size in sizes]
for t in threads: t.start()
for t in threads: t.join()
report([sorted(messages[size]) for size in sizes])
""",
        sim={"memory": "8GiB"},
    )
    assert done.value == [
        [f"CUDA out of memory. Tried to allocate {16 + n}.00 GiB"] for n in range(4)
    ]


def test_out_of_memory_within_mib_of_the_end() -> None:
    # The last granules are usable: what is free for us is what the device reports.
    done = run(
        CATCH
        + """
torch.cuda.init()
torch.empty(1, device="cuda")
free = torch.cuda.mem_get_info()[0]
x = attempt(free - (64 << 20))
report(isinstance(x, torch.Tensor))
""",
        sim={"memory": "4GiB"},
    )
    assert done.value is True


def test_the_whole_report_is_a_private_file_and_stands_in_the_recording(tmp_path: Path) -> None:
    done = run(
        CATCH
        + """
x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
first = attempt(64 << 30)
for _ in range(40):
    last = attempt(32 << 30)
report([first, last])
""",
        sim={"memory": "8GiB"},
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    first, last = (Path(message.split("The whole report: ")[1]) for message in done.value)
    (recording,) = tmp_path.iterdir()
    assert first.parent == last.parent == recording
    for path, size in ((first, "64.00 GiB"), (last, "32.00 GiB")):
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text()
        assert f"a request of {size}" in text
        assert "Pools (this request's: #0)" in text
    assert len(list(recording.glob("out-of-memory-*"))) == 16
    reports = inspect(tmp_path)["devices"][0]["failure_reports"]
    assert reports[-1]["text"] == last.read_text()
    assert "Pools (this request's: #0)" in offcut_program("inspect", tmp_path)
    offcut_program("check", tmp_path)
    page = tmp_path / "report.html"
    offcut_program("report", recording, "-o", page)
    assert "Pools (this request's: #0)" in page.read_text()


def test_without_a_recording_there_is_no_file_to_name() -> None:
    done = run(CATCH + "report(attempt(64 << 30))", sim={"memory": "8GiB"})
    assert "The whole report" not in done.value


def test_memory_out_beside_a_capture_says_so_and_leaves_the_capture_alone() -> None:
    done = run(
        CATCH
        + """
held = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    del held
    inside = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    message = attempt(7 << 30)
graph.replay()
torch.cuda.synchronize()
after = attempt(7 << 30)
report([message, isinstance(after, torch.Tensor)])
""",
        sim={"memory": "8GiB"},
    )
    message, served = done.value
    assert "a stream is being captured into a CUDA graph" in message
    assert served
