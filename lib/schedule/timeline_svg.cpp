#include "schedule/timeline_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"

namespace automodel::schedule {
namespace {

constexpr double kLeft = 104;                                             // rank labels, at least
constexpr double kRight = 64;                                             // busy percentage of the ranks
constexpr double kTop = 66;                                               // title
constexpr double kLane = 26;                                              // height of a lane
constexpr double kStrip = 8;                                              // height of the communication strip
constexpr double kGap = 8;                                                // between ranks
constexpr double kCharacter = 6.2;                                        // width of a digit in a box
constexpr double kSmall = 5.3;                                            // of a character in a label of stages
constexpr std::array<std::string_view, 3> kUnits = {" s", " ms", " us"};  // of the time axis
constexpr std::size_t kMostTips = 6000;                                   // boxes; larger charts have no tooltips

struct Kind {
  std::string_view label;
  int hue;
  int saturation;
};
enum KindIndex : std::size_t { kForwards, kInputs, kWeights, kBackwards, kMessages, kCollectives, kKinds };
constexpr std::array<Kind, kKinds> kKindRows = {{
    {"forward", 212, 64},
    {"input gradient", 30, 88},
    {"weight gradient", 145, 46},
    {"full backward", 354, 58},
    {"message to a neighbour", 272, 38},
    {"gather, reduce", 215, 9},
}};

KindIndex kind_of(Op op) {
  switch (op) {
    case Op::kForward: return kForwards;
    case Op::kBackwardInput: return kInputs;
    case Op::kBackwardWeight: return kWeights;
    case Op::kFullBackward: return kBackwards;
    case Op::kSendForward:
    case Op::kRecvForward:
    case Op::kSendBackward:
    case Op::kRecvBackward: return kMessages;
    case Op::kUnshard:
    case Op::kReshard:
    case Op::kReduceGrad: break;
  }
  return kCollectives;
}

std::string in_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        // Control characters are not allowed in XML, not even escaped.
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
  }
  return out;
}

/// Lightness in percent: dark for the first stage of a rank, light for the last.
double lightness(int local_index, int stages) {
  return stages < 2 ? 47 : 40 + 36.0 * local_index / (stages - 1);
}

std::string colour(KindIndex kind, double light) {
  const Kind& row = kKindRows[kind];
  const double chroma = (1 - std::fabs(2 * light / 100 - 1)) * row.saturation / 100;
  const auto channel = [&](double shift) {
    const double at = std::fmod(row.hue / 60.0 + shift, 6.0);
    const double part = std::clamp(std::fabs(at - 3) - 1, 0.0, 1.0);
    return static_cast<int>(std::lround(255 * (light / 100 + chroma * (part - 0.5))));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(4), channel(2));
}

/// What charts in one file share, so that equal times have equal widths.
struct Frame {
  double left = kLeft;
  double scale = 1;  ///< pixels per unit of time
  double width = 0;  ///< of the drawing, at least
};

class Chart {
 public:
  Chart(const Timeline& timeline, const SvgOptions& options) : timeline_(timeline), options_(options) {
    double shortest = timeline.makespan;
    for (const Event& event : timeline.events) {
      present_[kind_of(event.action.op())] = true;
      has_pairs_ = has_pairs_ || event.paired;
      has_strip_ = has_strip_ || event.lane == Lane::kCommunication;
      if (event.lane == Lane::kCompute && event.end > event.start)
        shortest = std::min(shortest, event.end - event.start);
    }
    for (int rank = 0; rank < timeline.shape.ranks; ++rank)
      most_local_ = std::max(most_local_, static_cast<int>(timeline.placement.stages_of(rank).size()));
    for (int rank = 0; rank < timeline.shape.ranks; ++rank)
      frame_.left = std::max(frame_.left, 16 + kSmall * static_cast<double>(stages_of(rank).size()) + 6);
    if (timeline.makespan > 0) {
      // Boxes are wide enough for their number if the page allows, and never so narrow that they vanish.
      const double wanted = 19 / shortest;
      const double page = std::max(2400 / timeline.makespan, 4 / shortest);
      frame_.scale =
          std::clamp(wanted, std::min(900 / timeline.makespan, page), std::min(page, 40000 / timeline.makespan));
    }
    pitch_ = kLane + (has_strip_ ? kStrip + 1 : 0) + kGap;
    bottom_ = kTop + pitch_ * timeline.shape.ranks;
    legend();
    legend_ = std::move(out_);
    out_.clear();
  }

  const SvgOptions& options() const { return options_; }
  const Frame& frame() const { return frame_; }
  void set_frame(const Frame& frame) { frame_ = frame; }
  double width() const { return std::max({right() + kRight, frame_.left + 600 + kRight, legend_end_, frame_.width}); }
  double height() const { return bottom_ + 66; }

