# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

# Builds superslm.wasm, a module without imports for browsers, Node and WebAssembly runtimes, with Debian's packages
# clang-19, lld-19, wasi-libc, libc++-19-dev-wasm32 and libclang-rt-19-dev-wasm32.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
set(CMAKE_FIND_ROOT_PATH /usr/lib/wasm32-wasi)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)

# A module either uses vectors everywhere or runs where there are none: it cannot ask at run time.
set(SUPERSLM_WASM_SIMD128 ON CACHE BOOL "Use 128-bit vectors (browsers have them since 2023); OFF: plain WebAssembly")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SUPERSLM_WASM_SIMD128)
if(SUPERSLM_WASM_SIMD128)
  set(CMAKE_C_FLAGS_INIT -msimd128)
  set(CMAKE_CXX_FLAGS_INIT -msimd128)
endif()
