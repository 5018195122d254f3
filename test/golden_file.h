// Reads recorded values.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace automodel::test {

inline nlohmann::json golden(const std::string& name) {
  const std::string path = std::string(AUTOMODEL_GOLDEN_DIR) + "/" + name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::json::parse(file);
}

}  // namespace automodel::test
