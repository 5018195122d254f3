#include "data/mock_dataset.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "data/class_rows.h"

namespace automodel::data {
namespace {

/// What NeMo AutoModel draws below if the recipe says nothing; a smaller model has only its own tokens.
std::int64_t vocabulary_of(const config::MockDatasetConfig& config, const DatasetContext& context) {
  constexpr std::int64_t kUsual = 1024;
  return config.vocab_size() ? *config.vocab_size() : std::min(kUsual, context.vocab_size.value_or(kUsual));
}

class MockDataset final : public Dataset {
 public:
  MockDataset(const config::MockDatasetConfig& config, const DatasetContext& context)
      : stream_(context.seed, "data/" + context.key),
        vocab_size_(static_cast<std::uint64_t>(vocabulary_of(config, context))),
        length_(config.seq_length()),
        classes_(context.classes),
        pad_token_(context.pad_token.value_or(0)),
        class_stream_(context.seed, "data/" + context.key + "/classes"),
        size_(config.num_samples()) {}

  std::int64_t size() const override { return size_; }
  std::int64_t length(std::int64_t /*index*/) const override { return length_; }
  Padding padding() const override { return {0, 1, length_}; }
  std::string summary() const override {
    return fmt::format("mock: {} sequences of {} random tokens below {}", size_, length_, vocab_size_);
  }

  void read(std::int64_t index, Sample& out) const override {
    const auto length = static_cast<std::size_t>(length_);
    const std::uint64_t first = static_cast<std::uint64_t>(index) * length;
    out.segments.clear();
    out.positions.clear();
    out.input_ids.resize(length);
    for (std::size_t t = 0; t < length; ++t)
      out.input_ids[t] = static_cast<std::int32_t>(stream_.below(first + t, vocab_size_));
    if (classes_ > 0) {
      const auto label = class_stream_.below(static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(classes_));
      return label_last_token(out, static_cast<std::int32_t>(label), pad_token_);
    }
    out.labels.assign(out.input_ids.begin() + 1, out.input_ids.end());
    out.labels.push_back(kIgnoredLabel);
  }

 private:
  RandomStream stream_;
  std::uint64_t vocab_size_;
  std::int64_t length_;
  int classes_, pad_token_;
  RandomStream class_stream_;
  std::int64_t size_;
};

}  // namespace

std::unique_ptr<Dataset> open_mock(const config::MockDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems) {
  const std::size_t before = problems.size();
  if (config.vocab_size()) check_vocabulary(*config.vocab_size(), context, problems);
  if (context.max_length && config.seq_length() > *context.max_length)
    problems.push_back(sequence_too_long(config.seq_length(), *context.max_length, context.key + ".seq_length"));
  if (problems.size() > before) return nullptr;
  return std::make_unique<MockDataset>(config, context);
}

}  // namespace automodel::data
