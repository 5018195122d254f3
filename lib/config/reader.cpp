#include "config/reader.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/spelling.h"
#include "config/scalar.h"
#include "config/word_advice.h"

namespace automodel::config {
namespace detail {
namespace {

thread_local Collector* active_collector = nullptr;  // non-null only while fields_of constructs a prototype
constexpr std::size_t kFewKeys = 12;                 ///< of a section: so many are listed beside other advice

std::string shortened(const std::string& text) {
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

std::string kind_name(const Node& node) {
  if (node.kind == Node::Kind::kList) return "a list";
  if (node.kind == Node::Kind::kMap) return "a mapping";
  return node.is_null() && !node.quoted ? "null" : fmt::format("'{}'", shortened(node.text));
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

void read_boolean(Reader& reader, const Node& node, const std::string& path, void* out) {
  const auto value = node.kind == Node::Kind::kScalar ? parse_boolean(node.text, node.quoted) : std::nullopt;
  if (!value) return reader.mismatch(node, path, "boolean", "write true or false");
  *static_cast<bool*>(out) = *value;
}

constexpr double kLargestWhole = 9e15;  ///< doubles represent every integer below this exactly

template <class T>
void read_integer(Reader& reader, const Node& node, const std::string& path, void* out) {
  if (node.kind == Node::Kind::kScalar && !node.is_null()) {
    if (const auto value = parse_integer(node.text)) {
      if (*value < std::numeric_limits<T>::min() || *value > std::numeric_limits<T>::max())
        return void(reader.refuse("bad-value", path, node.where)
                        .says("{} is out of range: {}", path, *value)
                        .hint("at most {}", std::numeric_limits<T>::max()));
      *static_cast<T*>(out) = static_cast<T>(*value);
      return;
    }
    if (const auto number = parse_number(node.text);
        number && std::abs(*number) < kLargestWhole && *number == std::trunc(*number))
      return reader.mismatch(node, path, "integer", fmt::format("write {}", static_cast<std::int64_t>(*number)));
  }
  reader.mismatch(node, path, "integer");
}

void read_double(Reader& reader, const Node& node, const std::string& path, void* out) {
  const auto value = node.kind == Node::Kind::kScalar ? parse_number(node.text) : std::nullopt;
  if (!value) return reader.mismatch(node, path, "number");
  *static_cast<double*>(out) = *value;
}

void read_string(Reader& reader, const Node& node, const std::string& path, void* out) {
  if (node.kind != Node::Kind::kScalar || node.is_null()) return reader.mismatch(node, path, "string");
  *static_cast<std::string*>(out) = node.text;
}

const std::vector<std::string_view> kDTypeNames = {"float32", "bfloat16", "float16", "float64", "bf16",
                                                   "fp16",    "fp32",     "float",   "half",    "double"};

void read_dtype(Reader& reader, const Node& node, const std::string& path, void* out) {
  std::string_view text = node.text;
  if (node.kind == Node::Kind::kScalar && text.starts_with("torch.")) text.remove_prefix(6);
  const auto known = node.kind == Node::Kind::kScalar ? parse_dtype(text) : std::nullopt;
  constexpr std::array kFloats = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
  if (!known || std::ranges::find(kFloats, *known) == kFloats.end())
    return reader.mismatch(node, path, "dtype",
                           text.starts_with("float8") || text.starts_with("fp8")
                               ? "matmuls in float8 are a setting of their own: fp8.enabled: true"
                               : suggestion(text, kDTypeNames));
  *static_cast<DType*>(out) = *known;
}

void read_value(Reader&, const Node& node, const std::string&, void* out) {
  *static_cast<Value*>(out) = to_value(node);
}
struct ScalarRow {
  ScalarKind kind;
  TypeInfo type;
};
template <class T>
Value dump_as(const void* value, Keys) {
  if constexpr (std::is_same_v<T, DType>)
    return name_of(*static_cast<const DType*>(value));
  else
    return *static_cast<const T*>(value);
}

/// Parses a scalar that contains the text of a list or map (an environment value, a quoted default) into `out`.
bool reparse(const Node& node, char bracket, Node& out) {
  if (node.kind != Node::Kind::kScalar) return false;
  const auto first = node.text.find_first_not_of(' ');
  if (first == std::string::npos || node.text[first] != bracket) return false;
  Diagnostics problems;
  out = parse_yaml(node.text, node.where.file, problems);
  if (!problems.empty()) return false;
  const std::function<void(Node&)> relocate = [&](Node& part) {
    part.where = node.where;
    for (auto& item : part.items) relocate(item);
    for (auto& entry : part.entries) {
      entry.where = node.where;
      relocate(entry.value);
    }
  };
  relocate(out);
  return true;
}

/// A key that the mapping may contain: its table row and the section object it belongs to.
struct Slot {
  const FieldInfo* field;
  void* section;
};

/// False for null, false, and a mapping with `enabled: false`.
bool switched_on(const Node& node) {
  if (node.is_null() || (node.kind == Node::Kind::kScalar && same_word(node.text, "false"))) return false;
  const auto* enabled = node.find("enabled");
  return enabled == nullptr || switched_on(enabled->value);
}

/// Reads one mapping into a section: its own fields, and those of alternatives whose keys are written among them.
class SectionReading {
 public:
  SectionReading(Reader& reader, const Node& node, const std::string& path)
      : reader_(reader), node_(node), path_(path) {}

  void run(void* section, const std::vector<FieldInfo>& fields, std::string_view choice_key = "") {
    if (!choice_key.empty()) known_.push_back(choice_key);
    add_slots(section, fields);
    for (const auto& entry : node_.entries) read_entry(entry, choice_key);
  }

 private:
  /// Whether `key` is the field's key or one of its aliases.
  static bool names(const FieldInfo& field, std::string_view key) {
    return field.key == key || std::find(field.aliases.begin(), field.aliases.end(), key) != field.aliases.end();
  }

  static bool collects(const FieldInfo& rest, std::string_view key) {
    return rest.collected.empty() || std::ranges::find(rest.collected, key) != rest.collected.end();
  }

  void add_slots(void* section, const std::vector<FieldInfo>& fields) {
    for (const auto& field : fields) {
      if (field.form == FieldInfo::Form::kFlat) {
        add_flat(field, field.of(section));
        continue;
      }
      slots_.push_back({&field, section});
      if (field.form == FieldInfo::Form::kKey) known_.push_back(field.key);
      known_.insert(known_.end(), field.collected.begin(), field.collected.end());
    }
  }

  void add_flat(const FieldInfo& field, void* variant) {
    const Choice& choice = field.type->choice();
    known_.push_back(choice.key);
    flat_keys_.push_back(choice.key);
    std::size_t chosen = choice.implied;
    if (const auto* entry = node_.find(choice.key)) {
      chosen = find(choice, entry->value);
      reader_.note_origin(join_path(path_, choice.key), entry->value, entry->where);
    }
    for (std::size_t i = 0; i < choice.alternatives.size(); ++i)
      if (i != chosen)
        for (const auto& row : choice.alternatives[i].type->fields()) {
          elsewhere_.push_back({row.key, choice.alternatives[i].name, choice.key});
          for (const auto alias : row.aliases) elsewhere_.push_back({alias, choice.alternatives[i].name, choice.key});
        }
    if (chosen >= choice.alternatives.size()) {
      unsure_ = true;
      return;
    }
    const Alternative& alternative = choice.alternatives[chosen];
    add_slots(alternative.emplace(variant), alternative.type->fields());
  }

  std::size_t find(const Choice& choice, const Node& value) {
    std::vector<std::string_view> names;
    std::vector<std::size_t> index;
    for (std::size_t i = 0; i < choice.alternatives.size(); ++i)
      for (const auto name : choice.alternatives[i].names) {
        names.push_back(name);
        index.push_back(i);
      }
    const int found = read_word(reader_, value, join_path(path_, choice.key), names);
    return found < 0 ? choice.alternatives.size() : index[static_cast<std::size_t>(found)];
  }

  void read_entry(const Node::Entry& entry, std::string_view choice_key) {
    if ((!choice_key.empty() && entry.key == choice_key) ||
        std::find(flat_keys_.begin(), flat_keys_.end(), entry.key) != flat_keys_.end())
      return;
    for (const auto& slot : slots_) {
      const FieldInfo& field = *slot.field;
      if (field.form == FieldInfo::Form::kKey && names(field, entry.key))
        return read_key(entry, field, field.of(slot.section));
      if (field.form == FieldInfo::Form::kPrefix && entry.key.size() > field.key.size() + 1 &&
          entry.key.starts_with(field.key) && entry.key[field.key.size()] == '_')
        return read_prefixed(entry, field, field.of(slot.section));
      if (field.form == FieldInfo::Form::kRest && collects(field, entry.key)) {
        reader_.note_origin(join_path(path_, entry.key), entry.value, entry.where);
        note_inside(entry.value, join_path(path_, entry.key));
        static_cast<Value*>(field.of(slot.section))->set(entry.key, to_value(entry.value));
        return;
      }
    }
    unknown(entry);
  }

  void read_key(const Node::Entry& entry, const FieldInfo& field, void* value) {
    const std::string path = join_path(path_, field.key);
    const Node::Entry* earlier = nullptr;  // an alias of the key that was already read
    for (const auto& other : node_.entries) {
      if (&other == &entry) break;
      if (names(field, other.key)) earlier = &other;
    }
    const Value said = earlier != nullptr ? field.type->dump(value, Keys::kAll) : Value();
    reader_.note_origin(path, entry.value, entry.where);
    if (field.type->fields == nullptr && field.type->choice == nullptr) note_inside(entry.value, path);
    if (!field.ignored.empty()) reader_.note_ignored(path, field.ignored, entry.where);
    if (!field.unsupported.empty() && switched_on(entry.value))
      reader_.note_unsupported(path, std::string(field.unsupported), entry.where);
    const auto before = reader_.problem_count();
    if (entry.value.bare && !takes_boolean(field.type->schema()))
      return void(reader_.refuse("bad-override", path, entry.where)
                      .says("{} needs a value", path)
                      .hint("--{0} VALUE or --{0}=VALUE; only a boolean key may stand alone", path));
    field.type->read(reader_, entry.value, path, value);
    if (reader_.problem_count() != before) return;
    if (earlier != nullptr && field.type->dump(value, Keys::kAll) != said)
      return void(reader_.refuse("duplicate-key", path, entry.where)
                      .says("'{}' and '{}' are the same key with different values", earlier->key, entry.key)
                      .hint("keep one"));
    if (!field.check) return;
    if (const auto reason = field.check(value); !reason.empty())
      reader_.refuse("bad-value", path, entry.value.where)
          .says("{} {}, got {}", path, reason, kind_name(entry.value))
          .hint("{}: {}", path, field.doc);
  }

  /// Records the locations of the keys in a mapping that has no field table, and of the items in a list that come from
  /// the environment.
  void note_inside(const Node& node, const std::string& path) {
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const auto& item = node.items[i];
      const std::string inside = fmt::format("{}.{}", path, i);
      if (item.written.find('$') != std::string::npos) reader_.note_origin(inside, item, item.where);
      note_inside(item, inside);
    }
    for (const auto& entry : node.entries) {
      const std::string inside = join_path(path, entry.key);
      reader_.note_origin(inside, entry.value, entry.where);
      note_inside(entry.value, inside);
    }
  }

  /// `validation_dataset_NAME: ...` goes into the map under NAME.
  void read_prefixed(const Node::Entry& entry, const FieldInfo& field, void* map) {
    const std::string path = join_path(path_, entry.key);
    reader_.note_origin(path, entry.value, entry.where);
    Node wrapped{.kind = Node::Kind::kMap, .entries = {}, .where = entry.value.where};
    wrapped.entries.push_back({entry.key.substr(field.key.size() + 1), entry.where, entry.value});
    field.type->read(reader_, wrapped, join_path(path_, std::string(field.key)), map);
  }

  void unknown(const Node::Entry& entry) {
    const std::string path = join_path(path_, entry.key);
    if (path_.empty() && entry.key.starts_with('_'))
      return reader_.note_ignored(path, "it is not a section: it holds parts for YAML anchors", entry.where);
    for (const auto& [key, alternative, choice_key] : elsewhere_)
      if (key == entry.key) {
        if (unsure_) return;  // the choice itself was invalid and has been reported
        return void(reader_.refuse("unknown-key", path, entry.where)
                        .says("'{}' is not an option here", path)
                        .hint("it belongs to {}: {}", choice_key, alternative));
      }
    // The most common mistake is to write a key one level too high.
    for (const auto& [field, section] : slots_) {
      const auto& type = field->type->inner != nullptr ? field->type->inner() : *field->type;
      if (field->form == FieldInfo::Form::kKey && type.fields != nullptr &&
          std::ranges::any_of(type.fields(), [&](const FieldInfo& row) { return names(row, entry.key); }))
        return void(reader_.refuse("unknown-key", path, entry.where)
                        .says("'{}' is not an option here", path)
                        .hint("it belongs under {}{}", join_path(path_, field->key),
                              known_.size() > kFewKeys ? "" : "; known here: " + join(known_)));
    }
    reader_.refuse("unknown-key", path, entry.where).says("unknown key '{}'", path).hint(suggestion(entry.key, known_));
  }

  struct Elsewhere {
    std::string_view key, alternative, choice_key;
  };
  Reader& reader_;
  const Node& node_;
  const std::string& path_;
  std::vector<Slot> slots_ = {};
  std::vector<std::string_view> known_ = {};
  std::vector<std::string_view> flat_keys_ = {};
  std::vector<Elsewhere> elsewhere_ = {};
  bool unsure_ = false;
};

}  // namespace

FieldInfo named(std::string_view key, std::string_view doc) {
  FieldInfo row{};
  row.doc = doc;
  row.key = key.substr(0, key.find('|'));
  while (key.find('|') != std::string_view::npos) {
    key.remove_prefix(key.find('|') + 1);
    row.aliases.push_back(key.substr(0, key.find('|')));
  }
  return row;
}

Collector::Collector(const void* begin, std::size_t size)
    : begin_(static_cast<const char*>(begin)), size_(size), outer_(active_collector) {
  active_collector = this;
}
Collector::~Collector() {
  active_collector = outer_;
}
Collector* Collector::active() {
  return active_collector;
}

void Collector::add(const void* member, FieldInfo info) {
  const char* address = static_cast<const char*>(member);
  if (address < begin_ || address >= begin_ + size_) return;
  info.offset = static_cast<std::size_t>(address - begin_);
  info.initial = info.type->dump(member, Keys::kAll);
  fields_.push_back(std::move(info));
}

bool present(const Node& node) {
  return !node.is_null();
}

TypeInfo scalar_type(ScalarKind kind) {
  static const std::array types = {
      ScalarRow{ScalarKind::kBoolean,
                {[]() -> std::string { return "boolean"; }, read_boolean, dump_as<bool>, boolean_schema}},
      ScalarRow{ScalarKind::kInt,
                {[]() -> std::string { return "integer"; }, read_integer<int>, dump_as<int>, integer_schema}},
      ScalarRow{ScalarKind::kInt64,
                {[]() -> std::string { return "integer"; }, read_integer<std::int64_t>, dump_as<std::int64_t>,
                 integer_schema}},
      ScalarRow{ScalarKind::kDouble,
                {[]() -> std::string { return "number"; }, read_double, dump_as<double>, number_schema}},
      ScalarRow{ScalarKind::kString,
                {[]() -> std::string { return "string"; }, read_string, dump_as<std::string>, text_schema}},
      ScalarRow{ScalarKind::kDType,
                {[]() -> std::string { return "dtype"; }, read_dtype, dump_as<DType>,
                 [] { return simple_schema("string"); }}},
      ScalarRow{ScalarKind::kValue,
                {[]() -> std::string { return "value"; }, read_value, dump_as<Value>,
                 []() -> Value { return Value::Map{}; }}},
  };
  return std::find_if(types.begin(), types.end(), [&](const auto& row) { return row.kind == kind; })->type;
}

int read_word(Reader& reader, const Node& node, const std::string& path, const std::vector<std::string_view>& names) {
  if (node.kind == Node::Kind::kScalar)
    for (std::size_t i = 0; i < names.size(); ++i)
      if (same_word(names[i], node.text) || (names[i] == "null" && node.is_null())) return static_cast<int>(i);
  if (node.kind != Node::Kind::kScalar || node.is_null())
    reader.mismatch(node, path, enum_type_name(names), "write one of these words");
  else
    reader.refuse("bad-value", path, node.where)
        .says("'{}' is not a valid {}", shortened(node.text), path)
        .hint(word_advice(node.text, names));
  return -1;
}

void read_section(Reader& reader, const Node& node, const std::string& path, void* section,
                  const std::vector<FieldInfo>& fields) {
  Node parsed;
  if (reparse(node, '{', parsed)) return read_section(reader, parsed, path, section, fields);
  if (node.kind != Node::Kind::kMap) {
    if (node.is_null()) return;  // an empty `section:` means its defaults
    std::vector<std::string_view> keys;
    for (const auto& field : fields)
      if (field.form == FieldInfo::Form::kKey) keys.push_back(field.key);
    return reader.mismatch(node, path, "mapping",
                           fmt::format("write its keys with their values below it, or as {{key: value}}{}",
                                       keys.size() > kFewKeys ? "" : "; known: " + join(keys)));
  }
  SectionReading(reader, node, path).run(section, fields);
}

void read_choice(Reader& reader, const Node& node, const std::string& path, void* variant, const Choice& choice) {
  if (node.kind != Node::Kind::kMap) return reader.mismatch(node, path, "mapping");
  std::vector<std::string_view> names;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < choice.alternatives.size(); ++i)
    for (const auto name : choice.alternatives[i].names) {
      names.push_back(name);
      index.push_back(i);
    }
  std::size_t chosen = choice.implied;
  if (const auto* entry = node.find(choice.key)) {
    const int found = read_word(reader, entry->value, join_path(path, choice.key), names);
    reader.note_origin(join_path(path, choice.key), entry->value, entry->where);
    if (found < 0) return;
    chosen = index[static_cast<std::size_t>(found)];
  } else if (chosen >= choice.alternatives.size()) {
    std::vector<std::string_view> native;
    for (const auto& alternative : choice.alternatives) native.push_back(alternative.name);
    return void(reader.refuse("missing-key", join_path(path, choice.key), node.where)
                    .says("{} needs '{}'", path, choice.key)
                    .hint("known: " + join(native)));
  }
  const Alternative& alternative = choice.alternatives[chosen];
  if (const auto* entry = node.find(choice.key); entry != nullptr && !alternative.plan_only.empty())
    reader.note_unsupported(path, fmt::format("'{}': {}", entry->value.text, alternative.plan_only), entry->where);
  SectionReading(reader, node, path).run(alternative.emplace(variant), alternative.type->fields(), choice.key);
}

void read_list(Reader& reader, const Node& node, const std::string& path, std::string_view type_name,
               std::size_t length, const std::function<void(std::size_t, const Node&, const std::string&)>& item) {
  Node parsed;
  if (reparse(node, '[', parsed)) return read_list(reader, parsed, path, type_name, length, item);
  if (node.kind != Node::Kind::kList || (length > 0 && node.items.size() != length))
    return reader.mismatch(node, path, type_name);
  for (std::size_t i = 0; i < node.items.size(); ++i) item(i, node.items[i], fmt::format("{}.{}", path, i));
}

void read_map(Reader& reader, const Node& node, const std::string& path,
              const std::function<void(const std::string&, const Node&, const std::string&)>& entry) {
  Node parsed;
  if (reparse(node, '{', parsed)) return read_map(reader, parsed, path, entry);
  if (node.kind != Node::Kind::kMap) return reader.mismatch(node, path, "mapping");
  for (const auto& each : node.entries) entry(each.key, each.value, join_path(path, each.key));
}

}  // namespace detail

namespace {

struct TypeWords {
  std::string_view start;  ///< prefix of the type's name
  std::string_view article, how;
};
/// How messages refer to a type and how to write a value of it.
const TypeWords& type_words(std::string_view type_name) {
  static constexpr std::array<TypeWords, 10> kWords = {{
      {"integer", "an ", "write a whole number, such as 8"},
      {"number", "a ", "write a number, such as 0.1 or 3e-4"},
      {"boolean", "a ", "write true or false"},
      {"string or list", "a ", "write a string, or strings as [a, b]"},
      {"string", "a ", "write a string"},
      {"dtype", "a ", "write float32, bfloat16, float16 or float64"},
      {"path or mapping", "a ", "write a file's path, or keys with their values below it"},
      {"mapping", "a ", "write keys with their values below it, or as {key: value}"},
      {"list", "a ", "write its items as [a, b]"},
      {"", "", ""},
  }};
  return *std::find_if(kWords.begin(), kWords.end(),
                       [&](const auto& each) { return type_name.starts_with(each.start); });
}

}  // namespace

void Reader::mismatch(const Node& node, const std::string& path, std::string_view type_name, std::string help) {
  const auto& [start, article, how] = type_words(type_name);
  if (type_name == "mapping" && node.kind == Node::Kind::kScalar)
    if (auto advice = colon_advice(node.text); !advice.empty()) help = std::move(advice);
  refuse("bad-type", path, node.where)
      .says("{} must be {}{}, got {}", path.empty() ? "a recipe" : path, article, type_name, detail::kind_name(node))
      .hint(help.empty() ? std::string(how) : std::move(help));
}

void Reader::note_ignored(const std::string& path, std::string_view reason, const SourceLocation& where) {
  ignored_.push_back({path, std::string(reason), where});
}

void Reader::note_unsupported(const std::string& path, std::string reason, const SourceLocation& where) {
  unsupported_.push_back({path, std::move(reason), where});
}

void Reader::note_origin(const std::string& path, const Node& node, const SourceLocation& where) {
  origins_.add(path, {where, node.kind == Node::Kind::kScalar ? node.written : std::string()});
}

}  // namespace automodel::config
