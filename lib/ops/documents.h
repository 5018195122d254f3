// Packed documents as ranges known to the host: attention then runs document by document, or as one call for sequences
// of varying length, without building a mask or reading boundaries back from a device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// A block of attention: queries [query, query + queries) and keys [key, key + keys) of `rows` rows from `row` on,
/// which belong to one document of each row and are all of it that the cut contains.
struct Piece {
  std::int64_t row = 0, rows = 1;
  std::int64_t query = 0, queries = 0;
  std::int64_t key = 0, keys = 0;
};

/// The pieces of some queries and some keys that attend to each other.
struct DocumentCut {
  std::vector<Piece> pieces = {};  ///< queries outside every piece see nothing
  /// If queries and keys are the same tokens: int32 [documents + 1] on their device, the index of each document's first
  /// token (and the end) in the concatenation of all rows. Undefined otherwise.
  at::Tensor starts = {};
  std::int64_t longest = 0;  ///< tokens of the longest document
};

/// The documents of [rows, tokens], each contiguous. Not thread-safe: even the const functions update a cache.
class Documents {
 public:
  /// `numbers` [rows * tokens]: equal for neighbours of one document. Null if a document's number returns after another
  /// document began.
  static std::shared_ptr<const Documents> of(const std::int32_t* numbers, std::int64_t rows, std::int64_t tokens);
  /// The same, from int64 [rows, tokens] on the host.
  static std::shared_ptr<const Documents> of(const at::Tensor& numbers);

  std::int64_t tokens() const { return tokens_; }
  /// Cut of queries [query, query + length) and keys [key, key + length) of every row; offsets in it are relative to
  /// these. Cached for the following layers.
  const DocumentCut& cut(std::int64_t query, std::int64_t key, std::int64_t length, at::Device device) const;
  const DocumentCut& whole(at::Device device) const { return cut(0, 0, tokens_, device); }

 private:
  struct Document {
    std::int64_t begin = 0, end = 0;
    bool operator==(const Document&) const = default;
  };
  DocumentCut made(std::int64_t query, std::int64_t key, std::int64_t length, at::Device device) const;

  std::vector<std::vector<Document>> rows_ = {};
  std::int64_t tokens_ = 0;
  mutable std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, DocumentCut> cuts_ = {};
};

}  // namespace automodel::ops
