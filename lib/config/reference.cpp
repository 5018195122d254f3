#include "config/reference.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "config/recipe.h"
#include "config/recipe_change.h"

namespace automodel::config {
namespace {

constexpr std::string_view kIntroduction =
    "# Recipe reference\n\n"
    "Every key of a recipe. This page is generated from the declarations in `lib/config/*_config.h` and tested to be\n"
    "current; regenerate it with\n\n"
    "    automodel schema --markdown > docs/recipe-reference.md\n\n"
    "A key is given in YAML or on the command line (`--step_scheduler.max_steps 10`). `[]` stands for an item of a "
    "list;\n"
    "on the command line items count from 0 (`--optimizer.param_group_overrides.0.lr_mult 0.1`). Names of values are "
    "not\n"
    "case-sensitive. A default of `null` means that the key is not set. Keys marked *no effect* are accepted because\n"
    "recipes of other programs have them; `plan` and `train` report once why they have no effect.\n"
    "`automodel schema` prints the same as JSON Schema for editors; `automodel config RECIPE` shows what a recipe's\n"
    "keys are set to, and where. The [last section](#keys-without-effect) lists all keys without effect.\n";

constexpr std::string_view kIgnoredIntroduction =
    "A recipe may set these; `plan` and `train` then list them under `ignored`, with the reason in the same words.\n"
    "Rows of `dataset` and `dataloader` also apply to `validation_dataset` and `validation_dataloader`. Top-level "
    "keys\n"
    "that begin with `_` hold parts for YAML anchors and are listed as well.\n\n";

std::string escaped(std::string text) {
  for (std::size_t bar = text.find('|'); bar != std::string::npos; bar = text.find('|', bar + 2))
    text.replace(bar, 1, "\\|");
  return text;
}

/// The type inside optionals, and inside lists and mappings of components.
const TypeInfo& unwrapped(const TypeInfo& type) {
  const TypeInfo* out = &type;
  while (out->inner != nullptr && (out->name().ends_with(" or null") || out->inner().choice != nullptr))
    out = &out->inner();
  return *out;
}

bool is_section(const TypeInfo& type) {
  return type.fields != nullptr || type.choice != nullptr;
}

std::string key_of(const FieldInfo& field) {
  return std::string(field.key) + (field.form == FieldInfo::Form::kPrefix ? "_NAME" : "");
}

/// Writes sections one after another, each with the tables of its subsections.
class Page {
 public:
  std::string text() && { return std::move(out_); }

  void heading(int level, const std::string& title, std::string_view doc) {
    out_ += fmt::format("\n{} {}\n\n", std::string(static_cast<std::size_t>(level), '#'), title);
    if (!doc.empty()) out_ += fmt::format("{}\n\n", doc);
  }

  void line(const std::string& text) { out_ += text + "\n"; }

  /// Rows for `fields` and their subsections, followed by any alternatives among them.
  void table(const std::vector<FieldInfo>& fields, const std::string& path, int level) {
    std::vector<Pending> alternatives;
    std::string rows;
    add_rows(fields, path, rows, alternatives);
    if (!rows.empty()) out_ += "| key | type | default | meaning |\n| --- | --- | --- | --- |\n" + rows;
    for (const auto& pending : alternatives) choice(pending.path, *pending.choice, level);
  }

  void choice(const std::string& path, const Choice& choice, int level) {
    const auto [known, fresh] = described_.emplace(choice.alternatives.front().type, path);
    if (!fresh) return line(fmt::format("\n`{}` has the keys of `{}` above.", path, known->second));
    for (std::size_t i = 0; i < choice.alternatives.size(); ++i) {
      const Alternative& each = choice.alternatives[i];
      heading(level + 1, fmt::format("`{}: {}`", join_path(path, choice.key), each.name), each.doc);
      if (i == choice.implied) out_ += fmt::format("Used if `{}` is absent.\n\n", choice.key);
      if (each.names.size() > 1) {
        out_ += "Also written";
        for (std::size_t n = 1; n < each.names.size(); ++n)
          out_ += fmt::format("{} `{}`", n > 1 ? "," : "", each.names[n]);
        out_ += ".\n\n";
      }
      if (each.type->fields().empty())
        out_ += "It has no keys of its own.\n";
      else
        table(each.type->fields(), path, level + 1);
    }
  }

