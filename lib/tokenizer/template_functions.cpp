// Filters, tests, methods and functions of chat templates, as tables.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

#include <fmt/format.h>

#include "base/spelling.h"
#include "tokenizer/template_tree.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {

namespace {

using Storage = TemplateValue::Storage;
using Value = TemplateValue;
constexpr std::int64_t kMostRange = 100'000;  // as in Jinja's sandbox

const Value& argument(const TemplateList& arguments, std::size_t i) {
  if (i >= arguments.size()) throw TemplateError("an argument is missing");
  return arguments[i];
}

const std::string& text_of(const Value& value) {
  if (const auto* text = value.as_text()) return *text;
  throw TemplateError(fmt::format("a string is expected, not {}", value.type()));
}

/// Whether to strip a code point: white space, or one of `set` if given.
bool stripped(char32_t point, const std::string* set, TemplateBudget& budget) {
  budget.step(set == nullptr ? 0 : static_cast<std::int64_t>(1 + set->size() / 16));
  if (set == nullptr) return is_space(point) || (point >= 0x1C && point <= 0x1F);
  for (std::size_t at = 0; at < set->size();) {
    const CodePoint c = code_point_at(*set, at);
    if (c.value == point) return true;
    at += c.bytes;
  }
  return false;
}

Value strip(const std::string& text, const TemplateList& arguments, bool left, bool right, TemplateBudget& budget) {
  const std::string* set = arguments.empty() || arguments[0].is_none() ? nullptr : &text_of(arguments[0]);
  budget.read(text.size());
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const CodePoint c = code_point_at(text, begin);
    if (!stripped(c.value, set, budget)) break;
    begin += c.bytes;
  }
  while (right && end > begin) {
    const std::size_t last = last_code_point(std::string_view(text).substr(0, end));
    if (!stripped(code_point_at(text, last).value, set, budget)) break;
    end = last;
  }
  return Value::text(text.substr(begin, end - begin), budget);
}

/// ASCII letters only, which suffices for what chat templates do: change the case of role names.
std::string cased(std::string text, bool upper) {
  for (char& c : text)
    if ((upper && c >= 'a' && c <= 'z') || (!upper && c >= 'A' && c <= 'Z')) c = static_cast<char>(c ^ 32);
  return text;
}

std::string capitalized(std::string text) {
  text = cased(std::move(text), false);
  if (!text.empty()) text.replace(0, 1, cased(text.substr(0, 1), true));
  return text;
}

std::string titled(std::string text) {
  bool first = true;
  for (char& c : text) {
    const bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    if (letter && ((c & 32) != 0) == first) c = static_cast<char>(c ^ 32);
    first = !letter;
  }
  return text;
}

Value split(const std::string& text, const TemplateList& arguments, TemplateBudget& budget) {
  TemplateList out;
  if (arguments.empty() || arguments[0].is_none()) {
    budget.read(text.size());
    std::size_t begin = 0;
    for (std::size_t at = 0; at <= text.size();) {
      const CodePoint c = at < text.size() ? code_point_at(text, at) : CodePoint{' ', 1, true};
      if (is_space(c.value)) {
        if (at > begin) out.push_back(Value::text(text.substr(begin, at - begin), budget));
        begin = at + c.bytes;
      }
      at += c.bytes;
    }
    return Value::list(std::move(out), budget);
  }
  const std::string& separator = text_of(arguments[0]);
  if (separator.empty()) throw TemplateError("an empty separator");
  std::int64_t most = arguments.size() > 1 && arguments[1].as_int() != nullptr ? *arguments[1].as_int() : -1;
  std::size_t begin = 0;
  for (; most != 0; --most) {
    const std::size_t at = find_text(text, separator, begin, budget);
    if (at == std::string::npos) break;
    out.push_back(Value::text(text.substr(begin, at - begin), budget));
    begin = at + separator.size();
  }
  out.push_back(Value::text(text.substr(begin), budget));
  return Value::list(std::move(out), budget);
}

Value replaced(const std::string& text, const TemplateList& arguments, TemplateBudget& budget) {
  const std::string &from = text_of(argument(arguments, 0)), &to = text_of(argument(arguments, 1));
  if (from.empty()) throw TemplateError("nothing cannot be replaced");
  TemplateText out(budget);
  const std::string_view all = text;
  std::size_t begin = 0;
  for (std::size_t at = find_text(all, from, 0, budget); at != std::string::npos;
       at = find_text(all, from, begin, budget)) {
    out.add(all.substr(begin, at - begin)).add(to);
    begin = at + from.size();
  }
  return Value::paid(out.add(all.substr(begin)).take());
}

