// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// superslm.hpp with exceptions asked for: value() of a refusal throws and says the status.
#define SUPERSLM_HPP_EXCEPTIONS
#include "superslm/superslm.hpp"

#include <cstdio>
#include <cstring>

int main() {
  const std::byte bad[16] = {};
  try {
    (void)sslm::Model::map(bad).value();
  } catch (const std::runtime_error& error) {
    if (std::strstr(error.what(), "4") == nullptr) return 2;  // SSLM_ARTIFACT_REJECTED
    std::puts("ok a_refused_value_throws");
    return 0;
  }
  return 1;
}
