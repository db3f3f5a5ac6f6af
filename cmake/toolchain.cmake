# Compiler, warnings, sanitizers: the same for every target. Clang 19 is the only supported compiler
# (GCC 12 destroys temporaries twice in expressions that contain co_await).
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
  message(FATAL_ERROR "Stator builds with Clang 19 or later, found ${CMAKE_CXX_COMPILER_ID} "
    "${CMAKE_CXX_COMPILER_VERSION}. Run scripts/setup.sh and configure with: cmake --preset release")
endif()

add_library(stator_build_flags INTERFACE)
target_compile_options(stator_build_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual
  -Wimplicit-fallthrough -Wthread-safety -Wno-missing-field-initializers -Wno-sign-conversion
  -fno-omit-frame-pointer)
if(STATOR_WERROR)
  target_compile_options(stator_build_flags INTERFACE -Werror)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The oldest machine the binary runs on; wider vector kernels are chosen at run time.
  target_compile_options(stator_build_flags INTERFACE -march=x86-64-v2)
endif()
if(STATOR_SANITIZE)
  target_compile_options(stator_build_flags INTERFACE -fsanitize=${STATOR_SANITIZE}
    -fno-sanitize-recover=all)
  target_link_options(stator_build_flags INTERFACE -fsanitize=${STATOR_SANITIZE})
  if(STATOR_SANITIZE MATCHES "address")
    # Debian's libstdc++ is not annotated for containers; mixed code would report false overflows.
    target_compile_definitions(stator_build_flags INTERFACE STATOR_ASAN=1)
  endif()
endif()
target_link_options(stator_build_flags INTERFACE -fuse-ld=lld -Wl,--gc-sections -Wl,--as-needed)
# What runs once at the start stands together instead of between the rest, and relative relocations take two bits each: a start
# reads and keeps 6 MB less of the program.
target_link_options(stator_build_flags INTERFACE -Wl,-z,keep-text-section-prefix -Wl,-z,pack-relative-relocs)
target_compile_options(stator_build_flags INTERFACE -ffunction-sections -fdata-sections)
