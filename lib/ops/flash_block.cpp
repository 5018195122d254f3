#include <algorithm>
#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>

#include "ops/attention_kernels.h"
#include "ops/flash_attention.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kPack = 8;  // 16-bit elements per load of the kernels

std::int64_t wide_of(const Qkv& in) {
  return (std::max(in.q.size(3), in.v.size(3)) + kPack - 1) / kPack * kPack;
}

/// The kernels load packs, which must be aligned to their size; LibTorch checks only that the last dimension is
/// contiguous.
bool in_packs(const at::Tensor& x) {
  if (x.stride(-1) != 1 || reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % (kPack * 2) != 0) return false;
  for (std::int64_t d = 0; d + 1 < x.dim(); ++d)
    if (x.size(d) > 1 && x.stride(d) % kPack != 0) return false;
  return true;
}

/// x [batch, tokens, heads, width] as the kernels expect it: padded to the common width and, for documents of varying
/// length, with all rows concatenated.
at::Tensor fitted(const at::Tensor& x, std::int64_t width, bool flat) {
  auto out = x.size(3) < width ? at::constant_pad_nd(x, {0, width - x.size(3)}) : x;
  if (flat) out = out.flatten(0, 1);
  return in_packs(out) ? out : out.contiguous();
}

FlashCall call_of(const Qkv& in, const BlockOptions& options) {
  const bool flat = options.cut != nullptr;
  const auto wide = wide_of(in);
  FlashCall call{.q = fitted(in.q, wide, flat),
                 .k = fitted(in.k, wide, flat),
                 .v = fitted(in.v, wide, flat),
                 .queries = in.q.size(1),
                 .keys = in.k.size(1),
                 .scale = options.scale};
  if (flat) {
    call.starts = options.cut->starts;
    call.queries = call.keys = options.cut->longest;
  }
  const auto apart = call.keys - call.queries;  // from the first query and key to the last
  if (options.before + apart < call.keys - 1) call.left = options.before + apart;
  if (options.after < call.keys - 1) call.right = options.after - apart;
  return call;
}

at::Tensor narrowed(const at::Tensor& x, std::int64_t width) {
  return x.size(-1) == width ? x : x.narrow(-1, 0, width).contiguous();
}

}  // namespace

BlockResult flash_block(const Qkv& in, const BlockOptions& options) {
  const auto call = call_of(in, options);
  auto [out, logsum] = flash_kernels(in.q)->forward(call);
  const auto batch = in.q.size(0), tokens = in.q.size(1), heads = in.q.size(2);
  logsum = call.starts.defined() ? logsum.view({heads, batch, tokens}).permute({1, 2, 0}) : logsum.transpose(1, 2);
  return {narrowed(out.reshape({batch, tokens, heads, out.size(-1)}), in.v.size(3)), logsum};
}

void flash_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                          const BlockOptions& options, const Qkv& results) {
  const auto call = call_of(in, options);
  const bool flat = call.starts.defined();
  const auto type = in.q.scalar_type();
  const auto wide = wide_of(in), heads = in.q.size(2);
  const auto of_result = [&](const at::Tensor& x) { return fitted(x.to(type), wide, flat).contiguous(); };
  const auto logsum = (flat ? whole.logsum.permute({2, 0, 1}).reshape({heads, -1}) : whole.logsum.transpose(1, 2))
                          .to(at::kFloat)
                          .contiguous();
  const auto found = flash_kernels(in.q)->backward(of_result(gradient), call, of_result(whole.out), logsum);
  const at::Tensor* out[] = {&results.q, &results.k, &results.v};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto rows = found[i].reshape({out[i]->size(0), out[i]->size(1), out[i]->size(2), wide});
    out[i]->copy_(rows.narrow(3, 0, out[i]->size(3)));
  }
}

}  // namespace automodel::ops
