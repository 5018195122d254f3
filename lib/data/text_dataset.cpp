#include "data/text_dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"

namespace automodel::data {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error(ExitCode::kEnvironment, {"missing-file",
                                       fmt::format("'{}' cannot be read: {}", path.native(), reason),
                                       "data files must stay as they are while a run reads them",
                                       {path.native(), 0, 0},
                                       ""});
}

/// Reads bytes first ... first + out.size() - 1 of a file. Throws Error where it has less.
void read_bytes(const std::filesystem::path& path, std::int64_t first, std::span<unsigned char> out) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
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

/// All tokens of the data as one sequence.
class TokenSequence {
 public:
  TokenSequence() = default;
  TokenSequence(const TokenSequence&) = delete;
  TokenSequence& operator=(const TokenSequence&) = delete;
  virtual ~TokenSequence() = default;
  virtual std::int64_t size() const = 0;
  /// Copies tokens first ... first + out.size() - 1.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
};

/// Bytes of files, read when asked for, and one separator between files.
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
  std::vector<std::int64_t> ends_;  ///< position after each file's last byte
};

/// Tokens in memory.
class EncodedFiles final : public TokenSequence {
 public:
  EncodedFiles(const std::vector<SourceFiles::File>& files, const Tokenizer& tokenizer) {
    std::vector<unsigned char> bytes;
    for (const auto& file : files) {
      bytes.resize(static_cast<std::size_t>(file.size));
      read_bytes(file.path, 0, bytes);
      const std::size_t before = tokens_.size();
      if (before > 0 && tokenizer.eos()) tokens_.push_back(*tokenizer.eos());
      const std::size_t begin = tokens_.size();
      tokenizer.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, tokens_);
      if (tokens_.size() == begin) tokens_.resize(before);  // an empty document ends nothing
    }
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    std::copy_n(tokens_.begin() + first, out.size(), out.begin());
  }

 private:
  std::vector<std::int32_t> tokens_;
};

class TextDataset final : public Dataset {
 public:
  TextDataset(std::unique_ptr<const TokenSequence> tokens, std::int64_t seq_length, std::int32_t pad,
              std::string sources)
      : tokens_(std::move(tokens)), seq_length_(seq_length), pad_(pad), sources_(std::move(sources)) {}

  std::int64_t size() const override { return (tokens_->size() - 1 + seq_length_ - 1) / seq_length_; }
  std::int64_t length(std::int64_t index) const override {
    return std::min(seq_length_, tokens_->size() - 1 - index * seq_length_);
  }
  Padding padding() const override { return {pad_, 1, seq_length_}; }
  std::string summary() const override {
    return fmt::format("text: {}, {} tokens, {} sequences of {}", sources_,
                       format_count(static_cast<double>(tokens_->size())), size(), seq_length_);
  }

  void read(std::int64_t index, Sample& out) const override {
    out.segments.clear();
    out.positions.clear();
    const auto count = static_cast<std::size_t>(length(index));
    out.input_ids.resize(count + 1);
    tokens_->read(index * seq_length_, out.input_ids);
    out.labels.assign(out.input_ids.begin() + 1, out.input_ids.end());
    out.input_ids.pop_back();
  }

 private:
  std::unique_ptr<const TokenSequence> tokens_;
  std::int64_t seq_length_;
  std::int32_t pad_;
  std::string sources_;
};

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

std::unique_ptr<Dataset> make_text_dataset(const SourceFiles& sources, std::unique_ptr<const Tokenizer> tokenizer,
                                           std::int64_t seq_length) {
  std::unique_ptr<const TokenSequence> tokens;
  if (tokenizer->bytes_are_tokens())
    tokens = std::make_unique<FileBytes>(sources.files, tokenizer->eos());
  else
    tokens = std::make_unique<EncodedFiles>(sources.files, *tokenizer);
  if (tokens->size() < 2) return nullptr;
  const std::int32_t pad = tokenizer->pad().value_or(tokenizer->eos().value_or(0));
  return std::make_unique<TextDataset>(std::move(tokens), seq_length, pad, describe(sources));
}

std::unique_ptr<Dataset> open_text(const config::TextDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems) {
  const std::size_t before = problems.size();
  const auto sources =
      find_files(config.paths(), Wanted::kText, context.recipe_folder, context.key + ".paths", problems);
  const bool found_all = problems.size() == before;
  const std::string tokenizer_key = context.key + ".tokenizer";
  std::unique_ptr<const Tokenizer> tokenizer;
  if (config.tokenizer())
    tokenizer = open_tokenizer(*config.tokenizer(), tokenizer_key, problems);
  else
    problems.push_back({"missing-key", "text needs a tokenizer", "bytes", {}, tokenizer_key});
  if (tokenizer && context.vocab_size && tokenizer->vocab_size() > *context.vocab_size)
    problems.push_back({"token-out-of-range",
                        fmt::format("the tokenizer has {} ids, the model's vocabulary {}", tokenizer->vocab_size(),
                                    *context.vocab_size),
                        fmt::format("the model's vocab_size must be at least {}", tokenizer->vocab_size()),
                        {},
                        tokenizer_key});
  if (context.max_length && config.seq_length() > *context.max_length)
    problems.push_back(sequence_too_long(config.seq_length(), *context.max_length, context.key + ".seq_length"));
  const auto refuse_empty = [&] {
    problems.push_back({"empty-data",
                        fmt::format("there is no text to train on in {}", describe(sources)),
                        "at least two tokens are needed; hidden and build folders and binary files are left out",
                        {},
                        context.key + ".paths"});
  };
  if (found_all && sources.files.empty()) refuse_empty();
  if (problems.size() > before) return nullptr;
  auto dataset = make_text_dataset(sources, std::move(tokenizer), config.seq_length());
  if (!dataset) refuse_empty();
  return dataset;
}

}  // namespace automodel::data
