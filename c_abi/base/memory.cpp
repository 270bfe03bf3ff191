// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "base/memory.h"

#include <cstdlib>

namespace superslm::base {

void* allocate(size_t bytes) noexcept { return std::malloc(bytes ? bytes : 1); }
void deallocate(void* block) noexcept { std::free(block); }

}  // namespace superslm::base
