#include "data/megatron_dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/spelling.h"
#include "data/megatron_index.h"
#include "data/mixture_dataset.h"
#include "data/source_files.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;
constexpr std::array<std::string_view, 3> kParts = {"train", "validation", "test"};

/// "data/corpus" for data/corpus, data/corpus.bin and data/corpus.idx.
fs::path prefix_of(const fs::path& path) {
  return path.extension() == ".bin" || path.extension() == ".idx" ? fs::path(path).replace_extension() : path;
}

/// Replaces recipe paths that are prefixes by their index files.
config::PathList as_files(const config::PathList& paths, const fs::path& recipe_folder) {
  config::PathList out;
  for (const auto& path : paths.paths) {
    std::error_code error;
    const std::string index = prefix_of(path).native() + ".idx";
    const bool prefix = fs::exists(recipe_folder / index, error) || fs::exists(index, error);
    out.paths.push_back(prefix ? index : path);
  }
  return out;
}

/// The range of documents that belongs to the part, as fractions of all; null after adding a problem.
std::optional<std::pair<double, double>> share_of(const config::MegatronDatasetConfig& config, const std::string& key,
                                                  Diagnostics& problems) {
  const auto part = std::find(kParts.begin(), kParts.end(), config.part());
  if (part == kParts.end()) {
    problems.add("bad-value", key + ".splits_to_build")
        .says("there is no part '{}'", config.part())
        .hint(suggestion(config.part(), {kParts.begin(), kParts.end()}));
    return std::nullopt;
  }
  if (!config.split()) return std::pair(0.0, 1.0);
  std::array<double, 3> shares{};
  const std::string& text = *config.split();
  std::size_t count = 0, at = 0;
  bool good = true;
  while (good && at <= text.size() && count < 3) {
    const std::size_t end = std::min(text.size(), text.find(',', at));
    while (at < end && text[at] == ' ') ++at;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, shares[count]);
    good = error == std::errc() &&
           std::string_view(stop, text.data() + end).find_first_not_of(' ') == std::string_view::npos &&
           shares[count] >= 0 && std::isfinite(shares[count]);
    at = end + 1;
    ++count;
  }
  const double sum = shares[0] + shares[1] + shares[2];
  if (!good || count != 3 || at <= text.size() || !(sum > 0) || !std::isfinite(sum)) {
    problems.add("bad-value", key + ".split")
        .says("'{}' are not the shares of three parts", text)
        .hint("three numbers, such as 900,50,50");
    return std::nullopt;
  }
  const auto i = static_cast<std::size_t>(part - kParts.begin());
  double begin = 0;
  for (std::size_t j = 0; j < i; ++j) begin += shares[j];
  return std::pair(begin / sum, (begin + shares[i]) / sum);
}

struct Parts {
  std::vector<MappedFile> files = {};
  std::vector<std::string> names = {};
  std::vector<MappedSequence::Span> spans = {};
  double bytes = 0;
  std::int64_t documents = 0;
};

/// Adds the part's documents of one prefix to `out`.
void add_prefix(const fs::path& prefix, std::pair<double, double> share, const std::string& key, Parts& out,
                Diagnostics& problems) {
  const std::string bin = prefix.native() + ".bin", idx = prefix.native() + ".idx";
  std::optional<MappedFile> tokens, index;
  for (auto [name, file] : {std::pair(&bin, &tokens), std::pair(&idx, &index)}) {
    try {
      file->emplace(*name);
    } catch (const std::system_error& error) {
      problems.add("missing-file", key)
          .says("'{}' cannot be read: {}", *name, error.code().message())
          .hint("Megatron's data are two files, .bin and .idx");
    }
  }
  if (!tokens || !index) return;
  std::string problem;
  const auto read = read_megatron_index(index->text(), tokens->text().size(), problem);
  if (!read) {
    problems.add("bad-index", key)
        .says("'{}' cannot be used: {}", idx, problem)
        .hint("the two files must be whole, and belong together")
        .at({idx, 0, 0});
    return;
  }
  const auto documents = static_cast<double>(read->documents.size() - 1);
  const auto first = static_cast<std::size_t>(std::llround(documents * share.first));
  const auto last = static_cast<std::size_t>(std::llround(documents * share.second));
  for (std::size_t i = read->documents[first]; i < read->documents[last]; ++i) {
    auto span = read->sequences[i];
    // Merge spans that are contiguous in the file.
    const auto end_of = [](const MappedSequence::Span& s) {
      return s.offset + static_cast<std::uint64_t>(s.tokens) * static_cast<std::uint64_t>(bytes_of(s.type));
    };
    span.file = out.files.size();
    if (!out.spans.empty() && out.spans.back().file == span.file && end_of(out.spans.back()) == span.offset)
      out.spans.back().tokens += span.tokens;
    else
      out.spans.push_back(span);
  }
  out.documents += static_cast<std::int64_t>(last - first);
  out.bytes += static_cast<double>(tokens->text().size());
  out.files.push_back(std::move(*tokens));
  out.names.push_back(bin);
}

