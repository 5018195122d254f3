// A row of data as it is shown: runs of its tokens, and their text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/tokenizer.h"
#include "pictures/processor.h"

namespace automodel::app {

using Ids = std::vector<std::int32_t>;

/// A run of ids that are all learned ('+'), context (' ') or padding ('.'); or the end of a row ('|'), of which a pack
/// has several, with its number of tokens.
struct Run {
  char mark;
  Ids ids = {};
  std::int64_t length = 0;
};
std::vector<Run> runs_of(const data::Sample& sample, const Ids& attention);

class ReadRow {
 public:
  /// `tokenizer`: null for data that holds ids. `pictures`: of a model that takes them. Both must outlive this, and so
  /// must `dataset`. `classes`: labels are numbers of classes.
  ReadRow(const data::Dataset& dataset, const data::Tokenizer* tokenizer,
          const std::optional<pictures::PictureTokens>& pictures, bool classes)
      : dataset_(dataset), tokenizer_(tokenizer), pictures_(pictures), classes_(classes) {}

  void read(std::int64_t index);
  const data::Sample& sample() const { return sample_; }
  const Ids& attention() const { return attention_; }
  std::size_t part() const { return part_; }
  const std::vector<pictures::Size>& sizes() const { return sizes_; }
  int tokens_of(pictures::Size size) const { return pictures_->count(size); }

  /// "120 tokens, 30 label tokens (25.0 %)".
  std::string counts() const;
  /// "picture 1: 640 x 480 pixels, 256 tokens"; pictures count from 0.
  std::string caption(std::size_t picture) const;

  /// Tokens of text, or of one picture.
  struct Piece {
    Ids ids = {};
    bool picture = false;
  };
  /// A run's tokens, its pictures apart. Runs are given in order.
  std::vector<Piece> pieces(const Ids& ids);
  /// Includes special tokens, which plain text would not show; of tokens that are no text alone, their names.
  std::string text_of(const Ids& ids) const;
  /// The same of a run, whose label may be a class: "class 1".
  std::string text_of(const Run& run, const Ids& ids) const;

 private:
  const data::Dataset& dataset_;
  const data::Tokenizer* tokenizer_;
  const std::optional<pictures::PictureTokens>& pictures_;
  bool classes_;
  data::Sample sample_ = {};
  Ids attention_ = {};
  std::vector<pictures::Size> sizes_ = {};
  std::size_t next_ = 0;  ///< of the sizes: the picture whose placeholders come next
  std::size_t part_ = 0;
};

}  // namespace automodel::app
