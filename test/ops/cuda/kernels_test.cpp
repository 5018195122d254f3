// Every GPU kernel, run by the emulation (emulated_cuda.h), against the loop on the CPU: sizes around packs, warps and
// blocks, and strides. long: one case per kernel
#include "ops/kernels/cuda/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include <catch2/catch.hpp>

#include "base/random.h"
#include "ops/cuda/emulated_cuda.h"
#include "ops/kernels/kernels.h"

using namespace automodel;
using namespace automodel::ops;
using emulated::Buffer;
using B = c10::BFloat16;
using Ids = std::vector<std::int64_t>;

namespace {

template <class T>
constexpr cuda::Element kElement = std::is_same_v<T, float>    ? cuda::Element::kFloat
                                   : std::is_same_v<T, double> ? cuda::Element::kDouble
                                                               : cuda::Element::kBFloat16;
/// Relative to values around 1: a few roundings in the type, or sums of a few thousand elements.
template <class T>
constexpr double kTolerance = std::is_same_v<T, float>    ? 2e-5
                              : std::is_same_v<T, double> ? 1e-12
                                                          : 1.0 / 64;

template <class T>
const auto& of_type(const auto& f, const auto& d, const auto& b) {
  if constexpr (std::is_same_v<T, float>)
    return f;
  else if constexpr (std::is_same_v<T, double>)
    return d;
  else
    return b;
}

template <class T>
std::vector<T> values(std::size_t count, std::uint64_t seed, double scale = 1) {
  const RandomStream stream(seed, "values");
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<float>(scale * stream.normal(i)));
  return out;
}

/// Fails at the first element outside the tolerance; NaN always fails.
template <class T>
void check_near(const std::vector<T>& is, const std::vector<T>& should, double tolerance, const char* what) {
  REQUIRE(is.size() == should.size());
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto a = static_cast<double>(is[i]), b = static_cast<double>(should[i]);
    if (!(std::abs(a - b) <= tolerance * (1 + std::abs(b)))) {
      INFO(what << " [" << i << "] of " << is.size());
      REQUIRE(a == b);
    }
  }
}

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

/// Rows and columns: single elements, incomplete packs, more columns than a block takes at once, more rows than blocks.
const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes = {{1, 1},   {3, 7},    {2, 33},   {5, 64}, {1, 255},
                                                                    {2, 264}, {2, 1031}, {1, 4104}, {270, 8}};
/// What norms do by width: a warp or a block per row, one pack or two per thread, and more rows than teams.
const std::vector<std::pair<std::int64_t, std::int64_t>> kNormShapes = {
    {17, 128}, {3, 2056}, {400, 7}, {400, 264}, {3300, 8}};

template <class T>
struct NormCase {
  using C = typename Compute<T>::type;
  std::int64_t rows, columns;
  bool centred, added, with_bias;
  std::vector<T> x = values<T>(size(rows * columns), 1), delta = values<T>(size(rows * columns), 2),
                 weight = values<T>(size(columns), 3), bias = values<T>(size(columns), 4),
                 dy = values<T>(size(rows * columns), 5), dsum = values<T>(size(rows * columns), 6);
  double eps = 1e-5, offset = 1;

  /// LayerNorm in float64, from the sum as rounded to the type.
  void check_layer_norm(const std::vector<T>& y, const std::vector<T>& dx, const std::vector<C>& dparameters) const {
    std::vector<T> want_y(y.size()), want_dx(y.size());
    std::vector<C> want(dparameters.size());
    std::vector<double> sums(dparameters.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = [&](std::int64_t c) { return size(r * columns + c); };
      const auto in = [&](std::int64_t c) {
        const auto value = static_cast<C>(x[at(c)]);
        return static_cast<double>(added ? static_cast<T>(value + static_cast<C>(delta[at(c)])) : x[at(c)]);
      };
      const auto gain = [&](std::int64_t c) { return offset + static_cast<double>(weight[size(c)]); };
      double mean = 0, square = 0, total = 0, along = 0;
      for (std::int64_t c = 0; c < columns; ++c) mean += in(c) / static_cast<double>(columns);
      for (std::int64_t c = 0; c < columns; ++c) square += (in(c)-mean) * (in(c)-mean) / static_cast<double>(columns);
      const double scale = 1 / std::sqrt(square + eps);
      for (std::int64_t c = 0; c < columns; ++c) {
        const double g = static_cast<double>(dy[at(c)]) * gain(c);
        total += g / static_cast<double>(columns);
        along += g * (in(c)-mean) * scale / static_cast<double>(columns);
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        const double normal = (in(c)-mean) * scale, g = static_cast<double>(dy[at(c)]);
        want_y[at(c)] =
            static_cast<T>(static_cast<C>(normal * gain(c) + (with_bias ? static_cast<double>(bias[size(c)]) : 0)));
        want_dx[at(c)] = static_cast<T>(static_cast<C>(scale * (g * gain(c) - total - normal * along) +
                                                       (added ? static_cast<double>(dsum[at(c)]) : 0)));
        sums[size(c)] += g * normal;
        if (with_bias) sums[size(columns + c)] += g;
      }
    }
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = static_cast<C>(sums[i]);
    check_near(y, want_y, kTolerance<T>, "y");
    if (columns > 1) check_near(dx, want_dx, 4 * kTolerance<T>, "dx");
    check_near(dparameters, want, 20 * kTolerance<C>, "parameters' gradients");
  }

  void check_rms_norm(const std::vector<T>& sum, const std::vector<T>& y, const std::vector<C>& rstd,
                      const std::vector<T>& dx, const std::vector<C>& dweight) const {
    const auto& loops = of_type<T>(kernels().norm_float, kernels().norm_double, kernels().norm_bfloat16);
    std::vector<T> want_sum(x), want_y(x.size()), want_dx(x.size());
    std::vector<C> want_rstd(size(rows)), want_dweight(size(columns));
    loops.forward(x.data(), added ? delta.data() : nullptr, weight.data(), want_sum.data(), want_y.data(),
                  want_rstd.data(), rows, columns, eps, offset);
    loops.backward(dy.data(), added ? dsum.data() : nullptr, want_sum.data(), weight.data(), want_rstd.data(),
                   want_dx.data(), want_dweight.data(), rows, columns, offset);
    if (added) check_near(sum, want_sum, 0, "sum");
    check_near(y, want_y, kTolerance<T>, "y");
    check_near(rstd, want_rstd, kTolerance<C>, "rstd");
    check_near(dx, want_dx, 4 * kTolerance<T>, "dx");
    check_near(dweight, want_dweight, 20 * kTolerance<C>, "the weight's gradient");
  }

