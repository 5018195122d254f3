// WordPiece (Schuster and Nakajima 2012; BERT), compatible with Hugging Face's `tokenizers`: greedy longest match from
// left to right.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"

namespace automodel::tokenizer {

class WordPieceModel final : public PieceModel {
 public:
  static std::unique_ptr<const WordPieceModel> read(const JsonPart& part);

  void encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const override;
  Id find(std::string_view token) const override { return tokens_.find(token); }
  const std::vector<std::pair<std::string, Id>>& vocabulary() const override { return vocabulary_; }

 private:
  WordPieceModel() = default;

  std::vector<std::pair<std::string, Id>> vocabulary_;
  TokenTable tokens_;
  std::string prefix_;  ///< of tokens that continue a word
  Id unknown_ = kNoId;
  std::size_t most_characters_ = 100;
};

}  // namespace automodel::tokenizer
