#include "pictures/lanczos.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace automodel::pictures {
namespace {

constexpr double kReach = 3;
constexpr std::size_t kChannels = 3;

double kernel(double x) {
  x = std::abs(x);
  if (x >= kReach) return 0;
  if (x == 0) return 1;
  const double angle = std::numbers::pi * x;
  return std::sin(angle) / angle * std::sin(angle / kReach) / (angle / kReach);
}

/// What a row or column of the result is made of.
struct Taps {
  int first = 0;
  std::vector<double> weights = {};
};

std::vector<Taps> taps_of(int from, int to) {
  const double scale = static_cast<double>(from) / to, wide = std::max(scale, 1.0), reach = kReach * wide;
  std::vector<Taps> out(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i) {
    const double center = scale * (i + 0.5);
    auto& taps = out[static_cast<std::size_t>(i)];
    taps.first = std::max(static_cast<int>(center - reach + 0.5), 0);
    const int end = std::min(static_cast<int>(center + reach + 0.5), from);
    double sum = 0;
    for (int j = taps.first; j < end; ++j) {
      taps.weights.push_back(kernel((j - center + 0.5) / wide));
      sum += taps.weights.back();
    }
    for (auto& weight : taps.weights) weight /= sum;
  }
  return out;
}

/// The most bits behind the point with which the largest weight fits 16 bits.
int precision_of(const std::vector<Taps>& all) {
  constexpr int kMost = 22, kLimit = 1 << 15;
  double largest = 0;
  for (const auto& taps : all)
    for (const double weight : taps.weights) largest = std::max(largest, weight);
  int out = 0;
  while (out < kMost && static_cast<int>(0.5 + largest * (1 << (out + 1))) < kLimit) ++out;
  return out;
}

/// `lines` lines of `from` points become lines of `to`; in memory points are `point` bytes apart, of them 3 channels,
/// and lines `line`, in `in` and in `out`.
struct Pass {
  int lines, from, to;
  std::size_t in_line, in_point, out_line, out_point;
};
void resize(const Pass& pass, const std::vector<std::uint8_t>& in, std::vector<std::uint8_t>& out) {
  const auto all = taps_of(pass.from, pass.to);
  const int precision = precision_of(all);
  for (int i = 0; i < pass.to; ++i) {
    const auto& taps = all[static_cast<std::size_t>(i)];
    std::vector<std::int32_t> weights;
    for (const double weight : taps.weights)
      weights.push_back(static_cast<std::int32_t>(weight * (1 << precision) + (weight < 0 ? -0.5 : 0.5)));
    for (int line = 0; line < pass.lines; ++line) {
      const auto* from = in.data() + static_cast<std::size_t>(line) * pass.in_line +
                         static_cast<std::size_t>(taps.first) * pass.in_point;
      auto* to =
          out.data() + static_cast<std::size_t>(line) * pass.out_line + static_cast<std::size_t>(i) * pass.out_point;
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        std::int32_t sum = 1 << (precision - 1);
        for (std::size_t j = 0; j < weights.size(); ++j) sum += weights[j] * from[j * pass.in_point + channel];
        to[channel] = static_cast<std::uint8_t>(std::clamp(sum >> precision, 0, 255));
      }
    }
  }
}

}  // namespace

Picture lanczos(const Picture& picture, Size to) {
  Picture out = picture;
  const auto line = [](int width) { return kChannels * static_cast<std::size_t>(width); };
  const auto become = [&](Size size, const Pass& pass) {
    std::vector<std::uint8_t> rgb(line(size.width) * static_cast<std::size_t>(size.height));
    resize(pass, out.rgb, rgb);
    out.size = size;
    out.rgb = std::move(rgb);
  };
  const auto [width, height] = picture.size;
  if (to.width != width)
    become({to.width, height}, {height, width, to.width, line(width), kChannels, line(to.width), kChannels});
  if (to.height != height)
    become(to, {to.width, height, to.height, kChannels, line(to.width), kChannels, line(to.width)});
  return out;
}

}  // namespace automodel::pictures
