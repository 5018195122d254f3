#include "data/feature_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/file_text.h"
#include "base/find_file.h"
#include "data/content_hash.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kFeatureMagic = {'A', 'M', 'F', 'E', 'A', 'T', '1', '\n'};
constexpr const char* kFeatureExtension = ".features";

struct FeatureHeader {
  std::array<char, 8> magic;
  std::uint64_t row;       ///< bytes
  std::uint64_t data;      ///< bytes of all rows
  std::uint64_t pictures;  ///< records behind them
  std::uint32_t records;   ///< their checksum
  std::uint32_t checksum;  ///< of the above
};

template <class T>
std::string_view bytes_of(const T* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

std::uint32_t checksum_of(const FeatureHeader& header) {
  return crc32c(bytes_of(&header, 1).substr(0, offsetof(FeatureHeader, checksum)));
}

/// Why a folder cannot be made or written to, as errno says it; 0: it can.
int why_closed(const fs::path& folder) {
  const auto nearest = nearest_folder(folder);
  std::error_code error;
  if (!fs::is_directory(nearest, error)) return ENOTDIR;
  // Of the effective user, and on a file system that is mounted for reading even root is told no.
  return faccessat(AT_FDCWD, nearest.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

Diagnostic cannot_keep(const fs::path& folder, int why) {
  return Diagnostic{"cannot-write"}
      .says("outputs of the tower cannot be kept in '{}': {}", folder.native(), std::strerror(why))
      .hint("set dataset.cache_dir to a folder that is yours and has room, or dataset.cache_features: false")
      .of("dataset.cache_features");
}

std::vector<fs::path> files_in(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& each : fs::directory_iterator(folder, error))
    if (each.path().extension() == kFeatureExtension && each.path().filename().native().starts_with(prefix))
      out.push_back(each.path());
  std::ranges::sort(out);
  return out;
}

/// Removes unfinished files of a key. Not those that another process may still write: it may be on another host, which
/// only their age tells, and one that writes does so every few seconds.
void remove_old_parts(const fs::path& folder, const std::string& prefix) {
  constexpr std::chrono::hours kDead{24};
  std::error_code error;
  for (const auto& each : fs::directory_iterator(folder, error)) {
    if (!each.path().filename().native().starts_with(prefix)) continue;
    const auto written = fs::last_write_time(each.path(), error);
    if (!error && fs::file_time_type::clock::now() - written > kDead) fs::remove(each.path(), error);
  }
}

}  // namespace

FeatureStore::FeatureStore(const fs::path& folder, const std::string& key) {
  for (const auto& path : files_in(folder, key + "-"))
    if (!add(path)) damaged_.push_back(path);
}

bool FeatureStore::add(const fs::path& path) {
  std::optional<MappedFile> file;
  try {
    file.emplace(path);
  } catch (const std::system_error&) {
    return false;
  }
  const auto text = file->text();
  FeatureHeader header{};
  if (text.size() < sizeof header) return false;
  std::memcpy(&header, text.data(), sizeof header);
  if (header.magic != kFeatureMagic || header.checksum != checksum_of(header)) return false;
  // Dividing rather than multiplying: sizes of a file that was changed must not overflow.
  using Record = FeatureWriter::Record;
  const std::uint64_t room = text.size() - sizeof header;
  if (header.data > room || header.pictures != (room - header.data) / sizeof(Record) ||
      (room - header.data) % sizeof(Record) != 0 || header.row == 0)
    return false;
  const auto records = text.substr(sizeof header + header.data);
  if (crc32c(records) != header.records) return false;
  if (!files_.empty() && header.row != row_) return false;
  // Anyone who may write to the folder can make valid checksums, so nothing counts before all of it is seen to be
  // sound.
  std::map<pictures::PictureContent, Entry> entries;
  std::uint64_t offset = sizeof header, left = header.data;
  for (std::size_t i = 0; i < header.pictures; ++i) {
    Record record{};
    std::memcpy(&record, records.data() + i * sizeof record, sizeof record);
    if (record.bytes == 0 || record.bytes > left || record.bytes % header.row != 0) return false;
    entries.insert_or_assign(record.picture,
                             Entry{files_.size(), offset, record.bytes, static_cast<std::uint32_t>(record.checksum)});
    offset += record.bytes;
    left -= record.bytes;
  }
  if (left != 0) return false;
  row_ = header.row;
  files_.emplace_back(path, std::move(*file));
  for (const auto& [picture, entry] : entries) entries_.insert_or_assign(picture, entry);
  return true;
}

std::string_view FeatureStore::read(const pictures::PictureContent& picture) const {
  const auto found = entries_.find(picture);
  AUTOMODEL_CHECK(found != entries_.end(), "outputs of every picture were computed before training");
  const auto& [file, offset, bytes, checksum] = found->second;
  const auto& [path, mapped] = files_[file];
  const auto out = mapped.text().substr(offset, bytes);
  if (crc32c(out) == checksum) return out;
  throw Error(ExitCode::kEnvironment,
              Diagnostic{"features-damaged"}
                  .says("'{}' is damaged: outputs of a picture have another checksum", path.native())
                  .hint("remove the file; the next run computes what it held"));
}

FeatureWriter::FeatureWriter(fs::path folder, std::string key, std::uint64_t row)
    : folder_(std::move(folder)), key_(std::move(key)), row_(row) {
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
  remove_old_parts(folder_, key_ + ".part");
  // Hosts may share process ids.
  part_ = folder_ / fmt::format("{}.part{}-{:08x}", key_, getpid(), std::random_device()());
  if (!make_new_file(part_)) fail();
  stream_.open(part_, std::ios::binary);
  const FeatureHeader header{};
  write(bytes_of(&header, 1));
}

FeatureWriter::~FeatureWriter() {
  std::error_code error;
  fs::remove(part_, error);
}

void FeatureWriter::fail() const {
  throw Error(ExitCode::kEnvironment, cannot_keep(folder_, errno));
}

void FeatureWriter::write(std::string_view bytes) {
  stream_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!stream_) fail();
}

void FeatureWriter::add(const pictures::PictureContent& picture, std::string_view rows) {
  write(rows);
  written_ += rows.size();
  records_.push_back({picture, rows.size(), crc32c(rows)});
}

void FeatureWriter::finish() {
  const auto records = bytes_of(records_.data(), records_.size());
  write(records);
  FeatureHeader header{kFeatureMagic, row_, written_, records_.size(), crc32c(records), 0};
  header.checksum = checksum_of(header);
  stream_.seekp(0);
  write(bytes_of(&header, 1));
  stream_.close();
  if (!stream_) fail();
  ContentHash name;
  name.add(records);
  std::error_code error;
  fs::rename(part_, folder_ / fmt::format("{}-{}{}", key_, name.hex().substr(0, 16), kFeatureExtension), error);
  if (error) fail();
}

std::optional<Diagnostic> closed_to_features(const fs::path& folder) {
  const int why = why_closed(folder);
  if (why == 0) return std::nullopt;
  return cannot_keep(folder, why);
}

}  // namespace automodel::data
