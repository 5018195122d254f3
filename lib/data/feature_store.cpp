#include "data/feature_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
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

std::vector<fs::path> files_in(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& each : fs::directory_iterator(folder, error))
    if (each.path().extension() == kFeatureExtension && each.path().filename().native().starts_with(prefix))
      out.push_back(each.path());
  std::ranges::sort(out);
  return out;
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
  std::uint64_t offset = sizeof header;
  for (std::size_t i = 0; i < header.pictures; ++i) {
    Record record{};
    std::memcpy(&record, records.data() + i * sizeof record, sizeof record);
    if (record.bytes > sizeof header + header.data - offset) return false;
    entries_.insert_or_assign(record.picture,
                              Entry{files_.size(), offset, record.bytes, static_cast<std::uint32_t>(record.checksum)});
    offset += record.bytes;
  }
  bytes_ += text.size();
  row_ = header.row;
  files_.emplace_back(path, std::move(*file));
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
  // A new file, so that in a folder that others write to no link of theirs is followed; hosts may share process ids.
  part_ = folder_ / fmt::format("{}.part{}-{:08x}", key_, getpid(), std::random_device()());
  const int file = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) fail();
  close(file);
  stream_.open(part_, std::ios::binary);
  const FeatureHeader header{};
  write(bytes_of(&header, 1));
}

FeatureWriter::~FeatureWriter() {
  std::error_code error;
  fs::remove(part_, error);
}

void FeatureWriter::fail() const {
  throw Error(
      ExitCode::kEnvironment,
      Diagnostic{"cannot-write"}
          .says("outputs of the tower cannot be kept in '{}': {}", folder_.native(), std::strerror(errno))
          .hint("set dataset.cache_dir to a folder that is yours and has room, or dataset.cache_features: false")
          .of("dataset.cache_features"));
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

double bytes_of_features(const fs::path& folder) {
  double out = 0;
  std::error_code error;
  for (const auto& path : files_in(folder, "")) {
    const auto size = fs::file_size(path, error);
    if (!error) out += static_cast<double>(size);
  }
  return out;
}

}  // namespace automodel::data
