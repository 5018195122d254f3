// Filters of chat templates that iterate over lists, as a table.
#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "tokenizer/template_tree.h"

namespace automodel::tokenizer {
namespace {

using Value = TemplateValue;

using Given = TemplateArguments;
using Budget = TemplateBudget;

std::string word(const TemplateList& arguments, std::size_t i) {
  if (i >= arguments.size() || arguments[i].as_text() == nullptr) throw TemplateError("a name is expected");
  return *arguments[i].as_text();
}

TemplateList rest(const TemplateList& arguments, std::size_t skip) {
  return {arguments.begin() + static_cast<std::ptrdiff_t>(skip), arguments.end()};
}

/// What goes through a list as it is asked for.
Value generator(TemplateList items, Budget& budget) {
  return Value::list(std::move(items), budget, Sequence::kGenerator);
}

/// map('filter', ...) or map(attribute='name', default=...).
Value mapped(const Value& value, const Given& given, Budget& budget) {
  TemplateList out;
  if (given.plain.empty() && !given.named.empty()) {
    const auto [path, otherwise, none, nothing] = place_arguments("map", "attribute default", given);
    if (path == nullptr) throw TemplateError("'map' takes a filter or an attribute");
    const bool by_default = otherwise != nullptr && !otherwise->is_none();
    for (const auto& item : items_of(value, budget))
      out.push_back(attribute_of(item, *path, by_default ? otherwise : nullptr, budget));
    return generator(std::move(out), budget);
  }
  const std::string filter = word(given.plain, 0);
  const Given own{rest(given.plain, 1), given.named};
  for (const auto& item : items_of(value, budget)) out.push_back(apply_filter(filter, item, own, budget));
  return generator(std::move(out), budget);
}

/// The items for which a test holds (`wanted`) or fails; applied to an attribute of theirs if `by_attribute`.
template <bool by_attribute, bool wanted>
Value kept(const Value& value, const Given& given, Budget& budget) {
  if (!given.named.empty()) throw TemplateError("arguments of tests have no names here");
  const std::size_t skip = by_attribute ? 1 : 0;
  Value path;
  if constexpr (by_attribute) path = Value::paid(word(given.plain, 0));
  const bool tests = given.plain.size() > skip;
  const std::string test = tests ? word(given.plain, skip) : "";
  const TemplateList own = tests ? rest(given.plain, skip + 1) : TemplateList();
  TemplateList out;
  for (const auto& item : items_of(value, budget)) {
    const Value tested = by_attribute ? attribute_of(item, path, nullptr, budget) : item;
    if ((tests ? apply_test(test, tested, own, budget) : tested.truth()) == wanted) out.push_back(item);
  }
  return generator(std::move(out), budget);
}

bool before(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.as_text() == nullptr || b.as_text() == nullptr)
    throw TemplateError(fmt::format("{} and {} have no order", a.type(), b.type()));
  budget.read(std::min(a.as_text()->size(), b.as_text()->size()));
  return *a.as_text() < *b.as_text();
}

/// What an item is ordered by: itself or an attribute, in lower case unless `with_case`.
Value key_of(const Value& item, const Value* path, bool with_case, Budget& budget) {
  if (path != nullptr && path->as_text() != nullptr && path->as_text()->find(',') != std::string::npos)
    throw TemplateError("one attribute orders a list here, not several");
  const Value own = path != nullptr && !path->is_none() ? attribute_of(item, *path, nullptr, budget) : item;
  return !with_case && own.as_text() != nullptr ? apply_filter("lower", own, {}, budget) : own;
}

bool is_true(const Value* value) {
  return value != nullptr && value->truth();
}

/// Items in the order of their keys; what is equal stays as it was, also in reverse.
Value in_order(const TemplateList& items, const Value* path, bool with_case, bool reverse, Budget& budget) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& item : items) keyed.emplace_back(key_of(item, path, with_case, budget), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? before(b.first, a.first, budget) : before(a.first, b.first, budget);
  });
  TemplateList out;
  for (auto& [own, item] : keyed) out.push_back(std::move(item));
  return Value::list(std::move(out), budget);
}

Value sorted_pairs(const Value& value, const Given& given, Budget& budget) {
  const auto [with_case, by, reverse, none] = place_arguments("dictsort", "case_sensitive by reverse", given);
  const std::string order = by == nullptr ? "key" : by->str(budget);
  if (order != "key" && order != "value") throw TemplateError("a dictionary is sorted by 'key' or 'value'");
  const Value place = Value::Storage(std::int64_t{order == "value" ? 1 : 0});
  return in_order(pairs_of(value, budget), &place, is_true(with_case), is_true(reverse), budget);
}

Value sorted(const Value& value, const Given& given, Budget& budget) {
  const auto [reverse, with_case, path, none] = place_arguments("sort", "reverse case_sensitive attribute", given);
  return in_order(items_of(value, budget), path, is_true(with_case), is_true(reverse), budget);
}

Value unique(const Value& value, const Given& given, Budget& budget) {
  const auto [with_case, path, none, nothing] = place_arguments("unique", "case_sensitive attribute", given);
  TemplateList out, keys;
  for (const auto& item : items_of(value, budget)) {
    const Value own = key_of(item, path, is_true(with_case), budget);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return known.equals(own, budget); })) continue;
    keys.push_back(own);
    out.push_back(item);
  }
  return generator(std::move(out), budget);
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

Value attribute_of(const Value& item, const Value& path, const Value* otherwise, Budget& budget) {
  Value out = item;
  const auto step = [&](const Value& key) {
    budget.step();
    out = member_of(out, key, false, budget);
    if (otherwise != nullptr && out.is_undefined()) out = *otherwise;
  };
  if (path.as_int() != nullptr) step(path);
  if (path.as_text() == nullptr) return out;
  for (std::string_view left = *path.as_text(); !left.empty();) {
    const std::string name(left.substr(0, left.find('.')));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    std::int64_t place = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place);
    const bool digits = error == std::errc() && end == name.data() + name.size() && place >= 0;
    step(digits ? Value(Value::Storage(place)) : Value::text(name, budget));
  }
  return out;
}

bool is_list_filter(const std::string& name) {
  return std::any_of(kListFilters.begin(), kListFilters.end(), [&](const auto& row) { return row.name == name; });
}

TemplateValue apply_list_filter(const std::string& name, const Value& value, const TemplateArguments& given,
                                TemplateBudget& budget) {
  return std::find_if(kListFilters.begin(), kListFilters.end(), [&](const auto& row) { return row.name == name; })
      ->apply(value, given, budget);
}

}  // namespace automodel::tokenizer
