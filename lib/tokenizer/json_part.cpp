#include "tokenizer/json_part.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/spelling.h"

namespace automodel::tokenizer {
namespace {

/// Of added tokens and of the parts of a step. Vocabularies and merges are read in place.
constexpr std::size_t kMostItems = 100'000;

const nlohmann::json& null_node() {
  static const nlohmann::json node;
  return node;
}

}  // namespace

bool JsonPart::is_null() const {
  return node_->is_null();
}

bool JsonPart::has(std::string_view key) const {
  return !at(key).is_null();
}

JsonPart JsonPart::at(std::string_view key) const {
  const std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  if (!node_->is_object()) return {null_node(), path, file_, *problems_};
  const auto found = node_->find(key);
  return {found == node_->end() ? null_node() : *found, path, file_, *problems_};
}

std::vector<JsonPart> JsonPart::items(std::string_view key) const {
  const JsonPart list = at(key);
  std::vector<JsonPart> out;
  if (!list.node().is_array()) {
    list.fail("a list is expected");
    return out;
  }
  if (list.node().size() > kMostItems) {
    list.fail(fmt::format("a list of more than {} items", kMostItems));
    return out;
  }
  out.reserve(list.node().size());
  std::size_t i = 0;
  for (const auto& node : list.node())
    out.emplace_back(node, fmt::format("{}[{}]", list.path_, i++), file_, *problems_);
  return out;
}

std::string JsonPart::text(std::string_view key) const {
  const JsonPart part = at(key);
  if (part.node().is_string()) return part.node().get<std::string>();
  part.fail("a string is expected");
  return "";
}

std::optional<std::string> JsonPart::text_if(std::string_view key) const {
  const JsonPart part = at(key);
  if (part.is_null()) return std::nullopt;
  if (part.node().is_string()) return part.node().get<std::string>();
  part.fail("a string or null is expected");
  return std::nullopt;
}

bool JsonPart::flag(std::string_view key, bool otherwise) const {
  const JsonPart part = at(key);
  if (part.is_null()) return otherwise;
  if (part.node().is_boolean()) return part.node().get<bool>();
  part.fail("true or false is expected");
  return otherwise;
}

std::int64_t JsonPart::integer(std::string_view key, std::int64_t least, std::int64_t most) const {
  const JsonPart part = at(key);
  if (part.node().is_number_integer()) {
    const bool large =
        part.node().is_number_unsigned() && part.node().get<std::uint64_t>() > static_cast<std::uint64_t>(most);
    const auto value = part.node().get<std::int64_t>();
    if (!large && value >= least && value <= most) return value;
  }
  part.fail(fmt::format("an integer between {} and {} is expected", least, most));
  return least;
}

void JsonPart::fail(const std::string& message, const std::string& help) const {
  problems_->add("bad-tokenizer")
      .says("{}: {}", path_.empty() ? "the file" : path_, message)
      .hint(help.empty() ? "the folder must be one that Hugging Face's tokenizers wrote" : help)
      .at({file_, 0, 0});
}

void JsonPart::refuse_type(std::string_view what, const std::vector<std::string_view>& known) const {
  const std::string name = type();
  if (!name.empty()) fail(fmt::format("the {} '{}' is not supported", what, name), "supported are " + join(known));
}

}  // namespace automodel::tokenizer
