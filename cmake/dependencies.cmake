# Everything that our C++ uses and did not write, once. liboffcut.so may hold only what is static
# and hidden: abseil, zstd and (headers only) xxhash. CLI11, nlohmann_json and zlib are for the
# `offcut` program, the rest for tests and benchmarks.

list(APPEND CMAKE_PREFIX_PATH ${OFFCUT_DEPS_DIR})

find_package(Threads REQUIRED)
find_package(absl CONFIG)
if(NOT absl_FOUND)
  message(FATAL_ERROR "abseil is not in OFFCUT_DEPS_DIR ('${OFFCUT_DEPS_DIR}'). `./dev build` sets that up and passes it.")
endif()
find_package(zstd CONFIG REQUIRED) # zstd::libzstd_static
find_package(CLI11 CONFIG REQUIRED) # CLI11::CLI11
find_package(nlohmann_json CONFIG REQUIRED) # nlohmann_json::nlohmann_json
find_package(ZLIB REQUIRED) # ZLIB::ZLIB
find_package(GTest CONFIG REQUIRED) # GTest::gmock_main
find_package(benchmark CONFIG REQUIRED) # benchmark::benchmark_main

# xxhash::xxhash: its functions are compiled into each file that includes <xxhash.h>, hence hidden.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(xxhash INTERFACE)
add_library(xxhash::xxhash ALIAS xxhash)
target_include_directories(xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_compile_definitions(xxhash INTERFACE XXH_INLINE_ALL)

# offcut::cuda_headers: CUDA's declarations. Nothing of CUDA is linked: the driver is found at run
# time.
add_library(offcut_cuda_headers INTERFACE)
add_library(offcut::cuda_headers ALIAS offcut_cuda_headers)
target_include_directories(offcut_cuda_headers SYSTEM INTERFACE ${OFFCUT_CUDA_INCLUDE_DIRS})
