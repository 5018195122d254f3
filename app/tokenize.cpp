#include "tokenize.h"

#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace automodel::app {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_line(int line, const std::string& message, const std::string& help) {
  throw Error(Diagnostic{"bad-value"}.says(message).hint(help).at({"standard input", line, 1}));
}

/// The ids of a text, as a JSON array.
std::string encode_line(const json& value, int line, const Options& options, tokenizer::Encoder& encoder,
                        std::vector<tokenizer::Id>& ids) {
  if (!value.is_string()) refuse_line(line, "the line is not a JSON string", "write \"text\"; or --decode for ids");
  ids.clear();
  encoder.encode(value.get_ref<const std::string&>(), options.special, ids);
  return fmt::format("[{}]", fmt::join(ids, ","));
}

/// The text of ids, as a JSON string.
std::string decode_line(const json& value, int line, const Options& options, const tokenizer::Tokenizer& tokenizer,
                        std::vector<tokenizer::Id>& ids) {
  ids.clear();
  if (!value.is_array()) refuse_line(line, "the line is not a JSON array", "write [1, 2, 3]");
  for (const auto& id : value) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= tokenizer.vocab_size())
      refuse_line(line, fmt::format("{} is not a token id", id.is_primitive() ? id.dump() : "a list"),
                  fmt::format("ids are from 0 to {}", tokenizer.vocab_size() - 1));
    ids.push_back(id.get<tokenizer::Id>());
  }
  return json(tokenizer.decode(ids, options.skip_special)).dump();
}

}  // namespace

int run_tokenize(const Options& options) {
  Diagnostics problems;
  const auto tokenizer = tokenizer::Tokenizer::load(options.folder, problems);
  if (!tokenizer) throw Error(ExitCode::kBadInput, std::move(problems));
  std::ios::sync_with_stdio(false);
  tokenizer::Encoder encoder(*tokenizer);
  std::vector<tokenizer::Id> ids;
  std::string text;
  for (int line = 1; std::getline(std::cin, text); ++line) {
    const json value = json::parse(text, nullptr, false);
    if (value.is_discarded()) {
      std::cout.flush();
      refuse_line(line, "the line is not JSON", options.decode ? "write [1, 2, 3]" : "write \"text\"");
    }
    std::cout << (options.decode ? decode_line(value, line, options, *tokenizer, ids)
                                 : encode_line(value, line, options, encoder, ids))
              << '\n';
    // Flush when input runs dry: interactive users get answers, and long inputs are not slowed down.
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
  std::cout.flush();
  return std::cout ? static_cast<int>(ExitCode::kOk) : static_cast<int>(ExitCode::kEnvironment);
}

}  // namespace automodel::app
