// A small Llama with weights and gradients in float64 that no storage owns.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "base/error.h"
#include "model/stage_model.h"

namespace automodel::test {

constexpr int kVocab = 13, kLayers = 3;

struct SmallModel {
  arch::ModelSpec spec;
  arch::Layout layout;

  /// `more`: further keys of config.json, with a comma before each.
  explicit SmallModel(const std::string& more = "", const std::string& type = "llama") {
    const auto parsed = arch::parse_hf_config(
        fmt::format(R"({{"model_type": "{}", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": {},
                     "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": {},
                     "max_position_embeddings": 64, "tie_word_embeddings": false{}}})",
                    type, kLayers, kVocab, more),
        "config.json");
    AUTOMODEL_CHECK(parsed.spec.has_value() && parsed.errors.empty(), "the small model's config");
    spec = *parsed.spec;
    layout = arch::layout_of(spec);
  }

  model::StageModules all() const { return part(0, kLayers); }
  /// Layers [begin, end), with the embedding if they are the first and norm and head if they are the last.
  static model::StageModules part(int begin, int end) {
    model::StageModules out{.embeddings = begin == 0, .norm = end == kLayers, .head = end == kLayers};
    for (int layer = begin; layer < end; ++layer) out.layers.push_back(layer);
    return out;
  }

  /// A stage whose values depend on names only, and whose gradients are zero.
  std::unique_ptr<model::StageModel> stage(const model::StageModules& modules,
                                           const plan::Execution& execution = {}) const {
    auto out = std::make_unique<model::StageModel>(spec, layout, modules,
                                                   model::StageOptions{.type = at::kDouble, .execution = execution});
    for (const auto& weight : out->weights().all()) fill(weight->parameter);
    return out;
  }

  static void fill(ops::Parameter& parameter) {
    double phase = 0;
    for (const char letter : parameter.name) phase = std::fmod(phase * 1.7 + letter, 10);
    const bool norm = parameter.shape.size() == 1;
    const auto values = at::sin(at::arange(parameter.numel(), at::kDouble) * 1.3 + phase) * (norm ? 0.1 : 0.4);
    parameter.value = (norm ? values + 1 : values).view(parameter.shape);
    parameter.grad = at::zeros(parameter.shape, at::kDouble);
    parameter.fresh = false;
  }
};

/// One sequence of `tokens` tokens that begins with token `first`; each predicts the next.
inline model::Microbatch sequence(int first, std::int64_t tokens = 6) {
  const auto ids = (at::arange(tokens, at::kLong) * 5 + first).remainder(kVocab).unsqueeze(0);
  return {.ids = ids,
          .labels = (ids + 5).remainder(kVocab),
          .positions = at::arange(tokens, at::kLong).unsqueeze(0),
          .length = tokens,
          .label_tokens = tokens};
}

}  // namespace automodel::test
