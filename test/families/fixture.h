// A tiny model that transformers trained, and its recorded results: test/golden/hf/models or, with weights and data
// generated from a seed, test/golden/hf_families.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "data/batch.h"
#include "parallel/data/unit_storage.h"

namespace automodel::test {

struct Fixture {
  std::string name = {};
  std::string model = {};  ///< value of a recipe's model.config, without its closing bracket
  nlohmann::json reference = {};
  std::map<std::string, at::Tensor> weights = {};
  std::map<std::string, at::Tensor> recorded = {};  ///< integers as int64

  const at::Tensor& at(const std::string& key) const { return recorded.at(key); }
  /// The weights, as a rank's storage asks for them: from a tensor of their name, or from their place in a saved
  /// folder.
  parallel::WeightSource source(const arch::ModelSpec& spec) const;
  /// Values of weights under the names of the recorded ones: those of experts that are one tensor there are joined.
  std::map<std::string, at::Tensor> as_recorded(std::map<std::string, at::Tensor> values,
                                                const arch::ModelSpec& spec) const;
};

/// From a folder with config.json, safetensors and reference.json; a plain name is a folder of test/golden/hf/models.
Fixture load_fixture(const std::string& name);
/// From test/golden/hf_families.
Fixture load_family(const std::string& name);
/// All names there, in order.
std::vector<std::string> family_fixtures();

/// The inputs of a recorded case ("plain", "padded", "leftpad", "packed") as a batch, filled up to `rows` with empty
/// rows.
data::Batch case_batch(const Fixture& fixture, const std::string& name, std::int64_t rows);
/// The batch of training step `step`.
data::Batch training_batch(const Fixture& fixture, std::int64_t step);

}  // namespace automodel::test
