// The interface to PyTorch's autograd. An operation computes its result, then records how its gradient is computed.
// graph.cpp is the only file that includes autograd's headers, which cost seconds of build time per file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

namespace automodel::ops {

/// The gradient of one operation. Owns the tensors that it needs; they are freed as soon as backward() returns.
class Backward {
 public:
  Backward() = default;
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;
  virtual ~Backward() = default;
  /// `gradients` has one for each output, undefined where none flowed back. Returns one for each recorded input, which
  /// may be undefined where `needed` is false. Called at most once, with recording off.
  virtual std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) = 0;
  /// Calls `visit` with each activation saved for backward(), to be inspected or replaced by an equal one; not with
  /// parameters, tables or tensors owned elsewhere.
  virtual void visit_saved(const std::function<void(at::Tensor&)>& visit) { static_cast<void>(visit); }
  virtual const char* name() const = 0;
};

/// True if recording is on and one of `inputs` requires a gradient.
bool records(const std::vector<at::Tensor>& inputs);
/// Makes `outputs` (new tensors, computed outside of autograd) the results of an operation on `inputs`.
void record(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
            std::unique_ptr<Backward> backward);

/// The operations recorded on this thread while a Scope for this list is alive. Does not keep them alive.
class Recorded {
 public:
  /// Visits the operations' saved activations (Backward::visit_saved), each with the index of its operation, in
  /// recording order; skips operations that are gone or have already run backward.
  void visit_saved(const std::function<void(std::size_t operation, at::Tensor& saved)>& visit) const;

  class Scope {
   public:
    explicit Scope(Recorded& list);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Recorded* before_;
  };

 private:
  friend void record(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&, std::unique_ptr<Backward>);
  std::vector<std::weak_ptr<void>> nodes_ = {};
};

/// Runs the backward pass from `outputs` with `gradients`; gradients of leaves are accumulated in their grad().
void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients);

/// The graph node that produced a tensor, without the tensor: a starting point for a backward pass. Keeps the graph
/// behind it alive.
class Origin {
 public:
  Origin() = default;
  /// `result` must be part of a graph.
  explicit Origin(const at::Tensor& result);
  bool defined() const { return node_ != nullptr; }

 private:
  friend void run_backward(const Origin& origin, const at::Tensor& gradient);
  std::shared_ptr<void> node_ = {};
  std::uint32_t output_ = 0;
};
/// Runs the backward pass from `origin`, given the gradient of the tensor that it was taken from.
void run_backward(const Origin& origin, const at::Tensor& gradient);

/// The same data as a leaf that gradients flow into.
at::Tensor leaf(const at::Tensor& data);

/// While alive, operations compute without recording and without autograd's dispatch layers.
struct NoGraph {
  c10::AutoGradMode mode{false};
  at::AutoDispatchBelowADInplaceOrView below;
};

/// While alive, operations record: for a recomputed forward pass inside a backward pass.
struct WithGraph {
  c10::AutoGradMode mode{true};
};

/// A one-element tensor that requires a gradient: an extra input for operations whose real inputs have none (token
/// ids), so that the backward pass reaches their parameters.
at::Tensor anchor(at::Device device);

}  // namespace automodel::ops
