#include "data/text_dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file_text.h"
#include "base/utf8.h"
#include "data/content_hash.h"
#include "data/token_sequence.h"
#include "data/token_store.h"

namespace automodel::data {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error(ExitCode::kEnvironment, Diagnostic{"missing-file"}
                                          .says("'{}' cannot be read: {}", path.native(), reason)
                                          .hint("data files must stay as they are while a run reads them")
                                          .at({path.native(), 0, 0}));
}

/// Reads bytes [first, first + out.size()) of a file. Throws Error if it has fewer.
void read_bytes(const std::filesystem::path& path, std::int64_t first, std::span<unsigned char> out) {
  const int file = open_regular(path);
  if (file < 0) fail(path, std::strerror(errno));
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        pread(file, out.data() + done, out.size() - done, static_cast<off_t>(first) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const std::string reason = got < 0 ? std::strerror(errno) : "it has become shorter";
      close(file);
      fail(path, reason);
    }
    done += static_cast<std::size_t>(got);
  }
  close(file);
}

/// Bytes of files, read on demand, with one separator token between files.
class FileBytes final : public TokenSequence {
 public:
  FileBytes(const std::vector<SourceFiles::File>& files, std::optional<std::int32_t> separator)
      : separator_(separator) {
    for (const auto& file : files) {
      if (file.size == 0) continue;
      const std::int64_t first = ends_.empty() ? 0 : ends_.back() + (separator_ ? 1 : 0);
      files_.push_back(file);
      ends_.push_back(first + file.size);
    }
  }
  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    std::vector<unsigned char> bytes;
    // The first file that ends after `first`; the separator before a file counts as part of it.
    auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (std::size_t done = 0; done < out.size(); ++i) {
      const std::int64_t begin = ends_[i] - files_[i].size;
      std::int64_t at = first + static_cast<std::int64_t>(done);
      if (at < begin) {
        out[done++] = *separator_;
        ++at;
      }
      const std::size_t count = std::min(static_cast<std::size_t>(ends_[i] - at), out.size() - done);
      bytes.resize(count);
      read_bytes(files_[i].path, at - begin, bytes);
      std::copy(bytes.begin(), bytes.end(), out.begin() + static_cast<std::ptrdiff_t>(done));
      done += count;
    }
  }

 private:
  std::optional<std::int32_t> separator_;
  std::vector<SourceFiles::File> files_;
  std::vector<std::int64_t> ends_;  ///< position just past each file's last byte
};

/// Writes the ids of all files, separated by EOS, as a single row.
void encode_files(const std::vector<SourceFiles::File>& files, const Tokenizer& tokenizer, TokenStoreWriter& out) {
  std::vector<std::int32_t> ids;
  for (const auto& file : files) {
    ids.clear();
    if (out.tokens() > 0 && tokenizer.eos()) ids.push_back(*tokenizer.eos());
    const std::size_t begin = ids.size();
    const MappedFile text(file.path);
    tokenizer.encode(text.text(), ids);
    if (ids.size() > begin) out.add(ids);  // no separator for an empty document
  }
  out.end_row();
}

