// Loads tokenizers from files.
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/tokenizer.h"

namespace automodel::tokenizer {
namespace {

namespace fs = std::filesystem;

/// The file's text; nothing if it does not exist or cannot be read.
std::optional<std::string> read_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

std::unique_ptr<const Tokenizer> Tokenizer::load(const fs::path& path, Diagnostics& problems) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  const fs::path file = folder ? path / "tokenizer.json" : path, parent = file.parent_path();
  auto text = read_file(file);
  const auto config = read_file(parent / "tokenizer_config.json");
  // Older folders have the sentencepiece library's file, which may also be named directly.
  const fs::path model = text ? file : parent / "tokenizer.model";
  if (auto bytes = text ? (is_sentencepiece_file(*text) ? text : std::nullopt) : read_file(model)) {
    text = json_of_sentencepiece(*bytes, config, model.native(), problems);
    if (!text) return nullptr;
  }
  if (!text) {
    problems.add("missing-file")
        .says("there is no tokenizer in '{}'", path.native())
        .hint("name a folder with tokenizer.json or tokenizer.model");
    return nullptr;
  }
  return parse({.tokenizer = std::move(*text),
                .config = config,
                .chat_template = read_file(parent / "chat_template.jinja"),
                .model = read_file(parent / "config.json"),
                .folder = parent.native()},
               problems);
}

}  // namespace automodel::tokenizer
