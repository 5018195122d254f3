// Models that turn a piece of text into ids: byte-pair encoding, unigram, WordPiece.
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

/// Scratch memory for encoding a piece; one per thread.
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
  /// The best segmentation of the text up to a position: where its last token begins (-1: position unreachable).
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

  /// Reads the `model` of tokenizer.json, according to its type. `byte_level`: pieces are raw bytes, each standing for
  /// its character of the byte alphabet. Null after adding problems.
  static std::unique_ptr<const PieceModel> read(const JsonPart& part, bool byte_level);

  /// Appends the ids of a piece, which must be valid UTF-8 (any bytes if byte_level).
  virtual void encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const = 0;
  virtual Id find(std::string_view token) const = 0;
  /// The vocabulary: each token with its id.
  virtual const std::vector<std::pair<std::string, Id>>& vocabulary() const = 0;

  /// Where a text can be cut without changing the ids: before every `mark` (a character) whose preceding character is
  /// not in `joined`, since no merge yields a token that contains such a pair. Nothing if this cannot be determined.
  struct Cuts {
    std::string mark;
    std::vector<char32_t> joined;  ///< sorted
  };
  virtual std::optional<Cuts> cuts(std::string_view /*mark*/) const { return std::nullopt; }
};

}  // namespace automodel::tokenizer
