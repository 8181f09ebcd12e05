# Build settings and the helpers that each folder's CMakeLists.txt uses:
#
#   forebay_library(name SOURCES a.cc DEPS lib...)            a layer's library
#   forebay_program(name SOURCES a.cc DEPS lib...)            an executable in bin/
#   forebay_test(name SOURCES a_test.cc DEPS lib... [GRPC])   a GoogleTest program, labelled by its folder under tests/
#   forebay_fuzz(name DEPS lib...)                            a fuzzer from <name>_fuzz.cc
#   forebay_grpc_pch(target)                                  the shared precompiled gRPC headers for a target

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Invariant checks stay on in release; NDEBUG would only switch off the libraries' own.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# Line numbers are what a stack trace needs; full debug information doubles the time of a build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

find_program(FOREBAY_CCACHE ccache)
if(FOREBAY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the sloppiness ccache never hits for a source that uses a precompiled header; with relative paths a second
  # clone hits what the first has built.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=true
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${FOREBAY_CCACHE})
endif()
find_program(FOREBAY_MOLD mold)

option(FOREBAY_ASAN "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(FOREBAY_TSAN "ThreadSanitizer" OFF)
option(FOREBAY_FUZZ "Build the fuzzers (clang with libFuzzer)" OFF)
if(FOREBAY_MOLD AND NOT FOREBAY_FUZZ)
  add_link_options(-fuse-ld=mold)
endif()
if(FOREBAY_ASAN)
  # GCC 12 sees uninitialised memory where AddressSanitizer's instrumentation hides the initialisation.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
    -Wno-maybe-uninitialized)
  # mold 1.10 lays out some programs so that the loader cannot protect what is relocated: they do not start.
  add_link_options(-fsanitize=address,undefined -Wl,-z,norelro)
endif()
if(FOREBAY_TSAN)
  # Warnings: as above. The macro that tells of the sanitizer makes protobuf's maps larger than those of Debian's library, which
  # is not instrumented; libstdc++ keeps its own way of asking.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-maybe-uninitialized -U__SANITIZE_THREAD__)
  add_compile_definitions(FOREBAY_TSAN=1 _GLIBCXX_TSAN=1)
  add_link_options(-fsanitize=thread)
endif()
if(FOREBAY_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(FOREBAY_ASAN OR FOREBAY_TSAN OR FOREBAY_FUZZ)
  set(FOREBAY_SANITIZED ON)
endif()

find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(jemalloc IMPORTED_TARGET jemalloc)

add_library(forebay_warnings INTERFACE)
# GCC is the compiler of record; clang builds the fuzzers alone, and its other opinions must not stop them.
target_compile_options(forebay_warnings INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Werror> $<$<CXX_COMPILER_ID:Clang>:-Wno-unused-lambda-capture>)

# Precompiled headers, each compiled once and shared by all targets that reuse it. On two cores they halve a clean build.
# A mismatch of options only costs the speed-up, so it does not stop a build.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch/pch.cc CONTENT "// Holds a precompiled header.\n")
function(forebay_pch_holder name)
  cmake_parse_arguments(arg "" "" "HEADERS;DEPS" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/pch/pch.cc)
  target_link_libraries(${name} PRIVATE ${arg_DEPS} forebay_warnings)
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # What ccache asks of GCC for hits with precompiled headers.
    target_compile_options(${name} PRIVATE -fpch-preprocess -Wno-error=invalid-pch)
  endif()
endfunction()
function(forebay_reuse_pch target holder)
  target_precompile_headers(${target} REUSE_FROM ${holder})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-error=invalid-pch)
  endif()
endfunction()

