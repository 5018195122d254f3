// Byte-pair encoding (Sennrich, Haddow, Birch 2016), compatible with Hugging Face's `tokenizers`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_part.h"
#include "tokenizer/piece_model.h"

namespace automodel::tokenizer {

/// Maps strings to ids: open addressing, with all strings in one block.
class TokenTable {
 public:
  void reserve(std::size_t tokens, std::size_t bytes);
  void insert(std::string_view token, Id id);  ///< replaces the id if the token exists
  Id find(std::string_view token) const;       ///< kNoId if absent

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    Id id = kNoId;
  };
  void grow();
  std::size_t place(std::uint64_t hash, std::string_view token) const;

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::size_t used_ = 0;
  std::string text_;
};

/// Hash for in-memory tables; not stable across program versions.
std::uint64_t hash_bytes(std::string_view bytes);

/// Maps pairs of ids to their merge.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    Id id;
  };
  void reserve(std::size_t merges);
  /// If a pair is inserted twice, the last one counts.
  void insert(Id left, Id right, Merge merge);
  const Merge* find(Id left, Id right) const;

 private:
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};
    Merge merge = {};
  };
  static std::uint64_t key(Id left, Id right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place(std::uint64_t pair) const;
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::size_t used_ = 0;
  int shift_ = 60;  ///< 64 - log2(number of slots)
};

/// Reads the `vocab` object of a model: tokens and their ids. False after adding a problem.
bool read_vocabulary(const JsonPart& part, std::vector<std::pair<std::string, Id>>& vocabulary, TokenTable& tokens);

class BpeModel final : public PieceModel {
 public:
  static std::unique_ptr<const BpeModel> read(const JsonPart& part, bool byte_level);

  void encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const override;
  Id find(std::string_view token) const override { return tokens_.find(token); }
  const std::vector<std::pair<std::string, Id>>& vocabulary() const override { return vocabulary_; }
  std::optional<Cuts> cuts(std::string_view mark) const override;

 private:
  using Symbol = PieceScratch::Symbol;
  bool take_vocabulary(const JsonPart& part);
  void read_merges(const JsonPart& part);
  void add_merge(const JsonPart& at, std::string_view left, std::string_view right, std::uint32_t rank);
  void start(std::string_view piece, std::vector<Id>& ids) const;
  void start_bytes(std::string_view piece, std::vector<Id>& ids) const;
  void merge_short(PieceScratch& scratch, std::vector<Id>& out) const;
  void merge_long(PieceScratch& scratch, std::vector<Id>& out) const;

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  Id unknown_ = kNoId;
  std::vector<std::pair<std::string, Id>> vocabulary_;
  TokenTable tokens_;
  TokenTable whole_;             ///< if byte_level_: the vocabulary as raw bytes
  std::array<Id, 256> bytes_{};  ///< id that each byte starts as if byte_level_
  std::array<Id, 256> named_{};  ///< ids of <0xNN>
  std::array<Id, 128> ascii_{};  ///< ids of the ASCII characters
  MergeTable merges_;
  std::vector<std::pair<Id, Id>> pairs_;  ///< of all merges: (left, right)
};

}  // namespace automodel::tokenizer
