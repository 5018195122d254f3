// Unigram segmentation (Kudo 2018), compatible with Hugging Face's `tokenizers`: of all segmentations of a piece into
// tokens, the one with the highest total score.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"

namespace automodel::tokenizer {

/// Finds all tokens that are prefixes of a text, shortest first.
class PrefixTree {
 public:
  /// Sorts `tokens`; among duplicates the last one counts.
  explicit PrefixTree(std::vector<std::pair<std::string_view, Id>> tokens);

  /// Calls use(bytes, id) for each prefix.
  template <class Use>
  void find(std::string_view text, Use&& use) const {
    std::size_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id != kNoId) use(i + 1, nodes_[node].id);
    }
  }

 private:
  struct Node {
    std::uint32_t first = 0;  ///< first child; children are contiguous and sorted by byte
    std::uint16_t count = 0;
    unsigned char byte = 0;
    Id id = kNoId;
  };
  std::size_t child(std::size_t node, unsigned char byte) const;  ///< 0 if there is none
  std::vector<Node> nodes_;
};

class UnigramModel final : public PieceModel {
 public:
  static std::unique_ptr<const UnigramModel> read(const JsonPart& part);

  /// Throws Error for a character that no token covers if there is no unknown token.
  void encode(std::string_view piece, PieceScratch& scratch, std::vector<Id>& out) const override;
  Id find(std::string_view token) const override { return tokens_.find(token); }
  const std::vector<std::pair<std::string, Id>>& vocabulary() const override { return vocabulary_; }

 private:
  UnigramModel() = default;
  bool read_vocabulary(const JsonPart& part);
  void find_cuts(std::string_view piece, std::vector<PieceScratch::Cut>& cuts) const;
  void add_unknown(std::string_view text, std::vector<Id>& out) const;

  std::vector<std::pair<std::string, Id>> vocabulary_;
  std::vector<double> scores_;
  TokenTable tokens_;
  std::unique_ptr<const PrefixTree> tree_;
  std::array<Id, 256> bytes_{};  ///< ids of <0xNN>
  bool byte_fallback_ = false;
  Id unknown_ = kNoId;
  double unknown_score_ = 0;
};

}  // namespace automodel::tokenizer
