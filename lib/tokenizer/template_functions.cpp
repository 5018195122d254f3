// Filters, tests, methods and functions of chat templates, as tables.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/spelling.h"
#include "tokenizer/lower_case.h"
#include "tokenizer/pattern.h"
#include "tokenizer/template_tree.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {

namespace {

using Storage = TemplateValue::Storage;
using Value = TemplateValue;
constexpr std::int64_t kMostRange = 100'000;  // as in Jinja's sandbox

/// Arguments by place; null where one is not given.
using Placed = std::array<const Value*, 4>;
using List = TemplateList;
using Budget = TemplateBudget;

const Value& needed(const Placed& given, std::size_t i) {
  if (given[i] == nullptr) throw TemplateError("an argument is missing");
  return *given[i];
}

const std::string& text_of(const Value& value) {
  if (const auto* text = value.as_text()) return *text;
  throw TemplateError(fmt::format("a string is expected, not {}", value.type()));
}

/// An integer that may be left out, or none.
std::int64_t count_of(const Value* value, std::int64_t otherwise) {
  if (value == nullptr || value->is_none()) return otherwise;
  if (value->as_int() == nullptr) throw TemplateError(fmt::format("an integer is expected, not {}", value->type()));
  return *value->as_int();
}

/// Whether to strip a code point: white space, or one of `set` if given.
bool stripped(char32_t point, const std::string* set, Budget& budget) {
  budget.step(set == nullptr ? 0 : static_cast<std::int64_t>(1 + set->size() / 16));
  if (set == nullptr) return is_python_space(point);
  for (std::size_t at = 0; at < set->size();) {
    const CodePoint c = code_point_at(*set, at);
    if (c.value == point) return true;
    at += c.bytes;
  }
  return false;
}

Value strip(const std::string& text, const Value* characters, bool left, bool right, Budget& budget) {
  const std::string* set = characters == nullptr || characters->is_none() ? nullptr : &text_of(*characters);
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

/// Refuses letters beyond ASCII that have a case: there is a table for their lower case only.
void check_case(std::string_view text, Budget& budget) {
  static const auto cased = [] {
    std::string problem;
    return Pattern::make(R"((?![\x00-\x7F])[\p{L&}\x{2160}-\x{217F}\x{24B6}-\x{24E9}])", problem, false);
  }();
  budget.read(text.size());
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) return;
  const auto found = cased ? PatternMatcher().find(*cased, text, 0) : std::nullopt;
  if (found)
    throw TemplateError(fmt::format("the case of '{}' cannot be changed or asked for: only that of ASCII",
                                    text.substr(found->begin, found->end - found->begin)));
}

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

std::string upper_case(std::string text, Budget& budget) {
  check_case(text, budget);
  for (char& c : text)
    if (is_lower(c)) c = static_cast<char>(c ^ 32);
  return text;
}

std::string lower_case(const std::string& text, Budget& budget) {
  if (text.find("\xCE\xA3") != std::string::npos)
    throw TemplateError("the lower case of a capital sigma depends on its place, and is not known here");
  budget.read(text.size());
  std::string out;
  append_lower_case(text, out);
  return out;
}

std::string capitalized(const std::string& text, Budget& budget) {
  const std::size_t first = text.empty() ? 0 : code_point_at(text, 0).bytes;
  return upper_case(text.substr(0, first), budget) + lower_case(text.substr(first), budget);
}

/// Python's str.title(): a letter behind none begins a word ("Don'T").
std::string titled(std::string text, Budget& budget) {
  check_case(text, budget);
  bool first = true;
  for (char& c : text) {
    const bool letter = is_upper(c) || is_lower(c);
    if (letter && is_lower(c) == first) c = static_cast<char>(c ^ 32);
    first = !letter;
  }
  return text;
}

/// Jinja's filter: white space and opening brackets begin a word ("Don't").
std::string titled_words(std::string text, Budget& budget) {
  check_case(text, budget);
  bool first = true;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    char& c = text[at];
    if (first ? is_lower(c) : is_upper(c)) c = static_cast<char>(c ^ 32);
    first = is_python_space(point.value) || std::string_view("-({[<").find(c) != std::string_view::npos;
    at += point.bytes;
  }
  return text;
}