  void run() {
    INFO(rows << " x " << columns << (centred ? " LayerNorm" : " RMSNorm") << (added ? ", added" : ""));
    const auto n = size(rows * columns);
    const int kept = with_bias ? 2 : 1;
    const cuda::NormShape shape{rows, columns, centred, eps, offset};
    Buffer<T> in(x), other(delta), gain(weight), shift(bias), gradient(dy), residual(dsum), sum(n), y(n), dx(n);
    Buffer<C> mean(size(rows)), rstd(size(rows)), partial(size(cuda::norm_parts(rows) * kept * columns)),
        dparameters(size(kept * columns));
    cuda::norm_forward(kElement<T>, shape,
                       {.x = in.get(),
                        .delta = added ? other.get() : nullptr,
                        .weight = gain.get(),
                        .bias = with_bias ? shift.get() : nullptr,
                        .sum = added ? sum.get() : nullptr,
                        .y = y.get(),
                        .mean = mean.get(),
                        .rstd = rstd.get()},
                       nullptr);
    cuda::norm_backward(kElement<T>, shape,
                        {.dy = gradient.get(),
                         .dsum = added ? residual.get() : nullptr,
                         .x = added ? sum.get() : in.get(),
                         .weight = gain.get(),
                         .mean = mean.get(),
                         .rstd = rstd.get(),
                         .dx = dx.get(),
                         .partial = partial.get(),
                         .dparameters = dparameters.get(),
                         .kept = kept},
                        nullptr);
    if (centred)
      check_layer_norm(y.values(), dx.values(), dparameters.values());
    else
      check_rms_norm(sum.values(), y.values(), rstd.values(), dx.values(), dparameters.values());
  }
};

/// Groups of which some have no rows: their products are NaN.
template <class G>
void check_groups(std::int64_t count, std::int64_t gap, bool fresh) {
  INFO(count << " elements per group, " << gap << " between groups, fresh " << fresh);
  const std::vector<std::int32_t> ends = {0, 3, 3, 4, 9, 9};
  const std::int64_t first = 1, groups = 5, distance = count + gap;
  auto product = values<B>(size(groups * distance), 1);
  auto want = values<G>(size(groups * distance), 2);
  Buffer<G> gradient(want);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t c = 0; c < count; ++c) {
      auto& from = product[size(g * distance + c)];
      auto& to = want[size(g * distance + c)];
      const bool empty = ends[size(first + g)] == ends[size(first + g - 1)];
      if (empty) from = std::numeric_limits<B>::quiet_NaN();
      const double sum = (fresh ? 0 : static_cast<double>(to)) + (empty ? 0 : static_cast<double>(from));
      to = static_cast<G>(static_cast<typename Compute<G>::type>(sum));
    }
  Buffer<B> from(product);
  Buffer<std::int32_t> end(ends);
  cuda::add_groups(kElement<G>,
                   {.product = from.get(),
                    .gradient = gradient.get(),
                    .ends = end.get(),
                    .first_group = first,
                    .groups = groups,
                    .count = count,
                    .product_distance = distance,
                    .gradient_distance = distance,
                    .fresh = fresh},
                   nullptr);
  check_near(gradient.values(), want, 0, "gradient");
}

/// Rows that come back from experts, in float64.
template <class T>
void check_row_sums(std::int64_t tokens, std::int64_t k, std::int64_t width) {
  INFO(tokens << " tokens, " << k << " rows of " << width << " each");
  const auto rows = values<T>(size(tokens * k * width), 1), weights = values<T>(size(tokens * k), 2),
             dout = values<T>(size(tokens * width), 3);
  Ids places(size(tokens * k));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>((i * 7 + 3) % places.size());
  std::vector<T> want(dout.size()), plain(dout.size()), want_drows(rows.size()), want_dweights(weights.size());
  const auto narrowed = [](double x) { return static_cast<T>(static_cast<typename Compute<T>::type>(x)); };
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<double> dots(size(k));
    for (std::int64_t c = 0; c < width; ++c) {
      const double gradient = static_cast<double>(dout[size(t * width + c)]);
      double sum = 0, unweighted = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        const auto at = size(places[size(t * k + j)] * width + c);
        const double value = static_cast<double>(rows[at]), weight = static_cast<double>(weights[size(t * k + j)]);
        sum += weight * value;
        unweighted += value;
        want_drows[at] = narrowed(weight * gradient);
        dots[size(j)] += gradient * value;
      }
      want[size(t * width + c)] = narrowed(sum);
      plain[size(t * width + c)] = narrowed(unweighted);
    }
    for (std::int64_t j = 0; j < k; ++j) want_dweights[size(t * k + j)] = narrowed(dots[size(j)]);
  }
  Buffer<T> in(rows), weight(weights), gradient(dout), out(dout.size()), sums(dout.size()), drows(rows.size()),
      dweights(weights.size());
  Buffer<std::int64_t> place(places);
  cuda::RowSums given{in.get(), weight.get(), place.get(), out.get(), tokens, k, width};
  cuda::sum_rows(kElement<T>, given, nullptr);
  cuda::sum_rows_backward(kElement<T>, given, {gradient.get(), drows.get(), dweights.get()}, nullptr);
  given.weights = nullptr;
  given.out = sums.get();
  cuda::sum_rows(kElement<T>, given, nullptr);
  check_near(out.values(), want, 4 * kTolerance<T>, "out");
  check_near(sums.values(), plain, 4 * kTolerance<T>, "out without weights");
  check_near(drows.values(), want_drows, kTolerance<T>, "drows");
  check_near(dweights.values(), want_dweights, 20 * kTolerance<T>, "dweights");
}

