// A stage that computes nothing: it checks what it gets and writes down what it is told to do.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "pipeline/stage_runner.h"

namespace automodel::test {

/// What happened on a rank, in order: "F0.1" (stage 0, microbatch 1), "UNSHARD 0", ...; and what went wrong.
struct RankLog {
  std::vector<std::string> events = {};
  std::vector<std::string> problems = {};
};

class FakeStage : public pipeline::StageRunner, public pipeline::StageSharding {
 public:
  /// `stages`: of the whole pipeline.
  FakeStage(schedule::Stage number, int stages, RankLog& log) : number_(number), stages_(stages), log_(log) {}

  schedule::Stage number() const override { return number_; }
  pipeline::StageSharding* sharding() override { return this; }

  void begin(int microbatches) override {
    expect(!running_, "begins twice");
    running_ = true;
    waiting_.clear();
    backwards_left_ = microbatches;
    weights_left_ = microbatches;
  }
  pipeline::Message forward(int microbatch, const pipeline::Message& input) override {
    compute("F", microbatch);
    check(input, number_.value > 0, kActivation, number_.value - 1, microbatch);
    return message(kActivation, number_.value, microbatch);
  }
  pipeline::Message backward(int microbatch, const pipeline::Message& gradient) override {
    compute("B", microbatch);
    --weights_left_;
    return gradient_of(microbatch, gradient);
  }
  pipeline::Message backward_input(int microbatch, const pipeline::Message& gradient) override {
    compute("I", microbatch);
    waiting_.insert(microbatch);
    return gradient_of(microbatch, gradient);
  }
  void weight_gradients(int microbatch) override {
    note(fmt::format("W{}.{}", number_.value, microbatch));
    expect(accumulating_, "weight gradients without memory");
    expect(waiting_.erase(microbatch) == 1, "weight gradients that nothing deferred");
    --weights_left_;
  }
  void end() override {
    expect(running_, "ends without having begun");
    expect(backwards_left_ == 0 && weights_left_ == 0 && waiting_.empty(), "ends before its gradients are complete");
    expect(!whole_, "ends with whole weights");
    expect(reductions_ == 1, "gradients were not reduced exactly once");
    running_ = false;
    reductions_ = 0;
  }

  void unshard() override {
    note(fmt::format("UNSHARD {}", number_.value));
    expect(!whole_, "unsharded twice");
    whole_ = true;
  }
  void reshard() override {
    note(fmt::format("RESHARD {}", number_.value));
    expect(whole_, "resharded without having been unsharded");
    whole_ = false;
  }
  void reduce(bool last) override {
    note(fmt::format("REDUCE {}{}", number_.value, last ? " last" : ""));
    expect(weights_left_ == 0, "gradients are reduced before they are complete");
    ++reductions_;
  }
  void last_backward() override { note(fmt::format("LAST {}", number_.value)); }
  void weight_gradients_begin() override { accumulating_ = true; }
  void weight_gradients_done() override { accumulating_ = false; }
  void settle() override {}

 private:
  static constexpr double kActivation = 1, kGradient = -1;

  void note(std::string event) { log_.events.push_back(std::move(event)); }
  void expect(bool condition, const std::string& otherwise) {
    if (!condition) log_.problems.push_back(fmt::format("stage {} {}", number_.value, otherwise));
  }
  void compute(const char* what, int microbatch) {
    note(fmt::format("{}{}.{}", what, number_.value, microbatch));
    expect(running_, "computes outside of a run");
    expect(whole_, "computes without its weights");
  }
  static pipeline::Message message(double kind, int stage, int microbatch) {
    return {at::full({1, 1, 2}, kind * (1000 * stage + microbatch), at::kFloat),
            at::full({3}, kind * (1000 * stage + microbatch + 0.5), at::kDouble)};
  }
  void check(const pipeline::Message& got, bool wanted, double kind, int stage, int microbatch) {
    const auto want = message(kind, stage, microbatch);
    const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
      return wanted ? a.defined() && at::equal(a, b) : !a.defined();
    };
    expect(same(got.value, want.value), fmt::format("got a wrong message for microbatch {}", microbatch));
    expect(same(got.side, want.side), fmt::format("got wrong side values for microbatch {}", microbatch));
  }
  pipeline::Message gradient_of(int microbatch, const pipeline::Message& gradient) {
    check(gradient, number_.value + 1 < stages_, kGradient, number_.value + 1, microbatch);
    --backwards_left_;
    return message(kGradient, number_.value, microbatch);
  }

  schedule::Stage number_;
  int stages_;
  RankLog& log_;
  bool running_ = false, whole_ = false, accumulating_ = false;
  int backwards_left_ = 0, weights_left_ = 0, reductions_ = 0;
  std::set<int> waiting_ = {};
};

}  // namespace automodel::test
