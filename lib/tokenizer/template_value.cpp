#include "tokenizer/template_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {

struct TemplateValue::List {
  TemplateList items;
  int depth;
  Sequence kind;
  mutable std::size_t taken = 0;  ///< of a generator
};
struct TemplateValue::Dict {
  TemplateDict items;
  int depth;
  bool changes;  ///< a namespace
};

namespace {

constexpr std::array<std::string_view, 9> kTypes = {"undefined", "NoneType", "bool", "int",   "float",
                                                    "str",       "list",     "dict", "method"};
constexpr std::array<std::string_view, 5> kSequences = {"list", "tuple", "range", "dictionary view", "generator"};

/// Methods of Python's dict, str and list that a template may name; those that change an object are hidden from it.
constexpr std::array<std::string_view, 6> kDictNames = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::array<std::string_view, 5> kHiddenDictNames = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 3> kListNames = {"copy", "count", "index"};
constexpr std::array<std::string_view, 47> kTextNames = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};

template <class Names>
bool holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The characters of a text beyond ASCII that are not printable, which Python's repr() escapes.
class Hidden {
 public:
  explicit Hidden(std::string_view text) : text_(text) {
    if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
      matcher_.emplace();
    go_on(0);
  }
  /// Whether one begins here; places are asked for in order.
  bool at(std::size_t place) {
    if (!next_ || next_->begin > place) return false;
    go_on(next_->end);
    return true;
  }

 private:
  void go_on(std::size_t from) {
    static const auto pattern = [] {
      std::string problem;
      return Pattern::make(R"((?![\x00-\x7F])[\p{C}\p{Z}])", problem, false);
    }();
    next_ = matcher_ && pattern ? matcher_->find(*pattern, text_, from) : std::nullopt;
  }

  std::string_view text_;
  std::optional<PatternMatcher> matcher_ = {};
  std::optional<Match> next_ = {};
};

/// A string as Python's repr writes it: single-quoted, unless it contains single but no double quotes.
void quote(const std::string& text, TemplateText& out) {
  const char mark = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  const auto one = [&](char c) { out.add(std::string_view(&c, 1)); };
  one(mark);
  Hidden hidden(text);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const bool escaped = hidden.at(at);
    const std::string_view part = std::string_view(text).substr(at, point.bytes);
    at += point.bytes;
    switch (const auto code = static_cast<std::uint32_t>(point.value)) {
      case '\n': out.add("\\n"); break;
      case '\r': out.add("\\r"); break;
      case '\t': out.add("\\t"); break;
      case '\\': out.add("\\\\"); break;
      default:
        if (part[0] == mark) one('\\');
        if (!escaped && code >= 0x20 && code != 0x7F)
          out.add(part);
        else
          out.add(code < 0x100     ? fmt::format("\\x{:02x}", code)
                  : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                   : fmt::format("\\U{:08x}", code));
    }
  }
  one(mark);
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string out = fmt::format("{}", value);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

/// The depth of a value that holds this one.
int depth_around(const TemplateValue& value) {
  if (value.is_namespace()) throw TemplateError("a namespace cannot be part of another value");
  return value.depth() + 1;
}

int depth_around(const TemplateDict& items, TemplateBudget& budget) {
  budget.step(static_cast<std::int64_t>(items.size()));
  int depth = 1;
  for (const auto& [key, item] : items) depth = std::max(depth, depth_around(item));
  TemplateBudget::check_value_depth(depth);
  return depth;
}

/// The index of a key; the size if absent.
std::size_t place_of(const TemplateDict& dict, std::string_view key, TemplateBudget& budget) {
  for (std::size_t i = 0; i < dict.size(); ++i) {
    if (i % 16 == 15) budget.step();
    if (dict[i].first.size() != key.size()) continue;
    budget.read(key.size());
    if (dict[i].first == key) return i;
  }
  return dict.size();
}

