"""The simulated CUDA's list of functions against what the installed PyTorch asks for."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch
from harness import PACKAGE, ROOT

LIST = ROOT / "allocator" / "sim" / "cuda_abi" / "functions_13.def"
# What torch's libraries import of libraries that are absent as a whole: the real ones answer, and
# get no further than the creation of a handle, which is refused.
OF_ABSENT_LIBRARIES = re.compile(r"cudnn|cufft|curand|cusolver|cusparse|cupti")
OF_CUDA = re.compile(r"(__)?cuda[A-Z]|cu[A-Z]|cublas")


def listed() -> dict[str, str]:
    rows = re.findall(r"^CUDA_FUNCTION\((\w+), \w+, (\w+)\)$", LIST.read_text(), re.MULTILINE)
    return {name: behaviour for behaviour, name in rows}


def dynamic_symbols(library: Path, which: str) -> set[str]:
    done = subprocess.run(
        ["nm", "--dynamic", which, "--format=just-symbols", library],
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.split("@")[0] for line in done.stdout.splitlines()}


def torch_libraries() -> list[Path]:
    return sorted((Path(torch.__file__).parent / "lib").glob("lib*.so"))


def test_the_list_is_sorted_and_names_each_function_once() -> None:
    rows = re.findall(r"^CUDA_FUNCTION\(\w+, (\w+), (\w+)\)$", LIST.read_text(), re.MULTILINE)
    names = [name for _, name in rows]
    assert len(names) == len(set(names))
    for library in {library for library, _ in rows}:
        of_library = [name.strip("_") for each, name in rows if each == library]
        assert of_library == sorted(of_library), library


def test_the_list_holds_every_function_that_torch_imports() -> None:
    wanted = {
        name
        for library in torch_libraries()
        for name in dynamic_symbols(library, "--undefined-only")
        if OF_CUDA.match(name) and not OF_ABSENT_LIBRARIES.match(name)
    }
    assert len(wanted) > 200, "nm found the imports"
    assert wanted - listed().keys() == set()


def test_the_list_holds_every_function_of_the_runtime() -> None:
    packages = Path(torch.__file__).parents[1]
    (runtime,) = packages.glob("nvidia/cu13/lib/libcudart.so.13")
    exported = {name for name in dynamic_symbols(runtime, "--defined-only") if OF_CUDA.match(name)}
    assert len(exported) > 400
    assert exported - listed().keys() == set()


def test_the_list_holds_what_torch_looks_up_in_the_driver() -> None:
    text = (Path(torch.__file__).parent / "lib" / "libc10_cuda.so").read_bytes()
    wanted = {name.decode() for name in re.findall(rb"\0(cu[A-Z][A-Za-z0-9]+)(?=\0)", text)}
    assert "cuMemCreate" in wanted
    known = {re.sub(r"_v\d$", "", name) for name in listed()}
    assert wanted - known == set()


def test_the_library_exports_the_list_and_nothing_else() -> None:
    library = PACKAGE / "lib" / "liboffcut_cudasim.so"
    assert dynamic_symbols(library, "--defined-only") == set(listed())


def test_the_library_needs_only_the_system() -> None:
    done = subprocess.run(
        ["readelf", "--dynamic", PACKAGE / "lib" / "liboffcut_cudasim.so"],
        check=True,
        capture_output=True,
        text=True,
    )
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))
    assert needed <= {
        "libc.so.6",
        "libm.so.6",
        "libstdc++.so.6",
        "libgcc_s.so.1",
        "ld-linux-x86-64.so.2",
    }
    assert re.findall(r"\(SONAME\).*\[(.*)\]", done.stdout) == ["libcuda.so.1"]


@pytest.mark.parametrize("name", ["cuInit", "cudaMalloc", "cublasCreate_v2"])
def test_the_library_loads_without_torch(name: str) -> None:
    assert getattr(ctypes.CDLL(str(PACKAGE / "lib" / "liboffcut_cudasim.so")), name)
