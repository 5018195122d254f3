#include "ops/split.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "ops/graph.h"

namespace automodel::ops {
namespace {

class SplitBackward : public Backward {
 public:
  SplitBackward(std::vector<std::int64_t> shape, std::vector<std::int64_t> sizes, at::TensorOptions options)
      : shape_(std::move(shape)), sizes_(std::move(sizes)), options_(options) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    NoGraph guard;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) continue;
      auto shape = shape_;
      shape.back() = sizes_[i];
      gradients[i] = at::zeros(shape, options_);
    }
    return {at::cat(gradients, -1)};
  }
  const char* name() const override { return "split"; }

 private:
  std::vector<std::int64_t> shape_, sizes_;
  at::TensorOptions options_;
};

class AddBiasBackward : public Backward {
 public:
  explicit AddBiasBackward(Parameter& bias) : bias_(bias) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (gradients[0].defined() && bias_.trained()) {
      NoGraph guard;
      accumulate(bias_, gradients[0].reshape({-1, gradients[0].size(-1)}).sum(0));
    }
    return {gradients[0]};
  }
  const char* name() const override { return "add_bias"; }

 private:
  Parameter& bias_;
};

class TapBackward : public Backward {
 public:
  explicit TapBackward(std::function<void()> before) : before_(std::move(before)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    before_();
    return gradients;
  }
  const char* name() const override { return "tap"; }

 private:
  std::function<void()> before_;
};

}  // namespace

std::vector<at::Tensor> split(const at::Tensor& x, const std::vector<std::int64_t>& sizes) {
  std::vector<at::Tensor> parts;
  {
    NoGraph guard;
    std::int64_t begin = 0;
    for (const auto size : sizes) {
      parts.push_back(x.detach().narrow(-1, begin, size));
      begin += size;
    }
  }
  if (records({x})) record(parts, {x}, std::make_unique<SplitBackward>(x.sizes().vec(), sizes, x.options()));
  return parts;
}

at::Tensor add_bias(const at::Tensor& x, Parameter& bias) {
  at::Tensor y;
  {
    NoGraph guard;
    y = x.detach() + bias.value;
  }
  if (records({x})) record({y}, {x}, std::make_unique<AddBiasBackward>(bias));
  return y;
}

std::vector<at::Tensor> tap(const std::vector<at::Tensor>& values, std::function<void()> before) {
  if (!records(values)) return values;
  std::vector<at::Tensor> out;
  {
    NoGraph guard;
    for (const auto& value : values) out.push_back(value.defined() ? value.detach() : value);
  }
  record(out, values, std::make_unique<TapBackward>(std::move(before)));
  return out;
}

}  // namespace automodel::ops
