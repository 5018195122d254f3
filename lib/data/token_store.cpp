#include "data/token_store.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_text.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

struct Header {
  std::array<char, 8> magic;
  std::uint64_t rows;
  std::uint64_t tokens;
  std::uint64_t labelled;
};
constexpr std::array<char, 8> kMagic = {'A', 'M', 'T', 'O', 'K', 'S', '1', '\n'};

/// Where $TMPDIR says, even if there is no such folder: writing there says so.
fs::path temporary_folder() {
  std::error_code error;
  const auto out = fs::temp_directory_path(error);
  const char* said = std::getenv("TMPDIR");
  return error && said != nullptr ? fs::path(said) : out;
}

/// Holds a lock on a file; does nothing on file systems without locks.
class Lock {
 public:
  explicit Lock(const fs::path& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ >= 0)
      while (flock(file_, LOCK_EX) != 0 && errno == EINTR) {
      }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (file_ >= 0) close(file_);
  }

 private:
  int file_;
};

}  // namespace

std::optional<TokenStore> TokenStore::open(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::optional<MappedFile> file;
  try {
    file.emplace(path);
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  const std::string_view text = file->text();
  Header header{};
  if (text.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, text.data(), sizeof header);
  if (header.magic != kMagic || header.labelled > 1) return std::nullopt;
  // Dividing rather than multiplying: a corrupt header must not overflow.
  const std::uint64_t room = text.size() - sizeof header;
  const std::uint64_t width = header.labelled != 0 ? 8 : 4;
  if (header.tokens > room / width || header.rows > room / 8) return std::nullopt;
  const std::uint64_t data = (header.tokens * width + 7) / 8 * 8;
  if (data + header.rows * 8 != room) return std::nullopt;
  const char* begin = text.data() + sizeof header;
  const std::span ids(reinterpret_cast<const std::int32_t*>(begin), header.tokens * width / 4);
  const std::span ends(reinterpret_cast<const std::uint64_t*>(begin + data), header.rows);
  std::uint64_t last = 0;
  for (const std::uint64_t end : ends) {
    if (end < last) return std::nullopt;
    last = end;
  }
  if (last != header.tokens) return std::nullopt;
  return TokenStore(std::move(*file), ids, ends, header.labelled != 0);
}

std::int64_t TokenStore::begin(std::int64_t row) const {
  return row == 0 ? 0 : static_cast<std::int64_t>(ends_[static_cast<std::size_t>(row) - 1]);
}

std::int64_t TokenStore::length(std::int64_t row) const {
  return static_cast<std::int64_t>(ends_[static_cast<std::size_t>(row)]) - begin(row);
}

std::span<const std::int32_t> TokenStore::ids(std::int64_t row) const {
  return data_.subspan(static_cast<std::size_t>(begin(row)) * (labelled_ ? 2 : 1),
                       static_cast<std::size_t>(length(row)));
}

std::span<const std::int32_t> TokenStore::labels(std::int64_t row) const {
  AUTOMODEL_CHECK(labelled_, "a store has labels");
  const auto length = static_cast<std::size_t>(this->length(row));
  return data_.subspan(static_cast<std::size_t>(begin(row)) * 2 + length, length);
}

TokenStoreWriter::TokenStoreWriter(fs::path file, bool labelled)
    : file_(std::move(file)),
      part_(fmt::format("{}.part{}-{:x}", file_.native(), getpid(), reinterpret_cast<std::uintptr_t>(this))),
      labelled_(labelled) {
  if (!make_new_file(part_)) fail();
  stream_.open(part_, std::ios::binary);
  const Header header{};
  stream_.write(reinterpret_cast<const char*>(&header), sizeof header);
  if (!stream_) fail();
}

TokenStoreWriter::~TokenStoreWriter() {
  std::error_code error;
  fs::remove(part_, error);
}

void TokenStoreWriter::fail() const {
  throw Error(Diagnostic{"cannot-write"}
                  .says("tokens cannot be kept in '{}': {}", file_.parent_path().native(), std::strerror(errno))
                  .hint("set {} to a folder that is yours and has room",
                        file_.parent_path() == temporary_folder() ? "TMPDIR" : "dataset.cache_dir"));
}

void TokenStoreWriter::add(std::span<const std::int32_t> ids) {
  stream_.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size_bytes()));
  if (!stream_) fail();
  tokens_ += ids.size();
}

void TokenStoreWriter::add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
  AUTOMODEL_CHECK(labelled_ && ids.size() == labels.size(), "one label a token");
  add(ids);
  stream_.write(reinterpret_cast<const char*>(labels.data()), static_cast<std::streamsize>(labels.size_bytes()));
  if (!stream_) fail();
  end_row();
}

TokenStore TokenStoreWriter::finish(bool keep) {
  const std::int32_t padding = 0;
  if (!labelled_ && tokens_ % 2 != 0) stream_.write(reinterpret_cast<const char*>(&padding), sizeof padding);
  stream_.write(reinterpret_cast<const char*>(ends_.data()), static_cast<std::streamsize>(ends_.size() * 8));
  const Header header{kMagic, ends_.size(), tokens_, labelled_ ? 1u : 0u};
  stream_.seekp(0);
  stream_.write(reinterpret_cast<const char*>(&header), sizeof header);
  stream_.close();
  if (!stream_) fail();
  auto out = TokenStore::open(part_);
  if (!out) fail();
  std::error_code error;
  if (keep) fs::rename(part_, file_, error);
  if (error) fail();
  return std::move(*out);
}

fs::path token_cache_folder(const std::optional<std::string>& configured) {
  if (configured) return *configured;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0)
    return fs::path(cache) / "automodel" / "tokens";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
    return fs::path(home) / ".cache" / "automodel" / "tokens";
  return temporary_folder() / "automodel-tokens";
}

TokenStore cached_tokens(const fs::path& folder, const std::string& name, bool labelled,
                         const std::function<bool(TokenStoreWriter&)>& fill) {
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path file = folder / (name + ".tokens");
  if (auto found = TokenStore::open(file)) return std::move(*found);
  const Lock lock(folder / (name + ".lock"));
  if (auto found = TokenStore::open(file)) return std::move(*found);
  TokenStoreWriter writer(file, labelled);
  const bool keep = fill(writer);
  return writer.finish(keep);
}

TokenStore uncached_tokens(bool labelled, const std::function<bool(TokenStoreWriter&)>& fill) {
  TokenStoreWriter writer(temporary_folder() / "automodel.tokens", labelled);
  fill(writer);
  return writer.finish(false);
}

}  // namespace automodel::data
