// Reads files of the repository, for tests that compare the documentation with the program.
#pragma once

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace automodel::test {

namespace fs = std::filesystem;

inline fs::path repository() {
  return AUTOMODEL_SOURCE_DIR;
}

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Files below the folders of the repository with one of these extensions, in order.
inline std::vector<fs::path> files_below(std::initializer_list<const char*> folders,
                                         const std::set<std::string>& extensions) {
  std::set<fs::path> out;
  for (const auto* folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(repository() / folder))
      if (entry.is_regular_file() && extensions.contains(entry.path().extension().string())) out.insert(entry.path());
  return {out.begin(), out.end()};
}

/// Every row of every table of a page, as cells without surrounding blanks; header rows and rules are left out.
inline std::vector<std::vector<std::string>> table_rows(const std::string& page) {
  std::vector<std::vector<std::string>> out;
  std::size_t begin = 0;
  bool head = true;
  while (begin < page.size()) {
    const auto end = std::min(page.find('\n', begin), page.size());
    const std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with("|")) {
      head = true;
      continue;
    }
    const bool rule = line.find_first_not_of("|-: ") == std::string::npos;
    if (rule) head = false;
    if (rule || head) continue;
    std::vector<std::string> cells;
    std::string cell;
    for (std::size_t i = 1; i < line.size(); ++i) {
      if (line[i] == '|' && line[i - 1] != '\\') {
        const auto first = cell.find_first_not_of(' ');
        cells.push_back(first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
        cell.clear();
      } else {
        cell += line[i];
      }
    }
    out.push_back(std::move(cells));
  }
  return out;
}

/// The words in backticks of the first column of every table.
inline std::set<std::string> first_column(const std::string& page) {
  static const std::regex word("`([^`]+)`");
  std::set<std::string> out;
  for (const auto& cells : table_rows(page))
    for (std::sregex_iterator it(cells.at(0).begin(), cells.at(0).end(), word), end; it != end; ++it)
      out.insert((*it)[1]);
  return out;
}

}  // namespace automodel::test