/// A store's only row.
class StoredSequence final : public TokenSequence {
 public:
  explicit StoredSequence(TokenStore store) : store_(std::move(store)) {}
  std::int64_t size() const override { return store_.tokens(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    std::copy_n(store_.ids(0).begin() + first, out.size(), out.begin());
  }

 private:
  TokenStore store_;
};

/// Cache name: a hash of everything that the tokens depend on.
std::string name_of(const SourceFiles& sources, const Tokenizer& tokenizer) {
  ContentHash hash;
  hash.add("text 1");
  hash.add(std::to_string(tokenizer.folder()->fingerprint()));
  for (const auto& file : sources.files) hash.add(MappedFile(file.path).text());
  return hash.hex();
}

/// Bytes that are not UTF-8, which a tokenizer reads as U+FFFD.
std::int64_t stray_bytes(const SourceFiles& sources) {
  std::int64_t out = 0;
  for (const auto& file : sources.files) {
    const MappedFile mapped(file.path);
    for (auto text = mapped.text(); !text.empty();) {
      // Every start reads all of the text here, most of which is ASCII in most corpora: eight bytes at a time.
      if (std::uint64_t word = 0; text.size() >= sizeof word) {
        std::memcpy(&word, text.data(), sizeof word);
        if ((word & 0x8080808080808080U) == 0) {
          text.remove_prefix(sizeof word);
          continue;
        }
      }
      const auto length = static_cast<unsigned char>(text.front()) < 0x80 ? 1 : utf8_length(text);
      if (length == 0) ++out;
      text.remove_prefix(std::max<std::size_t>(length, 1));
    }
  }
  return out;
}

/// "3 files, 1.2 MiB (2 binary files left out)".
std::string describe(const SourceFiles& sources) {
  double bytes = 0;
  for (const auto& file : sources.files) bytes += static_cast<double>(file.size);
  std::string out =
      fmt::format("{} file{}, {}", sources.files.size(), sources.files.size() == 1 ? "" : "s", format_bytes(bytes));
  if (sources.skipped > 0)
    out += fmt::format(" ({} binary file{} left out)", sources.skipped, sources.skipped == 1 ? "" : "s");
  return out;
}

}  // namespace

std::unique_ptr<Dataset> make_text_dataset(const SourceFiles& sources, const Tokenizer& tokenizer,
                                           std::int64_t seq_length, const std::optional<std::filesystem::path>& cache) {
  std::unique_ptr<const TokenSequence> tokens;
  if (tokenizer.bytes_are_tokens()) {
    tokens = std::make_unique<FileBytes>(sources.files, tokenizer.eos());
  } else {
    const bool keep = cache && tokenizer.folder() != nullptr;
    const auto fill = [&](TokenStoreWriter& out) {
      encode_files(sources.files, tokenizer, out);
      return keep;
    };
    tokens = std::make_unique<StoredSequence>(keep ? cached_tokens(*cache, name_of(sources, tokenizer), false, fill)
                                                   : uncached_tokens(false, fill));
  }
  const std::int32_t pad = tokenizer.pad().value_or(tokenizer.eos().value_or(0));
  std::string note = tokenizer.bytes_are_tokens() ? " as bytes" : "";
  if (const auto stray = tokenizer.bytes_are_tokens() ? 0 : stray_bytes(sources); stray > 0)
    note = fmt::format(" ({} byte{} not UTF-8, read as U+FFFD)", stray, stray == 1 ? " is" : "s are");
  return make_window_dataset(std::move(tokens), seq_length, pad, "text: " + describe(sources) + note);
}

std::unique_ptr<Dataset> open_text(const config::TextDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems) {
  const std::size_t before = problems.size();
  SourceFiles sources;
  if (context.rows)  // a folder may hold millions
    sources = find_files(config.paths(), Wanted::kText, context.recipe_folder, context.key + ".paths", problems);
  const bool found_all = problems.size() == before;
  const std::unique_ptr<const Tokenizer> tokenizer =
      open_tokenizer(config.tokenizer().value_or(tokenizer_of_model(context.model_folder)), context.recipe_folder,
                     context.key + ".tokenizer", problems);
  if (tokenizer) check_tokenizer(tokenizer->vocab_size(), context, problems);
  if (context.max_length && config.seq_length() > *context.max_length)
    problems.push_back(sequence_too_long(config.seq_length(), *context.max_length, context.key + ".seq_length"));
  const auto refuse_empty = [&] {
    problems.add("empty-data", context.key + ".paths")
        .says("there is no text to train on in {}", describe(sources))
        .hint("at least two tokens are needed; hidden and build folders and binary files are left out");
  };
  if (found_all && context.rows && sources.files.empty()) refuse_empty();
  if (problems.size() > before || !context.rows) return nullptr;
  const auto cache = config.cache() ? std::optional(token_cache_folder(config.cache_dir())) : std::nullopt;
  auto dataset = make_text_dataset(sources, *tokenizer, config.seq_length(), cache);
  if (!dataset) refuse_empty();
  return dataset;
}

}  // namespace automodel::data
