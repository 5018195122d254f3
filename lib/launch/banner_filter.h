// What mpirun prints between two rules about the end of its ranks, kept apart from what the ranks print.
#pragma once

#include <string>
#include <string_view>

namespace automodel::launch {

/// Where a rank has said why it ended, ten lines of the launcher behind it hide that.
class BannerFilter {
 public:
  /// What of `text`, the next piece of standard error, is not a banner.
  std::string pass(std::string_view text);
  /// At the end: what was held back and is not a banner.
  std::string rest();
  const std::string& banners() const { return banners_; }

 private:
  void take_line(std::string& out);

  std::string line_ = {};   ///< an incomplete line that may become a rule
  std::string block_ = {};  ///< from a rule on
  std::string banners_ = {};
  bool streaming_ = false;  ///< the beginning of this line was passed on
};

}  // namespace automodel::launch
