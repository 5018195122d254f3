// Rows of different lengths as arrays of one shape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"

namespace automodel::data {

/// Each array is rows x length, row-major.
struct Batch {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> input_ids = {};
  std::vector<std::int64_t> labels = {};     ///< kIgnoredLabel where nothing is predicted
  std::vector<std::int64_t> positions = {};  ///< 0 for padding, so that they never exceed a position table
  std::vector<std::int32_t> segments = {};   ///< 0 for padding
  /// Whether attention must honor the segments. If not, padding is only at the ends of rows, where causal attention
  /// hides it from every token that counts.
  bool needs_segments = false;
  std::int64_t num_tokens = 0;                                   ///< excluding padding
  std::int64_t num_label_tokens = 0;                             ///< excluding ignored labels
  std::vector<std::vector<pictures::PicturePtr>> pictures = {};  ///< by row; empty if no row has any
  std::vector<std::int64_t> samples = {};  ///< sample index of each row; kNoSample for an empty one
  bool operator==(const Batch&) const = default;
};

struct BatchOptions {
  std::int32_t pad_id = 0;
  std::int64_t multiple = 1;                  ///< the length is a multiple of this
  std::int64_t shortest = 1;                  ///< and at least this
  std::int64_t ignore_index = kIgnoredLabel;  ///< a label value in the data that is ignored too (loss_fn.ignore_index)
};

/// Pads the samples to the longest of them. A sample without tokens becomes an empty row: all padding, no labels.
/// `samples` is stored in the batch as it is.
Batch make_batch(std::span<const Sample> rows, std::vector<std::int64_t> samples, const BatchOptions& options);

}  // namespace automodel::data
