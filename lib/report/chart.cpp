#include "report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "report/html.h"

namespace automodel::report {
namespace {

constexpr double kWide = 1000, kHigh = 400;  // size of the drawing, which is stretched to the page
constexpr std::size_t kPoints = 200;

struct Scale {
  double low = 0, high = 1;
  bool logarithmic = false;
  double place(double value) const {
    const auto map = [&](double x) { return logarithmic ? std::log10(x) : x; };
    return (map(value) - map(low)) / (map(high) - map(low));
  }
};

struct Drawn {
  const Series* series;
  std::vector<Bucket> buckets;
};

/// Axis ranges over all series, widened if all values are equal.
std::pair<Scale, Scale> scales_of(const Chart& chart, const std::vector<Drawn>& drawn) {
  constexpr double kMost = std::numeric_limits<double>::max();
  Scale x{kMost, -kMost}, y{kMost, -kMost, chart.logarithmic};
  for (const auto& each : drawn)
    for (const auto& bucket : each.buckets) {
      x.low = std::min(x.low, static_cast<double>(bucket.first));
      x.high = std::max(x.high, static_cast<double>(bucket.last));
      y.low = std::min(y.low, bucket.low);
      y.high = std::max(y.high, bucket.high);
    }
  if (y.logarithmic && y.low <= 0) y.logarithmic = false;
  if (x.low == x.high) x.high = x.low + 1;
  const double room = y.logarithmic ? 0 : 0.05 * (y.high - y.low);
  y.low -= room;
  y.high += room;
  if (y.low >= y.high) {
    y.high = y.low == 0 ? 1 : y.low + 0.1 * std::abs(y.low);
    y.low = y.low == 0 ? 0 : y.low - 0.1 * std::abs(y.low);
  }
  return {x, y};
}

std::string path_of(const Drawn& drawn, const Scale& x, const Scale& y) {
  const auto at = [&](const Bucket& bucket, double value) {
    const double middle = 0.5 * static_cast<double>(bucket.first + bucket.last);
    return fmt::format("{:.1f} {:.1f}", kWide * x.place(middle), kHigh * (1 - y.place(value)));
  };
  const int color = drawn.series->color % 8;
  std::string out;
  if (drawn.series->points) {
    for (const auto& bucket : drawn.buckets) {
      // A zero-length line with round caps stays a circle however the drawing is stretched.
      const auto place = at(bucket, bucket.mean);
      out += fmt::format(R"(<path class="dot s{}" d="M{} L{}"><title>step {}: {}</title></path>)", color, place, place,
                         bucket.last, short_number(bucket.mean));
    }
    return out;
  }
  std::string line, low, high;
  bool wide = false;
  for (std::size_t i = 0; i < drawn.buckets.size(); ++i) {
    const auto& bucket = drawn.buckets[i];
    line += (i == 0 ? "M" : " L") + at(bucket, bucket.mean);
    high += (i == 0 ? "M" : " L") + at(bucket, bucket.high);
    low = " L" + at(bucket, bucket.low) + low;
    wide = wide || bucket.high > bucket.low;
  }
  if (wide) out += fmt::format(R"(<path class="band b{}" d="{}{} Z"/>)", color, high, low);
  return out + fmt::format(R"(<path class="line s{}" d="{}"/>)", color, line);
}

std::string legend(const Chart& chart) {
  if (chart.series.size() < 2) return "";
  std::string out = "<p class=\"legend\">";
  for (const auto& each : chart.series)
    out += fmt::format(R"(<span class="key c{}{}">{}</span>)", each.color % 8, each.points ? " round" : "",
                       escaped(each.name));
  return out + "</p>\n";
}

/// The data that the page's script shows next to the pointer.
std::string data_of(const std::vector<Drawn>& drawn, const Scale& x) {
  std::string out = fmt::format(R"({{"low":{},"high":{},"series":[)", x.low, x.high);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    out += fmt::format(R"({}{{"name":"{}","points":[)", i == 0 ? "" : ",", escaped(drawn[i].series->name));
    for (std::size_t k = 0; k < drawn[i].buckets.size(); ++k) {
      const auto& bucket = drawn[i].buckets[k];
      out += fmt::format("{}[{},{},{:.6g}]", k == 0 ? "" : ",", bucket.first, bucket.last, bucket.mean);
    }
    out += "]}";
  }
  return out + "]}";
}

/// Makes JSON safe for a single-quoted attribute. Names of runs may contain characters that JSON would have to escape.
std::string in_attribute(const std::string& json) {
  std::string out;
  for (const char c : json) {
    if (c == '\'')
      out += "&#39;";
    else if (static_cast<unsigned char>(c) < 0x20 || c == '\\')
      out += '_';
    else
      out += c;
  }
  return out;
}

}  // namespace