void write_repr(const TemplateValue& value, TemplateText& out) {
  out.budget().step();
  if (const auto* flag = value.as_bool()) {
    out.add(*flag ? "True" : "False");
  } else if (const auto* whole = value.as_int()) {
    out.add(std::to_string(*whole));
  } else if (value.is_number()) {
    out.add(float_text(value.number()));
  } else if (const auto* text = value.as_text()) {
    quote(*text, out);
  } else if (const auto* items = value.as_list()) {
    if (value.sequence() == Sequence::kRange) throw TemplateError("a range has no text of its own; 'list' makes one");
    const bool tuple = value.sequence() == Sequence::kTuple;
    out.add(tuple ? "(" : "[");
    for (std::size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out.add(", ");
      write_repr((*items)[i], out);
    }
    out.add(!tuple ? "]" : items->size() == 1 ? ",)" : ")");
  } else if (const auto* members = value.as_dict()) {
    out.add("{");
    for (std::size_t i = 0; i < members->size(); ++i) {
      if (i > 0) out.add(", ");
      quote((*members)[i].first, out);
      out.add(": ");
      write_repr((*members)[i].second, out);
    }
    out.add("}");
  } else if (!value.is_none() && !value.is_undefined()) {
    throw TemplateError(fmt::format("a {} has no text of its own; 'list' makes one of its items", value.type()));
  } else {
    out.add(value.is_none() ? "None" : "Undefined");
  }
}

}  // namespace

TemplateValue TemplateValue::paid(std::string value) {
  return Storage(std::make_shared<const std::string>(std::move(value)));
}

TemplateValue TemplateValue::text(std::string value, TemplateBudget& budget) {
  budget.step();
  budget.write(value.size());
  return paid(std::move(value));
}

TemplateValue TemplateValue::list(TemplateList items, TemplateBudget& budget, Sequence kind) {
  budget.step(static_cast<std::int64_t>(items.size()));
  int depth = 1;
  for (const auto& item : items) depth = std::max(depth, depth_around(item));
  TemplateBudget::check_value_depth(depth);
  return Storage(std::make_shared<const List>(List{std::move(items), depth, kind}));
}

TemplateValue TemplateValue::dict(TemplateDict items, TemplateBudget& budget) {
  const int depth = depth_around(items, budget);
  return Storage(std::make_shared<Dict>(Dict{std::move(items), depth, false}));
}

TemplateValue TemplateValue::name_space(TemplateDict items, TemplateBudget& budget) {
  const int depth = depth_around(items, budget);
  return Storage(std::make_shared<Dict>(Dict{std::move(items), depth, true}));
}

