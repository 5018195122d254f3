// Definition of a model family: how its config.json is read and how its parameters are named. Families use the same
// function names, each in its own namespace.
#pragma once

#include <span>
#include <string_view>

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

struct TensorPlan;

/// Adds the rows of a tensor-parallel plan for the modules of layers.
using PlanTensors = void (*)(const Layout& layout, TensorPlan& plan);
inline constexpr PlanTensors kNoTensorPlan = nullptr;
/// Divides attention and feed-forward projections by their parts, as the default plan does, and leaves the tokens of
/// norms whole: what transformers' plans of most families say. Experts are not part of a plan:
/// expert_tensor_parallel_size divides them.
void divide_by_part(const Layout& layout, TensorPlan& plan);

/// A part of module names that NeMo AutoModel's own class of a family spells otherwise than transformers.
struct NemoSpelling {
  std::string_view own, nemo;
};

struct Family {
  std::string_view model_type;    ///< of config.json
  std::string_view architecture;  ///< transformers' class of the language model
  std::string_view doc;           ///< one-line description
  /// Fills `spec` from a transformers 4 or 5 config. Problems are reported through the reader.
  void (*read)(ConfigReader& config, ModelSpec& spec);
  /// Adds the modules of one layer, with checkpoint names relative to the layer.
  void (*lay_out_layer)(const ModelSpec& spec, int number, LayerBuilder& layer);
  /// The family's plan in transformers, for tp_plan: auto.
  PlanTensors plan_tensors = kNoTensorPlan;
  /// Sets the names of the modules outside the layers; nullptr: Llama's.
  void (*lay_out_ends)(const ModelSpec& spec, Layout& layout) = nullptr;
  std::span<const NemoSpelling> nemo_spellings = {};  ///< by which recipes may select modules, too
};

}  // namespace automodel::arch