Value split(const std::string& text, const Placed& given, Budget& budget) {
  List out;
  std::int64_t most = count_of(given[1], -1);
  if (given[0] == nullptr || given[0]->is_none()) {
    budget.read(text.size());
    const auto space = [&](std::size_t at) { return is_python_space(code_point_at(text, at).value); };
    for (std::size_t at = 0;; --most) {
      while (at < text.size() && space(at)) at += code_point_at(text, at).bytes;
      if (at == text.size()) break;
      std::size_t end = at;
      while (end < text.size() && (most == 0 || !space(end))) end += code_point_at(text, end).bytes;
      out.push_back(Value::text(text.substr(at, end - at), budget));
      at = end;
    }
    return Value::list(std::move(out), budget);
  }
  const std::string& separator = text_of(*given[0]);
  if (separator.empty()) throw TemplateError("an empty separator");
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

Value replaced(const std::string& text, const Placed& given, Budget& budget) {
  const std::string &from = text_of(needed(given, 0)), &to = text_of(needed(given, 1));
  if (from.empty()) throw TemplateError("nothing cannot be replaced");
  std::int64_t most = count_of(given[2], -1);
  TemplateText out(budget);
  const std::string_view all = text;
  std::size_t begin = 0;
  for (; most != 0; --most) {
    const std::size_t at = find_text(all, from, begin, budget);
    if (at == std::string::npos) break;
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

Value length_of(const Value& value, Budget& budget) {
  std::size_t out = 0;
  if (const auto* text = value.as_text())
    out = count_code_points(*text, budget);
  else if (const auto* dict = value.as_dict())
    out = dict->size();
  else if (value.sequence() && value.sequence() != Sequence::kGenerator)
    out = items_of(value, budget).size();
  else if (!value.is_undefined())
    throw TemplateError(fmt::format("{} has no length", value.type()));
  return Storage(static_cast<std::int64_t>(out));
}

/// join(value, d="", attribute=None)
Value joined(const Value& value, const Placed& given, Budget& budget) {
  const std::string separator = given[0] == nullptr ? "" : given[0]->str(budget);
  TemplateText out(budget);
  bool first = true;
  for (const auto& item : items_of(value, budget)) {
    const bool part = given[1] != nullptr && !given[1]->is_none();
    const Value shown = part ? attribute_of(item, *given[1], nullptr, budget) : item;
    if (!first) out.add(separator);
    first = false;
    out.add(shown.as_text() != nullptr ? *shown.as_text() : shown.str(budget));
  }
  return Value::paid(out.take());
}

/// str.join()
Value joined_texts(const std::string& separator, const Value& value, Budget& budget) {
  TemplateText out(budget);
  bool first = true;
  for (const auto& item : items_of(value, budget)) {
    if (!first) out.add(separator);
    first = false;
    out.add(text_of(item));
  }
  return Value::paid(out.take());
}

/// default(value, default_value="", boolean=False)
Value defaulted(const Value& value, const Placed& given, Budget&) {
  const bool falsy = given[1] != nullptr && given[1]->truth();
  const bool missing = value.is_undefined() || (falsy && !value.truth());
  return !missing ? value : given[0] == nullptr ? Value::paid("") : *given[0];
}

/// What Python's float(), and with `whole` int(), read: blanks around, underscores between digits. Nothing if they
/// refuse it.
std::optional<double> number_in(std::string text, bool whole) {
  const auto space = [](char c) {
    return std::string_view(" \t\n\r\f\v\x1C\x1D\x1E\x1F").find(c) != std::string_view::npos;
  };
  while (!text.empty() && space(text.back())) text.pop_back();
  text.erase(0, std::find_if_not(text.begin(), text.end(), space) - text.begin());
  static const auto form = [](const char* pattern) {
    std::string problem;
    return Pattern::make(pattern, problem, false);
  };
  static const auto integer = form(R"(\A[+-]?[0-9]+(_[0-9]+)*\z)");
  static const auto real = form(
      R"(\A[+-]?(([0-9]+(_[0-9]+)*\.?([0-9]+(_[0-9]+)*)?|\.[0-9]+(_[0-9]+)*)(e[+-]?[0-9]+(_[0-9]+)*)?|inf|infinity|nan)\z)");
  const std::string shape = [&] {
    std::string out;
    for (const char c : text) out += is_upper(c) ? static_cast<char>(c ^ 32) : c;
    return out;
  }();
  if (valid_prefix(shape) != shape.size() || !PatternMatcher().find(whole ? *integer : *real, shape, 0))
    return std::nullopt;
  std::erase(text, '_');
  return std::strtod(text.c_str(), nullptr);
}

/// int(value, default=0)
Value as_integer(const Value& value, const Placed& given, Budget& budget) {
  std::optional<double> number;
  if (value.is_undefined()) throw TemplateError("an undefined value is no number");
  if (value.is_number()) number = value.number();
  if (const auto* text = value.as_text()) {
    budget.read(text->size());
    number = number_in(*text, true);
    if (!number) number = number_in(*text, false);
  }
  if (!number || !std::isfinite(*number)) return given[0] == nullptr ? Value(Storage(std::int64_t{0})) : *given[0];
  if (!(std::abs(*number) < 9e15)) throw TemplateError("the number is too large");
  return Storage(static_cast<std::int64_t>(*number));
}

/// float(value, default=0.0)
Value as_float(const Value& value, const Placed& given, Budget& budget) {
  std::optional<double> number;
  if (value.is_undefined()) throw TemplateError("an undefined value is no number");
  if (value.is_number()) number = value.number();
  if (const auto* text = value.as_text()) {
    budget.read(text->size());
    number = number_in(*text, false);
  }
  return number ? Value(Storage(*number)) : given[0] == nullptr ? Value(Storage(0.0)) : *given[0];
}

Value absolute(const Value& value, const Placed&, Budget&) {
  if (value.as_bool() != nullptr) return Storage(static_cast<std::int64_t>(value.number()));
  if (value.as_int() == nullptr) return Storage(std::abs(value.number()));
  if (*value.as_int() == std::numeric_limits<std::int64_t>::min()) throw TemplateError("the number is too large");
  return Storage(std::abs(*value.as_int()));
}

/// Jinja's `reverse`: of a text, a text; else something to go through once.
Value reversed(const Value& value, const Placed&, Budget& budget) {
  auto items = items_of(value, budget);
  std::reverse(items.begin(), items.end());
  if (value.as_text() != nullptr) return joined_texts("", Value::list(std::move(items), budget), budget);
  const bool was_generator = value.sequence() == Sequence::kGenerator;
  return Value::list(std::move(items), budget, was_generator ? Sequence::kList : Sequence::kGenerator);
}

Value last_of(const Value& value, const Placed&, Budget& budget) {
  if (value.sequence() == Sequence::kGenerator)
    throw TemplateError("a generator has no last item; 'list' makes a list of it");
  auto items = items_of(value, budget);
  return items.empty() ? Value() : items.back();
}

struct Filter {
  std::string_view name;
  std::string_view parameters;
  Value (*apply)(const Value& value, const Placed& given, Budget& budget);
};
constexpr std::array kFilters = {
    Filter{"trim", "chars",
           [](const Value& v, const Placed& g, Budget& b) { return strip(v.str(b), g[0], true, true, b); }},
    Filter{"upper", "", [](const Value& v, const Placed&, Budget& b) { return Value::paid(upper_case(v.str(b), b)); }},
    Filter{"lower", "", [](const Value& v, const Placed&, Budget& b) { return Value::paid(lower_case(v.str(b), b)); }},
    Filter{"capitalize", "",
           [](const Value& v, const Placed&, Budget& b) { return Value::paid(capitalized(v.str(b), b)); }},
    Filter{"title", "",
           [](const Value& v, const Placed&, Budget& b) { return Value::paid(titled_words(v.str(b), b)); }},
    Filter{"string", "", [](const Value& v, const Placed&, Budget& b) { return Value::paid(v.str(b)); }},
    Filter{"safe", "", [](const Value& v, const Placed&, Budget&) { return v; }},
    Filter{"int", "default", as_integer},
    Filter{"float", "default", as_float},
    Filter{"abs", "", absolute},
    Filter{"length", "", [](const Value& v, const Placed&, Budget& b) { return length_of(v, b); }},
    Filter{"count", "", [](const Value& v, const Placed&, Budget& b) { return length_of(v, b); }},
    Filter{"list", "", [](const Value& v, const Placed&, Budget& b) { return Value::list(items_of(v, b), b); }},
    Filter{
        "items", "",
        [](const Value& v, const Placed&, Budget& b) { return Value::list(pairs_of(v, b), b, Sequence::kGenerator); }},
    Filter{"first", "",
           [](const Value& v, const Placed&, Budget& b) {
             const auto items = items_of(v, b, 1);
             return items.empty() ? Value() : items.front();
           }},
    Filter{"last", "", last_of},
    Filter{"reverse", "", reversed},
    Filter{"join", "d attribute", joined},
    Filter{"default", "default_value boolean", defaulted},
    Filter{"d", "default_value boolean", defaulted},
    Filter{"replace", "old new count",
           [](const Value& v, const Placed& g, Budget& b) { return replaced(v.str(b), g, b); }},
    Filter{"tojson", "ensure_ascii indent separators sort_keys", json_filter},
};

struct Test {
  std::string_view name;
  std::size_t arguments;
  bool (*holds)(const Value& value, const List& arguments, Budget& budget);
};
bool divides(const Value& v, const List& a, Budget&) {
  if (v.as_int() == nullptr || a[0].as_int() == nullptr || *a[0].as_int() == 0)
    throw TemplateError("divisibleby needs integers");
  return *a[0].as_int() == -1 || *v.as_int() % *a[0].as_int() == 0;
}
/// Of 2, with the divisor's sign.
double remainder_of(const Value& value) {
  return std::abs(std::fmod(value.number(), 2));
}
/// str.islower() and str.isupper(): some letter, and none of the other case.
bool in_case(const Value& value, bool upper, Budget& budget) {
  const std::string text = value.str(budget);
  check_case(text, budget);
  return std::any_of(text.begin(), text.end(), upper ? is_upper : is_lower) &&
         std::none_of(text.begin(), text.end(), upper ? is_lower : is_upper);
}
bool has_items(const Value& value) {
  return value.sequence() || value.as_text() != nullptr || value.as_dict() != nullptr || value.is_undefined();
}
bool equal(const Value& v, const List& a, Budget& b) {
  return v.equals(a[0], b);
}
bool unequal(const Value& v, const List& a, Budget& b) {
  return !v.equals(a[0], b);
}
template <class Compare>
bool compared(const Value& v, const List& a, Budget&) {
  return Compare()(v.number(), a[0].number());
}
constexpr std::array kTests = {
    Test{"defined", 0, [](const Value& v, const List&, Budget&) { return !v.is_undefined(); }},
    Test{"undefined", 0, [](const Value& v, const List&, Budget&) { return v.is_undefined(); }},
    Test{"none", 0, [](const Value& v, const List&, Budget&) { return v.is_none(); }},
    Test{"string", 0, [](const Value& v, const List&, Budget&) { return v.as_text() != nullptr; }},
    Test{"mapping", 0,
         [](const Value& v, const List&, Budget&) { return v.as_dict() != nullptr && !v.is_namespace(); }},
    Test{"sequence", 0,
         [](const Value& v, const List&, Budget&) {
           return has_items(v) && v.sequence() != Sequence::kView && v.sequence() != Sequence::kGenerator;
         }},
    Test{"iterable", 0, [](const Value& v, const List&, Budget&) { return has_items(v); }},
    Test{"callable", 0, [](const Value& v, const List&, Budget&) { return v.type() == "method" || v.is_undefined(); }},
    Test{"number", 0, [](const Value& v, const List&, Budget&) { return v.is_number(); }},
    Test{"integer", 0, [](const Value& v, const List&, Budget&) { return v.as_int() != nullptr; }},
    Test{"float", 0, [](const Value& v, const List&, Budget&) { return v.type() == "float"; }},
    Test{"boolean", 0, [](const Value& v, const List&, Budget&) { return v.as_bool() != nullptr; }},
    Test{"true", 0, [](const Value& v, const List&, Budget&) { return v.as_bool() != nullptr && *v.as_bool(); }},
    Test{"false", 0, [](const Value& v, const List&, Budget&) { return v.as_bool() != nullptr && !*v.as_bool(); }},
    Test{"odd", 0, [](const Value& v, const List&, Budget&) { return remainder_of(v) == 1; }},
    Test{"even", 0, [](const Value& v, const List&, Budget&) { return remainder_of(v) == 0; }},
    Test{"equalto", 1, equal},
    Test{"eq", 1, equal},
    Test{"==", 1, equal},
    Test{"ne", 1, unequal},
    Test{"!=", 1, unequal},
    Test{"in", 1, [](const Value& v, const List& a, Budget& b) { return contains(a[0], v, b); }},
    Test{"divisibleby", 1, divides},
    Test{"lower", 0, [](const Value& v, const List&, Budget& b) { return in_case(v, false, b); }},
    Test{"upper", 0, [](const Value& v, const List&, Budget& b) { return in_case(v, true, b); }},
    Test{"gt", 1, compared<std::greater<>>},
    Test{"lt", 1, compared<std::less<>>},
    Test{"ge", 1, compared<std::greater_equal<>>},
    Test{"le", 1, compared<std::less_equal<>>},
};

struct Method {
  std::string_view name;
  std::string_view parameters;
  Value (*call)(const Value& object, const Placed& given, Budget& budget);
};
/// str.startswith() and endswith(), also with a tuple of parts.
bool affixed(const std::string& text, const Value& part, bool front, Budget& budget) {
  if (part.sequence() == Sequence::kTuple) {
    const auto parts = items_of(part, budget);
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Value& each) { return affixed(text, each, front, budget); });
  }
  budget.read(text_of(part).size());
  return front ? text.starts_with(text_of(part)) : text.ends_with(text_of(part));
}
/// The place of a part, counted in code points; -1 if it is not there.
Value place_of_part(const Value& v, const Placed& g, Budget& b) {
  const std::size_t at = find_text(*v.as_text(), text_of(needed(g, 0)), 0, b);
  if (at == std::string::npos) return Storage(std::int64_t{-1});
  return length_of(Value::text(v.as_text()->substr(0, at), b), b);
}
Value count_of_part(const Value& v, const Placed& g, Budget& b) {
  const std::string& part = text_of(needed(g, 0));
  if (part.empty()) return Storage(*length_of(v, b).as_int() + 1);
  std::int64_t out = 0;
  for (std::size_t at = find_text(*v.as_text(), part, 0, b); at != std::string::npos;
       at = find_text(*v.as_text(), part, at + part.size(), b))
    ++out;
  return Storage(out);
}
constexpr std::array kTextMethods = {
    Method{"strip", "chars /",
           [](const Value& v, const Placed& g, Budget& b) { return strip(*v.as_text(), g[0], true, true, b); }},
    Method{"lstrip", "chars /",
           [](const Value& v, const Placed& g, Budget& b) { return strip(*v.as_text(), g[0], true, false, b); }},
    Method{"rstrip", "chars /",
           [](const Value& v, const Placed& g, Budget& b) { return strip(*v.as_text(), g[0], false, true, b); }},
    Method{"upper", "", [](const Value& v, const Placed&, Budget& b) { return Value::paid(upper_case(v.str(b), b)); }},
    Method{"lower", "", [](const Value& v, const Placed&, Budget& b) { return Value::paid(lower_case(v.str(b), b)); }},
    Method{"capitalize", "",
           [](const Value& v, const Placed&, Budget& b) { return Value::paid(capitalized(v.str(b), b)); }},
    Method{"title", "", [](const Value& v, const Placed&, Budget& b) { return Value::paid(titled(v.str(b), b)); }},
    Method{"split", "sep maxsplit",
           [](const Value& v, const Placed& g, Budget& b) { return split(*v.as_text(), g, b); }},
    Method{"startswith", "prefix /",
           [](const Value& v, const Placed& g, Budget& b) {
             return Value(Storage(affixed(*v.as_text(), needed(g, 0), true, b)));
           }},
    Method{"endswith", "suffix /",
           [](const Value& v, const Placed& g, Budget& b) {
             return Value(Storage(affixed(*v.as_text(), needed(g, 0), false, b)));
           }},
    Method{"replace", "old new count /",
           [](const Value& v, const Placed& g, Budget& b) { return replaced(*v.as_text(), g, b); }},
    Method{"join", "iterable /",
           [](const Value& v, const Placed& g, Budget& b) { return joined_texts(*v.as_text(), needed(g, 0), b); }},
    Method{"find", "sub /", place_of_part},
    Method{"count", "sub /", count_of_part},
};
constexpr std::array kDictMethods = {
    Method{"items", "",
           [](const Value& v, const Placed&, Budget& b) { return Value::list(pairs_of(v, b), b, Sequence::kView); }},
    Method{"keys", "",
           [](const Value& v, const Placed&, Budget& b) { return Value::list(items_of(v, b), b, Sequence::kView); }},
    Method{"values", "",
           [](const Value& v, const Placed&, Budget& b) {
             List out;
             for (const auto& [key, item] : *v.as_dict()) out.push_back(item);
             return Value::list(std::move(out), b, Sequence::kView);
           }},
    Method{"get", "key default /",
           [](const Value& v, const Placed& g, Budget& b) {
             const auto* key = needed(g, 0).as_text();
             const auto* found = key == nullptr ? nullptr : find_item(*v.as_dict(), *key, b);
             return found != nullptr ? *found : g[1] != nullptr ? *g[1] : Value::none();
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
  return Value::list(std::move(out), budget, Sequence::kRange);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    out.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(text.size(), out.back().size() + 1));
  }
  return out;
}

}  // namespace

