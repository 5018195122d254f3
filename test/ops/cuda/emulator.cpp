// Runs the threads of kernels and checks their memory accesses. This file itself is not compiled with
// -fsanitize=thread: the hooks below are what that option calls.
#include <algorithm>
#include <csetjmp>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>
#include <utility>

#include <pthread.h>
#include <ucontext.h>

#include "ops/cuda/emulated_cuda.h"

extern "C" char __data_start, _end;  // NOLINT: the linker's names

namespace emulated {
namespace {

constexpr std::size_t kStack = 64 * 1024;
constexpr unsigned kWarp = 32;

/// An access to a granule of memory. A granule keeps its last writer and two readers.
struct Access {
  std::uint32_t block = ~0U, thread = 0, epoch = 0, warp_epoch = 0;
  bool any() const { return block != ~0U; }
};
struct Granule {
  Access writer = {}, reader = {}, other_reader = {};
  bool written = false;
};
constexpr std::size_t kGranule = 1;

struct Region {
  std::uintptr_t begin = 0, size = 0;
  std::vector<Granule> granules = {};
};

enum class State : std::int8_t { kReady, kAtBarrier, kAtWarp, kDone };

/// A place to go on. Only the first switch to a fiber is ucontext.h's: each of those enters the kernel twice, for the
/// mask of signals, which took three quarters of a test's time.
struct Place {
  std::jmp_buf jump = {};
  ucontext_t begin = {};
  bool begun = false;
};

struct Fiber {
  Place place = {};
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
  Index index = {};
  State state = State::kReady;
  std::uint32_t warp_epoch = 0;
};

struct Warp {
  std::uint64_t brought[2][kWarp] = {};
  unsigned arrived = 0, phase = 0;
};

struct Machine {
  std::mt19937_64 random = std::mt19937_64(1);
  std::map<std::uintptr_t, Region> buffers = {};
  std::unordered_map<std::uintptr_t, Granule> shared = {};  // of the running block
  std::vector<Fiber> fibers = {};
  std::vector<Warp> warps = {};
  std::vector<unsigned> ready = {};
  std::vector<char> dynamic = {};
  std::size_t dynamic_bytes = 0;
  Place scheduler = {};
  void (*start)(const void*) = nullptr;
  const void* arguments = nullptr;
  std::size_t arguments_size = 0;
  Index block = {}, grid = {};
  unsigned current = 0, threads = 0, at_barrier = 0;
  std::uint32_t epoch = 0;
  bool inside = false, watched = true;
  std::string fault = {};
};

Machine& machine() {
  static Machine all;
  return all;
}

std::string who(const Machine& m) {
  return "block " + std::to_string(m.block.x) + ", thread " + std::to_string(m.current);
}

void change(Place& from, Place& to) {
  if (_setjmp(from.jump) != 0) return;
  if (to.begun) _longjmp(to.jump, 1);
  to.begun = true;
  setcontext(&to.begin);
}

/// Returns to the scheduler for good.
[[noreturn]] void fail(Machine& m, const std::string& what) {
  m.fault = who(m) + ": " + what;
  m.inside = false;
  change(m.fibers[m.current].place, m.scheduler);
  std::abort();
}

void leave(Machine& m, State state) {
  m.fibers[m.current].state = state;
  m.inside = false;
  change(m.fibers[m.current].place, m.scheduler);
  m.inside = true;
}

bool ordered(const Machine& m, const Access& before) {
  if (!before.any() || (before.block == m.block.x && before.thread == m.current)) return true;
  if (before.block != m.block.x) return false;
  if (before.epoch < m.epoch) return true;
  return before.thread / kWarp == m.current / kWarp && before.warp_epoch < m.fibers[m.current].warp_epoch;
}

void touch(Machine& m, Granule& granule, bool write, const char* where) {
  const Access now = {m.block.x, m.current, m.epoch, m.fibers[m.current].warp_epoch};
  if (!write && !granule.written) fail(m, std::string("reads ") + where + " that nobody wrote");
  if (!ordered(m, granule.writer))
    fail(m, std::string(write ? "writes " : "reads ") + where + " that block " + std::to_string(granule.writer.block) +
                ", thread " + std::to_string(granule.writer.thread) + " writes without a barrier between them");
  if (write) {
    for (const auto* reader : {&granule.reader, &granule.other_reader})
      if (!ordered(m, *reader))
        fail(m, std::string("writes ") + where + " that block " + std::to_string(reader->block) + ", thread " +
                    std::to_string(reader->thread) + " reads without a barrier between them");
    granule.writer = now;
    granule.written = true;
    return;
  }
  if (granule.reader.any() && (granule.reader.block != now.block || granule.reader.thread != now.thread))
    granule.other_reader = granule.reader;
  granule.reader = now;
}

void look(std::uintptr_t address, std::size_t size, bool write) {
  auto& m = machine();
  if (!m.inside || !m.watched) return;
  const auto& stack = m.fibers[m.current].stack;
  const auto low = reinterpret_cast<std::uintptr_t>(stack.get());
  if (address >= low && address + size <= low + kStack) return;
  auto after = m.buffers.upper_bound(address);
  if (after != m.buffers.begin()) {
    auto& region = std::prev(after)->second;
    if (address < region.begin + region.size) {
      if (address + size > region.begin + region.size) fail(m, "reaches over the end of a buffer");
      for (auto at = (address - region.begin) / kGranule; at * kGranule < address - region.begin + size; ++at)
        touch(m, region.granules[at], write, "a buffer's element");
      return;
    }
  }
  const auto dynamic = reinterpret_cast<std::uintptr_t>(m.dynamic.data());
  const bool in_image =
      address >= reinterpret_cast<std::uintptr_t>(&__data_start) && address < reinterpret_cast<std::uintptr_t>(&_end);
  if (in_image || (address >= dynamic && address + size <= dynamic + m.dynamic_bytes)) {
    for (auto at = address / kGranule; at * kGranule < address + size; ++at)
      touch(m, m.shared[at], write, "shared memory");
    return;
  }
  const auto arguments = reinterpret_cast<std::uintptr_t>(m.arguments);
  if (!write && address >= arguments && address + size <= arguments + m.arguments_size) return;
  fail(m, std::string(write ? "writes" : "reads") + " outside every buffer");
}

/// A fiber: a thread of each block in turn.
void run_threads() {
  auto& m = machine();
  while (true) {
    m.start(m.arguments);
    leave(m, State::kDone);
  }
}

void prepare(Fiber& fiber) {
  getcontext(&fiber.place.begin);
  fiber.place.begin.uc_stack = {fiber.stack.get(), 0, kStack};
  fiber.place.begin.uc_link = nullptr;
  makecontext(&fiber.place.begin, run_threads, 0);
}

void run_block(Machine& m) {
  m.shared.clear();
  m.warps.assign((m.threads + kWarp - 1) / kWarp, {});
  m.epoch = 0;
  m.at_barrier = 0;
  m.ready.clear();
  for (unsigned t = 0; t < m.threads; ++t) {
    auto& fiber = m.fibers[t];
    fiber.index = {t};
    fiber.state = State::kReady;
    fiber.warp_epoch = 0;
    if (!fiber.place.begun) prepare(fiber);
    m.ready.push_back(t);
  }
  unsigned done = 0;
  while (!m.ready.empty()) {
    const auto pick = m.random() % m.ready.size();
    m.current = m.ready[pick];
    m.ready[pick] = m.ready.back();
    m.ready.pop_back();
    m.inside = true;
    change(m.scheduler, m.fibers[m.current].place);
    m.inside = false;
    if (!m.fault.empty()) return;
    done += m.fibers[m.current].state == State::kDone ? 1 : 0;
    if (m.at_barrier == m.threads) {
      ++m.epoch;
      m.at_barrier = 0;
      for (unsigned t = 0; t < m.threads; ++t) m.ready.push_back(t);
    }
  }
  if (done != m.threads)
    m.fault = "block " + std::to_string(m.block.x) + ": threads wait for others that do not come to the same barrier";
}

}  // namespace

void watch(bool on) {
  machine().watched = on;
}

void seed(std::uint64_t seed) {
  machine().random.seed(seed);
}

void run(unsigned blocks, unsigned threads, std::size_t shared_bytes, void (*start)(const void*), const void* arguments,
         std::size_t size) {
  static std::mutex one_kernel;  // ranks of a test are threads and share one machine
  const std::lock_guard lock(one_kernel);
  auto& m = machine();
  m.start = start;
  m.arguments = arguments;
  m.arguments_size = size;
  m.threads = threads;
  m.grid = {blocks};
  m.scheduler.begun = true;
  m.fibers.resize(std::max<std::size_t>(m.fibers.size(), threads));
  m.dynamic_bytes = shared_bytes;
  m.dynamic.resize(std::max(m.dynamic.size(), shared_bytes + 16));
  for (auto& [begin, region] : m.buffers)
    for (auto& granule : region.granules) granule.writer = granule.reader = granule.other_reader = {};
  std::vector<unsigned> order(blocks);
  for (unsigned b = 0; b < blocks; ++b) order[b] = b;
  std::shuffle(order.begin(), order.end(), m.random);
  for (const unsigned b : order) {
    m.block = {b};
    std::fill(m.dynamic.begin(), m.dynamic.end(), '\xff');
    run_block(m);
    if (!m.fault.empty()) {
      for (auto& fiber : m.fibers) fiber.place.begun = false;  // some are in the middle of this block
      const auto what = std::exchange(m.fault, "");
      throw Fault(what);
    }
  }
}

Index thread() {
  auto& m = machine();
  return m.fibers[m.current].index;
}
Index block() {
  return machine().block;
}
Index grid() {
  return machine().grid;
}
void* dynamic_shared_bytes() {
  return machine().dynamic.data();
}

void block_barrier() {
  auto& m = machine();
  ++m.at_barrier;
  leave(m, State::kAtBarrier);
}

void must_be_multiple(const void* address, std::size_t size) {
  auto& m = machine();
  if (m.inside && reinterpret_cast<std::uintptr_t>(address) % size != 0)
    fail(m, "a pack that does not begin at a multiple of its size");
}

namespace {

/// Contributes `bits` and waits for the other lanes; returns the bits of all lanes.
const std::uint64_t* meet(unsigned mask, std::uint64_t bits) {
  auto& m = machine();
  if (mask != ~0U) fail(m, "a warp's operation without all of its lanes");
  auto& warp = m.warps[m.current / kWarp];
  const auto* all = warp.brought[warp.phase];
  warp.brought[warp.phase][m.current % kWarp] = bits;
  if (++warp.arrived == kWarp) {
    warp.arrived = 0;
    warp.phase ^= 1U;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      const unsigned thread = m.current / kWarp * kWarp + lane;
      if (thread != m.current) m.ready.push_back(thread);
    }
  } else {
    leave(m, State::kAtWarp);
  }
  return all;
}

}  // namespace

