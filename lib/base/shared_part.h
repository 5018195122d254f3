// Parts of the program in shared objects of their own, which are opened only where they are needed: those that read
// tables and pictures, the CUDA half, what is preloaded into mpirun.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace automodel {

/// The folder of the running executable.
std::filesystem::path program_folder();
/// Where a part may be, seen from the executables' `folder`: beside them, where `cmake --install` puts it, and where a
/// build has it, seen from the tests.
std::vector<std::filesystem::path> part_places(const std::filesystem::path& folder, const std::string& file);
/// "'A', 'B'", for a message.
std::string shown_places(const std::vector<std::filesystem::path>& places);
/// The first of these that exists, or an empty path.
std::filesystem::path first_that_exists(const std::vector<std::filesystem::path>& places);
/// The folder from which a shared object that is open was loaded.
std::filesystem::path folder_of_object(void* handle);

/// A part's interface, or why it cannot be used.
template <class Interface>
struct Part {
  const Interface* interface = nullptr;
  std::string reason = {};  ///< empty if there is no file
};

/// Calls the function `entry` of a shared object, which is never closed: what it mapped may be in use until exit. Null
/// after setting `reason`.
const void* open_part(const std::filesystem::path& file, const char* entry, std::string& reason);
std::string other_version(const std::filesystem::path& file);

/// Opens the first of these files, whose `entry` gives an Interface with its `version` first.
template <class Interface>
Part<Interface> open_part(const std::vector<std::filesystem::path>& places, const char* entry, int version) {
  Part<Interface> out;
  const auto file = first_that_exists(places);
  if (file.empty()) return out;
  const auto* found = static_cast<const Interface*>(open_part(file, entry, out.reason));
  if (found != nullptr && found->version == version)
    out.interface = found;
  else if (out.reason.empty())
    out.reason = other_version(file);
  return out;
}

}  // namespace automodel
