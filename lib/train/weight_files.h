// Weights from safetensors folders: each rank reads only the bytes that it keeps.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "base/diagnostic.h"
#include "checkpoint/format/adapter.h"
#include "checkpoint/format/element_type.h"
#include "checkpoint/format/tensor_folder.h"
#include "checkpoint/format/weight_names.h"
#include "model/weights.h"
#include "parallel/data/unit_storage.h"
#include "plan/adapter_choice.h"
#include "plan/model_choice.h"

namespace automodel::train {

/// The safetensors type that represents this ATen type exactly.
checkpoint::ElementType element_type(at::ScalarType type);

/// Reads elements [first, first + out.numel()) of this rank's part of `weight` into `out` (converting to its type and
/// device), from a stored tensor in which the weight begins at element `base`. Throws Error (kCheckpoint, cannot-read).
void read_elements(const checkpoint::StoredTensor& stored, std::int64_t base, const model::Weight& weight,
                   std::int64_t first, const at::Tensor& out);

/// A model's weights in a folder, with every name and shape checked.
class WeightFiles {
 public:
  /// Null if there are problems: those of TensorFolder::open and find_weights, and weights-not-tied (head and embedding
  /// differ in a model that ties them; checked only with `compare_head`, which reads both). `wanted`:
  /// as find_weights.
  static std::shared_ptr<const WeightFiles> open(const std::filesystem::path& folder, const plan::ModelChoice& model,
                                                 bool compare_head, Diagnostics& problems,
                                                 checkpoint::WantedWeights wanted = checkpoint::WantedWeights::kAll);
  bool has(const std::string& name) const { return places_.contains(name); }
  /// As parallel::WeightSource.
  void read(const model::Weight& weight, std::int64_t first, const at::Tensor& out) const;

 private:
  explicit WeightFiles(checkpoint::TensorFolder folder) : folder_(std::move(folder)) {}
  checkpoint::TensorFolder folder_;
  checkpoint::WeightPlaces places_;
};

/// The adapters in a checkpoint's folder, with every name and shape checked.
class AdapterFiles {
 public:
  /// Null if there are problems: those of TensorFolder::open and of the adapters' configuration; weights-missing,
  /// weights-unexpected, weights-shape.
  static std::shared_ptr<const AdapterFiles> open(const std::filesystem::path& folder,
                                                  const plan::AdapterPlan& adapters, Diagnostics& problems);
  const checkpoint::AdapterConfig& config() const { return config_; }
  /// Like parallel::WeightSource, for adapters only.
  void read(const model::Weight& weight, std::int64_t first, const at::Tensor& out) const;

 private:
  explicit AdapterFiles(checkpoint::TensorFolder folder) : folder_(std::move(folder)) {}
  checkpoint::TensorFolder folder_;
  checkpoint::AdapterConfig config_ = {};
};

/// A source that reads from the files and keeps them open; what they lack comes from `rest`.
parallel::WeightSource stored_values(std::shared_ptr<const WeightFiles> files, parallel::WeightSource rest = {});
/// Adapters from one source, everything else from another.
parallel::WeightSource adapters_over(parallel::WeightSource base, parallel::WeightSource adapters);

}  // namespace automodel::train
