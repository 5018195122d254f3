// The special tokens that a tokenizer puts around a text.
#pragma once

#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/json_part.h"

namespace automodel::tokenizer {

struct Surround {
  std::vector<Id> before = {};
  std::vector<Id> after = {};
  bool trims = false;  ///< trim_offsets of ByteLevel or RobertaProcessing: a token's span excludes spaces at its ends

  /// Reads the `post_processor` of tokenizer.json, for single texts: TemplateProcessing, BertProcessing,
  /// RobertaProcessing, ByteLevel (which adds no ids), Sequence, or null. Adds problems.
  static Surround read(const JsonPart& part);
};

}  // namespace automodel::tokenizer
