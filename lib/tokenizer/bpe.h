// Byte-pair encoding (Sennrich, Haddow, Birch 2016) as Hugging Face's `tokenizers` does it.
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

namespace automodel::tokenizer {

using Id = std::int32_t;
inline constexpr Id kNoId = -1;

/// Strings to ids: open addressing over one block of text.
class TokenTable {
 public:
  void reserve(std::size_t tokens, std::size_t bytes);
  void insert(std::string_view token, Id id);  ///< replaces the id of a token that is there
  Id find(std::string_view token) const;       ///< kNoId where it is not

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

/// A hash of bytes for tables in memory; not stable between programs.
std::uint64_t hash_bytes(std::string_view bytes);

/// Pairs of ids to what they merge to.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    Id id;
  };
  void reserve(std::size_t merges);
  /// The last one counts where a pair comes twice.
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
  int shift_ = 60;  ///< 64 less log2 of the slots
};

/// The memory that encoding one piece needs; one a thread.
struct BpeScratch {
  struct Symbol {
    Id id;
    std::int32_t previous;
    std::int32_t next;
    bool gone;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;
    Id id;
  };
  std::vector<Symbol> symbols = {};
  std::vector<Candidate> queue = {};
  std::vector<std::uint32_t> ranks = {};
  std::vector<Id> ids = {};
};

class BpeModel {
 public:
  /// The `model` of tokenizer.json. `byte_level`: pieces are bytes, each standing for its character of the byte
  /// alphabet. Null after problems.
  static std::unique_ptr<BpeModel> read(const JsonPart& part, bool byte_level);

  /// Appends the ids of a piece that is valid UTF-8 (any bytes where byte_level).
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<Id>& out) const;
  Id find(std::string_view token) const { return tokens_.find(token); }
  /// The vocabulary: token of each entry, with its id.
  const std::vector<std::pair<std::string, Id>>& vocabulary() const { return vocabulary_; }
  /// Where a text may be cut without a difference to the ids: before every `mark` (a character) that stands behind a
  /// character that is not in `joined`, because no merge gives a token with such a pair inside. Nothing where that
  /// cannot be told.
  struct Cuts {
    std::string mark;
    std::vector<char32_t> joined;  ///< ordered
  };
  std::optional<Cuts> cuts(std::string_view mark) const;

 private:
  using Symbol = BpeScratch::Symbol;
  bool read_vocabulary(const JsonPart& part);
  void read_merges(const JsonPart& part);
  void add_merge(const JsonPart& at, std::string_view left, std::string_view right, std::uint32_t rank);
  void start(std::string_view piece, std::vector<Id>& ids) const;
  void start_bytes(std::string_view piece, std::vector<Id>& ids) const;
  void merge_short(BpeScratch& scratch, std::vector<Id>& out) const;
  void merge_long(BpeScratch& scratch, std::vector<Id>& out) const;

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  Id unknown_ = kNoId;
  std::vector<std::pair<std::string, Id>> vocabulary_;
  TokenTable tokens_;
  TokenTable whole_;             ///< where byte_level_: the vocabulary as bytes
  std::array<Id, 256> bytes_{};  ///< ids that pieces start from; of <0xNN> where not byte_level_
  std::array<Id, 128> ascii_{};  ///< ids of ASCII characters
  MergeTable merges_;
  std::vector<std::pair<Id, Id>> pairs_;  ///< of all merges
};

}  // namespace automodel::tokenizer
