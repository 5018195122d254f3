// Tokenizers from files.
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "tokenizer/tokenizer.h"

namespace automodel::tokenizer {
namespace {

namespace fs = std::filesystem;

/// The file's text; null where it is not there or cannot be read.
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
  const fs::path file = folder ? path / "tokenizer.json" : path;
  auto text = read_file(file);
  if (!text) {
    const bool sentencepiece = folder && fs::exists(path / "tokenizer.model", error);
    problems.push_back({"missing-file",
                        fmt::format("there is no tokenizer in '{}'", path.native()),
                        sentencepiece ? "tokenizer.model alone is not enough: save the tokenizer with transformers, "
                                        "which writes tokenizer.json"
                                      : "name a folder with tokenizer.json",
                        {},
                        ""});
    return nullptr;
  }
  const fs::path parent = file.parent_path();
  return parse({.tokenizer = std::move(*text),
                .config = read_file(parent / "tokenizer_config.json"),
                .chat_template = read_file(parent / "chat_template.jinja"),
                .folder = parent.native()},
               problems);
}

}  // namespace automodel::tokenizer
