# The ways a target comes into being. No other CMake file creates libraries or tests.
#
#   stator_module(router LAYER 3 [LTO] SOURCES selector.cc DEPS core blocks [LIBS third party])
#   stator_test(router SOURCES test/selector_test.cc LABELS unit [DEPS more modules] [LIBS third party])
#   stator_bench(router SOURCES bench/selector_bench.cc)
#   stator_fuzz(router NAME selector SOURCE test/selector_fuzz.cc CORPUS testdata/fuzz/selector)
#
# DEPS are other Stator modules, LIBS third-party targets. cmake/layers.txt holds the layer of each module. LTO modules are
# optimized once more, together, when the program is linked (STATOR_LTO, docs/adr/0032); tests link their plain code.

# The headers that most sources include are compiled once for the modules and once for the tests, whose code is compiled as that of
# programs. A source still names what it uses: the test tidy.headers compiles without. Fuzz targets, benches and generated code do
# without, too. Not by target_precompile_headers(), whose files hold the paths of one checkout: these are the same bytes in each, so
# that the compiler cache serves all of them (the main file must be a real one at the same place everywhere: a small one of the C
# library).
function(stator_precompile name)
  cmake_parse_arguments(ARG "" "" "OPTIONS;LIBS" ${ARGN})
  set(target stator_${name}_headers)
  add_library(${target} INTERFACE)
  target_link_libraries(${target} INTERFACE stator_build_flags fmt::fmt stator_abseil ${ARG_LIBS})
  set(includes)
  foreach(header absl/container/flat_hash_map.h absl/container/flat_hash_set.h fmt/format.h
      algorithm array atomic charconv chrono cmath cstddef cstdint cstring deque expected functional limits map memory mutex
      optional set span string string_view tuple utility variant vector ${ARG_UNPARSED_ARGUMENTS})
    list(APPEND includes -include ${header})
  endforeach()
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
  set(file ${CMAKE_BINARY_DIR}/${name}.precompiled)
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_CXX_COMPILER} ${flags} ${ARG_OPTIONS} "$<TARGET_PROPERTY:${target},INTERFACE_COMPILE_OPTIONS>"
      "-D$<JOIN:$<TARGET_PROPERTY:${target},INTERFACE_COMPILE_DEFINITIONS>,;-D>" -std=c++2b -fpch-instantiate-templates
      -Xclang -fno-pch-timestamp -Xclang -emit-pch -x c++-header ${includes} -o ${file} -c /usr/include/stdc-predef.h
    COMMAND_EXPAND_LISTS VERBATIM COMMENT "Precompiling the headers of ${name}")
  add_custom_target(${target}_file DEPENDS ${file})
endfunction()

stator_precompile(library OPTIONS -fPIC)
if(STATOR_TESTS)
  stator_precompile(test gmock/gmock.h gtest/gtest.h OPTIONS -fPIE LIBS GTest::gmock GTest::gtest)
endif()

function(stator_use_precompiled target name)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-include-pch> $<$<COMPILE_LANGUAGE:CXX>:${name}.precompiled>)
  add_dependencies(${target} stator_${name}_headers_file)
  get_target_property(sources ${target} SOURCES)
  set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS ${CMAKE_BINARY_DIR}/${name}.precompiled)
endfunction()

# Sources of one target that share no file-local names are compiled together, in the groups of cmake/unity.txt: what they include is read
# once, and what they instantiate is compiled once (docs/adr/0112). Without STATOR_UNITY each source is compiled alone: what one edits
# is built anew in less time, and every finding names its own file.
if(STATOR_UNITY)
  set(groups ${CMAKE_SOURCE_DIR}/cmake/unity.txt)
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${groups})
  file(STRINGS ${groups} lines REGEX "^stator_")
  foreach(line IN LISTS lines)
    separate_arguments(words UNIX_COMMAND "${line}")
    list(POP_FRONT words target)
    math(EXPR count "0${STATOR_GROUP_COUNT_${target}} + 1")
    set(STATOR_GROUP_COUNT_${target} ${count})
    set(STATOR_GROUP_${target}_${count} ${words})
  endforeach()
endif()

# The files hold paths below src/ only: the compiler cache serves every checkout.
function(stator_group_sources target sources)
  set(rest ${${sources}})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  set(result)
  if(STATOR_GROUP_COUNT_${target})
    foreach(number RANGE 1 ${STATOR_GROUP_COUNT_${target}})
      set(text)
      foreach(source IN LISTS STATOR_GROUP_${target}_${number})
        if(source IN_LIST rest)
          list(REMOVE_ITEM rest ${source})
          string(APPEND text "#include \"${folder}/${source}\"\n")
        endif()
      endforeach()
      if(text)
        set(file ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${number}.cc)
        file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
        list(APPEND result ${file})
      endif()
    endforeach()
  endif()
  set(${sources} ${result} ${rest} PARENT_SCOPE)
endfunction()

