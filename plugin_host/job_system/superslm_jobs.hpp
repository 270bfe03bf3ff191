// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// Two hooks for sslm_workspace_set_parallel_for: a pool whose workers park between calls, and a loop on the
// calling thread. Copy this header, or read it as the recipe for the job system you already have.
//
//   superslm_jobs::Pool pool(3);
//   const sslm_parallel_for hook = pool.hook();
//   sslm_workspace_set_parallel_for(workspace, &hook);
//
// The pool must outlive the installation. C++17.
#ifndef SUPERSLM_JOBS_HPP
#define SUPERSLM_JOBS_HPP

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "superslm/parallel_for.h"

namespace superslm_jobs {

// Runs every task on the calling thread: for hosts whose callbacks must stay there, and for tests.
inline void run_serially(void*, int32_t task_count, sslm_task_fn task, void* task_ctx) {
  for (int32_t i = 0; i < task_count; ++i) task(task_ctx, i);
}

// Worker threads that sleep on a condition variable until there is a run, and help the caller with it. One
// run at a time: give threads that call the library concurrently a pool each.
//
// A token is about a hundred runs with some microseconds between them, and waking a thread takes longer than
// that: after a run a worker looks for the next one for `linger`, offering its processor to others meanwhile,
// and parks then. 0 parks at once.
class Pool {
 public:
  explicit Pool(int workers, std::chrono::microseconds linger = std::chrono::microseconds(50))
      : linger_(linger) {
    threads_.reserve(static_cast<size_t>(workers));
    for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // As many tasks as there are threads, the caller included: finer splits only add wake-ups.
  sslm_parallel_for hook(uint32_t flags = SSLM_PARALLEL_FOR_MATVEC) {
    return sslm_parallel_for{&Pool::run, this, static_cast<int32_t>(threads_.size()) + 1, flags};
  }

 private:
  static void run(void* self, int32_t task_count, sslm_task_fn task, void* task_ctx) {
    static_cast<Pool*>(self)->run(task_count, task, task_ctx);
  }

  void run(int32_t task_count, sslm_task_fn task, void* task_ctx) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      task_ = task;
      task_ctx_ = task_ctx;
      task_count_ = task_count;
      next_.store(0, std::memory_order_relaxed);
      open_ = true;
    }
    runs_.fetch_add(1, std::memory_order_release);
    wake_.notify_all();
    take_tasks();
    look_until([this] { return helpers_.load(std::memory_order_acquire) == 0; });
    std::unique_lock<std::mutex> lock(mutex_);
    open_ = false;  // a worker that wakes only now finds nothing to join
    left_.wait(lock, [this] { return helpers_ == 0; });
  }

  void take_tasks() {
    for (;;) {
      const int32_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= task_count_) return;
      task_(task_ctx_, i);
    }
  }

  // Looks for what another thread is about to do, for as long as it may; sleeping on it comes after.
  template <class Done>
  void look_until(Done done) const {
    if (linger_.count() == 0 || done()) return;
    const auto end = std::chrono::steady_clock::now() + linger_;
    while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return open_ || ending_; });
      if (ending_) return;
      ++helpers_;
      const uint32_t run = runs_.load(std::memory_order_relaxed);
      lock.unlock();
      take_tasks();
      lock.lock();
      open_ = false;  // every index has been taken
      if (--helpers_ == 0) left_.notify_one();
      lock.unlock();
      look_until([this, run] { return runs_.load(std::memory_order_acquire) != run; });
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, left_;
  bool open_ = false, ending_ = false;
  std::atomic<int32_t> helpers_{0};  // workers inside the run
  std::atomic<uint32_t> runs_{0};    // rises when one begins
  const std::chrono::microseconds linger_;
  sslm_task_fn task_ = nullptr;
  void* task_ctx_ = nullptr;
  int32_t task_count_ = 0;
  std::atomic<int32_t> next_{0};
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace superslm_jobs

#endif  // SUPERSLM_JOBS_HPP