/// The current local time, formatted by strftime.
std::string time_text(const std::string& form) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 256> out{};
  const std::size_t size = std::strftime(out.data(), out.size(), form.c_str(), &parts);
  return std::string(out.data(), size);
}

Value pairs_of(const Value& value, TemplateBudget& budget) {
  if (value.is_undefined()) return Value::list({}, budget);
  if (value.as_dict() == nullptr) throw TemplateError(fmt::format("{} has no items", value.type()));
  TemplateList out;
  for (const auto& [key, item] : *value.as_dict()) out.push_back(Value::list({Value::text(key, budget), item}, budget));
  return Value::list(std::move(out), budget);
}

Value length_of(const Value& value, TemplateBudget& budget) {
  std::size_t out = 0;
  if (const auto* text = value.as_text()) {
    budget.read(text->size());
    for (std::size_t at = 0; at < text->size(); at += code_point_at(*text, at).bytes) ++out;
  } else if (const auto* list = value.as_list()) {
    out = list->size();
  } else if (const auto* dict = value.as_dict()) {
    out = dict->size();
  } else if (!value.is_undefined()) {
    throw TemplateError(fmt::format("{} has no length", value.type()));
  }
  return Storage(static_cast<std::int64_t>(out));
}

Value joined(const Value& value, const TemplateArguments& given, TemplateBudget& budget) {
  std::string separator = given.plain.empty() ? "" : given.plain[0].str(budget);
  for (const auto& [name, item] : given.named)
    if (name == "d") separator = item.str(budget);
  TemplateText out(budget);
  bool first = true;
  for (const auto& item : items_of(value, budget)) {
    if (!first) out.add(separator);
    first = false;
    out.add(item.as_text() != nullptr ? *item.as_text() : item.str(budget));
  }
  return Value::paid(out.take());
}

Value defaulted(const Value& value, const TemplateArguments& given, TemplateBudget&) {
  const bool falsy = given.plain.size() > 1 && given.plain[1].truth();
  const bool missing = value.is_undefined() || (falsy && !value.truth());
  return !missing ? value : given.plain.empty() ? Value::paid("") : given.plain[0];
}

Value as_integer(const Value& value, const TemplateArguments&, TemplateBudget& budget) {
  if (value.is_number()) {
    if (!(std::abs(value.number()) < 9e15)) throw TemplateError("the number is too large");
    return Storage(static_cast<std::int64_t>(value.number()));
  }
  budget.read(text_of(value).size());
  try {
    return Storage(static_cast<std::int64_t>(std::stoll(text_of(value))));
  } catch (const std::logic_error&) {
    return Storage(std::int64_t{0});
  }
}

