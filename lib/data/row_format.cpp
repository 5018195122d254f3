#include "data/row_format.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace automodel::data {

bool BuiltRow::has_labels() const {
  return std::any_of(labels.begin(), labels.end(), [](std::int32_t label) { return label != kIgnoredLabel; });
}

RowLengths row_lengths(const config::EncodedFields& fields, const std::string& key, Diagnostics& problems) {
  RowLengths out;
  const std::optional<std::int64_t> length =
      fields.seq_length() ? std::optional<std::int64_t>(*fields.seq_length()) : std::nullopt;
  if (fields.truncation() == config::SampleTruncation::kCut) out.limit = length;
  if (fields.padding() == config::SamplePadding::kMaxLength) {
    out.full = length;
    if (!length)
      problems.add("missing-key", key + ".seq_length")
          .says("padding: max_length needs a length")
          .hint("set seq_length");
  }
  return out;
}

BuiltRow package(std::vector<std::int32_t> ids, const std::vector<bool>& counts, std::optional<std::int64_t> full,
                 const RowTokenizer& tokenizer) {
  const std::int32_t fill = tokenizer.fill();
  std::size_t end = ids.size();
  while (end > 0 && ids[end - 1] == fill) --end;
  if (tokenizer.eos() == fill) end = std::min(end + 1, ids.size());
  BuiltRow out;
  for (std::size_t t = 1; t < ids.size(); ++t) out.labels.push_back(counts[t] ? ids[t] : kIgnoredLabel);
  if (!ids.empty()) ids.pop_back();
  out.attended = std::clamp<std::int64_t>(static_cast<std::int64_t>(end) - 1, 0, static_cast<std::int64_t>(ids.size()));
  out.input_ids = std::move(ids);
  const auto size = std::max(out.input_ids.size(), static_cast<std::size_t>(full.value_or(0)));
  out.input_ids.resize(size, fill);
  out.labels.resize(size, kIgnoredLabel);
  return out;
}

BuiltRow format_prompt(const RowTokenizer& tokenizer, const std::string& prompt, const std::string& answer,
                       const RowLengths& lengths, bool answer_only) {
  std::int64_t masked = 0;
  if (answer_only) masked = tokenizer.count(prompt) + (tokenizer.adds_bos() ? 1 : 0);
  Encoding text = tokenizer.encode(prompt + answer, {.limit = lengths.limit, .full = lengths.full, .pad_right = true});
  std::vector<bool> counts = text.real;
  std::fill_n(counts.begin(), std::min(static_cast<std::size_t>(masked), counts.size()), false);
  return package(std::move(text.ids), counts, lengths.full, tokenizer);
}

}  // namespace automodel::data