set(test_headers <gmock/gmock.h> <gtest/gtest.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
set(grpc_headers <grpcpp/grpcpp.h> <grpcpp/generic/async_generic_service.h> <grpcpp/support/proto_buffer_reader.h>
  <google/protobuf/message.h> <google/protobuf/map.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
forebay_pch_holder(forebay_pch_test HEADERS ${test_headers}
  DEPS GTest::gtest GTest::gmock absl::statusor absl::strings)
forebay_pch_holder(forebay_pch_grpc HEADERS ${grpc_headers}
  DEPS gRPC::grpc++ protobuf::libprotobuf absl::statusor absl::strings)
forebay_pch_holder(forebay_pch_grpc_test HEADERS ${test_headers} ${grpc_headers}
  DEPS GTest::gtest GTest::gmock gRPC::grpc++ protobuf::libprotobuf absl::statusor absl::strings)

# forebay_grpc_pch(target): for targets most of whose sources include gRPC.
function(forebay_grpc_pch target)
  forebay_reuse_pch(${target} forebay_pch_grpc)
endfunction()

# forebay_library(name SOURCES a.cc b.cc DEPS lib...): a layer's library; include root is src/.
function(forebay_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE forebay_warnings)
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(${name} INTERFACE ${arg_DEPS})
  endif()
endfunction()

# forebay_program(name SOURCES a.cc DEPS lib...): an executable in bin/, with jemalloc where there is no sanitizer.
function(forebay_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE ${arg_DEPS} forebay_warnings)
  if(jemalloc_FOUND AND NOT FOREBAY_SANITIZED)
    # The library replaces malloc by being loaded; no symbol of it is named, so as-needed would drop it.
    target_link_libraries(${name} PRIVATE -Wl,--no-as-needed PkgConfig::jemalloc -Wl,--as-needed)
  endif()
endfunction()

# The labels of a test: its folder under tests/ (unit, transcripts, simulation, ...), and "threads" where the code under test
# has threads. tools/run_tests.py picks suites by label and builds them by the target <label>_tests.
set(FOREBAY_THREADED_FOLDERS io storage storage_log storage_segments node server peers client ctl main)
function(forebay_label_test name program)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/tests OUTPUT_VARIABLE folder)
  string(REPLACE "/" ";" parts "${folder}")
  list(GET parts 0 labels)
  list(LENGTH parts depth)
  set(inner "")
  if(depth GREATER 1)
    list(GET parts 1 inner)
  endif()
  if(inner IN_LIST FOREBAY_THREADED_FOLDERS OR labels STREQUAL integration)
    list(APPEND labels threads)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS "${labels}")
  foreach(label IN LISTS labels)
    if(NOT TARGET ${label}_tests)
      add_custom_target(${label}_tests)
    endif()
    add_dependencies(${label}_tests ${program})
  endforeach()
endfunction()

# forebay_test(name SOURCES a_test.cc DEPS lib... [GRPC]): a GoogleTest program, one ctest entry per program. GRPC: its sources
# include gRPC, so it takes the larger precompiled header.
function(forebay_test name)
  cmake_parse_arguments(arg "GRPC" "" "SOURCES;DEPS" ${ARGN})
  if(FOREBAY_FUZZ)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} forebay_warnings GTest::gtest GTest::gmock GTest::gtest_main)
  if(arg_GRPC)
    forebay_reuse_pch(${name} forebay_pch_grpc_test)
  else()
    forebay_reuse_pch(${name} forebay_pch_test)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  forebay_label_test(${name} ${name})
endfunction()

# forebay_fuzz(name DEPS lib...): builds <name>_fuzz.cc. With FOREBAY_FUZZ it is a libFuzzer program; otherwise a plain program
# that replays corpus/<name>/ and then mutates it from a fixed seed for FOREBAY_FUZZ_SECONDS (environment).
function(forebay_fuzz name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
  set(program ${name}_fuzz)
  add_executable(${program} ${name}_fuzz.cc)
  target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${program} PRIVATE ${arg_DEPS} forebay_warnings)
  if(FOREBAY_FUZZ)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    target_link_libraries(${program} PRIVATE forebay_base)
  endif()
  add_test(NAME ${program} COMMAND ${program} ${corpus})
  forebay_label_test(${program} ${program})
endfunction()
