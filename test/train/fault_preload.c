// Loaded before a rank's libraries (LD_PRELOAD) by soak.py: two numbers in a file shared by all ranks shift a rank's clock
// and slow its disk down while it runs. Steady time is not changed, as when a real clock is set.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct Faults {
  volatile int64_t clock_seconds;   // added to the time of day
  volatile int64_t disk_milliseconds;  // delay of each sync to the disk
};
static const struct Faults kNone = {0, 0};
static const volatile struct Faults* faults = &kNone;
static int (*real_clock)(clockid_t, struct timespec*);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

__attribute__((constructor)) static void open_faults(void) {
  real_clock = dlsym(RTLD_NEXT, "clock_gettime");
  real_fsync = dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  const char* path = getenv("SOAK_FAULTS");
  const int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* page = mmap(NULL, sizeof(struct Faults), PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) faults = page;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec* out) {
  const int result = real_clock(clock, out);
  if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec += faults->clock_seconds;
  return result;
}
int gettimeofday(struct timeval* restrict out, void* restrict zone) {
  (void)zone;
  struct timespec now;
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  if (result == 0) *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return result;
}
time_t time(time_t* out) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

static void wait_for_disk(void) {
  const int64_t left = faults->disk_milliseconds;
  if (left > 0) usleep((useconds_t)(left * 1000));
}
int fsync(int file) {
  wait_for_disk();
  return real_fsync(file);
}
int fdatasync(int file) {
  wait_for_disk();
  return real_fdatasync(file);
}
