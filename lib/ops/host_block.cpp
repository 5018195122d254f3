#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "ops/attention_kernels.h"

namespace automodel::ops {
namespace {

/// [batch, tokens, heads, width] -> for group member g: [batch, groups, tokens, width], a view.
at::Tensor member(const at::Tensor& x, std::int64_t groups, std::int64_t g) {
  const auto per_group = x.size(2) / groups;
  return x.unflatten(2, {groups, per_group}).select(3, g).transpose(1, 2);
}
/// [batch, tokens, heads] -> for group member g: [batch, groups, tokens], a view.
at::Tensor member_rows(const at::Tensor& x, std::int64_t groups, std::int64_t g) {
  return x.unflatten(2, {groups, x.size(2) / groups}).select(3, g).transpose(1, 2);
}

/// True if nothing but later keys is hidden.
bool is_causal(const Qkv& in, const BlockOptions& options) {
  return !options.mask.defined() && !options.chosen.defined() && options.after == 0 &&
         options.before >= in.q.size(1) - 1;
}

/// The mask arguments of LibTorch's kernel.
struct FlashMask {
  bool causal = false;
  std::optional<at::Tensor> added = {};  ///< additive mask of the scores
  FlashMask(const Qkv& in, const BlockOptions& options) {
    const auto queries = in.q.size(1), keys = in.k.size(1);
    causal = is_causal(in, options);
    if (causal) return;
    const auto mask = visibility_mask(options, 0, queries, 0, keys, in.q.device());
    // Not -inf: a row that sees nothing must stay finite.
    if (mask.defined()) added = at::zeros(mask.sizes(), in.q.options()).masked_fill_(mask.logical_not(), kMaskedLogSum);
  }
};

/// True if LibTorch's kernel needs an explicit mask. Without one its forward pass is as fast as our tiles on MKL's GEMM
/// for long sequences, and faster for short ones.
bool needs_mask(const Qkv& in, const BlockOptions& options) {
  const auto queries = in.q.size(1), keys = in.k.size(1);
  return options.before < queries - 1 || (options.after != 0 && options.after < keys - 1);
}

/// True if LibTorch was told not to use AVX-512 ($ATEN_CPU_CAPABILITY): its bfloat16 pass then throws on a processor
/// with AMX.
bool hides_vectors() {
  static const bool hidden = at::get_cpu_capability() != "AVX512";
  return hidden;
}

}  // namespace

bool masks_on_host(const Qkv& in, const BlockOptions& options) {
  const bool hides = options.mask.defined() || options.chosen.defined() || options.before < in.q.size(1) - 1 ||
                     options.after < in.k.size(1) - 1;
  return hides && !is_causal(in, options) && !tiles_supported(in, options);
}

/// Calls the kernel once per head of a group, so that shared keys and values are never copied.
BlockResult host_block(const Qkv& in, const BlockOptions& options) {
  if ((needs_mask(in, options) || hides_vectors() || tiles_preferred(in)) && tiles_supported(in, options))
    return tiled_block(in, options);
  const auto& [q, k, v] = in;
  const auto groups = k.size(2), per_group = q.size(2) / groups;
  const FlashMask mask(in, options);
  const auto keys = k.transpose(1, 2), values = v.transpose(1, 2);
  BlockResult result;
  if (per_group > 1) result.out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  for (std::int64_t g = 0; g < per_group; ++g) {
    auto [out, logsum] = at::_scaled_dot_product_flash_attention_for_cpu(member(q, groups, g), keys, values, 0.0,
                                                                         mask.causal, mask.added, options.scale);
    if (per_group > 1) {
      if (g == 0) result.logsum = at::empty({q.size(0), q.size(1), q.size(2)}, logsum.options());
      member(result.out, groups, g).copy_(out);
      member_rows(result.logsum, groups, g).copy_(logsum);
    } else {
      result.out = out.transpose(1, 2).contiguous();
      result.logsum = logsum.transpose(1, 2);
    }
  }
  return result;
}

void host_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                         const BlockOptions& options, const Qkv& results) {
  if (tiles_supported(in, options)) return tiled_block_backward(gradient, in, whole, options, results);
  const auto& [q, k, v] = in;
  const auto& [dq, dk, dv] = results;
  const auto groups = k.size(2), per_group = q.size(2) / groups;
  const FlashMask mask(in, options);
  const auto keys = k.transpose(1, 2), values = v.transpose(1, 2);
  const auto out = whole.out.to(q.scalar_type()), dout = gradient.to(q.scalar_type());
  for (std::int64_t g = 0; g < per_group; ++g) {
    auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        member(dout, groups, g), member(q, groups, g), keys, values, member(out, groups, g),
        member_rows(whole.logsum, groups, g), 0.0, mask.causal, mask.added, options.scale);
    member(dq, groups, g).copy_(gq);
    if (g == 0) {
      dk.copy_(gk.transpose(1, 2));
      dv.copy_(gv.transpose(1, 2));
    } else {
      dk.add_(gk.transpose(1, 2));
      dv.add_(gv.transpose(1, 2));
    }
  }
}

}  // namespace automodel::ops
