// A file's bytes, memory-mapped.
#pragma once

#include <filesystem>
#include <string_view>

namespace automodel::data {

/// Read-only mapping of a whole file; pages are faulted in from the page cache on access. The file must not shrink
/// while it is mapped.
class MappedFile {
 public:
  /// Throws std::system_error if the file cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::string_view text() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace automodel::data