  /// `top`: vertical offset of the chart in the file.
  std::string draw(double top) {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" {2}width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"Helvetica, Arial, sans-serif\">\n",
        width(), height(), top > 0 ? fmt::format("y=\"{:.0f}\" ", top) : "");
    put("<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f3f3f1\"/><rect width=\"1.5\" "
        "height=\"6\" fill=\"#dcdcd8\"/></pattern></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    title();
    lanes();
    boxes();
    numbers();
    pairs();
    axis();
    out_ += legend_ + "</svg>\n";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  double x(double time) const { return frame_.left + time * frame_.scale; }
  double right() const { return x(timeline_.makespan); }
  double y(const Event& event) const {
    return kTop + pitch_ * event.rank + (event.lane == Lane::kCommunication ? kLane + 1 : 0);
  }
  std::string duration(double time) const {
    return options_.in_seconds ? format_seconds(time) : fmt::format("{:.6g}", time);
  }

  void title() {
    const Shape& shape = timeline_.shape;
    put("<text x=\"16\" y=\"26\" font-size=\"17\" font-weight=\"bold\" fill=\"#222222\">{}{}bubble {:.1f} %</text>\n",
        in_xml(options_.title), options_.title.empty() ? "" : ": ", 100 * timeline_.bubble_fraction);
    put("<text x=\"16\" y=\"46\" font-size=\"12\" fill=\"#666666\">{} rank{}, {} stage{}, {} microbatch{} in "
        "{}; right: busy share of each rank</text>\n",
        shape.ranks, shape.ranks == 1 ? "" : "s", shape.stages, shape.stages == 1 ? "" : "s", shape.microbatches,
        shape.microbatches == 1 ? "" : "es", duration(timeline_.makespan));
  }

  std::string stages_of(int rank) const {
    std::string stages;
    for (const Stage stage : timeline_.placement.stages_of(rank))
      stages += (stages.empty() ? "" : ", ") + std::to_string(stage.value);
    if (stages.size() > 20) stages = stages.substr(0, stages.rfind(',', 18)) + ", ...";
    return (timeline_.placement.stages_of(rank).size() == 1 ? "stage " : "stages ") + stages;
  }

  void lanes() {
    for (int rank = 0; rank < timeline_.shape.ranks; ++rank) {
      const double top = kTop + pitch_ * rank;
      put("<text x=\"16\" y=\"{:.1f}\" font-size=\"12\" fill=\"#222222\">rank {}</text>\n", top + 11, rank);
      put("<text x=\"16\" y=\"{:.1f}\" font-size=\"10\" fill=\"#888888\">{}</text>\n", top + 23, stages_of(rank));
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"url(#idle)\"/>\n", frame_.left,
          top, right() - frame_.left, kLane);
      if (has_strip_)
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"#f7f7f5\"/>\n", frame_.left,
            top + kLane + 1, right() - frame_.left, kStrip);
      const double busy = timeline_.ranks[static_cast<std::size_t>(rank)].busy;
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" fill=\"#666666\">{:.0f} %</text>\n", right() + 8, top + 17,
          timeline_.makespan > 0 ? 100 * busy / timeline_.makespan : 0);
    }
  }

  int local_index(const Event& event) const { return timeline_.placement.local_index(event.action.stage()); }
  int local_stages(const Event& event) const {
    return static_cast<int>(timeline_.placement.stages_of(event.rank).size());
  }
  double light_of(const Event& event) const {
    return event.lane == Lane::kCommunication ? 55 : lightness(local_index(event), local_stages(event));
  }

  /// Groups boxes by colour, so that each colour is written only once.
  void boxes() {
    const auto shades = static_cast<std::size_t>(most_local_);
    std::vector<std::vector<const Event*>> groups(kKinds * shades);
    for (const Event& event : timeline_.events) {
      const auto shade = event.lane == Lane::kCommunication ? 0 : static_cast<std::size_t>(local_index(event));
      groups[kind_of(event.action.op()) * shades + shade].push_back(&event);
    }
    const bool tips = timeline_.events.size() <= kMostTips;
    for (const auto& group : groups) {
      std::string open;
      for (const Event* event : group) {
        const std::string fill = colour(kind_of(event->action.op()), light_of(*event));
        if (fill != open)
          put("{}<g fill=\"{}\"{}>\n", open.empty() ? "" : "</g>\n", fill,
              event->lane == Lane::kCompute ? " stroke=\"#ffffff\" stroke-width=\"0.6\"" : "");
        open = fill;
        put("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\"", x(event->start), y(*event),
            (event->end - event->start) * frame_.scale, event->lane == Lane::kCompute ? kLane : kStrip);
        if (tips)
          put("><title>{}: {}, {} to {}</title></rect>\n", to_text(event->action), traits(event->action.op()).meaning,
              duration(event->start), duration(event->end));
        else
          out_ += "/>\n";
      }
      if (!open.empty()) out_ += "</g>\n";
    }
  }

  void numbers() {
    for (const bool on_dark : {true, false}) {
      put("<g font-size=\"11\" text-anchor=\"middle\" fill=\"{}\">\n", on_dark ? "#ffffff" : "#1c1c1c");
      for (const Event& event : timeline_.events) {
        if (event.lane != Lane::kCompute || (light_of(event) < 60) != on_dark) continue;
        const std::string number = std::to_string(event.action.microbatch().value);
        if ((event.end - event.start) * frame_.scale < kCharacter * static_cast<double>(number.size()) + 3) continue;
        put("<text x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n", x((event.start + event.end) / 2), y(event) + 17, number);
      }
      out_ += "</g>\n";
    }
  }

  void pairs() {
    if (!has_pairs_) return;
    out_ += "<g stroke=\"#1c1c1c\" stroke-width=\"2.5\" stroke-linecap=\"round\">\n";
    for (const Event& event : timeline_.events) {
      if (!event.paired || event.action.op() != Op::kForward) continue;
      // The backward directly follows its forward; the line crosses the boundary between them.
      const double reach = (event.end - event.start) * frame_.scale * 0.4;
      put("<path d=\"M{:.2f} {:.1f}h{:.2f}\"/>\n", x(event.end) - reach, y(event) + kLane - 3, 2 * reach);
    }
    out_ += "</g>\n";
  }

  void axis() {
    if (timeline_.makespan <= 0) return;
    const double least = 90 / frame_.scale;
    double step = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0, 10.0})
      if (step * factor >= least) {
        step *= factor;
        break;
      }
    put("<g stroke=\"#aaaaaa\" stroke-width=\"1\"><path d=\"M{:.1f} {:.1f}H{:.2f}\"/>", frame_.left, bottom_ + 2,
        right());
    // All ticks use the same time unit.
    const std::size_t unit = timeline_.makespan >= 1 ? 0 : timeline_.makespan >= 1e-3 ? 1 : 2;
    const double per_second = options_.in_seconds ? std::pow(1000.0, static_cast<double>(unit)) : 1;
    std::string labels;
    for (int tick = 0; tick * step <= timeline_.makespan * (1 + 1e-9); ++tick) {
      put("<path d=\"M{:.2f} {:.1f}v5\"/>", x(tick * step), bottom_ + 2);
      fmt::format_to(std::back_inserter(labels), "<text x=\"{:.2f}\" y=\"{:.1f}\">{:.6g}{}</text>\n", x(tick * step),
                     bottom_ + 19, tick * step * per_second, options_.in_seconds ? kUnits[unit] : "");
    }
    put("</g>\n<g font-size=\"11\" fill=\"#666666\" text-anchor=\"middle\">\n{}</g>\n", labels);
  }

  void legend() {
    double at = 16;
    const double line = bottom_ + 50;
    const auto swatch = [&](std::string_view fill, double height) {
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"{:.0f}\" fill=\"{}\"/>\n", at, line - 5 - height / 2,
          height, fill);
      at += 15;
    };
    const auto label = [&](std::string_view text) {
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" fill=\"#444444\">{}</text>\n", at + 4, line, text);
      at += 22 + 6.4 * static_cast<double>(text.size());
    };
    const int shades = std::min(most_local_, 4);
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      if (!present_[kind]) continue;
      const auto index = static_cast<KindIndex>(kind);
      if (kind >= kMessages) swatch(colour(index, 55), kStrip);
      for (int shade = 0; kind < kMessages && shade < shades; ++shade)
        swatch(colour(index, lightness(shade, shades)), 13);
      label(kKindRows[kind].label);
    }
    swatch("url(#idle)", 13);
    label("idle");
    if (has_pairs_) {
      put("<path d=\"M{:.1f} {:.1f}h12\" stroke=\"#1c1c1c\" stroke-width=\"2.5\" stroke-linecap=\"round\"/>\n", at + 1,
          line - 4);
      at += 15;
      label("run together");
    }
    if (most_local_ > 1) label("dark to light: first to last stage of a rank");
    legend_end_ = at;
  }

  const Timeline& timeline_;
  const SvgOptions& options_;
  std::array<bool, kKinds> present_ = {};
  bool has_strip_ = false;
  bool has_pairs_ = false;
  int most_local_ = 1;
  Frame frame_ = {};
  double pitch_ = 0;
  double bottom_ = 0;
  std::string legend_;
  double legend_end_ = 0;
  std::string out_;
};

}  // namespace

std::string timeline_svg(const Timeline& timeline, const SvgOptions& options) {
  return Chart(timeline, options).draw(0);
}

std::string timeline_svg(const std::vector<SvgChart>& charts) {
  std::vector<Chart> drawn;
  for (const auto& each : charts) drawn.emplace_back(*each.timeline, each.options);
  // Seconds and units of a forward pass have a scale each.
  double left = 0;
  std::array<std::optional<double>, 2> scales;
  for (const auto& each : drawn) {
    auto& scale = scales[each.options().in_seconds ? 1 : 0];
    scale = std::min(scale.value_or(each.frame().scale), each.frame().scale);
    left = std::max(left, each.frame().left);
  }
  double width = 0, height = 0;
  for (auto& chart : drawn) {
    chart.set_frame({.left = left, .scale = *scales[chart.options().in_seconds ? 1 : 0]});
    width = std::max(width, chart.width());
  }
  std::string parts;
  for (auto& chart : drawn) {
    chart.set_frame({.left = left, .scale = chart.frame().scale, .width = width});
    parts += chart.draw(height);
    height += chart.height();
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
             "{1:.0f}\">\n",
             width, height) +
         parts + "</svg>\n";
}

}  // namespace automodel::schedule
