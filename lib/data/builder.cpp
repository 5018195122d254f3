#include "data/builder.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/find_file.h"
#include "data/messages.h"

namespace automodel::data {

nlohmann::ordered_json RowBuilder::read(std::int64_t index) const {
  nlohmann::ordered_json row;
  rows_.read(index, row);
  return row;
}

bool load_repository(BuilderParts& parts, const std::string& path, const std::string& path_key,
                     const std::string& split, const std::optional<std::string>& name,
                     const std::optional<std::string>& revision, Diagnostics& problems) {
  if (!parts.context.rows) return false;
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

bool load_named_files(BuilderParts& parts, const std::vector<std::string>& paths, const std::string& path_key,
                      const std::optional<std::string>& split, Diagnostics& problems) {
  const std::string key = parts.context.key + "." + path_key;
  const std::size_t before = problems.size();
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) {
    if (const auto found = find_beside(path, parts.context.recipe_folder))
      files.push_back(*found);
    else
      problems.add("missing-file", key)
          .says("there is no file '{}'", path)
          .hint("looked beside the recipe and in the working directory{}",
                near_name(parts.context.recipe_folder / path));
  }
  if (paths.empty()) problems.add("missing-key", key).says(path_key + " names no data").hint("files, or a repository");
  if (problems.size() > before || !parts.context.rows) return false;
  auto loaded = rows::load_split_of(files,
                                    {.path = fmt::format("{}", fmt::join(paths, ", ")),
                                     .split = split.value_or("train"),
                                     .path_key = key,
                                     .split_key = parts.context.key + ".split"},
                                    problems);
  if (!loaded) return false;
  parts.rows = std::move(*loaded);
  return true;
}

void keep_first(BuilderParts& parts, std::int64_t count) {
  parts.rows.rows = rows::select(std::move(parts.rows.rows), std::vector<rows::RowSpan>{{0, count}});
}

std::unique_ptr<const ChatFormat> needed_chat(const BuilderParts& parts, const std::optional<std::string>& source,
                                              const std::string& what, Diagnostics& problems) {
  const std::size_t before = problems.size();
  auto chat = ChatFormat::open(parts.tokenizer, source, parts.context, problems);
  if (!chat && problems.size() == before)
    problems.add("missing-key", parts.context.key + ".chat_template")
        .says(what + " need a chat template, and the tokenizer has none")
        .hint("set chat_template to a Jinja file");
  return chat;
}

std::string limited(const std::string& split, const std::optional<int>& limit) {
  const bool sliced = split.find('[') != std::string::npos;
  return limit && !sliced ? fmt::format("{}[:{}]", split, *limit) : split;
}

const std::string& text_cell(const nlohmann::ordered_json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end()) throw RowRefused(fmt::format("there is no column '{}' among {}", column, column_names(row)));
  if (!found->is_string()) throw RowRefused(fmt::format("column '{}' is not text but {}", column, found->type_name()));
  return found->get_ref<const std::string&>();
}

}  // namespace automodel::data
