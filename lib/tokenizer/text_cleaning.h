// Normalizers that clean text: BERT's, without accents, in lower case, and SentencePiece's compiled tables.
#pragma once

#include <memory>

#include "tokenizer/normalizer.h"

namespace automodel::tokenizer {

/// BertNormalizer, Lowercase, StripAccents or Precompiled, as `part` says; null for another type or after problems.
std::unique_ptr<const Normalizer::Step> read_cleaning(const JsonPart& part);

}  // namespace automodel::tokenizer
