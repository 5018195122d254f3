// Filters, tests, methods and functions of chat templates, as tables.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/spelling.h"
#include "tokenizer/template_tree.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {

std::string ascii_json(const std::string& json) {
  std::string out;
  for (std::size_t at = 0; at < json.size();) {
    const auto point = code_point_at(json, at);
    at += point.bytes;
    const auto code = static_cast<std::uint32_t>(point.value);
    if (code < 0x80)
      out += static_cast<char>(code);
    else if (code < 0x10000)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
  }
  return out;
}

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
bool stripped(char32_t point, const std::string* set) {
  if (set == nullptr) return is_space(point) || (point >= 0x1C && point <= 0x1F);
  for (std::size_t at = 0; at < set->size();) {
    const CodePoint c = code_point_at(*set, at);
    if (c.value == point) return true;
    at += c.bytes;
  }
  return false;
}

Value strip(const std::string& text, const TemplateList& arguments, bool left, bool right) {
  const std::string* set = arguments.empty() || arguments[0].is_none() ? nullptr : &text_of(arguments[0]);
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const CodePoint c = code_point_at(text, begin);
    if (!stripped(c.value, set)) break;
    begin += c.bytes;
  }
  while (right && end > begin) {
    const std::size_t last = last_code_point(std::string_view(text).substr(0, end));
    if (!stripped(code_point_at(text, last).value, set)) break;
    end = last;
  }
  return Value::text(text.substr(begin, end - begin));
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

Value split(const std::string& text, const TemplateList& arguments) {
  TemplateList out;
  if (arguments.empty() || arguments[0].is_none()) {
    std::size_t begin = 0;
    for (std::size_t at = 0; at <= text.size();) {
      const CodePoint c = at < text.size() ? code_point_at(text, at) : CodePoint{' ', 1, true};
      if (is_space(c.value)) {
        if (at > begin) out.push_back(Value::text(text.substr(begin, at - begin)));
        begin = at + c.bytes;
      }
      at += c.bytes;
    }
    return Value::list(std::move(out));
  }
  const std::string& separator = text_of(arguments[0]);
  if (separator.empty()) throw TemplateError("an empty separator");
  std::int64_t most = arguments.size() > 1 && arguments[1].as_int() != nullptr ? *arguments[1].as_int() : -1;
  std::size_t begin = 0;
  for (std::size_t at = text.find(separator); at != std::string::npos && most != 0; at = text.find(separator, begin)) {
    out.push_back(Value::text(text.substr(begin, at - begin)));
    begin = at + separator.size();
    --most;
  }
  out.push_back(Value::text(text.substr(begin)));
  return Value::list(std::move(out));
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) throw TemplateError("nothing cannot be replaced");
  std::string out;
  std::size_t begin = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  return out.append(text, begin);
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

TemplateList items_of(const Value& value) {
  if (const auto* list = value.as_list()) return *list;
  TemplateList out;
  if (const auto* text = value.as_text()) {
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t bytes = code_point_at(*text, at).bytes;
      out.push_back(Value::text(text->substr(at, bytes)));
      at += bytes;
    }
    return out;
  }
  if (const auto* dict = value.as_dict()) {
    for (const auto& [key, item] : *dict) out.push_back(Value::text(key));
    return out;
  }
  throw TemplateError(fmt::format("{} has no items", value.type()));
}

Value pairs_of(const Value& value) {
  if (value.is_undefined()) return Value::list({});
  if (value.as_dict() == nullptr) throw TemplateError(fmt::format("{} has no items", value.type()));
  TemplateList out;
  for (const auto& [key, item] : *value.as_dict()) out.push_back(Value::list({Value::text(key), item}));
  return Value::list(std::move(out));
}

std::int64_t length_of(const Value& value) {
  return static_cast<std::int64_t>(value.is_undefined() ? 0 : items_of(value).size());
}

struct JsonForm {
  int indent = 0;
  std::string item = ", ", member = ": ";
  bool sorted = false;
};

/// json.dumps(ensure_ascii=False) as transformers configures it, with separators ", " and ": ".
void dump_json(const nlohmann::ordered_json& value, const JsonForm& form, int depth, std::string& out) {
  const auto line = [&](int at) {
    if (form.indent > 0) out += "\n" + std::string(static_cast<std::size_t>(form.indent * at), ' ');
  };
  if (!value.is_structured() || value.empty()) {
    out += value.is_number_float() ? Value(Storage(value.get<double>())).repr()
                                   : value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    return;
  }
  out += value.is_array() ? '[' : '{';
  std::vector<std::pair<std::string, const nlohmann::ordered_json*>> members;
  for (const auto& [key, item] : value.items()) members.emplace_back(key, &item);
  if (form.sorted && value.is_object())
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  bool first = true;
  for (const auto& [key, item] : members) {
    if (!first) out += form.item;
    first = false;
    line(depth + 1);
    if (value.is_object())
      out += nlohmann::ordered_json(key).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
             form.member;
    dump_json(*item, form, depth + 1, out);
  }
  line(depth);
  out += value.is_array() ? ']' : '}';
}