/// The weights of a list [30, corpus_a, 70, corpus_b], as Megatron writes a blend; empty if it is a list of paths.
std::vector<double> blend_of(const std::vector<std::string>& paths) {
  std::vector<double> out;
  for (std::size_t i = 0; i + 1 < paths.size() && paths.size() % 2 == 0; i += 2) {
    double weight = 0;
    const auto [end, error] = std::from_chars(paths[i].data(), paths[i].data() + paths[i].size(), weight);
    if (error != std::errc() || end != paths[i].data() + paths[i].size() || !std::isfinite(weight) || weight <= 0)
      return {};
    out.push_back(weight);
  }
  return out;
}

/// The sets of a blend, each opened by itself, mixed by the weights.
std::unique_ptr<Dataset> open_blend(const std::vector<double>& weights, const config::MegatronDatasetConfig& config,
                                    const DatasetContext& context, Diagnostics& problems) {
  std::vector<std::pair<std::unique_ptr<Dataset>, double>> parts;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    auto one = config;
    one.paths = config::PathList{{config.paths().paths[2 * i + 1]}};
    parts.emplace_back(open_megatron(one, context, problems), weights[i]);
  }
  if (std::ranges::any_of(parts, [](const auto& part) { return part.first == nullptr; })) return nullptr;
  return mix(std::move(parts), {.seed = context.seed, .shuffle = context.shuffle});
}

}  // namespace

std::unique_ptr<Dataset> open_megatron(const config::MegatronDatasetConfig& config, const DatasetContext& context,
                                       Diagnostics& problems) {
  if (const auto weights = blend_of(config.paths().paths); !weights.empty())
    return open_blend(weights, config, context, problems);
  const std::size_t before = problems.size();
  const std::string key = context.key + ".path";
  const auto sources =
      find_files(as_files(config.paths(), context.recipe_folder), Wanted::kIndex, context.recipe_folder, key, problems);
  const auto share = share_of(config, context.key, problems);
  if (context.max_length && config.seq_length() > *context.max_length)
    problems.push_back(sequence_too_long(config.seq_length(), *context.max_length, context.key + ".seq_length"));
  Parts parts;
  std::set<std::string> seen;
  if (share)
    for (const auto& file : sources.files)
      if (const auto prefix = prefix_of(file.path); seen.insert(prefix.native()).second)
        add_prefix(prefix, *share, key, parts, problems);
  if (problems.size() > before) return nullptr;
  const std::string summary =
      fmt::format("megatron: {} file{}, {}, {} documents", parts.files.size(), parts.files.size() == 1 ? "" : "s",
                  format_bytes(parts.bytes), parts.documents);
  auto sequence = std::make_unique<MappedSequence>(std::move(parts.files), std::move(parts.names),
                                                   std::move(parts.spans), context.vocab_size);
  auto dataset = make_window_dataset(std::move(sequence), config.seq_length(), 0, summary);
  if (!dataset)
    problems.add("empty-data", key)
        .says("there are less than two tokens in {}", summary)
        .hint("a larger share in split, or other files");
  return dataset;
}

}  // namespace automodel::data
