// The interface of training data: samples by index. Order, batching and ranks are handled elsewhere (sampler.h,
// batch.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pictures/picture.h"

namespace automodel::data {

/// Label of a position that is excluded from the loss; same value as in Hugging Face.
inline constexpr std::int32_t kIgnoredLabel = -100;

/// One row. `labels[t]` is the id that position t must predict: labels are already shifted, the loss does not shift
/// again.
struct Sample {
  std::vector<std::int32_t> input_ids = {};
  std::vector<std::int32_t> labels = {};  ///< same size as input_ids
  /// Empty: all 1. Else one per token: 0 is padding, and positions attend only to positions of the same segment.
  std::vector<std::int32_t> segments = {};
  std::vector<std::int32_t> positions = {};         ///< empty: 0, 1, 2, ...
  std::vector<pictures::PicturePtr> pictures = {};  ///< in the order of their placeholder tokens
  bool pixels = true;  ///< set before it is filled: false leaves pictures without pixels, which are then not decoded
};

/// How a dataset's rows are padded within a batch.
struct Padding {
  std::int32_t id = 0;
  int multiple = 1;           ///< rows are padded to a multiple of this
  std::int64_t shortest = 0;  ///< rows are padded to at least this: the row length, if all rows have the same
};

/// A picture as it is stored.
struct StoredPicture {
  std::string bytes = {};  ///< of its file or cell; empty: it is drawn, and stored nowhere
  bool upright = true;     ///< turned by its Exif tag
};

class Dataset;

/// A data set that others are mixed with.
struct DatasetShare {
  const Dataset* rows;
  double share = 1;  ///< of the mixture's rows; all shares sum to 1
};

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  /// Samples per epoch; at least 1.
  virtual std::int64_t size() const = 0;
  /// Whether the samples have an order of their own, which goes on behind the first epoch: sample size() is the first
  /// of the second.
  virtual bool endless() const { return false; }
  /// Fills `out` with sample `index`, reusing its memory. Thread-safe. Throws Error if a file can no longer be read.
  virtual void read(std::int64_t index, Sample& out) const = 0;
  /// Number of tokens of sample `index`, without reading it.
  virtual std::int64_t length(std::int64_t index) const = 0;
  virtual Padding padding() const = 0;
  /// Which positions of a sample are not padding: 1 or 0 per token.
  virtual void attention_mask(std::int64_t index, std::vector<std::int32_t>& out) const;
  /// The pictures of sample `index`, without reading their files.
  virtual std::vector<pictures::PictureMark> pictures(std::int64_t /*index*/) const { return {}; }
  /// The `number`-th of them, for display. Throws Error if its file can no longer be read.
  virtual StoredPicture stored_picture(std::int64_t /*index*/, std::size_t /*number*/) const { return {}; }
  /// The data sets that a mixture draws from; of any other, the set itself.
  virtual std::vector<DatasetShare> parts() const { return {{this}}; }
  /// Which of them sample `index` comes from.
  virtual std::size_t part_of(std::int64_t /*index*/) const { return 0; }
  /// Tokens of the longest sample that any epoch has.
  std::int64_t longest() const;
  /// A one-line description for the user: "text: 3 files, 1.2 MiB, 1.26 M tokens, 615 sequences of 2048".
  virtual std::string summary() const = 0;
};

}  // namespace automodel::data
