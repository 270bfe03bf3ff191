// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "forward/linear.h"

#include <algorithm>

#include "base/fixed_point.h"
#include "base/prefetch.h"
#include "forward/layer.h"

namespace superslm::forward {

namespace {

using artifact::LoraPair;
using artifact::Matrix;
using artifact::TiledMatrix;
using kernels::Activations;
using kernels::kFewRows;
using kernels::kTileRows;

constexpr int32_t kAdapterExponent = 16;  // QA
constexpr int64_t kBytesPerTask = 262144;
// While a tile is finished no kernel asks for weights: bytes beyond those that were asked for with its
// products.
constexpr size_t kBytesBetweenTiles = 256;

// The exponent of the row multiplier: E + Qin - sh - Qout - 4.
int32_t lin_shift(int32_t exponent, int32_t in_exponent, int32_t shift, int32_t out_exponent) {
  return exponent + in_exponent - shift - out_exponent - 4;
}

const LoraPair* pair_of(const Row& row, int32_t layer_index, artifact::Projection projection) {
  if (row.adapter == nullptr || projection == artifact::kProjectionCount) return nullptr;
  const LoraPair& pair = row.adapter->layers[layer_index].pairs[projection];
  return pair ? &pair : nullptr;
}

int16_t* low_rank_of(const Scratch& s, int32_t row, int32_t target) {
  return s.low_rank + (static_cast<size_t>(row) * 2 + target) * kMaxRank;
}

kernels::LowRankRows low_rank_rows(const TiledMatrix& m, const uint8_t* ahead = nullptr) {
  return {m.values, m.scales, m.multipliers.bytes, m.pairs(), ahead};
}

// t = sat32(LIN(a, A)), quantised for B: the small half of an adapter, always on the calling thread. Memory
// does not rest meanwhile: the base's first rows are asked for, from byte `asked` on.
void prepare_adapter(Engine& engine, const Group& group, int32_t target, int32_t row, const LoraPair& pair,
                     size_t& asked) {
  const Scratch& s = engine.scratch;
  const kernels::Kernels& k = *engine.kernels;
  const int16_t* x = s.activation + static_cast<size_t>(row) * static_cast<size_t>(s.activation_stride);
  const Matrix& base = *group.targets[0].matrix;
  const size_t base_bytes = static_cast<size_t>(base.rows) * weight_rows(base, 0).value_stride;
  const int32_t rank = pair.a.rows;
  const int32_t shift =
      lin_shift(pair.a.exponent, group.in_exponent, s.activation_shift[row], kAdapterExponent);
  int32_t t[kMaxRank];
  for (int32_t r = 0; r < rank; r += kTileRows) {
    const int32_t n = rank - r < kTileRows ? rank - r : kTileRows;
    int64_t y[kTileRows] = {};
    const uint8_t* ahead = asked < base_bytes ? base.values + asked : nullptr;
    k.add_low_rank(low_rank_rows(pair.a, ahead), r, n, x, shift, y);
    asked += static_cast<size_t>(n) * static_cast<size_t>(pair.a.pairs());
    k.saturate(y, nullptr, n, t + r);
  }
  int16_t* b = low_rank_of(s, row, target);
  s.low_rank_shift[row * 2 + target] = k.quantise(t, rank, b);
  if (rank % 2 != 0) b[rank] = 0;
}

// A is read in short pieces that no processor foresees: the last tiles of a group ask, part by part, for
// those of the group behind it, because processors drop requests of a long burst. `row` is an activation row,
// `left` the weight rows from this tile to the end.
void prefetch_next(const Engine& engine, const Group& group, int32_t layer_index, int32_t row, int32_t left) {
  constexpr int32_t kMostParts = 16;
  const artifact::AdapterView* adapter = engine.scratch.row[row].adapter;
  const Target& target = group.targets[group.target_count - 1];
  if (adapter == nullptr || target.projection == artifact::kProjectionCount) return;
  const int32_t tiles = (target.matrix->rows + kTileRows - 1) / kTileRows;
  const int32_t parts = tiles < kMostParts ? tiles : kMostParts, part = (left - 1) / kTileRows;
  const bool wraps = target.projection == artifact::kDown;
  const int32_t layer = layer_index + wraps, first = wraps ? artifact::kQ : target.projection + 1;
  if (part >= parts || layer >= engine.model->layer_count) return;
  const int32_t end = first + (first == artifact::kK || first == artifact::kGate ? 2 : 1);
  for (int32_t p = first; p < end; ++p) {
    const TiledMatrix& a = adapter->layers[layer].pairs[p].a;
    if (!a) continue;
    const size_t lanes = static_cast<size_t>(a.lanes()), bytes = 2 * lanes * static_cast<size_t>(a.pairs());
    const size_t step = (bytes / static_cast<size_t>(parts) + 63) / 64 * 64;
    base::prefetch(a.values + static_cast<size_t>(part) * step, step);
    if (part != 0) continue;
    base::prefetch(a.scales, lanes * static_cast<size_t>(a.blocks()));
    base::prefetch(a.multipliers.bytes, static_cast<size_t>(a.rows) * sizeof(int32_t));
  }
}

// B is read in small pieces between the base's tiles, too short for the processor to foresee: ask for its
// rows [r, r + n) while the base's are multiplied.
void prefetch_adapter(const Scratch& s, const Target& target, int32_t layer_index, int32_t row, int32_t r,
                      int32_t n) {
  constexpr size_t kMostBytes = 4096;
  const LoraPair* pair = pair_of(s.row[row], layer_index, target.projection);
  if (!pair) return;
  const TiledMatrix& b = pair->b;
  const size_t begin = static_cast<size_t>(r), rows = static_cast<size_t>(n);
  const size_t row_bytes = 2 * static_cast<size_t>(b.pairs()), bytes = rows * row_bytes;
  base::prefetch(b.values + begin * row_bytes, bytes < kMostBytes ? bytes : kMostBytes);
  base::prefetch(b.scales + begin * static_cast<size_t>(b.blocks()), rows * static_cast<size_t>(b.blocks()));
  base::prefetch(b.multipliers.from(begin).bytes, rows * sizeof(int32_t));
}

// Adds the adapter's B rows [r, r + n) to the scaled products of one activation row.
void add_adapter(const Engine& engine, const Target& target, int32_t target_index, int32_t row,
                 const LoraPair& pair, int32_t r, int32_t n, int64_t* y) {
  const Scratch& s = engine.scratch;
  const TiledMatrix& b = pair.b;
  const int32_t shift =
      lin_shift(b.exponent, kAdapterExponent, s.low_rank_shift[row * 2 + target_index], target.out_exponent);
  engine.kernels->add_low_rank(low_rank_rows(b), r, n, low_rank_of(s, row, target_index), shift, y);
}

// Larger is better: the logit above the token, so that of equal logits the lowest token wins. Never 0.
uint64_t rank(int32_t logit, int32_t token) {
  return static_cast<uint64_t>(static_cast<uint32_t>(logit) ^ 0x80000000u) << 32 |
         (0xffffffffu - static_cast<uint32_t>(token));
}

// The rank of the best legal token of a tile, 0 when none is legal. It does not branch: nobody can predict
// which tokens are legal and better than those before them.
uint64_t best_legal(const Legal& legal, const int32_t* logits, int32_t first, int32_t n) {
  uint64_t best = 0;
  for (int32_t i = 0; i < n; ++i) {
    const uint64_t kept = uint64_t{0} - uint64_t{legal(first + i)};
    best = std::max(best, rank(logits[i], first + i) & kept);
  }
  return best;
}

// Puts the logits of tokens [first, first + n) up against the best so far; tasks may do so in any order.
void offer(const kernels::Kernels& k, const LogitRow& row, const int32_t* logits, int32_t first, int32_t n,
           std::atomic<uint64_t>& best) {
  const int32_t i = k.argmax(logits, n);
  uint64_t own = rank(logits[i], first + i);
  uint64_t so_far = best.load(std::memory_order_relaxed);
  if (own > so_far && row.legal) own = best_legal(row.legal, logits, first, n);
  while (own > so_far && !best.compare_exchange_weak(so_far, own, std::memory_order_relaxed)) {
  }
}

// Finishes one tile of products of one activation row: multiplier, adapter, bias, clamp or residual add.
void finish_tile(const Engine& engine, const Group& group, int32_t layer_index, int32_t target_index,
                 int32_t row, int32_t r, int32_t n, int64_t* y) {
  const Scratch& s = engine.scratch;
  const kernels::Kernels& k = *engine.kernels;
  const Target& target = group.targets[target_index];
  const Matrix& m = *target.matrix;
  const size_t at = static_cast<size_t>(r);
  k.scale(y, m.multipliers.from(at).bytes, n,
          lin_shift(m.exponent, group.in_exponent, s.activation_shift[row], target.out_exponent));
  const LoraPair* pair = pair_of(s.row[row], layer_index, target.projection);
  if (pair) add_adapter(engine, target, target_index, row, *pair, r, n, y);
  int32_t tile[kTileRows];
  const LogitRow* logit_row = target.logit_rows ? target.logit_rows + row : nullptr;
  int32_t* out = logit_row == nullptr ? target.out + static_cast<size_t>(row) * target.out_stride + at
                 : logit_row->logits  ? logit_row->logits + at
                                      : tile;
  const uint32_t clipped =
      target.adds ? k.add(y, n, out)
                  : k.saturate(y, target.bias ? target.bias + at * sizeof(int32_t) : nullptr, n, out);
  if (clipped != 0) s.clipped[row].fetch_add(clipped, std::memory_order_relaxed);
  if (out == tile) offer(k, *logit_row, tile, r, n, s.best[row]);
}

// Rows [begin, end) of one target for all activation rows. A task with scratch of its
// own uses a panel for many rows; otherwise products stay on the stack.
void project_rows(const Engine& engine, const Group& group, int32_t layer_index, int32_t target_index,
                  int32_t begin, int32_t end, const TaskScratch* own) {
  const Scratch& s = engine.scratch;
  const Matrix& m = *group.targets[target_index].matrix;
  const size_t stride = static_cast<size_t>(s.activation_stride);
  alignas(64) int64_t few[kFewRows * kTileRows];
  const int32_t rows = group.end_row - group.first_row;
  const bool panel = own != nullptr && rows > kFewRows;
  int64_t* acc = panel ? own->product : few;
  const int32_t step = panel ? rows : kFewRows;
  for (int32_t r = begin; r < end; r += kTileRows) {
    const int32_t n = end - r < kTileRows ? end - r : kTileRows;
    const kernels::WeightRows w = weight_rows(m, r);
    const size_t tile_bytes = static_cast<size_t>(n) * w.value_stride;
    for (int32_t row = group.first_row; row < group.end_row; row += step) {
      const int32_t count = group.end_row - row < step ? group.end_row - row : step;
      const Activations x{s.activation + static_cast<size_t>(row) * stride, stride, count};
      for (int32_t t = 0; !panel && t < count; ++t) {
        prefetch_adapter(s, group.targets[target_index], layer_index, row + t, r, n);
        if (target_index == group.target_count - 1)
          prefetch_next(engine, group, layer_index, row + t, m.rows - r);
      }
      engine.kernels->products(w, n, x, acc, kTileRows, panel ? own->panel : nullptr);
      if (!panel) base::prefetch(w.values + tile_bytes + kernels::kWeightsAhead, kBytesBetweenTiles);
      for (int32_t t = 0; t < count; ++t) {
        finish_tile(engine, group, layer_index, target_index, row + t, r, n,
                    acc + static_cast<size_t>(t) * kTileRows);
      }
    }
  }
}

struct GroupTask {
  const Engine* engine;
  const Group* group;
  int32_t layer_index;
  int64_t total_rows;
  int64_t rows_per_task;
};

// Task `index` of a group: its block of the concatenated rows, which may straddle two matrices.
void run_group_task(void* context, int32_t index) {
  const GroupTask& task = *static_cast<const GroupTask*>(context);
  const Scratch& s = task.engine->scratch;
  const int64_t begin = index * task.rows_per_task;
  const int64_t end =
      begin + task.rows_per_task < task.total_rows ? begin + task.rows_per_task : task.total_rows;
  int64_t offset = 0;
  for (int32_t i = 0; i < task.group->target_count; ++i) {
    const int64_t rows = task.group->targets[i].matrix->rows;
    const int64_t from = begin > offset ? begin - offset : 0;
    const int64_t to = end - offset < rows ? end - offset : rows;
    if (from < to) {
      project_rows(*task.engine, *task.group, task.layer_index, i, static_cast<int32_t>(from),
                   static_cast<int32_t>(to), index < s.tasks ? &s.task[index] : nullptr);
    }
    offset += rows;
  }
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

int32_t best_token(const Scratch& scratch, int32_t row) {
  const uint64_t best = scratch.best[row].load(std::memory_order_relaxed);
  return best == 0 ? -1 : static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(best));
}

kernels::WeightRows weight_rows(const Matrix& m, int32_t row) {
  const size_t blocks = static_cast<size_t>(m.blocks());
  const bool four_bit = m.format == artifact::WeightFormat::kW4;
  kernels::WeightRows w{};
  w.value_stride = four_bit ? blocks * 16 : blocks * 32;
  w.scale_stride = four_bit ? blocks * 2 : (blocks + 1) / 2;
  w.values = m.values + static_cast<size_t>(row) * w.value_stride;
  w.scales = m.scales + static_cast<size_t>(row) * w.scale_stride;
  w.blocks = m.blocks();
  w.four_bit = four_bit;
  return w;
}

int32_t rows_per_task(int32_t max_tasks, int64_t rows, int64_t cols, Hook hook) {
  int64_t tasks = smaller(smaller(max_tasks, base::kMaxTasks), ceil_div(rows, 64));
  if (hook == Hook::kProjection) tasks = smaller(tasks, rows * cols / kBytesPerTask);
  if (tasks < 1) tasks = 1;
  return static_cast<int32_t>(ceil_div(ceil_div(rows, tasks), 64) * 64);
}

bool project(Engine& engine, const Group& group, int32_t layer_index, Hook hook) {
  Scratch& s = engine.scratch;
  int64_t total = 0;
  for (int32_t i = 0; i < group.target_count; ++i) total += group.targets[i].matrix->rows;
  size_t asked = 0;
  for (int32_t row = group.first_row; row < group.end_row; ++row) {
    s.clipped[row].store(0, std::memory_order_relaxed);
    s.best[row].store(0, std::memory_order_relaxed);
    for (int32_t i = 0; i < group.target_count; ++i) {
      const LoraPair* pair = pair_of(s.row[row], layer_index, group.targets[i].projection);
      if (pair) prepare_adapter(engine, group, i, row, *pair, asked);
    }
  }
  if (hook != Hook::kUnused && engine.parallel.active()) {
    const int32_t most = engine.parallel.max_tasks;
    const int32_t max_tasks = hook == Hook::kPrefill && s.tasks < most ? s.tasks : most;
    const int32_t share = rows_per_task(max_tasks, total, group.targets[0].matrix->cols, hook);
    const int32_t tasks = static_cast<int32_t>(ceil_div(total, share));
    GroupTask task{&engine, &group, layer_index, total, share};
    if (tasks > 1 || hook == Hook::kLogits)
      return base::run_tasks(engine.parallel, tasks, run_group_task, &task);
  }
  for (int32_t i = 0; i < group.target_count; ++i) {
    project_rows(engine, group, layer_index, i, 0, group.targets[i].matrix->rows, &s.task[0]);
  }
  return true;
}

}  // namespace superslm::forward