std::array<const Value*, 4> place_arguments(std::string_view what, std::string_view parameters,
                                            const TemplateArguments& given) {
  auto names = words_of(parameters);
  const bool only_places = !names.empty() && names.back() == "/";
  if (only_places) names.pop_back();
  if (given.plain.size() > names.size())
    throw TemplateError(fmt::format("'{}' takes at most {} arguments here", what, names.size()));
  std::array<const Value*, 4> out{};
  for (std::size_t i = 0; i < given.plain.size(); ++i) out[i] = &given.plain[i];
  for (const auto& [name, value] : given.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto i = static_cast<std::size_t>(found - names.begin());
    if (only_places || found == names.end() || out[i] != nullptr)
      throw TemplateError(fmt::format("'{}' takes no argument '{}' here", what, name));
    out[i] = &value;
  }
  return out;
}

TemplateList pairs_of(const Value& value, TemplateBudget& budget) {
  if (value.is_undefined()) return {};
  if (value.as_dict() == nullptr) throw TemplateError(fmt::format("{} has no items", value.type()));
  TemplateList out;
  for (const auto& [key, item] : *value.as_dict())
    out.push_back(Value::list({Value::text(key, budget), item}, budget, Sequence::kTuple));
  return out;
}

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
  if (whole.sequence() || whole.is_undefined()) {
    const auto items = items_of(whole, budget);
    return std::any_of(items.begin(), items.end(), [&](const Value& item) { return item.equals(part, budget); });
  }
  throw TemplateError(fmt::format("{} holds nothing", whole.type()));
}