 private:
  struct Pending {
    std::string path;
    const Choice* choice;
  };

  void add_rows(const std::vector<FieldInfo>& fields, const std::string& path, std::string& rows,
                std::vector<Pending>& alternatives) {
    for (const auto& field : fields) {
      const TypeInfo& type = unwrapped(*field.type);
      if (field.form == FieldInfo::Form::kFlat) {
        if (type.choice != nullptr)
          alternatives.push_back({path, &type.choice()});
        else
          add_rows(type.fields(), path, rows, alternatives);
        continue;
      }
      const bool rest = field.form == FieldInfo::Form::kRest;
      const std::string key = rest ? join_path(path, "*") : join_path(path, key_of(field));
      rows += row(key, field, type);
      if (type.choice != nullptr)
        alternatives.push_back({key, &type.choice()});
      else if (type.fields != nullptr)
        add_rows(type.fields(), key, rows, alternatives);
      else if (type.inner != nullptr && type.inner().fields != nullptr)
        add_rows(type.inner().fields(), key + "[]", rows, alternatives);
    }
  }

  static std::string row(const std::string& key, const FieldInfo& field, const TypeInfo& type) {
    std::string doc(field.doc);
    for (const auto alias : field.aliases) doc += fmt::format(" Also written `{}`.", alias);
    if (!field.ignored.empty()) doc += fmt::format(" *No effect: {}.*", field.ignored);
    const std::string initial =
        is_section(type) && field.initial.map() != nullptr ? "" : "`" + escaped(to_json(field.initial)) + "`";
    return fmt::format("| `{}` | {} | {} | {} |\n", key, escaped(field.type->name()), initial, escaped(doc));
  }

  std::string out_ = {};
  std::map<const TypeInfo*, std::string> described_ = {};  ///< by the first alternative, which tells choices apart
};

/// The values that a schema lists, without aliases.
std::vector<std::string> listed(const Value& schema) {
  std::vector<std::string> out;
  if (const auto* type = schema.find("type"); type != nullptr && *type == Value("boolean")) return {"false", "true"};
  if (const auto* any = schema.find("anyOf"); any != nullptr) return listed(any->list()->front());
  if (const auto* names = schema.find("enum"); names != nullptr && names->list() != nullptr)
    for (const auto& name : *names->list())
      if (name.string() != nullptr && name.string()->find('.') == std::string::npos) out.push_back(*name.string());
  return out;
}

void add_values(const std::vector<FieldInfo>& fields, const std::string& path, std::vector<KeyValues>& out) {
  for (const auto& field : fields) {
    if (field.form == FieldInfo::Form::kRest) continue;
    const bool flat = field.form == FieldInfo::Form::kFlat;
    const std::string here = flat ? path : join_path(path, key_of(field));
    const TypeInfo& type = unwrapped(*field.type);
    if (type.choice != nullptr) {
      KeyValues names{join_path(here, type.choice().key), {}};
      for (const auto& each : type.choice().alternatives)
        if (each.name.find('.') == std::string_view::npos) names.values.emplace_back(each.name);
      out.push_back(std::move(names));
      for (const auto& each : type.choice().alternatives) add_values(each.type->fields(), here, out);
    } else if (type.fields != nullptr) {
      add_values(type.fields(), here, out);
    } else if (auto values = listed(type.schema()); !values.empty()) {
      out.push_back({here, std::move(values)});
    }
  }
}

/// Finds all fields declared Ignored and the components that have them.
class IgnoredSearch {
 public:
  std::vector<IgnoredRow> take() && { return std::move(out_); }

  void fields(const std::vector<FieldInfo>& fields, const std::string& path, const std::string& component) {
    for (const auto& field : fields) {
      if (field.form == FieldInfo::Form::kRest) continue;
      const std::string here = field.form == FieldInfo::Form::kFlat ? path : join_path(path, key_of(field));
      if (!field.ignored.empty()) {
        add(here, field, component);
        continue;
      }
      const TypeInfo& type = unwrapped(*field.type);
      if (is_section(type) && path.empty() && !described_.insert(&type).second) continue;
      if (type.choice != nullptr && !described_.insert(type.choice().alternatives.front().type).second) continue;
      if (type.choice != nullptr)
        for (const auto& each : type.choice().alternatives)
          this->fields(each.type->fields(), here, fmt::format("{}: {}", join_path(here, type.choice().key), each.name));
      else if (type.fields != nullptr)
        this->fields(type.fields(), here, component);
      else if (type.inner != nullptr && type.inner().fields != nullptr)
        this->fields(type.inner().fields(), here + "[]", component);
    }
  }

