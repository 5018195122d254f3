#include "data/nanogpt_dataset.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/spelling.h"
#include "data/nanogpt_file.h"
#include "data/source_files.h"

namespace automodel::data {

std::unique_ptr<Dataset> open_nanogpt(const config::NanogptDatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::string key = context.key + ".path";
  const auto sources = find_files(config.paths(), Wanted::kBinary, context.recipe_folder, key, problems);
  std::optional<TokenType> headerless;
  if (config.dtype()) {
    if (*config.dtype() == "uint16") headerless = TokenType::kUint16;
    if (*config.dtype() == "uint32") headerless = TokenType::kUint32;
    if (!headerless)
      problems.add("bad-value", context.key + ".dtype")
          .says("tokens are not stored as '{}'", *config.dtype())
          .hint(suggestion(*config.dtype(), {"uint16", "uint32"}));
  }
  if (context.max_length && config.seq_length() > *context.max_length)
    problems.push_back(sequence_too_long(config.seq_length(), *context.max_length, context.key + ".seq_length"));
  std::vector<MappedFile> files;
  std::vector<std::string> names;
  std::vector<MappedSequence::Span> spans;
  double bytes = 0;
  for (const auto& source : sources.files) {
    std::string problem;
    try {
      MappedFile file(source.path);
      if (auto span = read_nanogpt_header(file.text(), headerless, problem)) {
        span->file = files.size();
        if (span->tokens > 0) spans.push_back(*span);
      }
      bytes += static_cast<double>(file.text().size());
      files.push_back(std::move(file));
      names.push_back(source.path.native());
    } catch (const std::system_error& error) {
      problem = error.code().message();
    }
    if (!problem.empty())
      problems.add("bad-file", key)
          .says("'{}' cannot be used: {}", source.path.native(), problem)
          .hint("whole files of llm.c or modded-nanogpt; those without a header need dtype: uint16 or uint32")
          .at({source.path.native(), 0, 0});
  }
  if (problems.size() > before) return nullptr;
  const std::string summary =
      fmt::format("nanogpt_bin: {} file{}, {}", files.size(), files.size() == 1 ? "" : "s", format_bytes(bytes));
  auto sequence =
      std::make_unique<MappedSequence>(std::move(files), std::move(names), std::move(spans), context.vocab_size);
  auto dataset = make_window_dataset(std::move(sequence), config.seq_length(), 0, summary);
  if (!dataset)
    problems.add("empty-data", key).says("there are less than two tokens in {}", summary).hint("name other files");
  return dataset;
}

}  // namespace automodel::data
