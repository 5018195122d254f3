#include "metrics/write_all.h"

#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace automodel::metrics {

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{file, POLLOUT, 0};
      poll(&ready, 1, 1000);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace automodel::metrics