Value joined(const Value& value, const TemplateList& arguments, const TemplateDict& named) {
  std::string separator = arguments.empty() ? "" : arguments[0].str();
  for (const auto& [name, item] : named)
    if (name == "d") separator = item.str();
  std::string out;
  bool first = true;
  for (const auto& item : items_of(value)) {
    if (!first) out += separator;
    first = false;
    out += item.str();
  }
  return Value::text(std::move(out));
}

Value defaulted(const Value& value, const TemplateList& arguments, const TemplateDict&) {
  const bool falsy = arguments.size() > 1 && arguments[1].truth();
  const bool missing = value.is_undefined() || (falsy && !value.truth());
  return !missing ? value : arguments.empty() ? Value::text("") : arguments[0];
}

Value as_json(const Value& value, const TemplateList& arguments, const TemplateDict& named) {
  // tojson(value, ensure_ascii, indent, separators, sort_keys)
  constexpr std::array<std::string_view, 4> kNames = {"ensure_ascii", "indent", "separators", "sort_keys"};
  std::array<const Value*, kNames.size()> given{};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (i < arguments.size()) given[i] = &arguments[i];
    for (const auto& [name, item] : named)
      if (name == kNames[i]) given[i] = &item;
  }
  JsonForm form;
  if (given[1] != nullptr && given[1]->as_int() != nullptr) {
    form.indent = static_cast<int>(std::clamp<std::int64_t>(*given[1]->as_int(), 0, 16));
    form.item = ",";
  }
  if (given[2] != nullptr && given[2]->as_list() != nullptr && given[2]->as_list()->size() == 2) {
    form.item = text_of(given[2]->as_list()->at(0));
    form.member = text_of(given[2]->as_list()->at(1));
  }
  form.sorted = given[3] != nullptr && given[3]->truth();
  std::string out;
  dump_json(value.to_json(), form, 0, out);
  return Value::text(given[0] != nullptr && given[0]->truth() ? ascii_json(out) : std::move(out));
}

Value as_integer(const Value& value, const TemplateList&, const TemplateDict&) {
  if (value.is_number()) {
    if (!(std::abs(value.number()) < 9e15)) throw TemplateError("the number is too large");
    return Storage(static_cast<std::int64_t>(value.number()));
  }
  try {
    return Storage(static_cast<std::int64_t>(std::stoll(text_of(value))));
  } catch (const std::logic_error&) {
    return Storage(std::int64_t{0});
  }
}

struct Filter {
  std::string_view name;
  Value (*apply)(const Value& value, const TemplateList& arguments, const TemplateDict& named);
};
using List = TemplateList;
using Dict = TemplateDict;
constexpr std::array kFilters = {
    Filter{"trim", [](const Value& v, const List& a, const Dict&) { return strip(v.str(), a, true, true); }},
    Filter{"upper", [](const Value& v, const List&, const Dict&) { return Value::text(cased(v.str(), true)); }},
    Filter{"lower", [](const Value& v, const List&, const Dict&) { return Value::text(cased(v.str(), false)); }},
    Filter{"capitalize", [](const Value& v, const List&, const Dict&) { return Value::text(capitalized(v.str())); }},
    Filter{"title", [](const Value& v, const List&, const Dict&) { return Value::text(titled(v.str())); }},
    Filter{"string", [](const Value& v, const List&, const Dict&) { return Value::text(v.str()); }},
    Filter{"safe", [](const Value& v, const List&, const Dict&) { return v; }},
    Filter{"int", as_integer},
    Filter{"length", [](const Value& v, const List&, const Dict&) { return Value(Storage(length_of(v))); }},
    Filter{"count", [](const Value& v, const List&, const Dict&) { return Value(Storage(length_of(v))); }},
    Filter{"list", [](const Value& v, const List&, const Dict&) { return Value::list(items_of(v)); }},
    Filter{"items", [](const Value& v, const List&, const Dict&) { return pairs_of(v); }},
    Filter{"first",
           [](const Value& v, const List&, const Dict&) {
             const auto items = items_of(v);
             return items.empty() ? Value() : items.front();
           }},
    Filter{"last",
           [](const Value& v, const List&, const Dict&) {
             const auto items = items_of(v);
             return items.empty() ? Value() : items.back();
           }},
    Filter{"reverse",
           [](const Value& v, const List&, const Dict&) {
             auto items = items_of(v);
             std::reverse(items.begin(), items.end());
             return Value::list(std::move(items));
           }},
    Filter{"join", joined},
    Filter{"default", defaulted},
    Filter{"d", defaulted},
    Filter{"replace",
           [](const Value& v, const List& a, const Dict&) {
             return Value::text(replaced(v.str(), text_of(argument(a, 0)), text_of(argument(a, 1))));
           }},
    Filter{"tojson", as_json},
    Filter{"float",
           [](const Value& v, const List&, const Dict&) {
             if (v.is_number()) return Value(Storage(v.number()));
             try {
               return Value(Storage(std::stod(text_of(v))));
             } catch (const std::logic_error&) {
               return Value(Storage(0.0));
             }
           }},
    Filter{"abs",
           [](const Value& v, const List&, const Dict&) {
             if (v.as_int() != nullptr) return Value(Storage(std::abs(*v.as_int())));
             return Value(Storage(std::abs(v.number())));
           }},
};

