// Records the ATen operations that run while an observer exists.
#pragma once

#include <algorithm>
#include <functional>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

namespace automodel::test {

/// Calls `see` with every operation of this thread that ATen's dispatcher runs.
class ObservedCalls {
 public:
  using See = std::function<void(const at::RecordFunction& call)>;
  explicit ObservedCalls(See see) {
    current() = std::move(see);
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; },
            [](const at::RecordFunction& call, at::ObserverContext*) {
              if (current()) current()(call);
            })
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~ObservedCalls() {
    at::removeCallback(handle_);
    current() = nullptr;
  }
  ObservedCalls(const ObservedCalls&) = delete;
  ObservedCalls& operator=(const ObservedCalls&) = delete;

 private:
  static See& current() {
    thread_local See see;
    return see;
  }
  at::CallbackHandle handle_;
};

/// Number of elements of the largest tensor that `run` creates.
template <class Run>
std::int64_t largest_result(const Run& run) {
  std::int64_t most = 0;
  const ObservedCalls observed([&](const at::RecordFunction& call) {
    for (const auto& value : call.outputs())
      if (value.isTensor() && value.toTensor().defined()) most = std::max(most, value.toTensor().numel());
  });
  run();
  return most;
}

}  // namespace automodel::test