/// Weights in 4 or 8 bits: ranges [first, last) of each of `repeats` stretches of `period` elements.
template <class T>
void check_quantized(int bits, bool small_scales, std::int64_t repeats, std::int64_t period,
                     const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges, bool aligned) {
  INFO(bits << " bits, small scales " << small_scales << ", " << repeats << " x " << period);
  constexpr std::int64_t kBlock = 64;
  cuda::Quantized in{.bytes = nullptr,
                     .elements = 0,
                     .block = kBlock,
                     .scales_at = 0,
                     .outer_at = 0,
                     .bits = bits,
                     .small_scales = small_scales,
                     .period = period,
                     .ranges = {},
                     .aligned = aligned,
                     .unit = 1.0F / 127,
                     .normal = {},
                     .dynamic = {}};
  for (std::size_t i = 0; i < in.normal.size(); ++i) in.normal[i] = static_cast<float>(i) / 8 - 0.9F;
  for (std::size_t i = 0; i < in.dynamic.size(); ++i) in.dynamic[i] = static_cast<float>(i) / 200 - 0.5F;
  std::vector<std::int64_t> block_of, slot_of;  // of each element of the part
  std::int64_t slots = 0;
  for (std::int64_t r = 0; r < repeats; ++r)
    for (const auto& [first, last] : ranges) {
      for (auto at = r * period + first; at < r * period + last; ++at) {
        if (block_of.empty() || at == r * period + first || at % kBlock == 0) ++slots;
        block_of.push_back(at / kBlock);
        slot_of.push_back(slots - 1);
      }
    }
  for (const auto& [first, last] : ranges) {
    in.ranges.first[size(in.ranges.count)] = first;
    in.ranges.begin[size(in.ranges.count + 1)] = in.ranges.begin[size(in.ranges.count)] + last - first;
    ++in.ranges.count;
  }
  in.elements = static_cast<std::int64_t>(block_of.size());
  const auto rounded = [](std::int64_t bytes) { return (bytes + 15) / 16 * 16; };
  in.scales_at = rounded(bits == 8 ? in.elements : (in.elements + 1) / 2);
  in.outer_at = in.scales_at + rounded(small_scales ? slots : 4 * slots);
  const std::int64_t outers = 2 + block_of.back() / cuda::kScaleBlock;
  std::vector<std::uint8_t> bytes(size(in.outer_at + 4 * outers));
  const RandomStream stream(1, "codes");
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(stream.below(i, 256));
  const auto put = [&](std::int64_t at, float value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  const auto get = [&](std::int64_t at) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  if (!small_scales)
    for (std::int64_t i = 0; i < slots; ++i) put(in.scales_at + 4 * i, 0.5F + static_cast<float>(i));
  for (std::int64_t i = 0; i < outers; ++i) put(in.outer_at + 4 * i, 0.25F + static_cast<float>(i));
  std::vector<T> want;
  for (std::int64_t i = 0; i < in.elements; ++i) {
    float scale = small_scales ? in.dynamic[bytes[size(in.scales_at + slot_of[size(i)])]] *
                                         get(in.outer_at + 4 + 4 * (block_of[size(i)] / cuda::kScaleBlock)) +
                                     get(in.outer_at)
                               : get(in.scales_at + 4 * slot_of[size(i)]);
    const unsigned both = bytes[size(i / 2)];
    const float number = bits == 8 ? static_cast<float>(static_cast<std::int8_t>(bytes[size(i)]))
                                   : in.normal[i % 2 == 0 ? both >> 4U : both & 15U];
    if (bits == 8) scale *= in.unit;
    want.push_back(static_cast<T>(static_cast<typename Compute<T>::type>(number * scale)));
  }
  Buffer<std::uint8_t> from(bytes);
  in.bytes = from.get();
  Buffer<T> out(want.size());
  cuda::dequantize(kElement<T>, in, out.get(), nullptr);
  check_near(out.values(), want, kTolerance<T>, "weights");
}

/// Casts to 8 bits: each number against the nearest of the type, found by trying all codes.
template <class T>
void check_float8(std::int64_t rows, std::int64_t columns, ScaleOf scale, bool wide_range, bool power_of_two,
                  bool transposed, std::int64_t between = 0) {
  INFO(rows << " x " << columns << ", " << between << " between rows, scale of " << static_cast<int>(scale)
            << ", wide range " << wide_range << ", power of two " << power_of_two << ", transposed " << transposed);
  auto x = values<T>(size(rows * columns), 1, 3);
  if (rows > 1 && columns > 1) x[1] = static_cast<T>(0), x[size(columns)] = static_cast<T>(static_cast<float>(1e-3));
  const int mantissa = wide_range ? 2 : 3, bias = wide_range ? 15 : 7;
  std::vector<double> numbers;  // of codes 0, 1, ...: ascending
  for (unsigned code = 0; numbers.empty() || numbers.back() < (wide_range ? 57344 : 448); ++code) {
    const int exponent = static_cast<int>(code >> mantissa);
    const double fraction = std::ldexp(code & ((1U << mantissa) - 1), -mantissa);
    numbers.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
  }
  const std::int64_t count = scale == ScaleOf::kMatrix ? 1 : scale == ScaleOf::kRow ? rows : columns;
  std::vector<double> top(size(count));
  const auto of = [&](std::int64_t r, std::int64_t c) {
    return size(scale == ScaleOf::kMatrix ? 0 : scale == ScaleOf::kRow ? r : c);
  };
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      top[of(r, c)] =
          std::max(top[of(r, c)], std::abs(static_cast<double>(static_cast<float>(x[size(r * columns + c)]))));
  std::vector<float> factors(size(count));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double factor = 1 / std::max(top[i], 1e-12) * numbers.back();
    factors[i] = static_cast<float>(power_of_two ? std::exp2(std::floor(std::log2(factor))) : factor);
  }
  std::vector<std::uint8_t> want(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const float scaled = static_cast<float>(x[size(r * columns + c)]) * factors[of(r, c)];
      unsigned best = 0;
      for (unsigned code = 1; code < numbers.size(); ++code) {
        const double away = std::abs(numbers[code] - std::abs(scaled)),
                     before = std::abs(numbers[best] - std::abs(scaled));
        if (away < before || (away == before && code % 2 == 0)) best = code;
      }
      want[size(transposed ? c * rows + r : r * columns + c)] =
          static_cast<std::uint8_t>(best | (std::signbit(scaled) ? 0x80U : 0U));
    }
  std::vector<T> apart;  // what lies between the rows is larger than anything in them
  for (std::int64_t r = 0; r < rows; ++r) {
    apart.insert(apart.end(), x.begin() + r * columns, x.begin() + (r + 1) * columns);
    if (r + 1 < rows) apart.insert(apart.end(), size(between), static_cast<T>(100.0F));
  }
  Buffer<T> in(apart);
  Buffer<float> inverse(size(count));
  Buffer<float> partial(size(cuda::float8_parts(scale) * (scale == ScaleOf::kColumn ? columns : 1))),
      out_factors(size(count));
  Buffer<std::uint8_t> out(x.size());
  cuda::float8_cast(kElement<T>,
                    {.x = in.get(),
                     .rows = rows,
                     .columns = columns,
                     .pitch = columns + between,
                     .scale = scale,
                     .wide_range = wide_range,
                     .power_of_two = power_of_two,
                     .transposed = transposed,
                     .partial = partial.get(),
                     .factors = out_factors.get(),
                     .inverse = inverse.get(),
                     .out = out.get()},
                    nullptr);
  CHECK(out_factors.values() == factors);
  for (auto& each : factors) each = 1 / each;
  CHECK(inverse.values() == factors);
  const auto same = std::mismatch(want.begin(), want.end(), out.values().begin()).first - want.begin();
  CHECK(same == rows * columns);  // index of the first code that differs
}