std::vector<Bucket> buckets_of(const Column& column, std::size_t most) {
  std::vector<Bucket> out;
  const auto count = column.steps.size();
  std::size_t last = 0;  // position of the newest bucket
  for (std::size_t i = 0; i < count; ++i) {
    const double value = column.values[i];
    if (!std::isfinite(value)) continue;
    const auto place = count <= most ? i : i * most / count;
    if (out.empty() || place != last) out.push_back({column.steps[i], column.steps[i], value, 0, value, 0});
    last = place;
    auto& bucket = out.back();
    bucket.last = column.steps[i];
    bucket.low = std::min(bucket.low, value);
    bucket.high = std::max(bucket.high, value);
    bucket.mean += (value - bucket.mean) / ++bucket.count;
  }
  return out;
}

std::vector<double> ticks(double low, double high, int most) {
  const double rough = (high - low) / std::max(1, most - 1);
  const double magnitude = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * magnitude;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * magnitude >= rough) step = factor * magnitude;
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    out.push_back(i == 0 ? 0 : i * step);
  return out;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "not finite";
  const double size = std::abs(value);
  constexpr std::array<std::pair<double, const char*>, 4> kUnits = {{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}}};
  for (const auto& [unit, letter] : kUnits)
    if (size >= 10 * unit || (unit > 1e3 && size >= unit)) return fmt::format("{:.3g}{}", value / unit, letter);
  return fmt::format("{:.4g}", value);
}

std::string to_html(const Chart& chart) {
  std::vector<Drawn> drawn;
  for (const auto& series : chart.series)
    if (auto buckets = buckets_of(*series.column, series.points ? kPoints : chart.buckets); !buckets.empty())
      drawn.push_back({&series, std::move(buckets)});
  if (drawn.empty()) return "";
  const auto [x, y] = scales_of(chart, drawn);
  std::string grid, labels, paths;
  std::vector<double> values = ticks(y.low, y.high, 7);
  if (y.logarithmic) {
    values.clear();
    for (double power = std::floor(std::log10(y.low)); power <= std::log10(y.high); ++power)
      if (const double value = std::pow(10, power); value >= y.low) values.push_back(value);
    if (values.size() < 2) values = {y.low, y.high};
  }
  for (const double value : values) {
    const double place = 1 - y.place(value);
    grid += fmt::format(R"(<path class="grid" d="M0 {0:.1f} L{1:.0f} {0:.1f}"/>)", kHigh * place, kWide);
    labels += fmt::format(R"(<span class="y" style="top:{:.2f}%">{}</span>)", 100 * place, short_number(value));
  }
  for (const auto& mark : chart.marks)
    if (const double place = x.place(static_cast<double>(mark.step)); place >= 0 && place <= 1)
      grid += fmt::format(R"(<path class="mark" d="M{0:.1f} 0 L{0:.1f} {1:.0f}"><title>{2}</title></path>)",
                          kWide * place, kHigh, escaped(mark.text));
  for (const double value : ticks(x.low, x.high, 6))
    labels +=
        fmt::format(R"(<span class="x" style="left:{:.2f}%">{}</span>)", 100 * x.place(value), short_number(value));
  for (const auto& each : drawn) paths += path_of(each, x, y);
  return fmt::format(
      "<figure class=\"chart\" data-key=\"{}\"><figcaption>{}</figcaption>\n{}"
      "<div class=\"plot\" data-points='{}'><svg viewBox=\"0 0 {:.0f} {:.0f}\" preserveAspectRatio=\"none\" "
      "role=\"img\" "
      "aria-label=\"{}\">{}{}</svg>{}<output></output></div></figure>\n",
      escaped(chart.key), escaped(chart.title), legend(chart), in_attribute(data_of(drawn, x)), kWide, kHigh,
      escaped(chart.title), grid, paths, labels);
}

}  // namespace automodel::report
