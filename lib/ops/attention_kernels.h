// The kernels behind attention_block(): each takes a block in which every query sees a key, without a cut except where
// it says so.
#pragma once

#include "ops/attention_block.h"

namespace automodel::ops {

/// What a block of some queries and keys leaves out beyond its mask, as one mask: bool [batch or 1, 1, queries, keys];
/// undefined where nothing. Queries [query, query + queries), keys alike.
at::Tensor pairs_that_see(const BlockOptions& options, std::int64_t query, std::int64_t queries, std::int64_t key,
                          std::int64_t keys, at::Device device);

BlockResult flash_block(const Qkv& in, const BlockOptions& options);  ///< also with a cut that has `starts`
void flash_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                          const BlockOptions& options, const Qkv& out);

BlockResult host_block(const Qkv& in, const BlockOptions& options);
void host_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                         const BlockOptions& options, const Qkv& out);

/// host_block's own passes, for types whose products are one call (has_host_product), without a mask.
bool tiles_serve(const Qkv& in, const BlockOptions& options);
/// True where tiles_serve() and LibTorch's forward pass is never faster: with this program's products.
bool tiles_lead(const Qkv& in);
BlockResult tiled_block(const Qkv& in, const BlockOptions& options);
void tiled_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                          const BlockOptions& options, const Qkv& out);

BlockResult composed_block(const Qkv& in, const BlockOptions& options);
void composed_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                             const BlockOptions& options, const Qkv& out);

}  // namespace automodel::ops