TemplateValue TemplateValue::from_json(const nlohmann::ordered_json& value, TemplateBudget& budget) {
  const TemplateBudget::Level level(budget);
  budget.step();
  switch (value.type()) {
    case nlohmann::json::value_t::boolean: return Storage(value.get<bool>());
    case nlohmann::json::value_t::number_unsigned:
      if (value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
        throw TemplateError("the number is too large");
      return Storage(value.get<std::int64_t>());
    case nlohmann::json::value_t::number_integer: return Storage(value.get<std::int64_t>());
    case nlohmann::json::value_t::number_float: return Storage(value.get<double>());
    case nlohmann::json::value_t::string: return paid(value.get<std::string>());
    case nlohmann::json::value_t::array: {
      TemplateList out;
      for (const auto& item : value) out.push_back(from_json(item, budget));
      return list(std::move(out), budget);
    }
    case nlohmann::json::value_t::object: {
      TemplateDict out;
      for (const auto& [key, item] : value.items()) out.emplace_back(key, from_json(item, budget));
      return dict(std::move(out), budget);
    }
    case nlohmann::json::value_t::null:
    case nlohmann::json::value_t::binary:
    case nlohmann::json::value_t::discarded: break;
  }
  return none();
}

double TemplateValue::number() const {
  if (const auto* value = as_int()) return static_cast<double>(*value);
  if (const auto* value = as_bool()) return *value ? 1 : 0;
  if (const auto* value = std::get_if<double>(&data)) return *value;
  throw TemplateError(fmt::format("a number is expected, not {}", type()));
}

const std::string* TemplateValue::as_text() const {
  const auto* held = std::get_if<std::shared_ptr<const std::string>>(&data);
  return held == nullptr ? nullptr : held->get();
}

const TemplateList* TemplateValue::as_list() const {
  const auto kind = sequence();
  const bool places = kind && *kind != Sequence::kView && *kind != Sequence::kGenerator;
  return places ? &std::get<std::shared_ptr<const List>>(data)->items : nullptr;
}

std::optional<Sequence> TemplateValue::sequence() const {
  const auto* held = std::get_if<std::shared_ptr<const List>>(&data);
  return held == nullptr ? std::nullopt : std::optional((*held)->kind);
}

const TemplateDict* TemplateValue::as_dict() const {
  const auto* held = std::get_if<std::shared_ptr<Dict>>(&data);
  return held == nullptr ? nullptr : &(*held)->items;
}

bool TemplateValue::is_namespace() const {
  const auto* held = std::get_if<std::shared_ptr<Dict>>(&data);
  return held != nullptr && (*held)->changes;
}

void TemplateValue::assign(std::string_view key, TemplateValue value, TemplateBudget& budget) const {
  if (!is_namespace()) throw TemplateError(fmt::format("a member of {} cannot be set", type()));
  auto& dict = *std::get<std::shared_ptr<Dict>>(data);
  dict.depth = std::max(dict.depth, depth_around(value));
  TemplateBudget::check_value_depth(dict.depth);
  set_item(dict.items, key, std::move(value), budget);
}

int TemplateValue::depth() const {
  if (const auto* items = std::get_if<std::shared_ptr<const List>>(&data)) return (*items)->depth;
  if (const auto* items = std::get_if<std::shared_ptr<Dict>>(&data)) return (*items)->depth;
  return 0;
}

bool TemplateValue::truth() const {
  if (is_number()) return number() != 0;
  if (const auto* value = as_text()) return !value->empty();
  if (sequence() == Sequence::kGenerator || std::holds_alternative<Method>(data)) return true;
  if (const auto* held = std::get_if<std::shared_ptr<const List>>(&data)) return !(*held)->items.empty();
  if (const auto* items = as_dict()) return !items->empty();
  return false;
}

bool TemplateValue::equals(const TemplateValue& other, TemplateBudget& budget) const {
  budget.step();
  if (is_number() && other.is_number()) return number() == other.number();
  if (data.index() != other.data.index() || sequence() != other.sequence()) return false;
  if (const auto* value = as_text()) {
    if (value->size() != other.as_text()->size()) return false;
    budget.read(value->size());
    return *value == *other.as_text();
  }
  if (const auto* items = as_list()) {
    const auto* others = other.as_list();
    if (items->size() != others->size()) return false;
    for (std::size_t i = 0; i < items->size(); ++i)
      if (!(*items)[i].equals((*others)[i], budget)) return false;
    return true;
  }
  if (const auto* items = as_dict()) {
    const auto* others = other.as_dict();
    if (items->size() != others->size()) return false;
    for (const auto& [key, item] : *items) {
      const auto* found = find_item(*others, key, budget);
      if (found == nullptr || !item.equals(*found, budget)) return false;
    }
    return true;
  }
  return data == other.data;
}

std::string_view TemplateValue::type() const {
  const auto kind = sequence();
  return kind ? kSequences[static_cast<std::size_t>(*kind)] : kTypes[data.index()];
}

std::string TemplateValue::str(TemplateBudget& budget) const {
  if (is_undefined()) return "";
  const auto* value = as_text();
  if (value == nullptr) return repr(budget);
  budget.write(value->size());
  return *value;
}

std::string TemplateValue::repr(TemplateBudget& budget) const {
  TemplateText out(budget);
  write_repr(*this, out);
  return out.take();
}

const TemplateValue* find_item(const TemplateDict& dict, std::string_view key, TemplateBudget& budget) {
  const std::size_t at = place_of(dict, key, budget);
  return at < dict.size() ? &dict[at].second : nullptr;
}

void set_item(TemplateDict& dict, std::string_view key, TemplateValue value, TemplateBudget& budget) {
  if (const std::size_t at = place_of(dict, key, budget); at < dict.size()) {
    dict[at].second = std::move(value);
    return;
  }
  budget.step();
  budget.write(key.size());
  dict.emplace_back(std::string(key), std::move(value));
}

TemplateList items_of(const TemplateValue& value, TemplateBudget& budget, std::size_t most) {
  TemplateList out;
  if (value.is_undefined()) return out;
  if (const auto* held = std::get_if<std::shared_ptr<const TemplateValue::List>>(&value.data)) {
    const auto& list = **held;
    const std::size_t from = list.taken, count = std::min(most, list.items.size() - from);
    budget.step(static_cast<std::int64_t>(count));
    if (list.kind == Sequence::kGenerator) list.taken += count;
    const auto begin = list.items.begin() + static_cast<std::ptrdiff_t>(from);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }
  if (const auto* dict = value.as_dict()) {
    for (const auto& [key, item] : *dict) out.push_back(TemplateValue::text(key, budget));
    return out;
  }
  const auto* text = value.as_text();
  if (text == nullptr) throw TemplateError(fmt::format("{} has no items", value.type()));
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t bytes = code_point_at(*text, at).bytes;
    out.push_back(TemplateValue::text(text->substr(at, bytes), budget));
    at += bytes;
  }
  return out;
}

