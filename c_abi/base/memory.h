// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include <cstddef>

namespace superslm::base {

// The library's only door to the process heap. Null on failure.
void* allocate(size_t bytes) noexcept;
void deallocate(void* block) noexcept;

}  // namespace superslm::base
