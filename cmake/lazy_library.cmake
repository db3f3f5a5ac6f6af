# stator_lazy_library(curl FILE libcurl.so.4 PACKAGE libcurl4 FOR "HTTP requests to others" INSTEAD_OF CURL::libcurl SYMBOLS curl_easy_init …)
#
# A target stator_lazy_<name> that stands for a shared library and loads it at the first call of one of its functions (docs/adr/0083):
# most processes never call it, and it brings dozens of others along. Each symbol becomes a jump through a table, which the first
# call fills; the caller sees nothing of it. A symbol that is missing here is an undefined reference when the program is linked.
# The program names what it may load in the ELF note .note.dlopen (https://uapi-group.org/specifications/specs/elf_dlopen_metadata/),
# which deploy/libraries.py reads. On other processors than x86-64 the library is linked as usual.
function(stator_lazy_library name)
  cmake_parse_arguments(ARG "" "FILE;PACKAGE;FOR;INSTEAD_OF" "SYMBOLS" ${ARGN})
  if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
    add_library(stator_lazy_${name} INTERFACE)
    target_link_libraries(stator_lazy_${name} INTERFACE ${ARG_INSTEAD_OF})
    return()
  endif()
  # For the Debian package, whose list of needed packages is made from what the program is linked with.
  string(REPLACE ";" ", " packages "${STATOR_LAZY_PACKAGES};${ARG_PACKAGE}")
  string(REGEX REPLACE "^, " "" packages "${packages}")
  set(STATOR_LAZY_PACKAGES ${packages} PARENT_SCOPE)
  set(LAZY_NAME ${name})
  set(LAZY_FILE ${ARG_FILE})
  set(LAZY_PACKAGE ${ARG_PACKAGE})
  set(LAZY_FOR ${ARG_FOR})
  list(LENGTH ARG_SYMBOLS LAZY_COUNT)
  set(LAZY_NAMES)
  set(LAZY_JUMPS)
  set(index 0)
  foreach(symbol IN LISTS ARG_SYMBOLS)
    string(APPEND LAZY_NAMES "\"${symbol}\", ")
    string(APPEND LAZY_JUMPS "    \"stator_lazy_jump ${symbol}, ${name}, ${index}\\n\"\n")
    math(EXPR index "${index} + 1")
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/lazy/${name}.cc)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/lazy_library.cc.in ${source} @ONLY)
  add_library(stator_lazy_${name} STATIC ${source})
  # Its headers come along, the library does not.
  target_include_directories(stator_lazy_${name} SYSTEM INTERFACE $<TARGET_PROPERTY:${ARG_INSTEAD_OF},INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(stator_lazy_${name} PUBLIC stator_core)
endfunction()
