#include "foreign/keys.h"

#include <algorithm>
#include <cmath>

#include "base/spelling.h"
#include "base/utf8.h"
#include "config/scalar.h"
#include "foreign/source_file.h"

namespace automodel::foreign {
namespace {

bool is_none(const config::Node& node) {
  return node.text == "none" || node.text == "None";
}

/// Unlike in recipes, "none" is a value: of torchtitan's activation_checkpoint.mode, for example, whose default is
/// another one. Python's None without quotes is not.
bool empty(const config::Node& node) {
  if (node.kind != config::Node::Kind::kScalar) return false;
  return node.text.empty() || (!node.quoted && node.is_null() && node.text != "none");
}

bool matches(std::string_view pattern, std::string_view name) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : pattern == name;
}

}  // namespace

Keys::Keys(const config::Node* node, Findings& findings, std::string prefix)
    : map_(node),
      findings_(&findings),
      prefix_(std::move(prefix)),
      used_(std::make_shared<std::set<std::string, std::less<>>>()) {}

const config::Node::Entry* Keys::entry(std::string_view name) const {
  const auto* found = map_ == nullptr ? nullptr : map_->find(name);
  return found == nullptr || empty(found->value) ? nullptr : found;
}

const config::Node::Entry* Keys::first(Names names) {
  const config::Node::Entry* found = nullptr;
  for (const auto name : names) {
    take(name);
    if (found == nullptr) found = entry(name);
  }
  return found;
}

bool Keys::given(std::string_view name) const {
  return entry(name) != nullptr;
}

bool Keys::active(std::string_view name) const {
  const auto* found = entry(name);
  if (found == nullptr) return false;
  const auto& value = found->value;
  if (value.kind == config::Node::Kind::kList) return !value.items.empty();
  if (value.kind == config::Node::Kind::kMap) return !value.entries.empty();
  if (is_none(value)) return false;
  if (const auto flag = config::parse_boolean(value.text, false)) return *flag;
  if (const auto number = config::parse_number(value.text)) return *number != 0;
  return true;
}

const config::Node* Keys::node(Names names) {
  const auto* found = first(names);
  return found == nullptr ? nullptr : &found->value;
}

void Keys::wrong(const config::Node::Entry& entry, std::string_view wanted) {
  findings_->problems.add("bad-type", path(entry.key))
      .says("{} must be {}", path(entry.key), wanted)
      .at(entry.value.where);
}

Setting<std::string> Keys::text(Names names) {
  const auto* found = first(names);
  if (found == nullptr) return {};
  if (found->value.kind != config::Node::Kind::kScalar) return wrong(*found, "a word"), Setting<std::string>{};
  return {found->value.text, path(found->key)};
}

Setting<double> Keys::number(Names names) {
  const auto* found = first(names);
  if (found == nullptr) return {};
  const auto value = found->value.kind == config::Node::Kind::kScalar
                         ? config::parse_number(config::trimmed(found->value.text))
                         : std::nullopt;
  if (!value || !std::isfinite(*value)) return wrong(*found, "a number"), Setting<double>{};
  return {*value, path(found->key)};
}

Setting<std::int64_t> Keys::integer(Names names) {
  const auto* found = first(names);
  const auto value = number(names);  // JSON writes 1e9, and YAML files have 3.0 epochs
  if (!value) return {};
  if (std::abs(*value) > 1e15 || std::floor(*value) != *value)
    return wrong(*found, "a whole number"), Setting<std::int64_t>{};
  return {static_cast<std::int64_t>(*value), value.key};
}

Setting<std::int64_t> Keys::ranks(Names names) {
  const auto* found = first(names);
  const auto value = integer(names);
  if (value && (*value < 1 || *value > 1 << 20)) return wrong(*found, "at least 1"), Setting<std::int64_t>{};
  return value;
}

Setting<bool> Keys::flag(Names names) {
  const auto* found = first(names);
  if (found == nullptr) return {};
  const auto value =
      found->value.kind == config::Node::Kind::kScalar ? config::parse_boolean(found->value.text, false) : std::nullopt;
  if (!value) return wrong(*found, "true or false"), Setting<bool>{};
  return {*value, path(found->key)};
}

std::vector<std::string> Keys::list(Names names) {
  const auto* found = first(names);
  std::vector<std::string> out;
  if (found == nullptr) return out;
  if (found->value.kind == config::Node::Kind::kList) {
    for (const auto& item : found->value.items) out.push_back(item.text);
    return out;
  }
  return words_of(found->value.text, " ,\t\n");
}

Keys Keys::section(std::string_view name) {
  take(name);
  const auto* found = entry(name);
  if (found != nullptr && found->value.kind != config::Node::Kind::kMap) {
    wrong(*found, "a mapping");
    found = nullptr;
  }
  return {found == nullptr ? nullptr : &found->value, *findings_, path(name)};
}

std::string Keys::path(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : prefix_ + "." + std::string(name);
}

std::string Keys::shown(std::string_view name) const {
  const auto* found = entry(name);
  return found != nullptr && found->value.kind == config::Node::Kind::kScalar
             ? path(name) + ": " + printable(found->value.text)
             : path(name);
}

void Keys::no_effect(std::span<const KeyReason> rows) {
  if (map_ == nullptr) return;
  for (const auto& each : map_->entries) {
    const auto row = std::ranges::find_if(rows, [&](const KeyReason& known) { return matches(known.name, each.key); });
    if (row == rows.end() || used_->contains(each.key)) continue;
    take(each.key);
    if (!empty(each.value)) findings_->ignore(path(each.key), std::string(row->reason));
  }
}

void Keys::cannot(std::span<const KeyReason> rows) {
  for (const auto& row : rows) {
    if (active(row.name)) findings_->cannot(shown(row.name), std::string(row.reason));
    take(row.name);
  }
}

void Keys::refuse(std::span<const KeyReason> rows) {
  for (const auto& row : rows) {
    if (active(row.name)) findings_->refuse(shown(row.name), std::string(row.reason));
    take(row.name);
  }
}

void Keys::leftovers(std::string_view trainer) {
  if (map_ == nullptr) return;
  for (const auto& each : map_->entries)
    if (!used_->contains(each.key) && !empty(each.value))
      findings_->ignored.push_back({.key = path(each.key),
                                    .reason = "not among the keys of " + std::string(trainer) +
                                              " that are known here: assumed to have no effect on a plan",
                                    .unknown = true,
                                    .meant = meant_by(each.key)});
}

std::string Keys::meant_by(std::string_view key) const {
  constexpr std::size_t kShort = 6, kMistakes = 2;  // shorter names are near to too many others
  if (key.size() < kShort) return {};
  std::vector<std::string_view> near;
  for (const auto& name : *used_)
    if (name.size() >= kShort && !given(name) && edit_distance(key, name, kMistakes) <= kMistakes) near.push_back(name);
  return std::string(nearest(key, near));
}

}  // namespace automodel::foreign
