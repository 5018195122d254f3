// Preloaded into the mpirun that --nproc-per-node starts, and into nothing else: its ranks are on this host, but Open
// MPI 4 opens a port for daemons of other hosts on every interface, whatever oob_tcp_if_include says, and has no
// setting for that. Here a socket that would listen on every interface listens on the loopback interface.
#include <cstring>

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

extern "C" int bind(int socket, const sockaddr* address, socklen_t size) {
  using Bind = int (*)(int, const sockaddr*, socklen_t);
  static const auto next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  sockaddr_storage copy{};
  if (address != nullptr && size <= sizeof(copy)) {
    std::memcpy(&copy, address, size);
    if (copy.ss_family == AF_INET && size >= sizeof(sockaddr_in)) {
      auto& ip = reinterpret_cast<sockaddr_in&>(copy).sin_addr;
      if (ip.s_addr == htonl(INADDR_ANY)) ip.s_addr = htonl(INADDR_LOOPBACK);
    }
    if (copy.ss_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
      auto& ip = reinterpret_cast<sockaddr_in6&>(copy).sin6_addr;
      if (IN6_IS_ADDR_UNSPECIFIED(&ip)) ip = in6addr_loopback;
    }
    address = reinterpret_cast<const sockaddr*>(&copy);
  }
  return next(socket, address, size);
}
