# `cmake --install build/release --prefix DIR --strip`, and what `cpack` makes of it: scripts/package.sh.

include(GNUInstallDirs)
# What is installed is one program: cpack must not build tests and benches first.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

function(stator_install)
  set(made ${CMAKE_BINARY_DIR}/install)
  install(TARGETS stator RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # What the program says of itself.
  install(CODE "
    file(MAKE_DIRECTORY ${made})
    foreach(what completion:bash completion:zsh completion:fish manual:)
      string(REPLACE \":\" \";\" words \${what})
      string(REPLACE \":\" \"_\" name \${what})
      execute_process(COMMAND $<TARGET_FILE:stator> \${words} OUTPUT_FILE ${made}/\${name} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()")
  install(FILES ${made}/completion_bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME stator)
  install(FILES ${made}/completion_zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _stator)
  install(FILES ${made}/completion_fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME stator.fish)
  install(FILES ${made}/manual_ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME stator.1)
  install(FILES deploy/systemd/stator.service DESTINATION lib/systemd/system)
  install(DIRECTORY models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/stator/models)
  install(DIRECTORY deploy/grafana deploy/prometheus DESTINATION ${CMAKE_INSTALL_DATADIR}/stator PATTERN "*.py" EXCLUDE)
  install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stator)
set(CPACK_PACKAGE_CONTACT "Stator developers <stator@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference engines as one fast, fault-tolerant service")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${STATOR_LAZY_PACKAGES}")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
include(CPack)