struct Test {
  std::string_view name;
  bool (*holds)(const Value& value, const TemplateList& arguments);
};
bool divides(const Value& v, const List& a) {
  if (v.as_int() == nullptr || argument(a, 0).as_int() == nullptr || *a[0].as_int() == 0)
    throw TemplateError("divisibleby needs integers");
  return *a[0].as_int() == -1 || *v.as_int() % *a[0].as_int() == 0;
}
constexpr std::array kTests = {
    Test{"defined", [](const Value& v, const List&) { return !v.is_undefined(); }},
    Test{"undefined", [](const Value& v, const List&) { return v.is_undefined(); }},
    Test{"none", [](const Value& v, const List&) { return v.is_none(); }},
    Test{"string", [](const Value& v, const List&) { return v.as_text() != nullptr; }},
    Test{"mapping", [](const Value& v, const List&) { return v.as_dict() != nullptr; }},
    Test{"sequence",
         [](const Value& v, const List&) {
           return v.as_list() != nullptr || v.as_text() != nullptr || v.as_dict() != nullptr;
         }},
    Test{"iterable",
         [](const Value& v, const List&) {
           return v.as_list() != nullptr || v.as_text() != nullptr || v.as_dict() != nullptr;
         }},
    Test{"number", [](const Value& v, const List&) { return v.is_number(); }},
    Test{"integer", [](const Value& v, const List&) { return v.as_int() != nullptr; }},
    Test{"float", [](const Value& v, const List&) { return v.is_number() && v.type() == "float"; }},
    Test{"boolean", [](const Value& v, const List&) { return v.as_bool() != nullptr; }},
    Test{"true", [](const Value& v, const List&) { return v.as_bool() != nullptr && *v.as_bool(); }},
    Test{"false", [](const Value& v, const List&) { return v.as_bool() != nullptr && !*v.as_bool(); }},
    Test{"odd", [](const Value& v, const List&) { return v.as_int() != nullptr && *v.as_int() % 2 != 0; }},
    Test{"even", [](const Value& v, const List&) { return v.as_int() != nullptr && *v.as_int() % 2 == 0; }},
    Test{"equalto", [](const Value& v, const List& a) { return v.equals(argument(a, 0)); }},
    Test{"eq", [](const Value& v, const List& a) { return v.equals(argument(a, 0)); }},
    Test{"ne", [](const Value& v, const List& a) { return !v.equals(argument(a, 0)); }},
    Test{"in", [](const Value& v, const List& a) { return contains(argument(a, 0), v); }},
    Test{"divisibleby", divides},
    Test{"lower", [](const Value& v, const List&) { return v.str() == cased(v.str(), false); }},
    Test{"upper", [](const Value& v, const List&) { return v.str() == cased(v.str(), true); }},
    Test{"gt", [](const Value& v, const List& a) { return v.number() > argument(a, 0).number(); }},
    Test{"lt", [](const Value& v, const List& a) { return v.number() < argument(a, 0).number(); }},
    Test{"ge", [](const Value& v, const List& a) { return v.number() >= argument(a, 0).number(); }},
    Test{"le", [](const Value& v, const List& a) { return v.number() <= argument(a, 0).number(); }},
};