struct Filter {
  std::string_view name;
  Value (*apply)(const Value& value, const TemplateArguments& given, TemplateBudget& budget);
};
using Given = TemplateArguments;
using List = TemplateList;
using Budget = TemplateBudget;
constexpr std::array kFilters = {
    Filter{"trim", [](const Value& v, const Given& g, Budget& b) { return strip(v.str(b), g.plain, true, true, b); }},
    Filter{"upper", [](const Value& v, const Given&, Budget& b) { return Value::paid(cased(v.str(b), true)); }},
    Filter{"lower", [](const Value& v, const Given&, Budget& b) { return Value::paid(cased(v.str(b), false)); }},
    Filter{"capitalize", [](const Value& v, const Given&, Budget& b) { return Value::paid(capitalized(v.str(b))); }},
    Filter{"title", [](const Value& v, const Given&, Budget& b) { return Value::paid(titled(v.str(b))); }},
    Filter{"string", [](const Value& v, const Given&, Budget& b) { return Value::paid(v.str(b)); }},
    Filter{"safe", [](const Value& v, const Given&, Budget&) { return v; }},
    Filter{"int", as_integer},
    Filter{"length", [](const Value& v, const Given&, Budget& b) { return length_of(v, b); }},
    Filter{"count", [](const Value& v, const Given&, Budget& b) { return length_of(v, b); }},
    Filter{"list", [](const Value& v, const Given&, Budget& b) { return Value::list(items_of(v, b), b); }},
    Filter{"items", [](const Value& v, const Given&, Budget& b) { return pairs_of(v, b); }},
    Filter{"first",
           [](const Value& v, const Given&, Budget& b) {
             const auto items = items_of(v, b);
             return items.empty() ? Value() : items.front();
           }},
    Filter{"last",
           [](const Value& v, const Given&, Budget& b) {
             const auto items = items_of(v, b);
             return items.empty() ? Value() : items.back();
           }},
    Filter{"reverse",
           [](const Value& v, const Given&, Budget& b) {
             auto items = items_of(v, b);
             std::reverse(items.begin(), items.end());
             return Value::list(std::move(items), b);
           }},
    Filter{"join", joined},
    Filter{"default", defaulted},
    Filter{"d", defaulted},
    Filter{"replace", [](const Value& v, const Given& g, Budget& b) { return replaced(v.str(b), g.plain, b); }},
    Filter{"tojson", json_filter},
    Filter{"float",
           [](const Value& v, const Given&, Budget& b) {
             if (v.is_number()) return Value(Storage(v.number()));
             b.read(text_of(v).size());
             try {
               return Value(Storage(std::stod(text_of(v))));
             } catch (const std::logic_error&) {
               return Value(Storage(0.0));
             }
           }},
    Filter{"abs",
           [](const Value& v, const Given&, Budget&) {
             if (v.as_int() == nullptr) return Value(Storage(std::abs(v.number())));
             if (*v.as_int() == std::numeric_limits<std::int64_t>::min()) throw TemplateError("the number is too large");
             return Value(Storage(std::abs(*v.as_int())));
           }},
};

struct Test {
  std::string_view name;
  bool (*holds)(const Value& value, const TemplateList& arguments, TemplateBudget& budget);
};
bool divides(const Value& v, const List& a, Budget&) {
  if (v.as_int() == nullptr || argument(a, 0).as_int() == nullptr || *a[0].as_int() == 0)
    throw TemplateError("divisibleby needs integers");
  return *a[0].as_int() == -1 || *v.as_int() % *a[0].as_int() == 0;
}
constexpr std::array kTests = {
    Test{"defined", [](const Value& v, const List&, Budget&) { return !v.is_undefined(); }},
    Test{"undefined", [](const Value& v, const List&, Budget&) { return v.is_undefined(); }},
    Test{"none", [](const Value& v, const List&, Budget&) { return v.is_none(); }},
    Test{"string", [](const Value& v, const List&, Budget&) { return v.as_text() != nullptr; }},
    Test{"mapping", [](const Value& v, const List&, Budget&) { return v.as_dict() != nullptr; }},
    Test{"sequence",
         [](const Value& v, const List&, Budget&) {
           return v.as_list() != nullptr || v.as_text() != nullptr || v.as_dict() != nullptr;
         }},
    Test{"iterable",
         [](const Value& v, const List&, Budget&) {
           return v.as_list() != nullptr || v.as_text() != nullptr || v.as_dict() != nullptr;
         }},
    Test{"number", [](const Value& v, const List&, Budget&) { return v.is_number(); }},
    Test{"integer", [](const Value& v, const List&, Budget&) { return v.as_int() != nullptr; }},
    Test{"float", [](const Value& v, const List&, Budget&) { return v.is_number() && v.type() == "float"; }},
    Test{"boolean", [](const Value& v, const List&, Budget&) { return v.as_bool() != nullptr; }},
    Test{"true", [](const Value& v, const List&, Budget&) { return v.as_bool() != nullptr && *v.as_bool(); }},
    Test{"false", [](const Value& v, const List&, Budget&) { return v.as_bool() != nullptr && !*v.as_bool(); }},
    Test{"odd", [](const Value& v, const List&, Budget&) { return v.as_int() != nullptr && *v.as_int() % 2 != 0; }},
    Test{"even", [](const Value& v, const List&, Budget&) { return v.as_int() != nullptr && *v.as_int() % 2 == 0; }},
    Test{"equalto", [](const Value& v, const List& a, Budget& b) { return v.equals(argument(a, 0), b); }},
    Test{"eq", [](const Value& v, const List& a, Budget& b) { return v.equals(argument(a, 0), b); }},
    Test{"ne", [](const Value& v, const List& a, Budget& b) { return !v.equals(argument(a, 0), b); }},
    Test{"in", [](const Value& v, const List& a, Budget& b) { return contains(argument(a, 0), v, b); }},
    Test{"divisibleby", divides},
    Test{"lower", [](const Value& v, const List&, Budget& b) { return v.str(b) == cased(v.str(b), false); }},
    Test{"upper", [](const Value& v, const List&, Budget& b) { return v.str(b) == cased(v.str(b), true); }},
    Test{"gt", [](const Value& v, const List& a, Budget&) { return v.number() > argument(a, 0).number(); }},
    Test{"lt", [](const Value& v, const List& a, Budget&) { return v.number() < argument(a, 0).number(); }},
    Test{"ge", [](const Value& v, const List& a, Budget&) { return v.number() >= argument(a, 0).number(); }},
    Test{"le", [](const Value& v, const List& a, Budget&) { return v.number() <= argument(a, 0).number(); }},
};

