#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::model {
namespace {

using arch::Rope;
using arch::RopeKind;

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

/// theta^(-2i/d), in float32 as transformers computes it.
std::vector<float> plain(double theta, int width) {
  std::vector<float> out;
  for (int i = 0; i < width / 2; ++i)
    out.push_back(static_cast<float>(1.0 / std::pow(theta, static_cast<double>(2 * i) / width)));
  return out;
}

void llama3(const Rope& rope, std::vector<float>& inverse) {
  const double original = rope.original_max_positions;
  const double longest = original / rope.low_freq_factor, shortest = original / rope.high_freq_factor;
  for (auto& value : inverse) {
    const double wave = 2 * std::numbers::pi / static_cast<double>(value);
    if (wave > longest) {
      value = static_cast<float>(static_cast<double>(value) / rope.factor);
    } else if (wave >= shortest) {
      const double smooth = (original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      value = static_cast<float>((1 - smooth) * static_cast<double>(value) / rope.factor +
                                 smooth * static_cast<double>(value));
    }
  }
}

double yarn(const Rope& rope, std::vector<float>& inverse) {
  const double width = rope.rotary_dim, original = rope.original_max_positions;
  const auto dimension = [&](double turns) {
    return width * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double value = inverse[i];
    inverse[i] = static_cast<float>(value / rope.factor * ramp + value * (1 - ramp));
  }
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim && *rope.mscale != 0 && *rope.mscale_all_dim != 0)
    return yarn_scale(rope.factor, *rope.mscale) / yarn_scale(rope.factor, *rope.mscale_all_dim);
  return yarn_scale(rope.factor, 1.0);
}

double long_rope(const Rope& rope, int max_positions, std::int64_t length, std::vector<float>& inverse) {
  const bool is_long = length > rope.original_max_positions;
  const auto& factors = is_long ? rope.long_factor : rope.short_factor;
  for (std::size_t i = 0; i < inverse.size(); ++i)
    inverse[i] =
        static_cast<float>(1.0 / (factors[i] * std::pow(rope.theta, static_cast<double>(2 * i) / rope.rotary_dim)));
  if (!is_long && rope.short_attention_factor) return *rope.short_attention_factor;
  if (rope.attention_factor) return *rope.attention_factor;
  const double stretch =
      rope.factor > 1 ? rope.factor : static_cast<double>(max_positions) / rope.original_max_positions;
  return stretch <= 1 ? 1.0
                      : std::sqrt(1 + std::log(stretch) / std::log(static_cast<double>(rope.original_max_positions)));
}

}  // namespace

std::int64_t length_class(const Rope& rope, int max_positions, std::int64_t length) {
  if (rope.kind == RopeKind::kDynamic) return std::max<std::int64_t>(length, max_positions);
  if (rope.kind == RopeKind::kLongRope) return length > rope.original_max_positions ? 1 : 0;
  return 0;
}

Frequencies frequencies(const Rope& rope, int max_positions, std::int64_t length) {
  Frequencies out{plain(rope.theta, rope.rotary_dim), 1.0};
  switch (rope.kind) {
    case RopeKind::kNone:
    case RopeKind::kDefault: break;
    case RopeKind::kLinear:
      for (auto& value : out.inverse) value = static_cast<float>(static_cast<double>(value) / rope.factor);
      break;
    case RopeKind::kDynamic: {
      const double longest = static_cast<double>(std::max<std::int64_t>(length, max_positions));
      const double stretch = rope.factor * longest / max_positions - (rope.factor - 1);
      out.inverse = plain(rope.theta * std::pow(stretch, rope.rotary_dim / (rope.rotary_dim - 2.0)), rope.rotary_dim);
      break;
    }
    case RopeKind::kLlama3: llama3(rope, out.inverse); break;
    case RopeKind::kYarn: out.scaling = yarn(rope, out.inverse); break;
    case RopeKind::kLongRope: out.scaling = long_rope(rope, max_positions, length, out.inverse); break;
    case RopeKind::kProportional:
      for (auto& value : out.inverse) value = static_cast<float>(static_cast<double>(value) / rope.factor);
      std::fill(out.inverse.begin() + static_cast<std::ptrdiff_t>(rope.share * rope.rotary_dim / 2), out.inverse.end(),
                0.0F);
      break;
  }
  return out;
}

