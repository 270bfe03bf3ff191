# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

# Refuses a compiler that is too old by its name and version, not by the first line that it cannot read. What the
# source needs most is `requires` of C++20. Other compilers are let through: what is too old of them is not known.
set(superslm_oldest_GNU 10)
set(superslm_oldest_Clang 11)

set(superslm_oldest ${superslm_oldest_${CMAKE_CXX_COMPILER_ID}})
if(superslm_oldest AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS superslm_oldest)
  message(FATAL_ERROR
    "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, which is too old: SuperSLM is "
    "written in C++20 and needs GCC 10, Clang 11 or newer.\n"
    "Install one (Debian 11, Ubuntu 20.04: apt install g++-10; newer: apt install g++) and name it, for example "
    "by the environment variables CC=gcc-10 CXX=g++-10, in a new build folder.")
endif()
