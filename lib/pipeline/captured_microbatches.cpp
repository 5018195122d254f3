#include "pipeline/captured_microbatches.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::pipeline {
namespace {

/// True if the microbatch depends on host state, which captured work would freeze at its value during the capture.
bool depends_on_host(const model::Microbatch& data) {
  return data.segments.defined() || data.documents || data.routers || data.loads || data.choices || data.draw ||
         data.cache;
}

at::Tensor place_for(const at::Tensor& like) {
  return like.defined() ? at::empty_like(like, at::MemoryFormat::Contiguous) : at::Tensor();
}

}  // namespace

/// Input and output tensors at fixed addresses, and the work that was captured with them.
struct CapturedMicrobatches::Shape {
  model::Microbatch data = {};
  plan::Recompute recompute = plan::Recompute::kNone;
  at::Tensor loss_scale, seed, loss;  ///< one-element float64
  int warm_ups = 0;
  std::unique_ptr<ops::CapturedWork> work = {};

  Shape(const model::Microbatch& like, plan::Recompute kept) : recompute(kept) {
    data.ids = place_for(like.ids);
    data.labels = place_for(like.labels);
    data.positions = place_for(like.positions);
    data.real = place_for(like.real);
    data.length = like.length;
    data.extent = like.extent;
    const auto number = at::TensorOptions().dtype(at::kDouble).device(like.ids.device());
    loss_scale = at::empty({}, number);
    seed = at::empty({}, number);
    loss = at::empty({}, number);
  }
  bool fits(const model::Microbatch& other, plan::Recompute kept) const {
    return recompute == kept && data.ids.sizes() == other.ids.sizes() && data.length == other.length &&
           data.reach() == other.reach() && data.real.defined() == other.real.defined();
  }
  /// Copies in everything that differs between microbatches of the shape.
  void put(const model::Microbatch& other, const model::ForwardOptions& options) {
    const ops::NoGraph guard;
    data.ids.copy_(other.ids);
    data.labels.copy_(other.labels);
    data.positions.copy_(other.positions);
    if (data.real.defined()) data.real.copy_(other.real);
    loss_scale.fill_(options.loss_scale.value);
    seed.fill_(options.seed.value);
  }
};

CapturedMicrobatches::CapturedMicrobatches(Stage& stage, std::unique_ptr<ops::WorkCapture> capture)
    : stage_(stage), capture_(std::move(capture)) {
  AUTOMODEL_CHECK(capture_ != nullptr, "microbatches are captured without anything that captures");
}

CapturedMicrobatches::~CapturedMicrobatches() = default;

/// Null if the microbatch must run eagerly.
CapturedMicrobatches::Shape* CapturedMicrobatches::shape_of(const model::Microbatch& data, plan::Recompute recompute) {
  if (depends_on_host(data)) return nullptr;
  for (auto& shape : shapes_)
    if (shape->fits(data, recompute)) return shape.get();
  if (shapes_.size() == kMostShapes) return nullptr;
  return shapes_.emplace_back(std::make_unique<Shape>(data, recompute)).get();
}

at::Tensor CapturedMicrobatches::run(int number, const model::Microbatch& data, const model::ForwardOptions& options) {
  auto* shape = shape_of(data, options.recompute);
  if (shape == nullptr) {
    ++counts_.usual;
    return {};
  }
  shape->put(data, options);
  const auto work = [&] {
    const auto loss = stage_.forward(number, shape->data, {},
                                     {.loss_scale = ops::Factor(shape->loss_scale),
                                      .seed = ops::Factor(shape->seed),
                                      .recompute = shape->recompute});
    stage_.backward(number, shape->seed);
    const ops::NoGraph guard;
    shape->loss.copy_(loss);
  };
  if (shape->warm_ups < kWarmUps) {
    ++shape->warm_ups;
    ++counts_.warm_ups;
    capture_->run(work);
  } else {
    if (shape->work == nullptr) {
      ++counts_.captures;
      shape->work = capture_->capture(work);
    }
    ++counts_.replays;
    shape->work->replay();
  }
  const ops::NoGraph guard;
  return shape->loss.clone();  // the next replay overwrites it
}

}  // namespace automodel::pipeline