 private:
  void add(const std::string& key, const FieldInfo& field, const std::string& component) {
    const auto same = std::find_if(
        out_.begin(), out_.end(), [&](const IgnoredRow& row) { return row.key == key && row.reason == field.ignored; });
    IgnoredRow& row = same == out_.end() ? out_.emplace_back() : *same;
    row.key = key;
    row.reason = field.ignored;
    row.initial = to_json(field.initial);
    if (!component.empty()) row.components.push_back(component);
  }

  std::vector<IgnoredRow> out_ = {};
  std::set<const TypeInfo*> described_ = {};
};

void add_keys(const std::vector<FieldInfo>& fields, const std::string& path, std::vector<std::string>& keys) {
  for (const auto& field : fields) {
    if (field.form == FieldInfo::Form::kRest) continue;
    const bool flat = field.form == FieldInfo::Form::kFlat;
    const std::string here = flat ? path : join_path(path, key_of(field));
    if (!flat) keys.push_back(here);
    const TypeInfo& type = unwrapped(*field.type);
    if (type.choice != nullptr) {
      keys.push_back(join_path(here, type.choice().key));
      for (const auto& each : type.choice().alternatives) add_keys(each.type->fields(), here, keys);
    } else if (type.fields != nullptr) {
      add_keys(type.fields(), here, keys);
    }
  }
}

}  // namespace

std::string recipe_reference() {
  Page page;
  std::vector<FieldInfo> plain;
  for (const auto& field : fields_of<Recipe>())
    if (!is_section(unwrapped(*field.type))) plain.push_back(field);
  page.heading(2, "Top level", "");
  page.table(plain, "", 2);
  std::map<const TypeInfo*, std::string> described;
  for (const auto& field : fields_of<Recipe>()) {
    const TypeInfo& type = unwrapped(*field.type);
    if (!is_section(type)) continue;
    const std::string key = key_of(field);
    page.heading(2, fmt::format("`{}`", key), field.doc);
    const auto [known, fresh] = described.emplace(&type, key);
    if (!fresh)
      page.line(fmt::format("It has the keys of `{}`.", known->second));
    else if (type.choice != nullptr)
      page.choice(key, type.choice(), 2);
    else
      page.table(type.fields(), key, 2);
  }
  page.heading(2, "Keys without effect", "");
  std::string rows =
      std::string(kIgnoredIntroduction) + "| key | where | why it has no effect |\n| --- | --- | --- |\n";
  for (const auto& row : ignored_keys()) {
    auto where = row.when;
    for (const auto& each : row.components) where += fmt::format("{}`{}`", where.empty() ? "" : ", ", each);
    rows += fmt::format("| `{}` | {} | {} |\n", row.key, where, escaped(row.reason));
  }
  rows.pop_back();
  page.line(rows);
  return std::string(kIntroduction) + std::move(page).text();
}

std::vector<IgnoredRow> ignored_keys() {
  IgnoredSearch search;
  search.fields(fields_of<Recipe>(), "", "");
  auto out = std::move(search).take();
  for (const auto& each : ignored_values())
    out.push_back({.key = std::string(each.key), .reason = std::string(each.reason), .when = std::string(each.when)});
  return out;
}

std::vector<std::string> recipe_keys() {
  std::vector<std::string> keys;
  add_keys(fields_of<Recipe>(), "", keys);
  std::set<std::string> seen;
  std::erase_if(keys, [&](const std::string& key) { return !seen.insert(key).second; });
  return keys;
}

std::vector<KeyValues> recipe_values() {
  std::vector<KeyValues> out;
  add_values(fields_of<Recipe>(), "", out);
  std::set<std::string> seen;
  std::erase_if(out, [&](const KeyValues& each) { return !seen.insert(each.key).second; });
  return out;
}

}  // namespace automodel::config
