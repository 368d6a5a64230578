"""What the simulated GPU does not do: it says so by name, and PyTorch raises."""

import pytest
from harness import run

OUTCOMES = """
import ctypes
runtime = ctypes.CDLL(None)
host = ctypes.create_string_buffer(64)
x = torch.zeros(1000, device="cuda")

def outcome(code):
    try:
        return repr(eval(code))
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"

report([outcome(code) for code in %r])
"""

# Each with what standard error says and what the exception says.
ABSENT = {
    "torch.nn.LSTM(8, 8).cuda()(torch.zeros(4, 2, 8, device='cuda'))": ("cuDNN", "cuDNN is not"),
    "torch.cuda.nccl.unique_id()": ("NCCL", "NCCL is not"),
    "torch.fft.fft(torch.zeros(16, device='cuda'))": ("cuFFT", "cuFFT"),
    "torch.linalg.cholesky(torch.eye(4, device='cuda'))": ("cuSOLVER", "cusolver"),
    "torch.sparse.mm(torch.sparse_coo_tensor([[0], [0]], [1.0], (8, 8), device='cuda'), "
    "torch.eye(8, device='cuda'))": ("cuSPARSE", "cuSPARSE is not"),
    "torch.zeros(9, device='cuda').untyped_storage()._share_cuda_()": (
        "cudaIpcGetMemHandle",
        "not supported",
    ),
}


def test_what_is_not_simulated_fails_by_name() -> None:
    done = run("torch.backends.cudnn.enabled = True" + OUTCOMES % list(ABSENT), enable=False)
    for (name, text), outcome in zip(ABSENT.values(), done.value, strict=True):
        assert f"simulated CUDA: {name} is not simulated" in done.stderr
        assert outcome.startswith("raised ")
        assert text in outcome


def test_attention_by_cudnn_says_how_to_do_without() -> None:
    done = run(
        """
        torch.backends.cudnn.enabled = True
        torch.backends.cuda.enable_cudnn_sdp(True)
        q = torch.zeros(2, 8, 64, 64, device="cuda", dtype=torch.bfloat16)
        try:
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        except RuntimeError as error:
            report(str(error))
        """,
        enable=False,
    )
    assert "enable_cudnn_sdp(False)" in done.value


def test_nvml_fails_by_name_but_not_inside_an_out_of_memory_error() -> None:
    done = run(
        """
        import ctypes
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            said = str(error)
        count = ctypes.c_uint(7)
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        report([said, nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), count.value])
        """,
        enable=False,
    )
    assert "Tried to allocate 1024.00 GiB" in done.value[0]
    assert done.value[1:] == [3, 7]
    assert "simulated CUDA: NVML is not simulated" in done.stderr


@pytest.mark.parametrize("text", ["H300", "H200,memory=80", "H200,colour=red"])
def test_a_machine_that_does_not_exist_is_no_device(text: str) -> None:
    done = run(
        """
        available = torch.cuda.is_available()
        try:
            torch.zeros(1, device="cuda")
        except Exception as error:
            report([available, type(error).__name__])
        """,
        enable=False,
        environment={"OFFCUT_SIM": text},
    )
    assert done.value == [False, "RuntimeError"]
    assert done.stderr.count("simulated CUDA: OFFCUT_SIM") == 1


MISUSE = {
    "runtime.cudaMemcpy(ctypes.c_void_p(x.data_ptr()), host, ctypes.c_size_t(1 << 30), 1)": "1",
    "runtime.cudaMemcpy(ctypes.c_void_p(0x1000), host, ctypes.c_size_t(8), 1)": "1",
    "runtime.cudaMemset(ctypes.c_void_p(x.data_ptr()), 0, ctypes.c_size_t(1 << 30))": "1",
    "runtime.cudaFree(ctypes.c_void_p(x.data_ptr() + 512))": "1",
    "runtime.cudaStreamSynchronize(ctypes.c_void_p(0x1234560))": "400",
}


def test_misuse_fails_says_what_was_wrong_and_harms_nothing() -> None:
    done = run(
        OUTCOMES % list(MISUSE)
        + """
runtime.cudaGetLastError()
report(torch.zeros(1000, device="cuda").cpu().sum().item())
""",
        enable=False,
    )
    assert done.reports == [list(MISUSE.values()), 0.0]
    assert done.stderr.count("simulated CUDA: ") == len(MISUSE)
