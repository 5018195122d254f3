// Loads tokenizers from files.
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file_text.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/tokenizer.h"

namespace automodel::tokenizer {
namespace {

namespace fs = std::filesystem;

/// Four times the largest that is known. A vocabulary takes about twelve times its text while it is read.
constexpr std::uint64_t kMostTokenizer = std::uint64_t{64} << 20;

/// The file's text; nothing if it does not exist or cannot be read, with a problem if that is for its size.
std::optional<std::string> read_file(const fs::path& path, std::uint64_t most, Diagnostics& problems) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  auto file = file_text(path, most);
  if (file.too_large)
    problems.add("bad-tokenizer")
        .says("{}", file.problem)
        .hint("no tokenizer's has; SECURITY.md lists the limits")
        .at({path.native(), 0, 0});
  if (!file.problem.empty()) return std::nullopt;
  return std::move(file.text);
}

}  // namespace

std::unique_ptr<const Tokenizer> Tokenizer::load(const fs::path& path, Diagnostics& problems) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  const fs::path file = folder ? path / "tokenizer.json" : path, parent = file.parent_path();
  const std::size_t before = problems.size();
  auto text = read_file(file, kMostTokenizer, problems);
  const auto config = read_file(parent / "tokenizer_config.json", kMostDescription, problems);
  const auto special_map = read_file(parent / "special_tokens_map.json", kMostDescription, problems);
  const auto added = read_file(parent / "added_tokens.json", kMostDescription, problems);
  const auto chat_template = read_file(parent / "chat_template.jinja", kMostDescription, problems);
  const auto model_config = read_file(parent / "config.json", kMostDescription, problems);
  if (problems.size() > before) return nullptr;
  // Older folders have the sentencepiece library's file, which may also be named directly.
  const fs::path model = text ? file : parent / "tokenizer.model";
  if (auto bytes =
          text ? (is_sentencepiece_file(*text) ? text : std::nullopt) : read_file(model, kMostTokenizer, problems)) {
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
                .special_map = special_map,
                .added = added,
                .chat_template = chat_template,
                .model = model_config,
                .folder = parent.native()},
               problems);
}

}  // namespace automodel::tokenizer
