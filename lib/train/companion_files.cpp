#include "train/companion_files.h"

#include <array>
#include <filesystem>
#include <optional>
#include <string>

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTokenizerFiles = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "tokenizer.model"};
constexpr std::array kTemplateFiles = {"chat_template.jinja", "chat_template.json"};
constexpr const char* kGeneration = "generation_config.json";

/// What the data says about its text, as far as its kind knows of text.
struct TextChoice {
  std::optional<std::string> tokenizer = {};
  std::optional<std::string> chat_template = {};
};

TextChoice choice_of(const config::DatasetConfig& dataset) {
  return std::visit(
      [](const auto& config) {
        TextChoice out;
        if constexpr (requires { config.tokenizer(); }) out.tokenizer = config.tokenizer();
        if constexpr (requires { config.chat_template(); }) out.chat_template = config.chat_template();
        return out;
      },
      dataset);
}

/// Where the tokenizer of a run lies; empty where it has no files.
fs::path tokenizer_folder(const TextChoice& text, const Setup& setup) {
  if (!text.tokenizer) return setup.plan.model->folder;
  if (*text.tokenizer == "bytes") return {};
  const auto path = plan::find_path(*text.tokenizer, setup.loaded.path);
  std::error_code error;
  return fs::is_regular_file(path, error) ? path.parent_path() : path;
}

template <class Names>
void copy_all(checkpoint::SaveRequest& request, const fs::path& folder, const Names& names) {
  std::error_code error;
  for (const char* name : names)
    if (!folder.empty() && fs::is_regular_file(folder / name, error))
      request.copies.emplace_back(std::string("model/") + name, folder / name);
}

}  // namespace

void add_companions(checkpoint::SaveRequest& request, const Setup& setup) {
  const auto text = choice_of(*setup.recipe().dataset());
  const auto folder = tokenizer_folder(text, setup);
  copy_all(request, folder, kTokenizerFiles);
  // A template in a file of its own counts before one in tokenizer_config.json, for transformers as for this program.
  if (text.chat_template)
    request.copies.emplace_back("model/chat_template.jinja", plan::find_path(*text.chat_template, setup.loaded.path));
  else
    copy_all(request, folder, kTemplateFiles);
  copy_all(request, setup.plan.model->folder, std::array{kGeneration});
}

}  // namespace automodel::train
