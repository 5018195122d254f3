// The filter `tojson` of chat templates.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokenizer/template_tree.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

using Value = TemplateValue;

struct JsonForm {
  bool lines = false;
  int indent = 0;
  std::string item = ", ", member = ": ";
  bool sorted = false;

  void new_line(int depth, TemplateText& out) const {
    if (lines) out.add("\n").add(std::string(static_cast<std::size_t>(indent * depth), ' '));
  }
};

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// json.dumps(ensure_ascii=False) as transformers configures it, with separators ", " and ": ".
void dump_json(const Value& value, const JsonForm& form, int depth, TemplateText& out);

void dump_members(const TemplateDict& dict, const JsonForm& form, int depth, TemplateText& out) {
  std::vector<const TemplateDict::value_type*> members;
  for (const auto& member : dict) members.push_back(&member);
  if (form.sorted)
    std::sort(members.begin(), members.end(), [&](const auto* a, const auto* b) {
      out.budget().step();
      out.budget().read(std::min(a->first.size(), b->first.size()));
      return a->first < b->first;
    });
  for (const auto* member : members) {
    if (member != members.front()) out.add(form.item);
    form.new_line(depth + 1, out);
    out.add(json_text(member->first)).add(form.member);
    dump_json(member->second, form, depth + 1, out);
  }
}

void dump_items(const TemplateList& items, const JsonForm& form, int depth, TemplateText& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add(form.item);
    form.new_line(depth + 1, out);
    dump_json(items[i], form, depth + 1, out);
  }
}

void dump_json(const Value& value, const JsonForm& form, int depth, TemplateText& out) {
  out.budget().step();
  const auto* items = value.as_list();
  const auto* dict = value.as_dict();
  if (const auto* text = value.as_text()) {
    out.add(json_text(*text));
  } else if (const auto* flag = value.as_bool()) {
    out.add(*flag ? "true" : "false");
  } else if (value.is_none()) {
    out.add("null");
  } else if (value.type() == "float" && !std::isfinite(value.number())) {
    out.add(std::isnan(value.number()) ? "NaN" : value.number() < 0 ? "-Infinity" : "Infinity");
  } else if (value.is_number()) {
    out.add(value.repr(out.budget()));
  } else if ((items == nullptr && dict == nullptr) || value.sequence() == Sequence::kRange) {
    throw TemplateError(fmt::format("a {} has no JSON", value.type()));
  } else if (items != nullptr ? items->empty() : dict->empty()) {
    out.add(items != nullptr ? "[]" : "{}");
  } else {
    out.add(items != nullptr ? "[" : "{");
    items != nullptr ? dump_items(*items, form, depth, out) : dump_members(*dict, form, depth, out);
    form.new_line(depth, out);
    out.add(items != nullptr ? "]" : "}");
  }
}

const std::string& separator_of(const Value& value) {
  if (const auto* text = value.as_text()) return *text;
  throw TemplateError("separators are strings");
}

}  // namespace

std::string ascii_json(const std::string& json) {
  std::string out;
  for (std::size_t at = 0; at < json.size();) {
    const auto point = code_point_at(json, at);
    at += point.bytes;
    const auto code = static_cast<std::uint32_t>(point.value);
    if (code < 0x7F)
      out += static_cast<char>(code);
    else if (code < 0x10000)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
  }
  return out;
}

Value json_filter(const Value& value, const std::array<const Value*, 4>& given, TemplateBudget& budget) {
  // tojson(value, ensure_ascii, indent, separators, sort_keys)
  JsonForm form;
  if (given[1] != nullptr && !given[1]->is_none()) {
    constexpr std::int64_t kMostIndent = 16;
    if (given[1]->as_int() == nullptr || *given[1]->as_int() > kMostIndent)
      throw TemplateError(fmt::format("'indent' is a number up to {} here", kMostIndent));
    form.lines = true;
    form.indent = static_cast<int>(std::max<std::int64_t>(*given[1]->as_int(), 0));
    form.item = ",";
  }
  if (given[2] != nullptr && !given[2]->is_none()) {
    if (given[2]->as_list() == nullptr || given[2]->as_list()->size() != 2)
      throw TemplateError("separators are two strings");
    form.item = separator_of(given[2]->as_list()->at(0));
    form.member = separator_of(given[2]->as_list()->at(1));
  }
  form.sorted = given[3] != nullptr && given[3]->truth();
  TemplateText out(budget);
  dump_json(value, form, 0, out);
  if (given[0] == nullptr || !given[0]->truth()) return Value::paid(out.take());
  return Value::text(ascii_json(out.take()), budget);
}

}  // namespace automodel::tokenizer
