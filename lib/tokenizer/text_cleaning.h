// Normalizers that clean text: BERT's, accent stripping, lower-casing, and SentencePiece's compiled tables.
#pragma once

#include <memory>

#include "tokenizer/normalizer.h"

namespace automodel::tokenizer {

/// BertNormalizer, Lowercase, StripAccents or Precompiled, according to `part`; null for other types and after
/// problems.
std::unique_ptr<const Normalizer::Step> read_cleaning(const JsonPart& part);

}  // namespace automodel::tokenizer