template <class T>
void check_rope(std::int64_t rows, std::int64_t heads, std::int64_t width, std::int64_t row_stride, bool neighbours,
                double sign) {
  INFO(rows << " rows of " << heads << " heads of " << width);
  using C = typename Compute<T>::type;
  const auto& loops = of_type<T>(kernels().rope_float, kernels().rope_double, kernels().rope_bfloat16);
  const auto angles = values<C>(size(50 * width / 2), 3);
  std::vector<C> cosine(angles.size()), sine(angles.size());
  for (std::size_t i = 0; i < angles.size(); ++i) cosine[i] = std::cos(angles[i]), sine[i] = std::sin(angles[i]);
  Ids position(size(rows));
  for (std::int64_t r = 0; r < rows; ++r) position[size(r)] = (7 * r + 3) % 50;
  auto want = values<T>(size(rows * row_stride), 1);
  Buffer<T> x(want);
  Buffer<C> cos(cosine), sin(sine);
  Buffer<std::int64_t> where(position);
  cuda::rope(kElement<T>,
             {.x = x.get(),
              .row_stride = row_stride,
              .head_stride = width,
              .rows = rows,
              .heads = heads,
              .width = width,
              .cos = cos.get(),
              .sin = sin.get(),
              .position = where.get(),
              .sign = sign,
              .neighbours = neighbours},
             nullptr);
  (neighbours ? loops.rotate_neighbours : loops.rotate)(want.data(), row_stride, width, cosine.data(), sine.data(),
                                                        position.data(), rows, heads, width, sign);
  check_near(x.values(), want, kTolerance<T>, "x");
}

/// As in gpt-oss: (up + 1) * gate * sigmoid(alpha * gate) of the clamped values.
template <class T>
void check_pairs(std::int64_t rows, std::int64_t columns, const PairedGate& gate) {
  using C = typename Compute<T>::type;
  const auto x = values<T>(size(2 * rows * columns), 1, 3), dout = values<T>(size(rows * columns), 2);
  std::vector<T> want(dout.size()), want_dx(x.size());
  for (std::size_t i = 0; i < dout.size(); ++i) {
    double g = static_cast<double>(x[2 * i]), up = static_cast<double>(x[2 * i + 1]);
    const bool g_free = gate.limit <= 0 || g <= gate.limit, up_free = gate.limit <= 0 || std::abs(up) <= gate.limit;
    if (!g_free) g = gate.limit;
    if (!up_free) up = up > 0 ? gate.limit : -gate.limit;
    const double s = 1 / (1 + std::exp(-gate.alpha * g)), d = static_cast<double>(dout[i]);
    want[i] = static_cast<T>(static_cast<C>((up + 1) * g * s));
    want_dx[2 * i] = static_cast<T>(static_cast<C>(g_free ? d * (up + 1) * s * (1 + gate.alpha * g * (1 - s)) : 0));
    want_dx[2 * i + 1] = static_cast<T>(static_cast<C>(up_free ? d * g * s : 0));
  }
  Buffer<T> in(x), gradient(dout), out(dout.size()), dx(x.size());
  cuda::paired_gate_forward(kElement<T>, in.get(), out.get(), rows, columns, gate, nullptr);
  cuda::paired_gate_backward(kElement<T>, gradient.get(), in.get(), dx.get(), rows, columns, gate, nullptr);
  check_near(out.values(), want, kTolerance<T>, "out");
  check_near(dx.values(), want_dx, kTolerance<T>, "dx");
}

Ids labels_for(std::int64_t rows, std::int64_t columns) {
  Ids labels(size(rows));
  for (std::int64_t r = 0; r < rows; ++r) labels[size(r)] = r % 3 == 1 ? -100 : (r * 13 + columns - 1) % columns;
  return labels;
}

