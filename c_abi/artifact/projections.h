// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
// Shapes and number formats of a layer's seven projections, as docs/sslm_format.md section 5 lists them.
#pragma once

#include "artifact/check.h"
#include "artifact/model_view.h"

namespace superslm::artifact {

struct ProjectionShape {
  int32_t rows, cols;
  int32_t in_exponent, out_exponent;  // Qin, Qout
};

// The scalars and norms of `layer` must have been read.
ProjectionShape projection_shape(const ModelView& model, const LayerView& layer, Projection projection);

// Whether every shift of LIN with a matrix of this exponent E is in range (docs/numerics.md section 1).
bool check_shift(int32_t exponent, int32_t in_exponent, int32_t out_exponent, Site site, base::Message* why);

}  // namespace superslm::artifact
