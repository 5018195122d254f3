#include "ops/graph.h"

#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"

namespace automodel::ops {
namespace {

namespace autograd = torch::autograd;

thread_local Recorded* current_list = nullptr;  // per thread, because loopback ranks are threads of one process

/// What an operation has still to do: empty once it has run backward.
struct Pending {
  std::unique_ptr<Backward> backward;
};

class Node : public autograd::Node {
 public:
  explicit Node(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}
  std::string name() const override { return pending_->backward ? pending_->backward->name() : "released"; }
  void release_variables() override { pending_->backward.reset(); }
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    AUTOMODEL_CHECK(pending_->backward != nullptr, "the gradient of an operation is asked for twice");
    const auto backward = std::move(pending_->backward);
    std::vector<bool> needed(num_outputs());
    for (std::size_t i = 0; i < needed.size(); ++i) needed[i] = task_should_compute_output(i);
    return backward->backward(std::move(gradients), needed);
  }

 private:
  std::shared_ptr<Pending> pending_;
};

/// How LibTorch holds nodes: std::shared_ptr up to 2.12, then c10::intrusive_ptr.
using NodePointer = decltype(autograd::Edge::function);

template <class Made, class Pointer = NodePointer>
Pointer make_node(std::shared_ptr<Pending> pending) {
  if constexpr (std::is_constructible_v<Pointer, std::shared_ptr<Made>>)
    return std::make_shared<Made>(std::move(pending));
  else
    return c10::make_intrusive<Made>(std::move(pending));
}

}  // namespace

bool records(const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const auto& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

void record(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
            std::unique_ptr<Backward> backward) {
  const auto pending = std::make_shared<Pending>(std::move(backward));
  const auto node = make_node<Node>(pending);
  autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const auto& input : inputs)
    edges.push_back(input.defined() ? autograd::impl::gradient_edge(input) : autograd::Edge());
  node->set_next_edges(std::move(edges));
  if (current_list != nullptr) current_list->nodes_.push_back(pending);
  for (const auto& output : outputs) {
    if (output.defined())
      autograd::set_history(output, node);
    else
      node->add_input_metadata(autograd::Node::undefined_input());
  }
}

void Recorded::visit_saved(const std::function<void(std::size_t operation, at::Tensor& saved)>& visit) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (const auto pending = std::static_pointer_cast<Pending>(nodes_[i].lock()); pending && pending->backward)
      pending->backward->visit_saved([&](at::Tensor& saved) { visit(i, saved); });
}

Recorded::Scope::Scope(Recorded& list) : before_(current_list) {
  current_list = &list;
}
Recorded::Scope::~Scope() {
  current_list = before_;
}

namespace {

/// While alive, backward passes run entirely on the calling thread, on every device: queues of weight gradients and the
/// order of communication are per thread.
struct OnThisThread {
  bool before = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  OnThisThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
  ~OnThisThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(before); }
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;
};

}  // namespace

void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients) {
  const OnThisThread guard;
  autograd::edge_list roots;
  for (const auto& output : outputs) roots.push_back(autograd::impl::gradient_edge(output));
  autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
                                                 /*accumulate_grad=*/true, {});
}

Origin::Origin(const at::Tensor& result) {
  const auto edge = autograd::impl::gradient_edge(result);
  AUTOMODEL_CHECK(edge.function != nullptr, "a tensor without a graph has no origin");
  node_ = std::make_shared<NodePointer>(edge.function);
  output_ = edge.input_nr;
}

void run_backward(const Origin& origin, const at::Tensor& gradient) {
  const OnThisThread guard;
  const autograd::edge_list roots{autograd::Edge(*std::static_pointer_cast<NodePointer>(origin.node_), origin.output_)};
  autograd::Engine::get_default_engine().execute(roots, {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
                                                 /*accumulate_grad=*/true, {});
}

at::Tensor leaf(const at::Tensor& data) {
  auto out = data.detach();
  out.set_requires_grad(true);
  return out;
}

at::Tensor anchor(at::Device device) {
  auto out = at::zeros({1}, at::TensorOptions().device(device));
  out.set_requires_grad(true);
  return out;
}

}  // namespace automodel::ops