/// In float64; returns the losses and overwrites the logits with their gradients.
template <class T>
std::vector<double> capped_loss(std::vector<T>& logits, const Ids& labels, std::int64_t columns, double cap,
                                double scale) {
  std::vector<double> losses(labels.size());
  for (std::size_t r = 0; r < labels.size(); ++r) {
    T* row = logits.data() + r * size(columns);
    if (labels[r] == -100) {
      std::fill(row, row + columns, static_cast<T>(0));
      continue;
    }
    std::vector<double> z(size(columns));
    for (std::size_t c = 0; c < z.size(); ++c) z[c] = cap * std::tanh(static_cast<double>(row[c]) / cap);
    const double top = *std::max_element(z.begin(), z.end());
    double sum = 0;
    for (const double each : z) sum += std::exp(each - top);
    losses[r] = top + std::log(sum) - z[size(labels[r])];
    for (std::size_t c = 0; c < z.size(); ++c) {
      const double p = std::exp(z[c] - top) / sum - (static_cast<std::int64_t>(c) == labels[r] ? 1 : 0);
      row[c] = static_cast<T>(static_cast<typename Compute<T>::type>(scale * p * (1 - z[c] / cap * z[c] / cap)));
    }
  }
  return losses;
}

template <class T>
std::vector<double> whole_loss(Buffer<T>& logits, const Ids& labels, std::int64_t columns, double cap, double scale,
                               bool gradient) {
  Buffer<std::int64_t> label(labels);
  Buffer<double> losses(labels.size()), factor(std::vector<double>{scale / 2});
  const bool known = labels.size() % 2 == 0;  // to the host; otherwise part of the scale is on the device
  cuda::cross_entropy(kElement<T>,
                      {.logits = logits.get(),
                       .stride = columns,
                       .rows = static_cast<std::int64_t>(labels.size()),
                       .columns = columns,
                       .first = 0,
                       .labels = label.get(),
                       .cap = cap},
                      losses.get(), -100, known ? scale : 2, known ? nullptr : factor.get(), gradient, nullptr);
  return losses.values();
}

template <class T>
void check_shared_vocabulary(std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t first) {
  INFO(rows << " x " << columns << " of " << stride << " from " << first);
  using C = typename Compute<T>::type;
  const auto& loops =
      of_type<T>(kernels().cross_entropy_float, kernels().cross_entropy_double, kernels().cross_entropy_bfloat16);
  auto want = values<T>(size(rows * stride), 1, 2);
  const auto labels = labels_for(rows, 3 * columns);
  std::vector<C> want_out(size(3 * rows)), shares(size(2 * rows));
  loops.statistics(want.data(), stride, labels.data(), rows, columns, first, want_out.data());
  for (std::int64_t r = 0; r < rows; ++r) {
    shares[size(2 * r)] = want_out[size(3 * r)] + C(0.5);
    shares[size(2 * r + 1)] = r % 3 == 1 ? C(0) : C(0.3) / want_out[size(3 * r + 1)];
  }
  Buffer<T> logits(want);
  Buffer<std::int64_t> label(labels);
  Buffer<C> out(size(3 * rows)), share(shares);
  const cuda::Logits in{.logits = logits.get(),
                        .stride = stride,
                        .rows = rows,
                        .columns = columns,
                        .first = first,
                        .labels = label.get(),
                        .cap = 0};
  cuda::logit_statistics(kElement<T>, in, out.get(), nullptr);
  check_near(out.values(), want_out, kTolerance<C>, "statistics");
  cuda::logit_gradient(kElement<T>, in, share.get(), 0.3, nullptr);
  loops.gradient(want.data(), stride, labels.data(), rows, columns, first, shares.data(), 0.3);
  check_near(logits.values(), want, kTolerance<T>, "gradient");
}

/// Pieces of several lengths, one of them not aligned, over more than one table.
template <class T, class G>
void check_adam(bool amsgrad, bool decoupled) {
  INFO("amsgrad " << amsgrad << ", decoupled " << decoupled);
  const auto& loops = of_type<T>(kernels().optimizer_float, kernels().optimizer_double, 0);
  const std::int64_t total = 41000;
  auto value = values<T>(size(total), 1), mean = values<T>(size(total), 3, 0.1),
       square = values<T>(size(total), 4, 0.1);
  for (auto& each : square) each = each * each;
  auto largest = values<T>(size(total), 5, 0.1);
  for (auto& each : largest) each = each * each;
  const auto gradient = values<G>(size(total), 2);
  std::vector<T> wide(gradient.begin(), gradient.end());
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {{0, 17000}, {17000, 3}, {17003, 501}, {17504, 0}};
  for (std::int64_t i = 0; i < 30; ++i) ranges.emplace_back(17504 + 32 * i, 32);
  ranges.emplace_back(18464, total - 18464);
  AdamStep step{.lr = 0.01,
                .beta1 = 0.9,
                .beta2 = 0.95,
                .eps = 1e-8,
                .weight_decay = 0.1,
                .correction1 = 0.5,
                .correction2 = 0.25,
                .gradient_scale = 0.7,
                .decoupled = decoupled,
                .maximize = amsgrad};
  Buffer<T> v(value), m(mean), s(square), x(largest);
  Buffer<G> g(gradient);
  Buffer<B> copy(size(total));
  std::vector<cuda::AdamPiece> pieces;
  for (const auto& [begin, length] : ranges)
    pieces.push_back({v.get() + begin, g.get() + begin, m.get() + begin, s.get() + begin,
                      amsgrad ? x.get() + begin : nullptr, copy.get() + begin, length, begin == 0 ? 0.03 : 0.01,
                      begin == 17000 ? 0.0 : 0.1});
  cuda::adam(kElement<T>, kElement<G>, pieces, step, nullptr);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto [begin, length] = ranges[i];
    step.lr = pieces[i].lr;
    step.weight_decay = pieces[i].weight_decay;
    loops.adam(value.data() + begin, wide.data() + begin, mean.data() + begin, square.data() + begin,
               amsgrad ? largest.data() + begin : nullptr, length, step);
  }
  check_near(v.values(), value, kTolerance<T>, "value");
  check_near(m.values(), mean, kTolerance<T>, "mean");
  check_near(s.values(), square, kTolerance<T>, "square");
  if (amsgrad) check_near(x.values(), largest, kTolerance<T>, "largest square");
  std::vector<B> rounded(value.size());
  for (std::size_t i = 0; i < value.size(); ++i) rounded[i] = static_cast<B>(static_cast<float>(value[i]));
  check_near(copy.values(), rounded, kTolerance<B>, "copy");
}

