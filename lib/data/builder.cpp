#include "data/builder.h"

#include <utility>

#include <fmt/format.h>

namespace automodel::data {

bool load_repository(BuilderParts& parts, const std::string& path, const std::string& path_key,
                     const std::string& split, const std::optional<std::string>& name,
                     const std::optional<std::string>& revision, Diagnostics& problems) {
  const std::string& key = parts.context.key;
  auto loaded = rows::load_rows({.path = path,
                                 .name = name,
                                 .revision = revision,
                                 .split = split,
                                 .recipe_folder = parts.context.recipe_folder,
                                 .path_key = key + "." + path_key,
                                 .split_key = key + ".split"},
                                problems);
  if (!loaded) return false;
  parts.rows = std::move(*loaded);
  return true;
}

std::string limited(const std::string& split, const std::optional<int>& limit) {
  const bool sliced = split.find('[') != std::string::npos;
  return limit && !sliced ? fmt::format("{}[:{}]", split, *limit) : split;
}

const std::string& text_cell(const nlohmann::ordered_json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end()) throw RowRefused(fmt::format("there is no column '{}'", column));
  if (!found->is_string()) throw RowRefused(fmt::format("column '{}' is no text but {}", column, found->type_name()));
  return found->get_ref<const std::string&>();
}

}  // namespace automodel::data
