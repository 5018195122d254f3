#include "data/class_rows.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/json_line.h"

namespace automodel::data {

void label_last_token(Sample& sample, std::int32_t label, std::optional<std::int32_t> pad) {
  sample.labels.assign(sample.input_ids.size(), kIgnoredLabel);
  if (sample.input_ids.empty()) return;
  std::size_t last = sample.input_ids.size() - 1;
  while (pad && last > 0 && sample.input_ids[last] == *pad) --last;
  if (pad && sample.input_ids[last] == *pad) last = sample.input_ids.size() - 1;
  sample.labels[last] = label;
}

std::optional<RowProblem> check_class(std::int64_t label, int classes) {
  if (label >= 0 && label < classes) return std::nullopt;
  return RowProblem{1, fmt::format("the label is {}; the model has {} classes", label, classes),
                    fmt::format("labels lie between 0 and {} (model.num_labels: {})", classes - 1, classes)};
}

std::optional<RowProblem> ClassEncoder::encode(std::string_view line, Sample& out) const {
  nlohmann::ordered_json row;
  if (auto problem = parse_line(line, row)) return problem;
  const auto text = [&](const std::string& key) {
    const auto found = row.find(key);
    return found != row.end() && found->is_string() ? found->get_ptr<const std::string*>() : nullptr;
  };
  const auto* whole = text(options_.text_key);
  const auto* first = text(options_.first_key);
  const auto* second = text(options_.second_key);
  if (whole == nullptr && (first == nullptr || second == nullptr))
    return RowProblem{1, fmt::format("the row has neither a string '{}' nor strings '{}' and '{}'", options_.text_key,
                                     options_.first_key, options_.second_key)};
  if (whole != nullptr && (first != nullptr || second != nullptr))
    return RowProblem{1, fmt::format("the row has both '{}' and '{}'", options_.text_key,
                                     first != nullptr ? options_.first_key : options_.second_key)};
  const auto label = row.find(options_.label_key);
  if (label == row.end() || !label->is_number_integer())
    return RowProblem{1, fmt::format("the row has no integer '{}'", options_.label_key)};
  const auto value = label->is_number_unsigned() && label->get<std::uint64_t>() > INT32_MAX
                         ? std::int64_t{INT32_MAX}
                         : label->get<std::int64_t>();
  if (auto problem = check_class(value, options_.classes)) return problem;

  const auto* folder = tokenizer_.folder();
  out.input_ids.clear();
  if (folder != nullptr) out.input_ids = folder->surround().before;
  for (const auto* part : {whole, first, second})
    if (part != nullptr) tokenizer_.encode(*part, out.input_ids);
  const auto after = folder != nullptr ? folder->surround().after : std::vector<std::int32_t>{};
  const std::size_t room = options_.limit > after.size() ? options_.limit - after.size() : 0;
  if (options_.limit > 0 && out.input_ids.size() > room) out.input_ids.resize(room);
  out.input_ids.insert(out.input_ids.end(), after.begin(), after.end());
  if (options_.limit > 0 && out.input_ids.size() > options_.limit) out.input_ids.resize(options_.limit);
  if (out.input_ids.empty()) return RowProblem{1, "the row has no token"};
  out.segments.clear();
  out.positions.clear();
  label_last_token(out, static_cast<std::int32_t>(value), options_.pad);
  return std::nullopt;
}

}  // namespace automodel::data