RopeTable::RopeTable(Rope rope, int max_positions, at::ScalarType type, at::Device device)
    : rope_(std::move(rope)),
      max_positions_(max_positions),
      type_(type == at::kDouble ? at::kDouble : at::kFloat),
      device_(device) {}

RopeTable::Angles RopeTable::angles(std::int64_t length) {
  auto& entry = made_[length_class(rope_, max_positions_, length)];
  if (entry.cos.defined() && entry.cos.size(0) >= length) return entry;
  if (entry.cos.defined()) replaced_.push_back(entry);
  const auto rows = std::max<std::int64_t>(length, std::min<std::int64_t>(max_positions_, 2 * length));
  const auto [inverse, scaling] = frequencies(rope_, max_positions_, length);
  const auto half = static_cast<std::int64_t>(inverse.size());
  auto cos = at::empty({rows, half}, at::kDouble), sin = at::empty({rows, half}, at::kDouble);
  double* c = cos.mutable_data_ptr<double>();
  double* s = sin.mutable_data_ptr<double>();
  for (std::int64_t p = 0; p < rows; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(static_cast<float>(p) *
                                               inverse[static_cast<std::size_t>(i)]);  // float32, as transformers
      c[p * half + i] = std::cos(angle) * scaling;
      s[p * half + i] = std::sin(angle) * scaling;
    }
  entry = {cos.to(type_).to(device_), sin.to(type_).to(device_)};
  return entry;
}

RopeTable::Trailing RopeTable::trailing(std::int64_t length, std::int64_t width) {
  const auto table = angles(length);
  auto& [of, padded] = padded_[width];
  if (!of.defined() || !table.cos.is_same(of)) {
    const ops::NoGraph guard;
    const auto missing = width / 2 - table.cos.size(1);
    of = table.cos;
    padded.cos = at::constant_pad_nd(table.cos, {missing, 0}, 1);
    padded.sin = at::constant_pad_nd(table.sin, {missing, 0}, 0);
    padded.opposite = -padded.sin;
  }
  return padded;
}

PlacedAngles RopeTable::placed(const at::Tensor& axes, std::int64_t length) {
  const ops::NoGraph guard;
  const auto table = angles(length);
  const int half = rope_.rotary_dim / 2;
  auto axis_of = at::empty({half}, at::kLong);
  auto* axis = axis_of.mutable_data_ptr<std::int64_t>();
  for (int i = 0; i < half; ++i) {
    const auto& [time, row, column] = rope_.sections;
    if (rope_.sections_alternate)  // time takes what rows and columns leave
      axis[i] = i % 3 == 1 && i < 3 * row ? 1 : i % 3 == 2 && i < 3 * column ? 2 : 0;
    else
      axis[i] = i < time ? 0 : i < time + row ? 1 : 2;
  }
  const auto tokens = axes.size(1) * axes.size(2);
  const auto chosen = axis_of.to(device_).view({1, 1, half}).expand({1, tokens, half});
  const auto gathered = [&](const at::Tensor& values) {
    return values.index_select(0, axes.flatten()).view({3, tokens, half}).gather(0, chosen).squeeze(0).contiguous();
  };
  return {gathered(table.cos), gathered(table.sin),
          at::arange(tokens, axes.options()).view({axes.size(1), axes.size(2)})};
}

at::Tensor grown(const at::Tensor& q, const arch::ModelSpec& spec, const at::Tensor& positions) {
  at::Tensor factor;
  {
    const ops::NoGraph guard;
    const auto chunk = positions.floor_divide(spec.rope.original_max_positions).to(at::kDouble);
    factor = (chunk.log1p() * spec.query_growth + 1).unsqueeze(2).unsqueeze(3).to(q.scalar_type());
  }
  return q * factor;
}

}  // namespace automodel::model
