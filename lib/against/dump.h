// A dump: one step of another trainer as files. DIR/model is a Hugging Face folder, DIR/batch.safetensors what the step
// read, DIR/gradients.safetensors what its backward pass left, DIR/meta.json its loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "arch/layout.h"
#include "arch/modules.h"
#include "base/diagnostic.h"
#include "checkpoint/format/tensor_folder.h"

namespace automodel::against {

/// A label that is not counted; same value as in Hugging Face.
inline constexpr std::int64_t kIgnored = -100;

/// The batch, rows x tokens each, row-major.
struct DumpedBatch {
  std::int64_t rows = 0, tokens = 0;
  std::vector<std::int64_t> ids = {};
  std::vector<std::int64_t> labels = {};     ///< under their own token; kIgnored where they are not counted
  std::vector<std::int64_t> mask = {};       ///< 1 or 0; empty: none was given
  std::vector<std::int64_t> positions = {};  ///< empty: 0, 1, 2, ... in each row

  bool real(std::int64_t index) const { return mask.empty() || mask[static_cast<std::size_t>(index)] != 0; }
  /// Tokens that the mask does not hide.
  std::int64_t real_tokens() const;
};

/// The value that `meta.json` says the loss is: the mean or the sum over the label tokens of the batch.
enum class Reduction : std::uint8_t { kMean, kSum };

/// A parameter inside a stored gradient: elements [first, first + elements) of it, row-major.
struct DumpedPart {
  arch::Parameter parameter = {};
  std::int64_t first = 0;
};

/// A gradient as it is stored: one parameter, or the matrices of all experts of a layer.
struct DumpedGradient {
  checkpoint::StoredTensor stored = {};
  std::vector<DumpedPart> parts = {};
  const std::string& name() const { return stored.info->name; }
};

class Dump {
 public:
  /// Opens everything but the model, and checks it against the model. Empty after adding problems: missing-file,
  /// cannot-read, dump-meta, dump-batch, token-out-of-range, safetensors-..., weights-missing, weights-unexpected,
  /// weights-shape, weights-not-tied (of gradients). Values of gradients are checked by read().
  static std::optional<Dump> open(const std::filesystem::path& folder, const arch::ModelSpec& spec,
                                  const arch::Layout& layout, Diagnostics& problems);

  const DumpedBatch& batch() const { return batch_; }
  double loss() const { return loss_; }
  Reduction reduction() const { return reduction_; }
  /// In the order of the model's parameters.
  const std::vector<DumpedGradient>& gradients() const { return gradients_; }
  /// The coarsest type of a gradient.
  checkpoint::ElementType type() const { return type_; }
  /// All elements of a gradient. Throws Error: dump-not-finite, cannot-read.
  std::vector<double> read(const DumpedGradient& gradient) const;

 private:
  explicit Dump(checkpoint::TensorFolder files) : files_(std::move(files)) {}

  checkpoint::TensorFolder files_;
  DumpedBatch batch_ = {};
  double loss_ = 0;
  Reduction reduction_ = Reduction::kMean;
  std::vector<DumpedGradient> gradients_ = {};
  checkpoint::ElementType type_ = checkpoint::ElementType::kF64;
};

/// The unit roundoff of a floating-point type: half the distance from 1 to the next number.
double roundoff(checkpoint::ElementType type);

}  // namespace automodel::against
