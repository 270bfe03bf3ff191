# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors

# Every kernel tier is one source file compiled for its own instruction set; dispatch picks one at run time.
function(superslm_set_tier_flags)
  if(MSVC)
    set(avx2 /arch:AVX2)
    set(avxvnni /arch:AVX2)
    set(avx512 /arch:AVX512)
  else()
    set(sse41 -msse4.1)
    set(avx2 -mavx2)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_FLAGS -mavxvnni)
    check_cxx_source_compiles([[ // a compiler may know it and its assembler not
      #include <immintrin.h>
      __m256i f(__m256i a) { return _mm256_dpwssd_avx_epi32(a, a, a); }
      int main() { return 0; }
    ]] SUPERSLM_HAS_AVXVNNI)
    set(avxvnni -mavx2)
    if(SUPERSLM_HAS_AVXVNNI)
      list(APPEND avxvnni -mavxvnni)
    endif()
    set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl)
    set(avx512vnni ${avx512} -mavx512vnni)
    set(neon_dotprod -march=armv8.2-a+dotprod)
    if(ZIG) # it names processors in its own way
      set(neon_dotprod -mcpu=generic+dotprod)
    endif()
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(tiers sse41 avx2 avxvnni avx512 avx512vnni)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
    set(tiers neon_dotprod)
  endif()
  foreach(tier IN LISTS tiers)
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/kernels/${tier}.cpp
      PROPERTIES COMPILE_OPTIONS "${${tier}}")
  endforeach()
endfunction()

# C++20 without exceptions, RTTI and guarded statics: the objects need no C++ runtime.
function(superslm_set_compile_options target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  if(MSVC)
    target_compile_options(${target} PRIVATE /EHs-c- /GR- /Zc:threadSafeInit- /W4)
  else()
    target_compile_options(${target} PRIVATE -fno-exceptions -fno-rtti -fno-threadsafe-statics
      -ffunction-sections -fdata-sections -Wall -Wextra)
  endif()
  if(MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # on Windows it keeps vectors on a stack that it does not align
    target_compile_options(${target} PRIVATE -Wa,-muse-unaligned-vector-move)
  endif()
  if(SUPERSLM_TEST_SEAMS)
    target_compile_definitions(${target} PRIVATE SUPERSLM_TEST_SEAMS=1)
  endif()
  if(SUPERSLM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SUPERSLM_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer -g)
    target_link_options(${target} PRIVATE -fsanitize=${SUPERSLM_SANITIZE})
  endif()
endfunction()

# A WebAssembly reactor: the host calls _initialize once, then the verbs. It lends memory out of the module's own, so
# it needs that memory, aligned_alloc and free beside them. The stack comes first: running over it traps.
function(superslm_set_wasm_link_options target)
  set_target_properties(${target} PROPERTIES SUFFIX .wasm)
  target_link_options(${target} PRIVATE -mexec-model=reactor -Wl,--stack-first -Wl,-z,stack-size=1048576
    -Wl,--gc-sections -Wl,--strip-all -Wl,--export=aligned_alloc -Wl,--export=free)
  foreach(list frozen ext)
    set(file ${PROJECT_SOURCE_DIR}/tools/exports/${list}.txt)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} verbs REGEX "^sslm_")
    list(TRANSFORM verbs PREPEND -Wl,--export=)
    target_link_options(${target} PRIVATE ${verbs})
  endforeach()
endfunction()

# The C driver links, so that the library needs libc and nothing else.
function(superslm_set_link_options target)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C SOVERSION ${SUPERSLM_ABI_MAJOR})
  if(WIN32)
    target_compile_definitions(${target} PRIVATE "SUPERSLM_API=__declspec(dllexport)")
  else()
    target_compile_definitions(${target} PRIVATE "SUPERSLM_API=__attribute__((visibility(\"default\")))")
  endif()
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    superslm_set_wasm_link_options(${target})
  elseif(APPLE)
    target_link_options(${target} PRIVATE -Wl,-dead_strip)
    if(NOT ZIG) # its linker has no such list; hidden visibility must do there
      target_link_options(${target} PRIVATE -Wl,-exported_symbol,_sslm_*)
    endif()
  elseif(NOT WIN32)
    set(map ${PROJECT_SOURCE_DIR}/cmake/exports.map)
    target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--gc-sections -Wl,-z,relro,-z,now)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
    if(NOT SUPERSLM_SANITIZE) # a sanitizer's runtime is found in the program
      target_link_options(${target} PRIVATE -Wl,--no-undefined)
    endif()
  endif()
endfunction()

# superslm_add_library(<target> SHARED|STATIC <name>): the library that users link as superslm::<name>.
function(superslm_add_library target type name)
  if(type STREQUAL STATIC AND SUPERSLM_SHARE_OBJECTS)
    add_library(${target} STATIC $<TARGET_OBJECTS:superslm_shared>)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  elseif(type STREQUAL SHARED AND CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    add_executable(${target} ${SUPERSLM_SOURCES}) # what CMake calls a linked module
  else()
    add_library(${target} ${type} ${SUPERSLM_SOURCES})
  endif()
  if(type STREQUAL STATIC OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL wasm32)
    add_library(superslm::${name} ALIAS ${target})
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} OUTPUT_NAME superslm)
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/c_abi)
  superslm_set_compile_options(${target})
  if(type STREQUAL SHARED)
    superslm_set_link_options(${target})
  elseif(WIN32) # superslm.lib is the import library of the DLL
    set_target_properties(${target} PROPERTIES OUTPUT_NAME superslm_static)
  endif()
endfunction()

superslm_set_tier_flags()
