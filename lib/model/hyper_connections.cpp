#include "model/hyper_connections.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include "ops/checkpoint.h"
#include "ops/element_type.h"
#include "ops/split.h"

namespace automodel::model {

HyperConnection::HyperConnection(const BlockContext& context, ops::Parameter* projection, ops::Parameter* bias,
                                 ops::Parameter* scale)
    : norm_eps_(context.spec.norm_eps), projection_(projection), bias_(bias), scale_(scale) {
  if (context.spec.hyper) hyper_ = *context.spec.hyper;
}

/// {weights of the input, of the output, mixture}; only the first where nothing is written.
std::vector<at::Tensor> HyperConnection::weights(const at::Tensor& streams) const {
  const auto type = ops::compute_type(streams.scalar_type());
  const auto x = streams.to(type);
  const auto use = [&](ops::Parameter& parameter) { return ops::use(parameter, streams).to(type); };
  // The norm has no weight, so that its factor may follow the projection.
  const auto raw = at::matmul(x, use(*projection_).t()) * at::rsqrt((x * x).mean(-1, true) + norm_eps_);
  const auto bias = use(*bias_), scale = use(*scale_);
  const std::int64_t n = hyper_.streams;
  if (raw.size(-1) == n) return {at::sigmoid(raw * scale + bias) + hyper_.eps};
  const auto part = [&](std::int64_t which, std::int64_t first, std::int64_t count) {
    return raw.narrow(-1, first, count) * scale.narrow(0, which, 1) + bias.narrow(0, first, count);
  };
  auto mixture = at::softmax(part(2, 2 * n, n * n).unflatten(-1, {n, n}), -1) + hyper_.eps;
  const auto normalise = [&](std::int64_t dim) { mixture = mixture / (mixture.sum(dim, true) + hyper_.eps); };
  normalise(-2);
  for (int i = 1; i < hyper_.iterations; ++i) {
    normalise(-1);
    normalise(-2);
  }
  return {at::sigmoid(part(0, 0, n)) + hyper_.eps, at::sigmoid(part(1, n, n)) * 2, mixture};
}

HyperConnection::Read HyperConnection::read(const at::Tensor& streams) const {
  // Recomputed in the backward pass: the graph of 20 normalisations keeps 40 small tensors, and a 16-bit stream a copy
  // in float32, where the result is 24 numbers a token.
  const auto found = ops::checkpoint([this](const std::vector<at::Tensor>& in) { return weights(in[0]); }, {streams});
  const auto apart = streams.unflatten(-1, {hyper_.streams, -1});
  Read out;
  out.input = (found[0].unsqueeze(-1) * apart).sum(2).to(streams.scalar_type());
  if (found.size() == 1) return out;
  out.output_weights = found[1];
  out.mixture = found[2];
  return out;
}

at::Tensor HyperConnection::write(const at::Tensor& streams, const at::Tensor& output, const Read& read) const {
  const auto type = streams.scalar_type();
  const auto apart = streams.unflatten(-1, {hyper_.streams, -1});
  // Stream k takes sum over j of mixture[j, k] times stream j.
  const auto mixed = at::matmul(read.mixture.to(type).transpose(-1, -2), apart);
  return (read.output_weights.to(type).unsqueeze(-1) * output.unsqueeze(-2) + mixed).flatten(2);
}

}  // namespace automodel::model
