// The kernels behind attention_block(). Each expects a block in which every query sees at least one key, and no cut
// unless noted.
#pragma once

#include <vector>

#include "ops/attention_block.h"

namespace automodel::ops {

/// Everything that hides keys in queries [query, query + queries) and keys [key, key + keys) of a block, its own mask
/// included, as one mask: bool [batch or 1, 1, queries, keys], true where visible; undefined if nothing is hidden.
at::Tensor visibility_mask(const BlockOptions& options, std::int64_t query, std::int64_t queries, std::int64_t key,
                           std::int64_t keys, at::Device device);

/// All queries of a block, so many at a time that `heads` masks or scores of each with all keys it may see are within
/// the bound of base/score_chunk.h.
std::vector<Piece> query_chunks(const Qkv& in, const BlockOptions& options, std::int64_t heads);

BlockResult flash_block(const Qkv& in, const BlockOptions& options);  ///< also accepts a cut that has `starts`
void flash_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                          const BlockOptions& options, const Qkv& out);

BlockResult host_block(const Qkv& in, const BlockOptions& options);
void host_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                         const BlockOptions& options, const Qkv& out);

/// True where host_block() needs a mask of queries and keys.
bool masks_on_host(const Qkv& in, const BlockOptions& options);

/// True where host_block()'s own tiled passes support the block: types with a one-call GEMM (has_host_matmul), no
/// mask, no softcap.
bool tiles_supported(const Qkv& in, const BlockOptions& options);
/// True where the tiled forward pass, given tiles_supported(), is never slower than LibTorch's: where it runs on our
/// own GEMM kernels.
bool tiles_preferred(const Qkv& in);
BlockResult tiled_block(const Qkv& in, const BlockOptions& options);
void tiled_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                          const BlockOptions& options, const Qkv& out);

BlockResult composed_block(const Qkv& in, const BlockOptions& options);
void composed_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                             const BlockOptions& options, const Qkv& out);

}  // namespace automodel::ops