template <class T>
void check_squares(std::int64_t count) {
  INFO(count << " elements");
  const auto x = values<T>(size(count), 1);
  Buffer<T> in(x);
  std::vector<cuda::SquaresPiece> pieces = {{in.get(), count}};
  double want = 0;
  for (const auto each : x) want += static_cast<double>(each) * static_cast<double>(each);
  for (std::int64_t i = 1; i < std::min<std::int64_t>(count, 30); ++i) {  // unaligned ones, and a second table
    pieces.push_back({in.get() + i, std::min<std::int64_t>(count - i, 100)});
    for (std::int64_t j = 0; j < pieces.back().count; ++j)
      want += static_cast<double>(x[size(i + j)]) * static_cast<double>(x[size(i + j)]);
  }
  Buffer<double> partial(size(cuda::square_parts(pieces))), out(1);
  cuda::sum_of_squares(kElement<T>, pieces, partial.get(), out.get(), nullptr);
  CHECK(out.values()[0] == Approx(want).epsilon(kTolerance<typename Compute<T>::type>));
}

template <class T, class G>
void check_embedding(std::int64_t count, std::int64_t width, std::int64_t table_rows) {
  INFO(count << " tokens of width " << width);
  using C = typename Compute<G>::type;
  const auto gradient = values<T>(size(count * width), 1);
  auto table = values<G>(size(table_rows * width), 2);
  Ids ids(size(count)), order(size(count)), sorted;
  for (std::int64_t i = 0; i < count; ++i) ids[size(i)] = (5 * i + 3) % (table_rows + 2) - 1;  // some are out of range
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return ids[size(a)] < ids[size(b)]; });
  for (const auto each : order) sorted.push_back(ids[size(each)]);
  Buffer<G> out(table);
  Buffer<T> in(gradient);
  Buffer<std::int64_t> by(sorted), where(order);
  cuda::embedding_backward(kElement<T>, kElement<G>,
                           {.gradient = in.get(),
                            .sorted = by.get(),
                            .order = where.get(),
                            .count = count,
                            .width = width,
                            .table_rows = table_rows,
                            .padding = 2,
                            .table = out.get()},
                           nullptr);
  std::vector<C> sums(table.begin(), table.end());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto id = ids[size(i)];
    if (id < 0 || id >= table_rows || id == 2) continue;
    for (std::int64_t c = 0; c < width; ++c)
      sums[size(id * width + c)] += static_cast<C>(gradient[size(i * width + c)]);
  }
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<G>(sums[i]);
  check_near(out.values(), table, kTolerance<G>, "table");
}

template <class T>
void check_dropout(std::int64_t rows, const std::vector<std::pair<std::int64_t, std::int64_t>>& features,
                   std::int64_t filling) {
  const RandomStream stream(77, "dropout/3/some.lora_A");
  const std::int64_t width = 5003;
  const double share = 0.3;
  Ids tokens(size(rows));
  for (std::int64_t r = 0; r < rows; ++r) tokens[size(r)] = (std::int64_t{1} << 35) + 11 * r;
  cuda::FeatureRuns runs;
  std::int64_t columns = 0;
  for (const auto& [first, last] : features) {
    runs.first[size(runs.count)] = first;
    runs.begin[size(runs.count)] = columns;
    columns += last - first;
    runs.begin[size(++runs.count)] = columns;
  }
  columns += filling;
  auto want = values<T>(size(rows * columns), 1);
  Buffer<T> in(want), out(want.size());
  Buffer<std::int64_t> token(tokens);
  cuda::dropout(kElement<T>,
                {.x = in.get(),
                 .out = out.get(),
                 .rows = rows,
                 .columns = columns,
                 .width = width,
                 .tokens = token.get(),
                 .seed = 77,
                 .stream = stream_hash("dropout/3/some.lora_A"),
                 .share = share,
                 .features = runs},
                nullptr);
  const auto kept = static_cast<T>(static_cast<float>(1 / (1 - share)));
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = want.data() + r * columns;
    for (const auto& [first, last] : features)
      for (auto f = first; f < last; ++f, ++row)
        *row = stream.uniform(static_cast<std::uint64_t>(tokens[size(r)] * width + f)) >= static_cast<float>(share)
                   ? *row * kept
                   : static_cast<T>(0);
    std::fill(row, row + filling, static_cast<T>(0));
  }
  check_near(out.values(), want, 0, "out");
}

template <class T>
void check_top_k(std::int64_t rows, std::int64_t columns, std::int64_t k) {
  INFO(rows << " rows, " << k << " of " << columns);
  auto scores = values<T>(size(rows * columns), 1);
  for (auto& each : scores) each = std::round(each * 4) / 4;  // many are equal
  Buffer<T> in(scores);
  Buffer<std::int64_t> out(size(rows * k));
  cuda::top_k(kElement<T>, in.get(), rows, columns, k, out.get(), nullptr);
  for (std::int64_t r = 0; r < rows; ++r) {
    Ids want(size(columns));
    std::iota(want.begin(), want.end(), 0);
    std::stable_sort(want.begin(), want.end(),
                     [&](auto a, auto b) { return scores[size(r * columns + a)] > scores[size(r * columns + b)]; });
    want.resize(size(k));
    REQUIRE(Ids(out.values().begin() + r * k, out.values().begin() + (r + 1) * k) == want);
  }
}

void check_sorted(std::int64_t count, std::int64_t k, std::int64_t experts) {
  INFO(count << " choices of " << experts);
  const RandomStream stream(5, "choices");
  Ids choices(size(count));
  for (std::size_t i = 0; i < choices.size(); ++i)
    choices[i] = static_cast<std::int64_t>(stream.below(i, static_cast<std::uint64_t>(experts)));
  Ids order(size(count)), want_from(size(count)), want_place(size(count)), want_counts(size(experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return choices[size(a)] < choices[size(b)]; });
  for (std::int64_t i = 0; i < count; ++i) {
    want_from[size(i)] = order[size(i)] / k;
    want_place[size(order[size(i)])] = i;
    ++want_counts[size(choices[size(i)])];
  }
  Buffer<std::int64_t> in(choices), from(size(count)), place(size(count)), counts(size(experts));
  cuda::sort_choices(in.get(), count, k, experts, from.get(), place.get(), counts.get(), nullptr);
  CHECK(from.values() == want_from);
  CHECK(place.values() == want_place);
  CHECK(counts.values() == want_counts);
}

}  // namespace