struct Method {
  std::string_view name;
  Value (*call)(const Value& object, const TemplateList& arguments, TemplateBudget& budget);
};
Value affixed(const std::string& text, const std::string& part, bool front, Budget& budget) {
  budget.read(part.size());
  return Storage(front ? text.starts_with(part) : text.ends_with(part));
}
Value cased_text(const Value& v, bool upper, Budget& b) {
  return Value::paid(cased(v.str(b), upper));
}
/// The place of a part, counted in code points; -1 if it is not there.
Value place_of_part(const Value& v, const List& a, Budget& b) {
  const std::size_t at = find_text(*v.as_text(), text_of(argument(a, 0)), 0, b);
  if (at == std::string::npos) return Storage(std::int64_t{-1});
  return length_of(Value::text(v.as_text()->substr(0, at), b), b);
}
Value count_of_part(const Value& v, const List& a, Budget& b) {
  const std::string& part = text_of(argument(a, 0));
  if (part.empty()) return Storage(*length_of(v, b).as_int() + 1);
  std::int64_t out = 0;
  for (std::size_t at = find_text(*v.as_text(), part, 0, b); at != std::string::npos;
       at = find_text(*v.as_text(), part, at + part.size(), b))
    ++out;
  return Storage(out);
}
constexpr std::array kTextMethods = {
    Method{"strip", [](const Value& v, const List& a, Budget& b) { return strip(*v.as_text(), a, true, true, b); }},
    Method{"lstrip", [](const Value& v, const List& a, Budget& b) { return strip(*v.as_text(), a, true, false, b); }},
    Method{"rstrip", [](const Value& v, const List& a, Budget& b) { return strip(*v.as_text(), a, false, true, b); }},
    Method{"upper", [](const Value& v, const List&, Budget& b) { return cased_text(v, true, b); }},
    Method{"lower", [](const Value& v, const List&, Budget& b) { return cased_text(v, false, b); }},
    Method{"capitalize", [](const Value& v, const List&, Budget& b) { return Value::paid(capitalized(v.str(b))); }},
    Method{"title", [](const Value& v, const List&, Budget& b) { return Value::paid(titled(v.str(b))); }},
    Method{"split", [](const Value& v, const List& a, Budget& b) { return split(*v.as_text(), a, b); }},
    Method{"startswith", [](const Value& v, const List& a,
                            Budget& b) { return affixed(*v.as_text(), text_of(argument(a, 0)), true, b); }},
    Method{"endswith", [](const Value& v, const List& a,
                          Budget& b) { return affixed(*v.as_text(), text_of(argument(a, 0)), false, b); }},
    Method{"replace", [](const Value& v, const List& a, Budget& b) { return replaced(*v.as_text(), a, b); }},
    Method{"join", [](const Value& v, const List& a, Budget& b) { return joined(argument(a, 0), {.plain = {v}}, b); }},
    Method{"find", place_of_part},
    Method{"count", count_of_part},
};
constexpr std::array kDictMethods = {
    Method{"items", [](const Value& v, const List&, Budget& b) { return pairs_of(v, b); }},
    Method{"keys", [](const Value& v, const List&, Budget& b) { return Value::list(items_of(v, b), b); }},
    Method{"values",
           [](const Value& v, const List&, Budget& b) {
             TemplateList out;
             for (const auto& [key, item] : *v.as_dict()) out.push_back(item);
             return Value::list(std::move(out), b);
           }},
    Method{"get",
           [](const Value& v, const List& a, Budget& b) {
             const auto* found = find_item(*v.as_dict(), text_of(argument(a, 0)), b);
             return found != nullptr ? *found : a.size() > 1 ? a[1] : Value::none();
           }},
};

