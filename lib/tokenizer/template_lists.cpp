// Filters of chat templates that iterate over lists, as a table.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tokenizer/template_tree.h"

namespace automodel::tokenizer {
namespace {

using Storage = TemplateValue::Storage;
using Value = TemplateValue;

TemplateList listed(const Value& value) {
  return *apply_filter("list", value.is_undefined() ? Value::list({}) : value, {}, {}).as_list();
}

/// Resolves an attribute path such as "a.b" of an item.
Value attribute(const Value& item, std::string_view path) {
  Value out = item;
  while (!path.empty()) {
    const std::string name(path.substr(0, path.find('.')));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    auto* dict = out.as_dict();
    const auto* found = dict == nullptr ? nullptr : find_item(*dict, name);
    out = found == nullptr ? Value() : *found;
  }
  return out;
}

const Value* named_argument(const TemplateDict& named, std::string_view name) {
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

std::string word(const TemplateList& arguments, std::size_t i) {
  if (i >= arguments.size() || arguments[i].as_text() == nullptr) throw TemplateError("a name is expected");
  return *arguments[i].as_text();
}

/// map('filter', ...) or map(attribute='name', default=...).
Value mapped(const Value& value, const TemplateList& arguments, const TemplateDict& named) {
  TemplateList out;
  const Value* path = named_argument(named, "attribute");
  for (const auto& item : listed(value)) {
    if (path == nullptr) {
      out.push_back(apply_filter(word(arguments, 0), item, {arguments.begin() + 1, arguments.end()}, named));
      continue;
    }
    Value own = path->as_text() == nullptr ? Value() : attribute(item, *path->as_text());
    if (const Value* otherwise = named_argument(named, "default"); otherwise != nullptr && own.is_undefined())
      own = *otherwise;
    out.push_back(std::move(own));
  }
  return Value::list(std::move(out));
}

/// The items for which a test holds (`wanted`) or fails; applied to an attribute of theirs if `by_attribute`.
template <bool by_attribute, bool wanted>
Value kept(const Value& value, const TemplateList& arguments, const TemplateDict&) {
  const std::size_t skip = by_attribute ? 1 : 0;
  TemplateList out;
  for (const auto& item : listed(value)) {
    const Value tested = by_attribute ? attribute(item, word(arguments, 0)) : item;
    const bool holds = arguments.size() > skip
                           ? apply_test(word(arguments, skip), tested,
                                        {arguments.begin() + static_cast<std::ptrdiff_t>(skip) + 1, arguments.end()})
                           : tested.truth();
    if (holds == wanted) out.push_back(item);
  }
  return Value::list(std::move(out));
}

bool before(const Value& a, const Value& b, bool with_case) {
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.as_text() == nullptr || b.as_text() == nullptr)
    throw TemplateError(fmt::format("{} and {} have no order", a.type(), b.type()));
  if (with_case) return *a.as_text() < *b.as_text();
  const auto lower = [](const Value& v) { return *apply_filter("lower", v, {}, {}).as_text(); };
  return lower(a) < lower(b);
}

bool flag(const TemplateList& arguments, const TemplateDict& named, std::size_t i, std::string_view name) {
  if (const Value* given = named_argument(named, name)) return given->truth();
  return i < arguments.size() && arguments[i].truth();
}

/// dictsort(case_sensitive, by, reverse)
Value sorted_pairs(const Value& value, const TemplateList& arguments, const TemplateDict& named) {
  TemplateList out = *apply_filter("items", value, {}, {}).as_list();
  const Value* by = named_argument(named, "by");
  if (by == nullptr && arguments.size() > 1) by = &arguments[1];
  const std::size_t at = by != nullptr && by->as_text() != nullptr && *by->as_text() == "value" ? 1 : 0;
  const bool with_case = flag(arguments, named, 0, "case_sensitive");
  std::stable_sort(out.begin(), out.end(), [&](const Value& a, const Value& b) {
    return before(a.as_list()->at(at), b.as_list()->at(at), with_case);
  });
  if (flag(arguments, named, 2, "reverse")) std::reverse(out.begin(), out.end());
  return Value::list(std::move(out));
}

/// sort(reverse, case_sensitive, attribute)
Value sorted(const Value& value, const TemplateList& arguments, const TemplateDict& named) {
  TemplateList out = listed(value);
  const Value* path = named_argument(named, "attribute");
  const bool with_case = flag(arguments, named, 1, "case_sensitive");
  const auto key = [&](const Value& item) {
    return path != nullptr && path->as_text() != nullptr ? attribute(item, *path->as_text()) : item;
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const Value& a, const Value& b) { return before(key(a), key(b), with_case); });
  if (flag(arguments, named, 0, "reverse")) std::reverse(out.begin(), out.end());
  return Value::list(std::move(out));
}

Value unique(const Value& value, const TemplateList&, const TemplateDict&) {
  TemplateList out;
  for (const auto& item : listed(value))
    if (std::none_of(out.begin(), out.end(), [&](const Value& known) { return known.equals(item); }))
      out.push_back(item);
  return Value::list(std::move(out));
}

struct ListFilter {
  std::string_view name;
  Value (*apply)(const Value& value, const TemplateList& arguments, const TemplateDict& named);
};
constexpr std::array kListFilters = {
    ListFilter{"map", mapped},
    ListFilter{"select", kept<false, true>},
    ListFilter{"reject", kept<false, false>},
    ListFilter{"selectattr", kept<true, true>},
    ListFilter{"rejectattr", kept<true, false>},
    ListFilter{"dictsort", sorted_pairs},
    ListFilter{"sort", sorted},
    ListFilter{"unique", unique},
};

}  // namespace

bool is_list_filter(const std::string& name) {
  return std::any_of(kListFilters.begin(), kListFilters.end(), [&](const auto& row) { return row.name == name; });
}

TemplateValue apply_list_filter(const std::string& name, const Value& value, const TemplateList& arguments,
                                const TemplateDict& named) {
  return std::find_if(kListFilters.begin(), kListFilters.end(), [&](const auto& row) { return row.name == name; })
      ->apply(value, arguments, named);
}

}  // namespace automodel::tokenizer
