#include "data/mapped_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"

namespace automodel::data {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int file = open_regular(path);
  if (file < 0) throw std::system_error(errno, std::generic_category(), path.native());
  struct stat status {};
  int error = fstat(file, &status) == 0 ? 0 : errno;
  if (error == 0 && status.st_size > 0) {  // an empty file cannot be mapped, and needs no memory
    size_ = static_cast<std::size_t>(status.st_size);
    void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED)
      error = errno;
    else
      data_ = static_cast<const char*>(memory);
  }
  close(file);
  if (error != 0) throw std::system_error(error, std::generic_category(), path.native());
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace automodel::data
