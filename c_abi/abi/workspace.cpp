// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "abi/scratch.h"

#define SSLM_ENABLE_DRAFT_EXTENSIONS
#include "superslm/sslm_ext.h"

using namespace superslm;

namespace {

bool valid(const sslm_model_s& model, const sslm_config& config) {
  return config.max_batch >= 1 && config.max_chunk_budget >= 1 && config.max_layer_budget >= 1 &&
         config.max_layer_budget <= model.view().layer_count && config.reserved == 0;
}

}  // namespace

size_t sslm_workspace_size(sslm_model model, const sslm_config* config) {
  if (model == nullptr || config == nullptr || !valid(*model, *config)) return 0;
  return abi::call_scratch_size(*model, forward::Shape{config->max_batch, config->max_chunk_budget});
}

sslm_status sslm_workspace_create(sslm_model model, const sslm_config* config, void* buf, size_t buf_size,
                                  sslm_workspace* out) {
  if (out == nullptr) return SSLM_INVALID_ARGUMENT;
  *out = nullptr;
  const size_t size = sslm_workspace_size(model, config);
  if (size == 0 || buf == nullptr) return SSLM_INVALID_ARGUMENT;
  if (buf_size < size) return SSLM_BUFFER_TOO_SMALL;
  if (reinterpret_cast<uintptr_t>(buf) % SSLM_ABI_ALIGNMENT_BYTES != 0) return SSLM_MISALIGNED_BUFFER;
  sslm_workspace workspace = abi::create<sslm_workspace_s>();
  if (workspace == nullptr) return SSLM_ALLOCATION_FAILED;
  workspace->buffer = static_cast<uint8_t*>(buf);
  workspace->size = size;
  workspace->capacity = buf_size;
  *out = workspace;
  return SSLM_OK;
}

sslm_status sslm_workspace_destroy(sslm_workspace ws) {
  if (ws == nullptr) return SSLM_INVALID_ARGUMENT;
  abi::destroy(ws);
  return SSLM_OK;
}

sslm_status sslm_workspace_set_parallel_for(sslm_workspace ws, const sslm_parallel_for* pf) {
  if (ws == nullptr) return SSLM_INVALID_ARGUMENT;
  if (pf == nullptr) {
    ws->parallel = base::Parallel{};
    return SSLM_OK;
  }
  if ((pf->reserved & ~SSLM_PARALLEL_FOR_MATVEC) != 0 || pf->max_tasks < 0 ||
      pf->max_tasks > SSLM_PARALLEL_FOR_MAX_TASKS || (pf->run == nullptr && pf->max_tasks > 1)) {
    return SSLM_INVALID_ARGUMENT;
  }
  ws->parallel =
      base::Parallel{pf->run, pf->host_ctx, pf->max_tasks, (pf->reserved & SSLM_PARALLEL_FOR_MATVEC) != 0};
  return SSLM_OK;
}

size_t sslm_ext_workspace_size_parallel(sslm_model model, const sslm_config* config, int32_t max_tasks) {
  if (model == nullptr || config == nullptr || !valid(*model, *config)) return 0;
  if (max_tasks < 1 || max_tasks > SSLM_PARALLEL_FOR_MAX_TASKS) return 0;
  return abi::call_scratch_size(*model,
                                forward::Shape{config->max_batch, config->max_chunk_budget, max_tasks});
}

sslm_status sslm_ext_workspace_set_parallel(sslm_workspace ws, uint32_t flags) {
  if (ws == nullptr || (flags & ~SSLM_EXT_PARALLEL_SPREAD) != 0) return SSLM_INVALID_ARGUMENT;
  ws->spread = (flags & SSLM_EXT_PARALLEL_SPREAD) != 0;
  return SSLM_OK;
}
