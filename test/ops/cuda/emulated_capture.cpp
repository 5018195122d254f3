#include "ops/cuda/emulated_capture.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "ops/cuda/emulated_flash.h"
#include "ops/flash_attention.h"
#include "ops/graph.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

/// A dispatch key below autograd, so that what autograd saves is seen too. LibTorch itself registers nothing for it.
constexpr auto kKey = c10::DispatchKey::Fake;

std::atomic<int> operations = 0, kernels = 0, waits = 0;

/// A snapshot of a storage's bytes.
struct Contents {
  c10::Storage storage;
  std::vector<char> bytes;
  std::string seen_by;
  Contents(const c10::Storage& of, std::string by)
      : storage(of),
        bytes(static_cast<const char*>(of.data()), static_cast<const char*>(of.data()) + of.nbytes()),
        seen_by(std::move(by)) {}
  void put_back() { std::memcpy(storage.mutable_data(), bytes.data(), bytes.size()); }
};

/// True for host scalars, which kernels receive by value.
bool is_number(const at::Tensor& x) {
  return x.unsafeGetTensorImpl()->is_wrapped_number();
}

/// References to each storage from all tapes. On a GPU these would be bare addresses, so they do not count as owners.
std::mutex references_lock;
std::map<c10::StorageImpl*, std::size_t> references;

/// A recording of captured calls.
class Tape : public CapturedWork {
 public:
  void replay() override;
  void add(std::function<void()> call) { calls_.push_back(std::move(call)); }
  /// The tensor to record for x: the same memory without the autograd graph.
  at::Tensor kept(const at::Tensor& x) {
    if (!x.defined() || !x.has_storage() || is_number(x)) return x;
    const NoGraph guard;
    auto out = x.detach();
    refer(out.storage().unsafeGetStorageImpl());
    return out;
  }
  /// Called before an operation uses x: snapshots memory from outside the capture.
  void see(const at::Tensor& x, const std::string& by) {
    if (!x.defined() || !x.has_storage() || is_number(x)) return;
    auto* storage = x.storage().unsafeGetStorageImpl();
    if (!inside_.contains(storage) && outside_.try_emplace(storage, x.storage(), by).second) refer(storage);
  }
  /// Called for each result x of an operation: memory not known from outside belongs to the capture.
  void made(const at::Tensor& x) {
    if (!x.defined() || !x.has_storage()) return;
    auto* storage = x.storage().unsafeGetStorageImpl();
    if (!outside_.contains(storage)) inside_.try_emplace(storage, x.storage());
  }
  ~Tape() override {
    const std::lock_guard lock(references_lock);
    for (const auto& [storage, count] : mine_) references[storage] -= count;
  }
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  /// Ends the capture: restores the memory outside, so that the capture has no effect.
  void end() {
    for (auto& [storage, contents] : outside_) {
      contents.put_back();
      contents.bytes.clear();
      contents.bytes.shrink_to_fit();
    }
  }

 private:
  std::vector<std::function<void()>> calls_ = {};
  std::map<c10::StorageImpl*, Contents> outside_ = {};
  std::map<c10::StorageImpl*, c10::Storage> inside_ = {};
  std::map<c10::StorageImpl*, std::size_t> mine_ = {};

  void refer(c10::StorageImpl* storage) {
    const std::lock_guard lock(references_lock);
    ++references[storage];
    ++mine_[storage];
  }
};

thread_local Tape* current = nullptr;

void Tape::replay() {
  const NoGraph guard;
  for (const auto& [storage, contents] : outside_) {
    const std::lock_guard lock(references_lock);
    if (contents.storage.use_count() <= references[storage])
      throw std::logic_error("captured work: memory that " + contents.seen_by + " used was freed before a replay");
  }
  for (const auto& [storage, known] : inside_) std::memset(storage->mutable_data(), 0xff, storage->nbytes());
  for (const auto& call : calls_) call();
}

/// True for operations that give the host information on a tensor's contents.
bool waits_for_device(const std::string& name) {
  for (const char* each :
       {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero", "aten::equal",
        "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"})
    if (name == each) return true;
  return false;
}

void for_tensors(const c10::IValue& value, const std::function<void(const at::Tensor&)>& call) {
  if (value.isTensor()) return call(value.toTensor());
  if (value.isList())
    for (const c10::IValue& each : value.toListRef()) for_tensors(each, call);
}

c10::IValue kept(Tape& tape, const c10::IValue& value) {
  if (value.isTensor()) return tape.kept(value.toTensor());
  if (!value.isList()) return value;
  auto out = value.toList().copy();
  for (std::size_t i = 0; i < out.size(); ++i) out.set(i, kept(tape, out.get(i)));
  return out;
}

/// Copies the results of a replayed call to where the captured call put them, unless it already wrote them in place.
void put_results(const std::vector<c10::IValue>& captured, const std::vector<c10::IValue>& now) {
  std::vector<at::Tensor> to, from;
  for (const auto& value : captured) for_tensors(value, [&](const at::Tensor& x) { to.push_back(x); });
  for (const auto& value : now) for_tensors(value, [&](const at::Tensor& x) { from.push_back(x); });
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i].defined() && to[i].has_storage() && !to[i].is_alias_of(from.at(i))) {
      auto place = to[i];
      place.copy_(from[i]);
    }
}