TemplateValue member_of(const TemplateValue& object, const TemplateValue& key, bool attribute, TemplateBudget& budget) {
  if (object.is_undefined()) throw TemplateError(fmt::format("an undefined value has no member {}", key.repr(budget)));
  const auto* dict = object.as_dict();
  const auto* items = object.as_list();
  const auto* text = object.as_text();
  if (const auto* name = key.as_text()) {
    const auto* found = dict == nullptr ? nullptr : find_item(*dict, *name, budget);
    if (found != nullptr && (!attribute || object.is_namespace())) return *found;
    if (object.is_namespace() || (dict != nullptr && holds(kHiddenDictNames, *name))) return {};
    const bool method = dict != nullptr    ? holds(kDictNames, *name)
                        : text != nullptr  ? holds(kTextNames, *name)
                        : items != nullptr ? holds(kListNames, *name)
                                           : false;
    if (method) return TemplateValue::Storage(TemplateValue::Method{});
    return found != nullptr ? *found : TemplateValue();
  }
  if (key.as_int() == nullptr) return {};
  const auto place = [&](std::size_t size) -> std::optional<std::size_t> {
    const auto count = static_cast<std::int64_t>(size);
    const std::int64_t at = *key.as_int() < 0 ? *key.as_int() + count : *key.as_int();
    return at < 0 || at >= count ? std::nullopt : std::optional(static_cast<std::size_t>(at));
  };
  if (items != nullptr) {
    const auto at = place(items->size());
    return at ? (*items)[*at] : TemplateValue();
  }
  const auto at = text == nullptr ? std::nullopt : place(count_code_points(*text, budget));
  return at ? part_of(*text, *at, *at + 1, budget) : TemplateValue();
}

std::size_t count_code_points(const std::string& text, TemplateBudget& budget) {
  budget.read(text.size());
  std::size_t out = 0;
  for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).bytes) ++out;
  return out;
}

TemplateValue part_of(const std::string& text, std::size_t from, std::size_t to, TemplateBudget& budget) {
  budget.read(text.size());
  std::size_t begin = 0, i = 0;
  for (; i < from; ++i) begin += code_point_at(text, begin).bytes;
  std::size_t end = begin;
  for (; i < to; ++i) end += code_point_at(text, end).bytes;
  return TemplateValue::text(text.substr(begin, end - begin), budget);
}

}  // namespace automodel::tokenizer
