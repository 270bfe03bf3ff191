# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

# SUPERSLM_VERSION: what the wheel build says, else the newest release tag, else the release being built.
set(SUPERSLM_VERSION 1.12.0)
if(SKBUILD_PROJECT_VERSION)
  set(SUPERSLM_VERSION ${SKBUILD_PROJECT_VERSION})
else()
  find_program(SUPERSLM_GIT git)
  mark_as_advanced(SUPERSLM_GIT)
  if(SUPERSLM_GIT)
    execute_process(
      COMMAND ${SUPERSLM_GIT} describe --tags --abbrev=0 --match "v[0-9]*"
      WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
      OUTPUT_VARIABLE superslm_tag ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(superslm_tag MATCHES "^v([0-9]+\\.[0-9]+\\.[0-9]+)")
      set(SUPERSLM_VERSION ${CMAKE_MATCH_1})
    endif()
  endif()
endif()