template <class Table>
const auto& row_of(const Table& table, std::string_view what, const std::string& name) {
  for (const auto& row : table)
    if (row.name == name) return row;
  std::vector<std::string_view> names;
  for (const auto& row : table) names.push_back(row.name);
  throw TemplateError(fmt::format("the {} '{}' is not supported; {}", what, name, suggestion(name, names)));
}

Value range(const TemplateList& arguments, TemplateBudget& budget) {
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  for (std::size_t i = 0; i < std::min<std::size_t>(arguments.size(), 3); ++i) {
    if (arguments[i].as_int() == nullptr) throw TemplateError("range takes integers");
    bounds[i] = *arguments[i].as_int();
  }
  if (arguments.size() == 1) std::swap(bounds[0], bounds[1]);
  const auto [begin, end, by] = bounds;
  if (by == 0 || arguments.empty()) throw TemplateError("range takes a bound, and a step that is not 0");
  TemplateList out;
  for (std::int64_t i = begin; by > 0 ? i < end : i > end; i += by) {
    if (static_cast<std::int64_t>(out.size()) >= kMostRange) throw TemplateError("the range is too long");
    out.push_back(Storage(i));
    if (std::abs(static_cast<double>(i) + static_cast<double>(by)) > 9e18) break;
  }
  return Value::list(std::move(out), budget);
}

}  // namespace

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from, TemplateBudget& budget) {
  if (from > text.size()) return std::string::npos;
  constexpr std::size_t kShort = 16;  // find() takes the product of both lengths at worst, memmem the sum
  std::size_t at = std::string::npos;
  if (part.size() <= kShort)
    at = text.find(part, from);
  else if (const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size()))
    at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  budget.step();
  budget.read((std::min(at, text.size()) - from) * (part.size() <= kShort ? std::max<std::size_t>(part.size(), 1) : 1) +
              part.size());
  return at;
}

bool contains(const Value& whole, const Value& part, TemplateBudget& budget) {
  if (const auto* text = whole.as_text()) return find_text(*text, text_of(part), 0, budget) != std::string::npos;
  if (const auto* dict = whole.as_dict())
    return part.as_text() != nullptr && find_item(*dict, *part.as_text(), budget) != nullptr;
  if (const auto* list = whole.as_list())
    return std::any_of(list->begin(), list->end(), [&](const Value& item) { return item.equals(part, budget); });
  if (whole.is_undefined()) return false;
  throw TemplateError(fmt::format("{} holds nothing", whole.type()));
}

Value apply_filter(const std::string& name, const Value& value, const TemplateArguments& given,
                   TemplateBudget& budget) {
  const TemplateBudget::Level level(budget);
  budget.step();
  if (is_list_filter(name)) return apply_list_filter(name, value, given, budget);
  return row_of(kFilters, "filter", name).apply(value, given, budget);
}

bool apply_test(const std::string& name, const Value& value, const TemplateList& arguments, TemplateBudget& budget) {
  budget.step();
  return row_of(kTests, "test", name).holds(value, arguments, budget);
}

Value call_method(const Value& object, const std::string& name, const TemplateList& arguments, TemplateBudget& budget) {
  if (object.as_text() != nullptr) return row_of(kTextMethods, "method of str", name).call(object, arguments, budget);
  if (object.as_dict() != nullptr) return row_of(kDictMethods, "method of dict", name).call(object, arguments, budget);
  throw TemplateError(fmt::format("{} has no method '{}'", object.type(), name));
}

Value call_function(const std::string& name, const TemplateArguments& given, TemplateBudget& budget) {
  if (name == "raise_exception") throw TemplateError(argument(given.plain, 0).str(budget));
  if (name == "namespace") return Value::name_space(given.named, budget);
  if (name == "dict") return Value::dict(given.named, budget);
  if (name == "range") return range(given.plain, budget);
  if (name == "strftime_now") return Value::text(time_text(text_of(argument(given.plain, 0))), budget);
  throw TemplateError(fmt::format("there is no function '{}'", name));
}

}  // namespace automodel::tokenizer
