#include "ops/chunks.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "base/error.h"
#include "base/scan_slice.h"

namespace automodel::ops {
namespace {

std::int64_t chunk_size(std::int64_t tokens, std::int64_t most) {
  AUTOMODEL_CHECK(std::has_single_bit(static_cast<std::uint64_t>(most)), "a chunk is a power of two of tokens");
  return scan_chunk(tokens, most);
}

}  // namespace

Chunks::Chunks(std::int64_t batch_size, std::int64_t length, const ScanOptions& options)
    : batch(batch_size), tokens(length), size(chunk_size(length, options.chunk)), count((length + size - 1) / size) {}

at::Tensor Chunks::cut(const at::Tensor& x, at::ScalarType type) const {
  auto shape = x.sizes().vec();
  shape[1] = size * count;
  std::swap(shape[1], shape[2]);
  auto out = at::empty(shape, x.options().dtype(type));  // [batch, heads, size * count, ...]
  out.narrow(2, 0, tokens).copy_(x.transpose(1, 2));
  if (filling() > 0) out.narrow(2, tokens, filling()).zero_();
  return out.unflatten(2, {count, size});
}

void Chunks::join(const at::Tensor& x, at::Tensor out) const {
  out.copy_(x.flatten(2, 3).narrow(2, 0, tokens).transpose(1, 2));
}

void Chunks::join_onto(const at::Tensor& x, at::Tensor out) const {
  out.add_(x.flatten(2, 3).narrow(2, 0, tokens).transpose(1, 2));
}

std::vector<HeadSlice> head_slices(const at::Tensor& values, std::int64_t groups, const ScanOptions& options) {
  const auto batch = values.size(0), tokens = std::max<std::int64_t>(values.size(1), 1), heads = values.size(2);
  const auto of_group = heads / groups;
  const auto limit = options.slice > 0 ? options.slice : values.is_cpu() ? kScanOnHost : kScanOnDevice;
  const auto fits = std::max<std::int64_t>(1, limit / tokens);  // heads
  std::vector<HeadSlice> out;
  const auto rows = std::clamp<std::int64_t>(fits / heads, 1, std::max<std::int64_t>(batch, 1));
  const auto whole = std::clamp<std::int64_t>(fits / of_group, 1, groups);  // groups per slice
  const auto part = std::clamp<std::int64_t>(fits, 1, of_group);            // or heads of one group
  for (std::int64_t row = 0; row < batch; row += rows)
    for (std::int64_t group = 0; group < groups; group += whole)
      for (std::int64_t head = 0; head < of_group; head += part) {
        HeadSlice slice{row, std::min(rows, batch - row), group, std::min(whole, groups - group)};
        slice.head = group * of_group + head;
        slice.heads = whole > 1 || part == of_group ? slice.groups * of_group : std::min(part, of_group - head);
        out.push_back(slice);
        if (slice.heads >= of_group) break;
      }
  return out;
}

DocumentMasks document_masks(const Chunks& chunks, const ScanOptions& options, at::ScalarType type, at::Device device) {
  DocumentMasks out;
  const auto lower = at::ones({chunks.size, chunks.size}, at::TensorOptions().dtype(at::kBool).device(device)).tril();
  if (!options.segments.defined()) {
    out.pairs = lower.view({1, 1, 1, chunks.size, chunks.size});
    return out;
  }
  auto numbers = options.segments;
  if (chunks.filling() > 0)  // padding belongs to the last document
    numbers = at::cat({numbers, numbers.narrow(1, chunks.tokens - 1, 1).expand({chunks.batch, chunks.filling()})}, 1);
  numbers = numbers.reshape({chunks.batch, 1, chunks.count, chunks.size});
  const auto last = numbers.narrow(3, chunks.size - 1, 1);
  // The incoming state of the first chunk is zero, so its document does not matter.
  const auto before = at::cat({numbers.narrow(2, 0, 1).narrow(3, 0, 1), last.narrow(2, 0, chunks.count - 1)}, 2);
  out.pairs = numbers.unsqueeze(4).eq(numbers.unsqueeze(3)).logical_and(lower);
  out.sees = numbers.eq(before).to(type);
  out.reaches = numbers.eq(last).to(type);
  out.passes = last.eq(before).squeeze(3).to(type);
  return out;
}

Decays::Decays(const at::Tensor& log, const DocumentMasks& masks) {
  const bool channels = log.dim() == 5;
  sum = at::cumsum(log, 3);
  const auto last = sum.narrow(3, sum.size(3) - 1, 1);
  in = sum.exp();
  out = (last - sum).exp_();
  pass = last.squeeze(3).exp();
  if (!masks.sees.defined()) return;
  const auto fit = [&](const at::Tensor& mask) { return channels ? mask.unsqueeze(-1) : mask; };
  in.mul_(fit(masks.sees));
  out.mul_(fit(masks.reaches));
  pass.mul_(fit(masks.passes));
}

at::Tensor pair_factors(const at::Tensor& sum, const at::Tensor& pairs) {
  return (sum.unsqueeze(4) - sum.unsqueeze(3))
      .masked_fill_(pairs.logical_not(), -std::numeric_limits<double>::infinity())
      .exp_();
}

at::Tensor log_gradient(const at::Tensor& sum_gradient) {
  return sum_gradient.flip(3).cumsum(3).flip(3);
}

at::Tensor multiply(const at::Tensor& a, const at::Tensor& b) {
  const auto lead = a.sizes().slice(0, static_cast<std::size_t>(a.dim() - 2));
  auto shape = lead.vec();
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  return at::bmm(a.flatten(0, -3), b.flatten(0, -3)).view(shape);
}

}  // namespace automodel::ops