TEMPLATE_TEST_CASE("the GPU's RMSNorm equals the CPU's, forward and backward", "", float, double, B) {
  for (const auto& [rows, columns] : kShapes)
    for (const bool added : {false, true}) NormCase<TestType>{rows, columns, false, added, false}.run();
  for (const auto& [rows, columns] : kNormShapes) NormCase<TestType>{rows, columns, false, true, false}.run();
  NormCase<TestType>{2, 16392, false, true, false}.run();  // too wide for sums in shared memory
}

TEMPLATE_TEST_CASE("the GPU's LayerNorm equals its definition, forward and backward", "", float, double, B) {
  for (const auto& [rows, columns] : kShapes)
    if (columns > 1) NormCase<TestType>{rows, columns, true, columns % 2 == 0, columns % 3 != 0}.run();
  for (const auto& [rows, columns] : kNormShapes) NormCase<TestType>{rows, columns, true, true, true}.run();
  NormCase<TestType>{2, 8200, true, true, true}.run();
}

TEMPLATE_TEST_CASE("the GPU's rotary embedding equals the CPU's on strided rows", "", float, double, B) {
  check_rope<TestType>(3, 5, 64, 5 * 64, false, 1);
  check_rope<TestType>(4, 9, 66, 12 * 66 + 2, false, -1);  // more pairs than threads, gaps between rows
  check_rope<TestType>(1, 1, 2, 2, false, 1);
  check_rope<TestType>(3, 7, 10, 90, true, 1);
  check_rope<TestType>(5, 3, 32, 3 * 32 + 16, true, -1);
  check_rope<TestType>(2, 3, 32, 3 * 32 + 1, false, 1);  // rows that begin at no multiple of a pack
}

TEMPLATE_TEST_CASE("the GPU's gates equal the CPU's, forward and backward", "", float, double, B) {
  const auto& loops = of_type<TestType>(kernels().gate_float, kernels().gate_double, kernels().gate_bfloat16);
  for (const auto gate : {Gate::kSilu, Gate::kGeluTanh, Gate::kGelu, Gate::kRelu, Gate::kRelu2})
    for (const auto& [rows, columns] : kShapes) {
      INFO(static_cast<int>(gate) << ": " << rows << " x " << columns);
      const auto x = values<TestType>(size(2 * rows * columns), 1, 2), dout = values<TestType>(size(rows * columns), 2);
      std::vector<TestType> want(dout.size()), want_dx(x.size());
      loops.forward(x.data(), want.data(), rows, columns, gate);
      loops.backward(dout.data(), x.data(), want_dx.data(), rows, columns, gate);
      Buffer<TestType> in(x), gradient(dout), out(dout.size()), dx(x.size());
      cuda::gate_forward(kElement<TestType>, in.get(), out.get(), rows, columns, gate, nullptr);
      cuda::gate_backward(kElement<TestType>, gradient.get(), in.get(), dx.get(), rows, columns, gate, nullptr);
      check_near(out.values(), want, kTolerance<TestType>, "out");
      check_near(dx.values(), want_dx, kTolerance<TestType>, "dx");
    }
}

TEMPLATE_TEST_CASE("the GPU's gates accept unaligned rows", "", float, double, B) {
  const auto& loops = of_type<TestType>(kernels().gate_float, kernels().gate_double, kernels().gate_bfloat16);
  const auto x = values<TestType>(129, 1);
  std::vector<TestType> want(64);
  loops.forward(x.data() + 1, want.data(), 1, 64, Gate::kSilu);
  Buffer<TestType> in(x), out(64);
  cuda::gate_forward(kElement<TestType>, in.get() + 1, out.get(), 1, 64, Gate::kSilu, nullptr);
  check_near(out.values(), want, kTolerance<TestType>, "out");
}

TEMPLATE_TEST_CASE("the GPU's clamped gate of interleaved pairs equals its definition", "", float, double, B) {
  check_pairs<TestType>(3, 37, PairedGate{.alpha = 1.702, .limit = 2});
  check_pairs<TestType>(1, 300, PairedGate{.alpha = 1.5, .limit = 0});
}

TEMPLATE_TEST_CASE("the GPU's cross-entropy and in-place gradient equal the CPU's", "", float, double, B) {
  const auto& loops = of_type<TestType>(kernels().cross_entropy_float, kernels().cross_entropy_double,
                                        kernels().cross_entropy_bfloat16);
  for (const auto& [rows, columns] : kShapes)
    for (const bool gradient : {false, true}) {
      if (rows > 10) continue;
      INFO(rows << " x " << columns << ", gradient " << gradient);
      auto want = values<TestType>(size(rows * columns), 1, 3);
      const auto labels = labels_for(rows, columns);
      Buffer<TestType> logits(want);
      const auto losses = whole_loss(logits, labels, columns, 0, 0.3, gradient);
      const double total = loops.run(want.data(), labels.data(), rows, columns, -100, 0.3, gradient);
      CHECK(std::accumulate(losses.begin(), losses.end(), 0.0) == Approx(total).margin(1e-5));
      check_near(logits.values(), want, kTolerance<TestType>, "logits");
    }
}

TEMPLATE_TEST_CASE("the GPU's cross-entropy applies a soft cap", "", float, double, B) {
  for (const std::int64_t columns : {7, 1024, 1031}) {
    auto want = values<TestType>(size(3 * columns), 1, 6);
    const auto labels = labels_for(3, columns);
    Buffer<TestType> logits(want);
    const auto losses = whole_loss(logits, labels, columns, 5, 0.3, true);
    const auto want_losses = capped_loss(want, labels, columns, 5, 0.3);
    check_near(losses, want_losses, 1e-5, "losses");
    check_near(logits.values(), want, kTolerance<TestType>, "logits");
  }
}

