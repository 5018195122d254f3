// Filters of chat templates that iterate over lists, as a table.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tokenizer/template_tree.h"

namespace automodel::tokenizer {
namespace {

using Storage = TemplateValue::Storage;
using Value = TemplateValue;

using Given = TemplateArguments;
using Budget = TemplateBudget;

/// Resolves an attribute path such as "a.b" of an item.
Value attribute(const Value& item, std::string_view path, Budget& budget) {
  Value out = item;
  while (!path.empty()) {
    budget.step();
    const std::string_view name = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    const auto* dict = out.as_dict();
    const auto* found = dict == nullptr ? nullptr : find_item(*dict, name, budget);
    out = found == nullptr ? Value() : Value(*found);
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

TemplateList rest(const TemplateList& arguments, std::size_t skip) {
  return {arguments.begin() + static_cast<std::ptrdiff_t>(skip), arguments.end()};
}

/// map('filter', ...) or map(attribute='name', default=...).
Value mapped(const Value& value, const Given& given, Budget& budget) {
  TemplateList out;
  const Value* path = named_argument(given.named, "attribute");
  const std::string filter = path == nullptr ? word(given.plain, 0) : "";
  const Given own{path == nullptr ? rest(given.plain, 1) : TemplateList(), given.named};
  for (const auto& item : items_of(value, budget)) {
    if (path == nullptr) {
      out.push_back(apply_filter(filter, item, own, budget));
      continue;
    }
    Value member = path->as_text() == nullptr ? Value() : attribute(item, *path->as_text(), budget);
    if (const Value* otherwise = named_argument(given.named, "default"); otherwise != nullptr && member.is_undefined())
      member = *otherwise;
    out.push_back(std::move(member));
  }
  return Value::list(std::move(out), budget);
}

/// The items for which a test holds (`wanted`) or fails; applied to an attribute of theirs if `by_attribute`.
template <bool by_attribute, bool wanted>
Value kept(const Value& value, const Given& given, Budget& budget) {
  const std::size_t skip = by_attribute ? 1 : 0;
  const std::string path = by_attribute ? word(given.plain, 0) : "";
  const bool tests = given.plain.size() > skip;
  const std::string test = tests ? word(given.plain, skip) : "";
  const TemplateList own = tests ? rest(given.plain, skip + 1) : TemplateList();
  TemplateList out;
  for (const auto& item : items_of(value, budget)) {
    const Value tested = by_attribute ? attribute(item, path, budget) : item;
    if ((tests ? apply_test(test, tested, own, budget) : tested.truth()) == wanted) out.push_back(item);
  }
  return Value::list(std::move(out), budget);
}

bool flag(const Given& given, std::size_t i, std::string_view name) {
  if (const Value* value = named_argument(given.named, name)) return value->truth();
  return i < given.plain.size() && given.plain[i].truth();
}

bool before(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.as_text() == nullptr || b.as_text() == nullptr)
    throw TemplateError(fmt::format("{} and {} have no order", a.type(), b.type()));
  budget.read(std::min(a.as_text()->size(), b.as_text()->size()));
  return *a.as_text() < *b.as_text();
}

/// Items in the order of what `key` gives for each.
template <class Key>
Value in_order(const TemplateList& items, bool with_case, bool reverse, Budget& budget, Key key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& item : items) {
    const Value own = key(item);
    const bool folded = !with_case && own.as_text() != nullptr;
    keyed.emplace_back(folded ? apply_filter("lower", own, {}, budget) : own, item);
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return before(a.first, b.first, budget); });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  TemplateList out;
  for (auto& [own, item] : keyed) out.push_back(std::move(item));
  return Value::list(std::move(out), budget);
}

/// dictsort(case_sensitive, by, reverse)
Value sorted_pairs(const Value& value, const Given& given, Budget& budget) {
  const Value pairs = apply_filter("items", value, {}, budget);
  const Value* by = named_argument(given.named, "by");
  if (by == nullptr && given.plain.size() > 1) by = &given.plain[1];
  const std::size_t at = by != nullptr && by->as_text() != nullptr && *by->as_text() == "value" ? 1 : 0;
  return in_order(*pairs.as_list(), flag(given, 0, "case_sensitive"), flag(given, 2, "reverse"), budget,
                  [&](const Value& pair) { return pair.as_list()->at(at); });
}

/// sort(reverse, case_sensitive, attribute)
Value sorted(const Value& value, const Given& given, Budget& budget) {
  const Value* path = named_argument(given.named, "attribute");
  return in_order(items_of(value, budget), flag(given, 1, "case_sensitive"), flag(given, 0, "reverse"), budget,
                  [&](const Value& item) {
                    const bool named = path != nullptr && path->as_text() != nullptr;
                    return named ? attribute(item, *path->as_text(), budget) : item;
                  });
}

Value unique(const Value& value, const Given&, Budget& budget) {
  TemplateList out;
  for (const auto& item : items_of(value, budget))
    if (std::none_of(out.begin(), out.end(), [&](const Value& known) { return known.equals(item, budget); }))
      out.push_back(item);
  return Value::list(std::move(out), budget);
}

struct ListFilter {
  std::string_view name;
  Value (*apply)(const Value& value, const TemplateArguments& given, TemplateBudget& budget);
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

TemplateValue apply_list_filter(const std::string& name, const Value& value, const TemplateArguments& given,
                                TemplateBudget& budget) {
  return std::find_if(kListFilters.begin(), kListFilters.end(), [&](const auto& row) { return row.name == name; })
      ->apply(value, given, budget);
}

}  // namespace automodel::tokenizer