std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source) {
  return meet(mask, bits)[source % kWarp];
}
unsigned ballot(unsigned mask, bool value) {
  const auto* all = meet(mask, value ? 1 : 0);
  unsigned out = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) out |= all[lane] != 0 ? 1U << lane : 0U;
  return out;
}

void add_buffer(void* bytes, std::size_t size, bool written) {
  Region region = {reinterpret_cast<std::uintptr_t>(bytes), size, {}};
  region.granules.resize((size + kGranule - 1) / kGranule);
  for (auto& granule : region.granules) granule.written = written;
  if (size > 0) machine().buffers[region.begin] = std::move(region);
}
void remove_buffer(void* bytes) {
  machine().buffers.erase(reinterpret_cast<std::uintptr_t>(bytes));
}

}  // namespace emulated

// What -fsanitize=thread calls.
extern "C" {
void __tsan_init();
void __tsan_func_entry(void*);
void __tsan_func_exit();
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define AUTOMODEL_HOOK(name, size, write)                                   \
  void name(void* address);                                                 \
  void name(void* address) {                                                \
    emulated::look(reinterpret_cast<std::uintptr_t>(address), size, write); \
  }
#define AUTOMODEL_HOOKS(size)                              \
  AUTOMODEL_HOOK(__tsan_read##size, size, false)           \
  AUTOMODEL_HOOK(__tsan_write##size, size, true)           \
  AUTOMODEL_HOOK(__tsan_unaligned_read##size, size, false) \
  AUTOMODEL_HOOK(__tsan_unaligned_write##size, size, true)
AUTOMODEL_HOOKS(1)
AUTOMODEL_HOOKS(2)
AUTOMODEL_HOOKS(4)
AUTOMODEL_HOOKS(8)
AUTOMODEL_HOOKS(16)
void __tsan_read_range(void* address, unsigned long size);
void __tsan_read_range(void* address, unsigned long size) {
  emulated::look(reinterpret_cast<std::uintptr_t>(address), size, false);
}
void __tsan_write_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size) {
  emulated::look(reinterpret_cast<std::uintptr_t>(address), size, true);
}
}
