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

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "superslm/parallel_for.h"

#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
#include <emmintrin.h>
#elif defined(_M_ARM64)
#include <intrin.h>
#endif
#if defined(__linux__)
#include <sched.h>
#elif defined(_WIN32)
extern "C" __declspec(dllimport) unsigned long __stdcall GetCurrentProcessorNumber(void);
#endif

namespace superslm_jobs {

// Runs every task on the calling thread: for hosts whose callbacks must stay there, and for tests.
inline void run_serially(void*, int32_t task_count, sslm_task_fn task, void* task_ctx) {
  for (int32_t i = 0; i < task_count; ++i) task(task_ctx, i);
}

// The processor this thread is on, as far as the system tells; -1 where it does not.
inline int32_t processor() {
#if defined(__linux__)
  return sched_getcpu();
#elif defined(_WIN32)
  return static_cast<int32_t>(GetCurrentProcessorNumber());
#else
  return -1;
#endif
}

// A breath between two looks at a variable that another thread will write; the processor stays ours.
inline void breathe() {
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
  _mm_pause();
#elif defined(_M_ARM64)
  __yield();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Worker threads that sleep on a condition variable until there is a run, and help the caller with it. One
// run at a time: give threads that call the library concurrently a pool each.
//
// A token is about a hundred runs with some microseconds between them, and waking a thread takes longer than
// that: after a run a worker looks for the next one for `linger`, and parks then. 0 parks at once.
//
// It keeps its processor while it looks: given to a stranger, however unimportant, it is gone for
// milliseconds. It gives way only where it is in the way: on the processor that the other side of the run is
// on (systems like to wake a thread where its waker runs), and in a pool of more threads than processors.
//
// Where other programs want the processors too, a worker may lose its own in the middle of a task, and the
// run takes longer than it would have without help. The caller then does without for eight times the loss,
// which keeps losses below a ninth of the time.
class Pool {
 public:
  explicit Pool(int workers, std::chrono::microseconds linger = std::chrono::microseconds(100))
      : linger_(linger), crowded_(std::thread::hardware_concurrency() <= static_cast<unsigned>(workers)) {
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

  // As many tasks as there are threads, the caller included: finer splits gain nothing.
  sslm_parallel_for hook(uint32_t flags = SSLM_PARALLEL_FOR_MATVEC) {
    return sslm_parallel_for{&Pool::run, this, static_cast<int32_t>(threads_.size()) + 1, flags};
  }

 private:
  using Clock = std::chrono::steady_clock;
  // More is no neighbour but a debugger or a suspended program, and says nothing about what comes next.
  static constexpr Clock::duration kMostLoss = std::chrono::milliseconds(25);

  static void run(void* self, int32_t task_count, sslm_task_fn task, void* task_ctx) {
    static_cast<Pool*>(self)->run(task_count, task, task_ctx);
  }

  void run(int32_t task_count, sslm_task_fn task, void* task_ctx) {
    const Clock::time_point start = Clock::now();
    if (start < alone_until_) return run_serially(nullptr, task_count, task, task_ctx);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      task_ = task;
      task_ctx_ = task_ctx;
      task_count_ = task_count;
      next_.store(0, std::memory_order_relaxed);
      open_ = true;
    }
    caller_at_.store(processor(), std::memory_order_relaxed);
    runs_.fetch_add(1, std::memory_order_release);
    wake_.notify_all();
    const int32_t own = take_tasks();
    const Clock::duration worked = Clock::now() - start;
    look_until([this] { return helpers_.load(std::memory_order_acquire) == 0; }, helper_at_);
    {
      std::unique_lock<std::mutex> lock(mutex_);
      open_ = false;  // a worker that wakes only now finds nothing to join
      left_.wait(lock, [this] { return helpers_ == 0; });
    }
    if (own == 0) return;
    const Clock::time_point end = Clock::now();
    const Clock::duration loss = end - start - worked * task_count / own;    // over doing every task here
    if (loss > linger_) alone_until_ = end + 8 * std::min(loss, kMostLoss);  // less is chance
  }

  // Runs tasks while there are some that no thread has taken; how many it ran.
  int32_t take_tasks() {
    for (int32_t own = 0;; ++own) {
      const int32_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= task_count_) return own;
      task_(task_ctx_, i);
    }
  }

  // Looks for what the other side is about to do, for as long as it may; sleeping on it comes after.
  template <class Done>
  void look_until(Done done, const std::atomic<int32_t>& other_at) const {
    if (linger_.count() == 0 || done()) return;
    const auto end = Clock::now() + linger_;
    while (!done() && Clock::now() < end) {
      if (in_the_way_of(other_at.load(std::memory_order_relaxed))) {
        std::this_thread::yield();
      } else {
        breathe();
      }
    }
  }

  bool in_the_way_of(int32_t other_at) const {
    return crowded_ || (other_at >= 0 && other_at == processor());
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return open_ || ending_; });
      if (ending_) return;
      ++helpers_;
      const uint32_t run = runs_.load(std::memory_order_relaxed);
      lock.unlock();
      helper_at_.store(processor(), std::memory_order_relaxed);
      take_tasks();
      lock.lock();
      open_ = false;  // every index has been taken
      if (--helpers_ == 0) left_.notify_one();
      lock.unlock();
      look_until([this, run] { return runs_.load(std::memory_order_acquire) != run; }, caller_at_);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, left_;
  bool open_ = false, ending_ = false;
  std::atomic<int32_t> helpers_{0};                     // workers inside the run
  std::atomic<uint32_t> runs_{0};                       // rises when one begins
  std::atomic<int32_t> caller_at_{-1}, helper_at_{-1};  // processors; of helpers, that of the last to join
  const std::chrono::microseconds linger_;
  const bool crowded_;
  Clock::time_point alone_until_{};  // the caller's
  sslm_task_fn task_ = nullptr;
  void* task_ctx_ = nullptr;
  int32_t task_count_ = 0;
  std::atomic<int32_t> next_{0};
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace superslm_jobs

#endif  // SUPERSLM_JOBS_HPP