Value apply_filter(const std::string& name, const Value& value, const TemplateArguments& given,
                   TemplateBudget& budget) {
  const TemplateBudget::Level level(budget);
  budget.step();
  if (is_list_filter(name)) return apply_list_filter(name, value, given, budget);
  const auto& row = row_of(kFilters, "filter", name);
  return row.apply(value, place_arguments(name, row.parameters, given), budget);
}

bool apply_test(const std::string& name, const Value& value, const TemplateList& arguments, TemplateBudget& budget) {
  budget.step();
  const auto& row = row_of(kTests, "test", name);
  if (arguments.size() != row.arguments)
    throw TemplateError(fmt::format("the test '{}' takes {} arguments, not {}", name, row.arguments, arguments.size()));
  return row.holds(value, arguments, budget);
}

Value call_method(const Value& object, const std::string& name, const TemplateArguments& given,
                  TemplateBudget& budget) {
  const auto call = [&](const auto& table, std::string_view what) {
    const auto& row = row_of(table, what, name);
    return row.call(object, place_arguments(name, row.parameters, given), budget);
  };
  if (object.as_text() != nullptr) return call(kTextMethods, "method of str");
  if (object.as_dict() != nullptr) return call(kDictMethods, "method of dict");
  throw TemplateError(fmt::format("{} has no method '{}'", object.type(), name));
}

Value call_function(const std::string& name, const TemplateArguments& given, TemplateBudget& budget) {
  const bool keyed = name == "namespace" || name == "dict";
  if (keyed && !given.plain.empty())
    throw TemplateError(fmt::format("'{}' takes arguments with names only here", name));
  if (name == "namespace") return Value::name_space(given.named, budget);
  if (name == "dict") return Value::dict(given.named, budget);
  if (name == "raise_exception") throw TemplateError(needed(place_arguments(name, "message", given), 0).str(budget));
  if (name == "range") {
    place_arguments(name, "start stop step /", given);
    return range(given.plain, budget);
  }
  if (name == "strftime_now")
    return Value::text(time_text(text_of(needed(place_arguments(name, "format", given), 0))), budget);
  throw TemplateError(fmt::format("there is no function '{}'", name));
}

}  // namespace automodel::tokenizer
