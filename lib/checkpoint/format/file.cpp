#include "checkpoint/format/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_text.h"

namespace automodel::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestTransfer = std::uint64_t{1} << 30;  // read(2) and write(2) transfer at most 2 GiB

const char* advice(int error) {
  if (error == ENOSPC || error == EDQUOT) return "free space on this disk, or keep fewer checkpoints";
  if (error == EFBIG) return "raise the limit on the size of files (ulimit -f)";
  if (error == EROFS || error == EACCES || error == EPERM) return "choose a folder that can be written to";
  if (error == EIO) return "the disk or the network file system reports an error";
  return "the folder must exist and be yours to use";
}

Diagnostic unreadable(const std::filesystem::path& path, const std::string& reason) {
  return Diagnostic{"cannot-read"}.says("'{}' cannot be read: {}", path.native(), reason).at({path.native(), 0, 0});
}

/// Throws unless the error is none, or says that there is nothing with this name.
void check_known(const std::filesystem::path& path, const std::error_code& error) {
  for (const int nothing : {0, ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP})
    if (error.value() == nothing) return;
  throw Error(ExitCode::kCheckpoint, unreadable(path, error.message()).hint(advice(error.value())));
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  check_known(path, error);
  return found;
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  check_known(folder, error);
  return out;
}

void fail_unwritable(const std::string& what, int error) {
  throw Error(ExitCode::kCheckpoint,
              Diagnostic{"cannot-write"}.says("{}: {}", what, std::strerror(error)).hint(advice(error)));
}

std::optional<InputFile> InputFile::open(const std::filesystem::path& path, Diagnostics& problems) {
  InputFile file;
  file.path_ = path;
  file.descriptor_ = open_regular(path);
  struct stat status {};
  if (file.descriptor_ < 0 || fstat(file.descriptor_, &status) != 0) {
    const bool other = errno == EINVAL || errno == EISDIR;
    problems.push_back(unreadable(path, other ? "it is not a file" : std::strerror(errno)));
    return std::nullopt;
  }
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

void InputFile::read(std::uint64_t offset, char* out, std::uint64_t size) const {
  while (size > 0) {
    const auto got = pread(descriptor_, out, std::min(size, kLargestTransfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error(ExitCode::kCheckpoint,
                  unreadable(path_, got < 0 ? fmt::format("offset {}: {}", offset, std::strerror(errno))
                                            : fmt::format("it ends at offset {}", offset)));
    out += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::uint64_t>(got);
  }
}

OutputFile::OutputFile(std::filesystem::path path, Mode mode) : path_(std::move(path)) {
  const int extra = mode == Mode::kCreate ? O_CREAT | O_EXCL : 0;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | extra, 0666);
  if (descriptor_ < 0) fail(mode == Mode::kCreate ? "cannot be made" : "cannot be opened", errno);
}

OutputFile::~OutputFile() {
  close(descriptor_);
}

void OutputFile::fail(const std::string& what, int error) const {
  fail_unwritable(fmt::format("'{}' {}", path_.native(), what), error);
}

void OutputFile::lengthen(std::uint64_t size) {
  if (ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail(fmt::format("cannot have {} bytes", size), errno);
}

void OutputFile::reserve(std::uint64_t size) {
  lengthen(size);
  if (size == 0 || fallocate(descriptor_, 0, 0, static_cast<off_t>(size)) == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) fail(fmt::format("cannot have {} bytes", size), errno);
}

void OutputFile::write(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written =
        pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kLargestTransfer), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(fmt::format("cannot be written at offset {}", offset), written < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void OutputFile::sync() {
  if (fsync(descriptor_) != 0) fail("cannot be flushed to the disk", errno);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path, OutputFile::Mode::kCreate);
  file.write(0, text);
  file.sync();
}

std::optional<std::string> read_file(const std::filesystem::path& path, Diagnostics& problems, std::uint64_t longest) {
  const auto file = InputFile::open(path, problems);
  if (!file) return std::nullopt;
  if (file->size() > longest) {
    problems.push_back(unreadable(path, fmt::format("{} bytes are more than such a file can have", file->size())));
    return std::nullopt;
  }
  std::string text(file->size(), '\0');
  file->read(0, text.data(), text.size());
  return text;
}

void make_folder(const std::filesystem::path& path) {
  if (mkdir(path.c_str(), 0777) != 0)
    fail_unwritable(fmt::format("the folder '{}' cannot be made", path.native()), errno);
}

void sync_folder(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_unwritable(fmt::format("the folder '{}' cannot be opened", path.native()), errno);
  const int failed = fsync(descriptor) != 0 ? errno : 0;
  close(descriptor);
  // Some file systems cannot flush a folder; there is nothing more to be done then.
  if (failed != 0 && failed != EINVAL && failed != ENOTSUP)
    fail_unwritable(fmt::format("the folder '{}' cannot be flushed to the disk", path.native()), failed);
}

void require_new(const fs::path& out, std::string_view kind) {
  if (is_there(out))
    throw Error(Diagnostic{"bad-value"}
                    .says("'{}' exists", out.native())
                    .hint("name a new {}", kind)
                    .at({"command line", 0, 0}));
}

void make_new(const fs::path& out, const std::function<void(const fs::path&)>& write) {
  auto partial = out;
  partial += ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  if (out.has_parent_path()) fs::create_directories(out.parent_path(), error);
  try {
    write(partial);
    if (rename(partial.c_str(), out.c_str()) != 0)
      fail_unwritable(fmt::format("'{}' cannot be renamed to '{}'", partial.native(), out.native()), errno);
  } catch (...) {
    fs::remove_all(partial, error);
    throw;
  }
}

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFFU);
  return out;
}

}  // namespace automodel::checkpoint
