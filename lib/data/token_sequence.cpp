#include "data/token_sequence.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"

namespace automodel::data {
namespace {

template <class T>
void widen(const char* from, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;  // data in files may be unaligned
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): single bytes are numbers here
  }
}

struct TypeRow {
  int bytes;
  void (*widen)(const char* from, std::span<std::int64_t> out);
};
constexpr std::array kWidths = {TypeRow{1, widen<std::uint8_t>}, TypeRow{1, widen<std::int8_t>},
                                TypeRow{2, widen<std::int16_t>}, TypeRow{2, widen<std::uint16_t>},
                                TypeRow{4, widen<std::int32_t>}, TypeRow{4, widen<std::uint32_t>},
                                TypeRow{8, widen<std::int64_t>}};

class WindowDataset final : public Dataset {
 public:
  WindowDataset(std::unique_ptr<const TokenSequence> tokens, std::int64_t seq_length, std::int32_t pad,
                std::string sources)
      : tokens_(std::move(tokens)), seq_length_(seq_length), pad_(pad), sources_(std::move(sources)) {}

  std::int64_t size() const override { return (tokens_->size() - 2) / seq_length_ + 1; }
  std::int64_t length(std::int64_t index) const override {
    return std::min(seq_length_, tokens_->size() - 1 - index * seq_length_);
  }
  Padding padding() const override { return {pad_, 1, seq_length_}; }
  std::string summary() const override {
    return fmt::format("{}, {} tokens, {} sequences of {}", sources_,
                       format_count(static_cast<double>(tokens_->size())), size(), seq_length_);
  }

  void read(std::int64_t index, Sample& out) const override {
    out.segments.clear();
    out.positions.clear();
    const auto count = static_cast<std::size_t>(length(index));
    out.input_ids.resize(count + 1);
    tokens_->read(index * seq_length_, out.input_ids);
    out.labels.assign(out.input_ids.begin() + 1, out.input_ids.end());
    out.input_ids.pop_back();
  }

 private:
  std::unique_ptr<const TokenSequence> tokens_;
  std::int64_t seq_length_;
  std::int32_t pad_;
  std::string sources_;
};

}  // namespace

int bytes_of(TokenType type) {
  return kWidths[static_cast<std::size_t>(type)].bytes;
}

MappedSequence::MappedSequence(std::vector<MappedFile> files, std::vector<std::string> names, std::vector<Span> spans,
                               std::optional<std::int64_t> vocab_size)
    : files_(std::move(files)),
      names_(std::move(names)),
      spans_(std::move(spans)),
      vocab_size_(vocab_size.value_or(std::numeric_limits<std::int32_t>::max())) {
  ends_.reserve(spans_.size());
  for (const auto& span : spans_) ends_.push_back(size() + span.tokens);
}

void MappedSequence::read(std::int64_t first, std::span<std::int32_t> out) const {
  std::vector<std::int64_t> values;
  auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (std::size_t done = 0; done < out.size(); ++i) {
    const auto& span = spans_[i];
    const std::int64_t skipped = first + static_cast<std::int64_t>(done) - (ends_[i] - span.tokens);
    const auto count = std::min(static_cast<std::size_t>(span.tokens - skipped), out.size() - done);
    values.resize(count);
    const auto& type = kWidths[static_cast<std::size_t>(span.type)];
    type.widen(files_[span.file].text().data() + span.offset + static_cast<std::uint64_t>(skipped * type.bytes),
               values);
    for (const std::int64_t value : values) {
      if (value < 0 || value >= vocab_size_)
        throw Error(
            Diagnostic{"token-out-of-range"}
                .says("'{}' holds the id {}, the model's vocabulary is {}", names_[span.file], value, vocab_size_)
                .hint("the data was made with another tokenizer, or its type is not what was said"));
      out[done++] = static_cast<std::int32_t>(value);
    }
  }
}

std::unique_ptr<Dataset> make_window_dataset(std::unique_ptr<const TokenSequence> tokens, std::int64_t seq_length,
                                             std::int32_t pad, std::string sources) {
  if (tokens->size() < 2) return nullptr;
  return std::make_unique<WindowDataset>(std::move(tokens), seq_length, pad, std::move(sources));
}

}  // namespace automodel::data
