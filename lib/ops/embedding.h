// Embedding lookup: rows of a table by token id.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

/// ids int64 [...], in [0, vocabulary); table [vocabulary, width]. Returns [..., width]. `anchor` (graph.h) makes the
/// result part of the graph. The row of token `padding` (-1: none) gets no gradient.
at::Tensor embedding(const at::Tensor& ids, Parameter& table, const at::Tensor& anchor, std::int64_t padding = -1);

/// The same for a table that holds rows [first, first + rows) of the vocabulary: other ids give zero rows, so that the
/// sum over vocabulary-parallel ranks is the embedding.
at::Tensor embedding_shard(const at::Tensor& ids, Parameter& table, const at::Tensor& anchor, std::int64_t first,
                           std::int64_t padding = -1);

}  // namespace automodel::ops
