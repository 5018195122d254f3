// A training run in PyTorch's distributed checkpoint, as torchtitan, NeMo AutoModel, accelerate or a training loop with
// torch.distributed.checkpoint lays it out: its tensors by Hugging Face names, and how far it came.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "checkpoint/dcp/chunks.h"
#include "checkpoint/dcp/dcp_folder.h"

namespace automodel::checkpoint {

enum class ForeignLayout : std::uint8_t { kTorch, kTitan, kNemo, kAccelerate };
std::string_view name_of(ForeignLayout layout);

/// A tensor, and the order of its rows if that is not Hugging Face's.
struct ForeignTensor {
  const ChunkedTensor* tensor = nullptr;  ///< of the ForeignCheckpoint
  RowOrder order = {};
};

using ForeignTensors = std::map<std::string, ForeignTensor>;  ///< by Hugging Face name

struct ForeignRun {
  ForeignTensors weights = {};
  std::map<std::string, ForeignTensors> states = {};  ///< by state ("exp_avg"), then by parameter
  std::int64_t steps = 0;                             ///< finished ones
  std::string steps_from = {};                        ///< where that number stands; empty: nowhere
  std::int64_t optimizer_steps = 0;                   ///< the most that a parameter has seen
  std::int64_t fewest_optimizer_steps = 0;            ///< of a parameter with a number of them
  std::int64_t epoch = 0;
  std::vector<std::string> left_out = {};  ///< tensors that are neither weights nor states of the optimizer
};

class ForeignCheckpoint {
 public:
  /// Recognises the layout by the names of files and tensors, and reads everything but tensors. Throws Error
  /// (kCheckpoint): checkpoint-missing (nothing that is known), those of DcpFolder, safetensors-... .
  explicit ForeignCheckpoint(const std::filesystem::path& folder);

  ForeignLayout layout() const { return layout_; }
  /// The folder with the model's config.json and tokenizer, if the checkpoint has one; else empty.
  const std::filesystem::path& model_files() const { return model_files_; }
  int ranks() const { return model_ ? model_->ranks() : static_cast<int>(shards_.size()); }
  /// Finds the model's tensors. Throws Error (kCheckpoint, checkpoint-missing): none is the model's, names of this
  /// family are not known in this layout, or a number of steps that is none. Throws Error (kBadInput,
  /// weights-not-tied): a head that differs from the embedding which is the model's head.
  ForeignRun run_of(const arch::ModelSpec& spec, const arch::Layout& layout) const;

 private:
  void read_shards(const std::filesystem::path& folder);
  void compare_tied(const std::string& name, const ChunkedTensor& tensor, const ForeignTensor& with) const;
  void find_weights(const arch::ModelSpec& spec, const arch::Layout& layout, ForeignRun& run) const;
  void find_states(const arch::ModelSpec& spec, ForeignRun& run) const;
  void find_steps(ForeignRun& run) const;
  const std::map<std::string, ChunkedTensor>& weights() const { return model_ ? model_->tensors() : sharded_; }

  std::filesystem::path folder_;
  ForeignLayout layout_ = ForeignLayout::kTorch;
  std::filesystem::path model_files_ = {};
  std::unique_ptr<DcpFolder> model_ = {};     ///< null if the weights are in safetensors
  std::unique_ptr<DcpFolder> separate_ = {};  ///< the optimizer's, if it has a folder of its own
  const DcpFolder* optimizer_ = nullptr;      ///< null: there is none
  std::vector<std::unique_ptr<InputFile>> shards_ = {};
  std::map<std::string, ChunkedTensor> sharded_ = {};
};

}  // namespace automodel::checkpoint
