#include "metrics/append_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

namespace automodel::metrics {
namespace {

constexpr std::size_t kMostWaiting = 1 << 20;  // 3,000 steps

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, Mode mode) : path_(std::move(path)) {
  const int extra = mode == Mode::kNew ? O_EXCL : 0;
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | extra, 0666);
  // Who may write to a shared folder must not choose what this user appends to.
  if (file_ < 0) fail_unwritable(path_, errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
}

AppendFile::~AppendFile() {
  if (!waiting_.empty()) write_waiting();
  close(file_);
}

void AppendFile::truncate(std::int64_t size) {
  waiting_.clear();
  if (ftruncate(file_, static_cast<off_t>(size)) != 0) fail_unwritable(path_, std::strerror(errno));
}

void AppendFile::append(std::string_view record) {
  if (waiting_.size() + record.size() > kMostWaiting) waiting_.clear();
  waiting_ += record;
  write_waiting();
}

void AppendFile::write_waiting() {
  const off_t before = lseek(file_, 0, SEEK_END);
  ssize_t written = 0;
  do {
    written = write(file_, waiting_.data(), waiting_.size());
  } while (written < 0 && errno == EINTR);
  const bool failed = written != static_cast<ssize_t>(waiting_.size());
  if (failed && !failing_)
    log::warning(fmt::format("'{}' cannot be written ({}); its newest records stay in memory until it can",
                             path_.native(), written < 0 ? std::strerror(errno) : "the disk is full"));
  if (failed && written > 0 && ftruncate(file_, before) != 0)
    log::debug(fmt::format("'{}' ends in half a record", path_.native()));
  if (!failed) waiting_.clear();
  failing_ = failed;
}

void fail_unwritable(const std::filesystem::path& path, const std::string& reason) {
  throw Error(Diagnostic{"unwritable-file"}
                  .says("'{}' cannot be written: {}", path.native(), reason)
                  .hint("checkpoint.checkpoint_dir must be a folder that can be written to")
                  .at({path.native(), 0, 0})
                  .of("checkpoint.checkpoint_dir"));
}

}  // namespace automodel::metrics
