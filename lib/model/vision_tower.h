// The vision tower and the projector: from pixels to the rows that replace a picture's placeholder tokens.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/vision.h"
#include "model/weights.h"
#include "ops/linear.h"

namespace automodel::model {

class VisionTower {
 public:
  /// `weights` must outlive the tower.
  VisionTower(const arch::VisionSpec& spec, const Weights& weights);

  /// Units of the weights, innermost last.
  const std::vector<int>& units() const { return units_; }
  /// pixels [pictures, 3, side, side]. Returns [pictures * tokens, width of the decoder]. `anchor` (ops/graph.h) makes
  /// the result part of the graph; what is frozen up to the first trained weight is not recorded.
  at::Tensor forward(const at::Tensor& pixels, const at::Tensor& anchor) const;

 private:
  struct Norm {
    ops::Parameter *weight, *bias;
  };
  struct Layer {
    Norm before_attention, before_mlp;
    ops::Linear qkv, out, up, down;
  };
  /// [pictures, patches + 1, width]: the rows of the class token first.
  at::Tensor embed(const at::Tensor& pixels, const at::Tensor& anchor) const;
  at::Tensor encode(const at::Tensor& pixels, const at::Tensor& anchor) const;
  at::Tensor project(const at::Tensor& x) const;
  /// Attention of a picture's rows to each other.
  at::Tensor attend(const Layer& layer, const at::Tensor& y) const;

  arch::VisionSpec spec_;
  std::vector<int> units_ = {};
  ops::Parameter *class_row_, *patches_, *positions_;
  Norm first_norm_;
  std::vector<Layer> layers_ = {};
  ops::Linear first_, second_;  ///< of the projector
  bool tower_trained_ = false, projector_trained_ = false;
};

}  // namespace automodel::model
