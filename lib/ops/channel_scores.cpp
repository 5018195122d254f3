#include "ops/channel_scores.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

namespace automodel::ops {
namespace {

/// Diagonal blocks of this size are computed pair by pair.
constexpr std::int64_t kLeaf = 4;

/// The lower left quarters of the diagonal blocks of `block` tokens of scores [z, size, size]: [z, blocks, block / 2,
/// block / 2], a view.
at::Tensor quarters(const at::Tensor& scores, std::int64_t block) {
  const auto size = scores.size(1);
  return scores.as_strided({scores.size(0), size / block, block / 2, block / 2},
                           {size * size, block * (size + 1), size, 1}, scores.storage_offset() + block / 2 * size);
}
/// The diagonal blocks of `block` tokens: [z, blocks, block, block], a view.
at::Tensor diagonal(const at::Tensor& scores, std::int64_t block) {
  const auto size = scores.size(1);
  return scores.as_strided({scores.size(0), size / block, block, block}, {size * size, block * (size + 1), size, 1},
                           scores.storage_offset());
}

/// The later or the earlier half of each block of x [z, size, width]: [z, blocks, block / 2, width], a view.
at::Tensor half(const at::Tensor& x, std::int64_t block, bool later) {
  return x.unflatten(1, {x.size(1) / block, 2, block / 2}).select(2, later ? 1 : 0);
}

/// Decay factors of the two halves of a block, both relative to the earlier half's last token.
struct Halves {
  at::Tensor later, earlier;
};
Halves factors(const at::Tensor& sum, std::int64_t block) {
  const auto low = half(sum, block, false);
  const auto border = low.narrow(2, block / 2 - 1, 1);
  return {(half(sum, block, true) - border).exp_(), (border - low).exp_()};
}

/// exp(sum_i - sum_j) for the pairs of each leaf, 0 above the diagonal: [z, blocks, leaf, leaf, width].
at::Tensor leaf_factors(const at::Tensor& sum, std::int64_t leaf) {
  const auto blocks = sum.unflatten(1, {sum.size(1) / leaf, leaf});
  const auto upper = at::ones({leaf, leaf}, sum.options().dtype(at::kBool)).triu(1).unsqueeze(2);
  return (blocks.unsqueeze(3) - blocks.unsqueeze(2))
      .masked_fill_(upper, -std::numeric_limits<double>::infinity())
      .exp_();
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return at::bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, {a.size(0), a.size(1)});
}

}  // namespace

at::Tensor channel_scores(const at::Tensor& x, const at::Tensor& k, const at::Tensor& sum) {
  const auto size = x.size(-2);
  const auto flat_x = x.flatten(0, -3), flat_k = k.flatten(0, -3), flat_sum = sum.flatten(0, -3);
  auto out = at::zeros({flat_x.size(0), size, size}, x.options());
  const auto leaf = std::min(size, kLeaf);
  for (auto block = size; block > leaf; block /= 2) {
    const auto by = factors(flat_sum, block);
    quarters(out, block)
        .copy_(
            product(half(flat_x, block, true) * by.later, (half(flat_k, block, false) * by.earlier).transpose(2, 3)));
  }
  const auto rows = flat_x.unflatten(1, {size / leaf, leaf}), columns = flat_k.unflatten(1, {size / leaf, leaf});
  diagonal(out, leaf).copy_(leaf_factors(flat_sum, leaf).mul_(columns.unsqueeze(2)).mul_(rows.unsqueeze(3)).sum(4));
  auto shape = x.sizes().vec();
  shape.back() = size;
  return out.view(shape);
}

void add_channel_score_gradients(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& k,
                                 const at::Tensor& sum, at::Tensor dx, at::Tensor dk) {
  const auto size = x.size(-2);
  const auto flat_x = x.flatten(0, -3), flat_k = k.flatten(0, -3), flat_sum = sum.flatten(0, -3);
  const auto scores = gradient.contiguous().flatten(0, -3);
  auto gx = dx.flatten(0, -3), gk = dk.flatten(0, -3);
  const auto leaf = std::min(size, kLeaf);
  for (auto block = size; block > leaf; block /= 2) {
    const auto by = factors(flat_sum, block);
    const auto part = quarters(scores, block).contiguous();
    half(gx, block, true).add_(product(part, half(flat_k, block, false) * by.earlier).mul_(by.later));
    half(gk, block, false).add_(product(part.transpose(2, 3), half(flat_x, block, true) * by.later).mul_(by.earlier));
  }
  const auto rows = flat_x.unflatten(1, {size / leaf, leaf}), columns = flat_k.unflatten(1, {size / leaf, leaf});
  const auto weighted = leaf_factors(flat_sum, leaf).mul_(diagonal(scores, leaf).unsqueeze(4));
  gx.unflatten(1, {size / leaf, leaf}).add_((weighted * columns.unsqueeze(2)).sum(3));
  gk.unflatten(1, {size / leaf, leaf}).add_((weighted * rows.unsqueeze(3)).sum(2));
}

}  // namespace automodel::ops