/// Called for all operations of a capturing thread. Operations called inside one are part of it and not recorded.
void capture_operation(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  const auto behind = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  auto* tape = current;
  if (tape == nullptr) return op.redispatchBoxed(behind, stack);
  const auto name = op.operator_name().name;
  if (waits_for_device(name)) {
    ++waits;
    throw std::logic_error("captured work: the host waits for the device in " + name);
  }
  ++operations;
  const auto count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  std::vector<c10::IValue> in;
  for (const auto& value : arguments) {
    for_tensors(value, [&](const at::Tensor& x) { tape->see(x, name); });
    in.push_back(kept(*tape, value));
  }
  op.redispatchBoxed(behind, stack);
  std::vector<c10::IValue> out;
  for (const auto& value : torch::jit::last(*stack, op.schema().returns().size())) {
    for_tensors(value, [&](const at::Tensor& x) { tape->made(x); });
    out.push_back(kept(*tape, value));
  }
  tape->add([op, in, out] {
    torch::jit::Stack again(in.begin(), in.end());
    op.callBoxed(&again);
    put_results(out, again);
  });
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&capture_operation>());
}

class Capture : public WorkCapture {
 public:
  explicit Capture(std::function<std::vector<at::Tensor>()> stays) : stays_(std::move(stays)) {}
  void run(const std::function<void()>& work) override { work(); }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) override {
    auto tape = std::make_unique<Tape>();
    for (const auto& each : stays_()) tape->see(each, "a kernel");
    current = tape.get();
    const Current guard;
    {
      const c10::impl::IncludeDispatchKeyGuard captured(kKey);
      work();
    }
    tape->end();
    return tape;
  }

 private:
  struct Current {
    Current() = default;
    ~Current() { current = nullptr; }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
  };
  std::function<std::vector<at::Tensor>()> stays_;
};

/// The tables without the wrappers that record.
const DeviceKernels* bare_kernels = nullptr;
const FlashKernels* bare_flash = nullptr;

template <auto Member>
struct Captured;
template <class... Arguments, void (*DeviceKernels::*Member)(Arguments...)>
struct Captured<Member> {
  static void call(Arguments... arguments) {
    (bare_kernels->*Member)(arguments...);
    if (current == nullptr) return;
    ++kernels;
    current->add([values = std::tuple<std::decay_t<Arguments>...>(arguments...)] {
      std::apply([](const auto&... each) { (bare_kernels->*Member)(each...); }, values);
    });
  }
  static void put(DeviceKernels& table) { table.*Member = call; }
};

/// Calls compute(in), which returns newly allocated tensors, and records the call.
template <class Compute>
auto captured_results(const std::vector<at::Tensor>& in, const Compute& compute) {
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  auto* tape = current;
  if (tape == nullptr) return compute(in);
  ++kernels;
  std::vector<at::Tensor> mine;
  for (const auto& x : in) {
    tape->see(x, "attention");
    mine.push_back(tape->kept(x));
  }
  const auto results = compute(mine);
  std::vector<at::Tensor> places;
  for (const auto& x : results) {
    tape->made(x);
    places.push_back(tape->kept(x));
  }
  tape->add([mine, places, compute] {
    const auto again = compute(mine);
    for (std::size_t i = 0; i < places.size(); ++i) places[i].copy_(again[i]);
  });
  return results;
}

FlashCall with(FlashCall call, const std::vector<at::Tensor>& in) {
  call.q = in[0];
  call.k = in[1];
  call.v = in[2];
  call.starts = in[3];
  return call;
}

std::pair<at::Tensor, at::Tensor> flash_forward(const FlashCall& call) {
  const auto out = captured_results({call.q, call.k, call.v, call.starts},
                                    [call = with(call, std::vector<at::Tensor>(4))](const std::vector<at::Tensor>& in) {
                                      const auto [result, logsum] = bare_flash->forward(with(call, in));
                                      return std::vector<at::Tensor>{result, logsum};
                                    });
  return {out[0], out[1]};
}

std::array<at::Tensor, 3> flash_backward(const at::Tensor& gradient, const FlashCall& call, const at::Tensor& result,
                                         const at::Tensor& logsum) {
  const auto out = captured_results({call.q, call.k, call.v, call.starts, gradient, result, logsum},
                                    [call = with(call, std::vector<at::Tensor>(4))](const std::vector<at::Tensor>& in) {
                                      const auto all = bare_flash->backward(in[4], with(call, in), in[5], in[6]);
                                      return std::vector<at::Tensor>(all.begin(), all.end());
                                    });
  return {out[0], out[1], out[2]};
}

}  // namespace

MakeCapture emulated_capture(std::function<std::vector<at::Tensor>()> stays) {
  return [stays = std::move(stays)] { return std::make_unique<Capture>(stays); };
}

CapturedCalls captured_calls() {
  return {operations, kernels, waits};
}

void capture_kernels() {
  if (bare_kernels != nullptr) return;
  static FlashKernels flash;
  static DeviceKernels table;
  bare_kernels = device_kernels(at::zeros({1}));
  table = *bare_kernels;
  Captured<&DeviceKernels::norm_forward>::put(table);
  Captured<&DeviceKernels::norm_backward>::put(table);
  Captured<&DeviceKernels::rope>::put(table);
  Captured<&DeviceKernels::gate_forward>::put(table);
  Captured<&DeviceKernels::gate_backward>::put(table);
  Captured<&DeviceKernels::paired_gate_forward>::put(table);
  Captured<&DeviceKernels::paired_gate_backward>::put(table);
  Captured<&DeviceKernels::cross_entropy>::put(table);
  Captured<&DeviceKernels::logit_statistics>::put(table);
  Captured<&DeviceKernels::logit_gradient>::put(table);
  Captured<&DeviceKernels::embedding_backward>::put(table);
  compute_on_host_with(&table);
  bare_flash = emulated_flash();
  flash = {flash_forward, flash_backward};
  flash_on_host_with(&flash);
}

}  // namespace automodel::ops
