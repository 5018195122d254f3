// Whether conversations teach a model to end its turns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/open_dataset.h"
#include "tokenizer/tokenizer.h"

namespace automodel::data {

/// The tokens of a tokenizer that end a turn or a text, looked for among the labels of a data set.
class TurnEnds {
 public:
  explicit TurnEnds(const tokenizer::Tokenizer& tokenizer);

  void see(std::int32_t label) { seen_ = seen_ || is_end(label); }
  /// Warns (no-end-of-turn) unless one was seen, the tokenizer has none, or `context` is quiet.
  void finish(const DatasetContext& context) const;

 private:
  bool is_end(std::int32_t id) const;

  std::vector<std::int32_t> ids_ = {};
  std::string names_ = {};
  bool seen_ = false;
};

}  // namespace automodel::data