struct Method {
  std::string_view name;
  Value (*call)(const Value& object, const TemplateList& arguments);
};
constexpr std::array kTextMethods = {
    Method{"strip", [](const Value& v, const List& a) { return strip(*v.as_text(), a, true, true); }},
    Method{"lstrip", [](const Value& v, const List& a) { return strip(*v.as_text(), a, true, false); }},
    Method{"rstrip", [](const Value& v, const List& a) { return strip(*v.as_text(), a, false, true); }},
    Method{"upper", [](const Value& v, const List&) { return Value::text(cased(*v.as_text(), true)); }},
    Method{"lower", [](const Value& v, const List&) { return Value::text(cased(*v.as_text(), false)); }},
    Method{"capitalize", [](const Value& v, const List&) { return Value::text(capitalized(*v.as_text())); }},
    Method{"title", [](const Value& v, const List&) { return Value::text(titled(*v.as_text())); }},
    Method{"split", [](const Value& v, const List& a) { return split(*v.as_text(), a); }},
    Method{"startswith",
           [](const Value& v, const List& a) {
             return Value(Storage(v.as_text()->starts_with(text_of(argument(a, 0)))));
           }},
    Method{"endswith", [](const Value& v,
                          const List& a) { return Value(Storage(v.as_text()->ends_with(text_of(argument(a, 0))))); }},
    Method{"replace",
           [](const Value& v, const List& a) {
             return Value::text(replaced(*v.as_text(), text_of(argument(a, 0)), text_of(argument(a, 1))));
           }},
    Method{"join", [](const Value& v, const List& a) { return joined(argument(a, 0), {v}, {}); }},
    Method{"find",
           [](const Value& v, const List& a) {
             // Positions count code points.
             const std::size_t at = v.as_text()->find(text_of(argument(a, 0)));
             if (at == std::string::npos) return Value(Storage(std::int64_t{-1}));
             return Value(Storage(length_of(Value::text(v.as_text()->substr(0, at)))));
           }},
    Method{"count",
           [](const Value& v, const List& a) {
             const std::string& part = text_of(argument(a, 0));
             std::int64_t out = 0;
             if (part.empty()) return Value(Storage(length_of(v) + 1));
             for (std::size_t at = v.as_text()->find(part); at != std::string::npos;
                  at = v.as_text()->find(part, at + part.size()))
               ++out;
             return Value(Storage(out));
           }},
};
constexpr std::array kDictMethods = {
    Method{"items", [](const Value& v, const List&) { return pairs_of(v); }},
    Method{"keys", [](const Value& v, const List&) { return Value::list(items_of(v)); }},
    Method{"values",
           [](const Value& v, const List&) {
             TemplateList out;
             for (const auto& [key, item] : *v.as_dict()) out.push_back(item);
             return Value::list(std::move(out));
           }},
    Method{"get",
           [](const Value& v, const List& a) {
             const auto* found = find_item(*v.as_dict(), text_of(argument(a, 0)));
             return found != nullptr ? *found : a.size() > 1 ? a[1] : Value::none();
           }},
};

template <class Table>
const auto& row_of(const Table& table, std::string_view what, const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& row : table) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  throw TemplateError(fmt::format("the {} '{}' is not supported; {}", what, name, suggestion(name, names)));
}

Value range(const TemplateList& arguments) {
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
  return Value::list(std::move(out));
}

}  // namespace

bool contains(const Value& whole, const Value& part) {
  if (const auto* text = whole.as_text()) return text->find(text_of(part)) != std::string::npos;
  if (auto* dict = whole.as_dict()) return part.as_text() != nullptr && find_item(*dict, *part.as_text()) != nullptr;
  if (const auto* list = whole.as_list())
    return std::any_of(list->begin(), list->end(), [&](const Value& item) { return item.equals(part); });
  if (whole.is_undefined()) return false;
  throw TemplateError(fmt::format("{} holds nothing", whole.type()));
}

Value apply_filter(const std::string& name, const Value& value, const TemplateList& arguments,
                   const TemplateDict& named) {
  if (is_list_filter(name)) return apply_list_filter(name, value, arguments, named);
  return row_of(kFilters, "filter", name).apply(value, arguments, named);
}

bool apply_test(const std::string& name, const Value& value, const TemplateList& arguments) {
  return row_of(kTests, "test", name).holds(value, arguments);
}

Value call_method(const Value& object, const std::string& name, const TemplateList& arguments) {
  if (object.as_text() != nullptr) return row_of(kTextMethods, "method of str", name).call(object, arguments);
  if (object.as_dict() != nullptr) return row_of(kDictMethods, "method of dict", name).call(object, arguments);
  throw TemplateError(fmt::format("{} has no method '{}'", object.type(), name));
}

Value call_function(const std::string& name, const TemplateList& arguments, const TemplateDict& named) {
  if (name == "raise_exception") throw TemplateError(argument(arguments, 0).str());
  if (name == "namespace" || name == "dict") return Value::dict(named);
  if (name == "range") return range(arguments);
  if (name == "strftime_now") return Value::text(time_text(text_of(argument(arguments, 0))));
  throw TemplateError(fmt::format("there is no function '{}'", name));
}

}  // namespace automodel::tokenizer
