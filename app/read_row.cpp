#include "read_row.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace automodel::app {
namespace {

class RunFinder {
 public:
  RunFinder(const data::Sample& sample, const Ids& attention) {
    std::int32_t row = 0;  // the segment
    for (std::size_t t = 0; t < sample.input_ids.size(); ++t) {
      const std::int32_t segment = sample.segments.empty() ? 1 : sample.segments[t];
      // Labels are shifted: labels[t - 1] is the target for token t, except behind the last token of a row, which is
      // only a label. It stands where the next row or padding begins.
      const std::int32_t label = t > 0 ? sample.labels[t - 1] : data::kIgnoredLabel;
      const bool learned = label != data::kIgnoredLabel;
      if (learned && label != sample.input_ids[t]) add('+', label);
      if (row != 0 && segment != row) end();
      row = segment;
      add(learned && label == sample.input_ids[t] ? '+' : attention[t] == 0 ? '.' : ' ', sample.input_ids[t]);
      if (segment != 0) ++length_;
    }
    if (!sample.labels.empty() && sample.labels.back() != data::kIgnoredLabel) add('+', sample.labels.back());
    if (row != 0) end();
  }
  std::vector<Run> take() { return std::move(runs_); }

 private:
  void add(char mark, std::int32_t id) {
    if (runs_.empty() || runs_.back().mark != mark) runs_.push_back({mark});
    runs_.back().ids.push_back(id);
  }
  void end() { runs_.push_back({'|', {}, std::exchange(length_, 0)}); }

  std::vector<Run> runs_ = {};
  std::int64_t length_ = 0;
};

}  // namespace

std::vector<Run> runs_of(const data::Sample& sample, const Ids& attention) {
  return RunFinder(sample, attention).take();
}

void ReadRow::read(std::int64_t index) {
  dataset_.read(index, sample_);
  part_ = dataset_.part_of(index);
  dataset_.attention_mask(index, attention_);
  sizes_.clear();
  for (const auto& picture : dataset_.pictures(index)) sizes_.push_back(picture.size);
  next_ = 0;
}

std::string ReadRow::counts() const {
  const auto size = static_cast<std::int64_t>(sample_.input_ids.size());
  const auto learned = static_cast<std::int64_t>(sample_.labels.size()) -
                       std::count(sample_.labels.begin(), sample_.labels.end(), data::kIgnoredLabel);
  const auto padding = std::count(attention_.begin(), attention_.end(), 0);
  const auto part = dataset_.parts().size() > 1 ? fmt::format("part {}, ", part_) : std::string();
  return fmt::format("{}{} tokens, {} label tokens ({:.1f} %){}", part, size, learned,
                     size == 0 ? 0.0 : 100.0 * static_cast<double>(learned) / static_cast<double>(size),
                     padding == 0 ? "" : fmt::format(", {} padding", padding));
}

std::string ReadRow::caption(std::size_t picture) const {
  const auto size = sizes_[picture];
  return fmt::format("picture {}: {} x {} pixels, {} tokens", picture + 1, size.width, size.height, tokens_of(size));
}

std::vector<ReadRow::Piece> ReadRow::pieces(const Ids& ids) {
  std::vector<Piece> out;
  int left = 0;  // placeholders of the picture
  for (const auto id : ids) {
    const bool placeholder = pictures_ && id == pictures_->placeholder;
    if (placeholder && left == 0 && next_ < sizes_.size()) {
      left = pictures_->placeholders(sizes_[next_++]);
      out.push_back({.picture = true});
    } else if (left == 0 && (out.empty() || out.back().picture)) {
      out.emplace_back();
    }
    out.back().ids.push_back(id);
    if (placeholder && left > 0) --left;
  }
  return out;
}

std::string ReadRow::text_of(const Run& run, const Ids& ids) const {
  return classes_ && run.mark == '+' ? fmt::format("class {}", ids.front()) : text_of(ids);
}

std::string ReadRow::text_of(const Ids& ids) const {
  if (tokenizer_ == nullptr) return fmt::format("{}", fmt::join(ids, " "));
  const auto* folder = tokenizer_->folder();
  if (folder == nullptr) return tokenizer_->decode(ids);
  auto out = folder->decode(ids, false);
  if (out.empty())
    for (const auto id : ids) out += folder->token(id);
  return out;
}

}  // namespace automodel::app
