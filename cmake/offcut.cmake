# The functions by which each folder declares its targets.

# Warnings for our own code. Lack of designated fields in an initialiser is how we write defaults.
add_library(offcut_warnings INTERFACE)
target_compile_options(offcut_warnings INTERFACE
  -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers $<$<BOOL:${OFFCUT_WERROR}>:-Werror>)

# Under the sanitizers, tests and the offline program are not optimised: GCC takes twice as long for
# optimised code, and their time to run does not matter.
if(OFFCUT_SANITIZED)
  set(offcut_unoptimized -O0)
endif()

# offcut_library(NAME base [SRCS ...] [HDRS ...] [DEPS ...]) makes the static library offcut_base,
# alias offcut::base; without SRCS, one that consists of headers. Includes are written from the
# root: #include "allocator/base/units.h".
function(offcut_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SRCS;HDRS;DEPS")
  offcut_check_arguments()
  set(target offcut_${arg_NAME})
  if(arg_SRCS)
    add_library(${target} STATIC ${arg_SRCS} ${arg_HDRS})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE offcut_warnings)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    if(NOT folder MATCHES "^allocator")
      target_compile_options(${target} PRIVATE ${offcut_unoptimized})
    endif()
  else()
    add_library(${target} INTERFACE ${arg_HDRS})
    target_include_directories(${target} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} INTERFACE ${arg_DEPS})
  endif()
  add_library(offcut::${arg_NAME} ALIAS ${target})
endfunction()

# offcut_executable(NAME x SRCS ... [DEPS ...] [DIR folder]) makes a program in FOLDER of the build
# tree.
function(offcut_executable)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;DIR" "SRCS;DEPS")
  offcut_check_arguments()
  add_executable(${arg_NAME} ${arg_SRCS})
  target_include_directories(${arg_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPS} offcut_warnings)
  target_compile_options(${arg_NAME} PRIVATE ${offcut_unoptimized})
  if(arg_DIR)
    set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${arg_DIR})
  endif()
endfunction()

# offcut_test(NAME units_test SRCS ... [DEPS ...] [LABELS ...] [GPU]) makes a GoogleTest program in
# build/<preset>/tests/ part of the target offcut_tests, and tells ctest of it. GPU: needs a real
# one, and is run by ./dev gpu-test. The label `threads`: part of the target offcut_threads_tests
# too, which the thread sanitizer watches.
add_custom_target(offcut_tests)
add_custom_target(offcut_threads_tests)
function(offcut_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "GPU" "NAME" "SRCS;DEPS;LABELS")
  offcut_check_arguments()
  offcut_executable(NAME ${arg_NAME} SRCS ${arg_SRCS} DEPS ${arg_DEPS} GTest::gmock_main DIR ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(offcut_tests ${arg_NAME})
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(offcut_threads_tests ${arg_NAME})
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(arg_GPU)
    list(APPEND arg_LABELS gpu)
    # Found by ./dev gpu-test on machines that have no CMake.
    set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/gpu)
  endif()
  # The counts of single tests come from these files (scripts/count_tests.py).
  set_tests_properties(${arg_NAME} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT 300
    ENVIRONMENT "GTEST_OUTPUT=json:${CMAKE_BINARY_DIR}/results/cxx/${arg_NAME}.json;GTEST_COLOR=yes")
endfunction()

# offcut_benchmark(NAME allocate_bench SRCS ... [DEPS ...]) makes a Google Benchmark program in
# build/<preset>/bench/.
function(offcut_benchmark)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SRCS;DEPS")
  offcut_check_arguments()
  offcut_executable(NAME ${arg_NAME} SRCS ${arg_SRCS} DEPS ${arg_DEPS} benchmark::benchmark_main
    DIR ${CMAKE_BINARY_DIR}/bench)
endfunction()

# A misspelt keyword would silently become part of the list before it.
macro(offcut_check_arguments)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAME)
    message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: NAME is missing")
  endif()
endmacro()