function(stator_module name)
  cmake_parse_arguments(ARG "LTO" "LAYER" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_SOURCES)
    message(FATAL_ERROR "stator_module(${name}) needs SOURCES")
  endif()
  stator_group_sources(stator_${name} ARG_SOURCES)
  add_library(stator_${name} STATIC ${ARG_SOURCES})
  add_library(stator::${name} ALIAS stator_${name})
  target_include_directories(stator_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(stator_${name} PUBLIC stator_build_flags ${ARG_LIBS})
  stator_use_precompiled(stator_${name} library)
  if(ARG_LTO AND STATOR_LTO)
    target_compile_options(stator_${name} PRIVATE -flto=thin -ffat-lto-objects)
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(stator_${name} PUBLIC stator_${dep})
  endforeach()
endfunction()

# The cache keeps what did not change from one link to the next.
function(stator_link_with_lto target)
  if(STATOR_LTO)
    target_link_options(${target} PRIVATE -fuse-ld=lld -flto=thin -Wl,--fat-lto-objects -Wl,--lto-O3
      -Wl,--thinlto-cache-dir=${CMAKE_BINARY_DIR}/lto -Wl,--thinlto-cache-policy=cache_size_bytes=512m)
  endif()
endfunction()

# stator_binary(stator SOURCE main.cc DEPS cli): the one program, in build/<preset>/bin.
function(stator_binary name)
  cmake_parse_arguments(ARG "" "SOURCE" "DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCE})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  stator_link_with_lto(${name})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE stator_${dep})
  endforeach()
endfunction()

# stator_c_library(stator_router SOURCES c_api.cc DEPS router EXPORTS c_api.map): a shared library in
# build/<preset>/lib that shows nothing but what the version script names.
function(stator_c_library name)
  cmake_parse_arguments(ARG "" "EXPORTS;VERSION" "SOURCES;DEPS" ${ARGN})
  set(target ${name}_c)
  set(map ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_EXPORTS})
  add_library(${target} SHARED ${ARG_SOURCES})
  string(TOUPPER ${name} upper)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} VERSION ${ARG_VERSION} SOVERSION ${ARG_VERSION}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib LINK_DEPENDS ${map}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden)
  target_compile_definitions(${target} PRIVATE ${upper}_BUILD)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PRIVATE stator_${dep})
  endforeach()
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  if(NOT STATOR_SANITIZE)  # whose runtime comes with the program that loads the library
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

# The target `unit_tests` builds the programs of all tests of modules.
function(stator_unit_test_program target)
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests)
  endif()
  add_dependencies(unit_tests ${target})
endfunction()

# stator_c_test(router LIBRARY stator_router SOURCE test/c_api_test.c): a program in C11 that exits 0.
function(stator_c_test module)
  if(NOT STATOR_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LIBRARY;SOURCE" "" ${ARGN})
  set(target ${ARG_LIBRARY}_c_test)
  add_executable(${target} ${ARG_SOURCE})
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF LINKER_LANGUAGE C)
  if(STATOR_SANITIZE)  # the runtime of the library's sanitizers
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_options(${target} PRIVATE -fsanitize=${STATOR_SANITIZE})
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Werror)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARY}_c)
  stator_unit_test_program(${target})
  add_test(NAME ${module}.c_api COMMAND ${target})
  set_tests_properties(${module}.c_api PROPERTIES LABELS unit TIMEOUT 300)
endfunction()

function(stator_test module)
  if(NOT STATOR_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LABELS;DEPS;LIBS" ${ARGN})
  if(NOT ARG_NAME)
    set(ARG_NAME ${module})
  endif()
  set(target stator_${ARG_NAME}_test)
  stator_group_sources(${target} ARG_SOURCES)
  add_executable(${target} ${ARG_SOURCES})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE stator_build_flags GTest::gmock GTest::gtest_main ${ARG_LIBS})
  stator_use_precompiled(${target} test)
  if(TARGET stator_${module})
    target_link_libraries(${target} PRIVATE stator_${module})
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PRIVATE stator_${dep})
  endforeach()
  # Tests run in the source tree and find testdata/ there, and the optional shared data folder beside it. Relative paths, so that
  # the compiler cache serves every checkout.
  target_compile_definitions(${target} PRIVATE STATOR_SOURCE_DIR="." STATOR_SHARED_DIR="../shared")
  stator_unit_test_program(${target})
  if(STATOR_SANITIZE)  # a sanitizer's start costs more than most tests: one process runs all of a program
    add_test(NAME unit.${ARG_NAME} COMMAND ${target} --gtest_brief=1 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    # UCX would patch the allocator that the sanitizer has replaced.
    set_tests_properties(unit.${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 900 ENVIRONMENT "UCX_MEM_EVENTS=no")
  else()
    gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
      TEST_PREFIX "${ARG_NAME}." PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
  endif()
endfunction()

function(stator_bench module)
  if(NOT STATOR_BENCHES)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_NAME)
    set(ARG_NAME ${module})
  endif()
  set(target stator_${ARG_NAME}_bench)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE stator_${module} benchmark::benchmark_main ${ARG_LIBS})
  stator_link_with_lto(${target})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PRIVATE stator_${dep})
  endforeach()
  target_compile_definitions(${target} PRIVATE STATOR_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endfunction()

# A fuzz target. As a ctest test (label fuzz) it replays its committed corpus: the same inputs on every machine. What
# explores is scripts/fuzz.sh: libFuzzer's draws follow addresses, so that no two runs of it are alike. DEFINITIONS let
# targets share one source.
function(stator_fuzz module)
  if(NOT STATOR_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME;CORPUS" "SOURCE;DEFINITIONS" ${ARGN})
  set(target stator_${module}_${ARG_NAME}_fuzz)
  add_executable(${target} ${ARG_SOURCE})
  target_compile_definitions(${target} PRIVATE ${ARG_DEFINITIONS})
  target_link_libraries(${target} PRIVATE stator_${module})
  target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  if(NOT TARGET fuzz_targets)
    add_custom_target(fuzz_targets)
  endif()
  add_dependencies(fuzz_targets ${target})
  add_test(NAME fuzz.${module}.${ARG_NAME}
    COMMAND ${target} -runs=0 -timeout=60 -rss_limit_mb=4096 ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS})
  set_tests_properties(fuzz.${module}.${ARG_NAME} PROPERTIES LABELS fuzz TIMEOUT 600)
endfunction()