TEMPLATE_TEST_CASE("the GPU's loss over a vocabulary shard equals the CPU's", "", float, double, B) {
  check_shared_vocabulary<TestType>(4, 37, 41, 37);
  check_shared_vocabulary<TestType>(3, 1000, 1000, 0);
  check_shared_vocabulary<TestType>(3, 1024, 1040, 2048);
  check_shared_vocabulary<TestType>(3, 1024, 1030, 0);
}

TEMPLATE_TEST_CASE("the GPU's loss of a row with many -inf logits is finite", "", float, double, B) {
  const std::int64_t columns = 1024;
  std::vector<TestType> logits(size(columns), static_cast<TestType>(-std::numeric_limits<float>::infinity()));
  logits[700] = static_cast<TestType>(1), logits[701] = static_cast<TestType>(1);
  Buffer<TestType> in(logits);
  CHECK(whole_loss(in, {700}, columns, 0, 1, true)[0] == Approx(std::log(2.0)));
  CHECK(static_cast<double>(in.values()[700]) == Approx(-0.5));
  CHECK(static_cast<double>(in.values()[0]) == 0);
}

TEST_CASE("the GPU's Adam over many pieces equals the CPU's") {
  for (const bool amsgrad : {false, true})
    for (const bool decoupled : {false, true}) {
      check_adam<float, float>(amsgrad, decoupled);
      check_adam<float, B>(amsgrad, decoupled);
      check_adam<double, double>(amsgrad, decoupled);
    }
}

TEMPLATE_TEST_CASE("the GPU's sum of squares covers all pieces", "", float, double, B) {
  for (const std::int64_t count : {1, 7, 100, 1024, 70001}) check_squares<TestType>(count);
}

TEST_CASE("the GPU's embedding gradient sums the rows of equal tokens") {
  check_embedding<float, float>(1, 1, 3);
  check_embedding<float, float>(2, 5, 40);  // the last run of ids ends with the list
  check_embedding<float, float>(300, 65, 40);
  check_embedding<float, float>(100, 3, 3);  // runs longer than the read-ahead
  check_embedding<B, float>(40, 300, 7);
  check_embedding<B, B>(40, 300, 7);
  check_embedding<double, double>(50, 8, 4);
}

TEMPLATE_TEST_CASE("the GPU adds the products of groups that have rows", "", float, double, B) {
  for (const bool fresh : {false, true}) {
    check_groups<TestType>(64, 0, fresh);
    check_groups<TestType>(8 * (4 * 256 + 3), 16, fresh);  // more packs than a block takes
    check_groups<TestType>(37, 5, fresh);
  }
}

TEMPLATE_TEST_CASE("the GPU's dropout draws the same random numbers as the CPU", "", float, double, B) {
  check_dropout<TestType>(3, {{0, 64}}, 0);
  check_dropout<TestType>(37, {{5, 12}, {21, 22}, {400, 431}}, 3);
}

TEMPLATE_TEST_CASE("the GPU's router selects the largest scores, the first of equal ones", "", float, double) {
  check_top_k<TestType>(3, 8, 2);
  check_top_k<TestType>(9, 33, 33);
  check_top_k<TestType>(5, 128, 8);
  check_top_k<TestType>(2, 1024, 3);
}

TEMPLATE_TEST_CASE("the GPU makes weights in 4 or 8 bits dense", "", float, B) {
  for (const bool small_scales : {false, true}) {
    check_quantized<TestType>(4, small_scales, 1, 20000, {{10, 19011}}, false);
    check_quantized<TestType>(4, small_scales, 70, 256, {{64, 128}, {192, 256}}, true);
    check_quantized<TestType>(4, small_scales, 1, 40000, {{0, 64}, {32768, 32832}}, true);  // scales of other scales
    check_quantized<TestType>(4, small_scales, 1, 40000, {{32768, 33408}}, true);
    check_quantized<TestType>(4, small_scales, 1, 1000, {{0, 64}, {192, 320}, {960, 1000}}, true);
  }
  check_quantized<TestType>(8, false, 1, 640, {{130, 333}}, false);
  check_quantized<TestType>(4, false, 1, std::int64_t{1} << 33, {{64, 640}}, true);  // counted in 64 bits
  check_quantized<TestType>(4, true, 1, 20000, {{0, 20000}}, true);
  check_quantized<TestType>(4, false, 1, 1003, {{0, 1003}}, true);
  check_quantized<TestType>(8, false, 5, 128, {{0, 64}}, true);
}

TEMPLATE_TEST_CASE("the GPU rounds matrices to 8-bit numbers", "", float, B) {
  int turn = 0;
  for (const auto scale : {ScaleOf::kMatrix, ScaleOf::kRow, ScaleOf::kColumn})
    for (const bool transposed : {false, true})
      for (const auto& [rows, columns] :
           std::vector<std::pair<std::int64_t, std::int64_t>>{{80, 136}, {33, 7}, {1, 264}, {67, 96}}) {
        check_float8<TestType>(rows, columns, scale, turn % 2 == 1, turn % 3 == 1, transposed);
        check_float8<TestType>(rows, columns, scale, turn % 2 == 1, turn % 3 == 1, transposed, turn % 5 == 0 ? 3 : 16);
        ++turn;
      }
  check_float8<TestType>(2, 300000, ScaleOf::kMatrix, false, false, false);  // more packs than threads in all blocks
  check_float8<TestType>(3, 5000, ScaleOf::kRow, true, false, false);
}

TEMPLATE_TEST_CASE("the GPU sums the rows that come back from experts", "", float, double, B) {
  check_row_sums<TestType>(5, 2, 64);
  check_row_sums<TestType>(1, 1, 7);
  check_row_sums<TestType>(3, 3, 2056);
}

TEST_CASE("the GPU sorts choices by expert and keeps their order within an expert") {
  check_sorted(7, 1, 3);
  check_sorted(512, 2, 5);
  check_sorted(1001, 7, 40);
}
