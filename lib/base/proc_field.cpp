#include "base/proc_field.h"

#include <cstdlib>
#include <fstream>
#include <string>

namespace automodel {

double proc_field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':')
      return std::atof(line.c_str() + name.size() + 1) * 1024;
  return 0;
}

}  // namespace automodel
