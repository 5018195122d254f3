// What turns a piece of text into ids: byte-pair encoding, unigrams, word pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/json_part.h"

namespace automodel::tokenizer {

using Id = std::int32_t;
inline constexpr Id kNoId = -1;

/// The memory that encoding one piece needs; one a thread.
struct PieceScratch {
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
  /// The best way to cut the text before a place: where its last token begins (-1: the place is not reached).
  struct Cut {
    double score;
    std::int32_t begin;
    Id id;
  };
  std::vector<Symbol> symbols = {};
  std::vector<Candidate> queue = {};
  std::vector<std::uint32_t> ranks = {};
  std::vector<Id> ids = {};
  std::vector<Cut> cuts = {};
};

class PieceModel {
 public:
  PieceModel() = default;
  PieceModel(const PieceModel&) = delete;
  PieceModel& operator=(const PieceModel&) = delete;
  virtual ~PieceModel() = default;

  /// The `model` of tokenizer.json, by its type. `byte_level`: pieces are bytes, each standing for its character of the
  /// byte alphabet. Null after problems.
  static std::unique_ptr<const PieceModel> read(const JsonPart& part, bool byte_level);

  /// Appends the ids of a piece that is valid UTF-8 (any bytes where byte_level).
  virtual void encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const = 0;
  virtual Id find(std::string_view token) const = 0;
  /// The vocabulary: token of each entry, with its id.
  virtual const std::vector<std::pair<std::string, Id>>& vocabulary() const = 0;

  /// Where a text may be cut without a difference to the ids: before every `mark` (a character) that stands behind a
  /// character that is not in `joined`, because no merge gives a token with such a pair inside. Nothing where that
  /// cannot be told.
  struct Cuts {
    std::string mark;
    std::vector<char32_t> joined;  ///< ordered
  };
  virtual std::optional<Cuts> cuts(std::string_view /*mark*/) const { return std::nullopt; }
};

}  // namespace automodel::tokenizer
