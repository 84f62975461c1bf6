/* Preloaded into a process: moves its wall clock and delays its reads of regular files, as a mapped file says.

   The file that $DISTURB names holds two numbers of 64 bits, which may change at any moment: by how many seconds the
   wall clock is off, and for how many microseconds each read waits. The monotonic clock is left alone, as it is when
   somebody sets a machine's clock. Deadlines by the wall clock are given to the kernel without the offset. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t nothing[2];
static volatile int64_t *control = nothing;

__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv("DISTURB");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof nothing, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) control = mapped;
    close(file);
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int status = real(clock, now);
    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += control[0];
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int status = real(now, zone);
    if (!status) now->tv_sec += control[0];
    return status;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

static struct timespec true_deadline(const struct timespec *deadline) {
    struct timespec corrected = *deadline;
    if (corrected.tv_sec > 1000000000) corrected.tv_sec -= control[0]; /* else it is of the monotonic clock */
    return corrected;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    REAL(pthread_cond_timedwait);
    struct timespec corrected = true_deadline(deadline);
    return real(condition, mutex, &corrected);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    REAL(sem_timedwait);
    struct timespec corrected = true_deadline(deadline);
    return real(semaphore, &corrected);
}

static void delay(int file) {
    struct stat facts;
    int before = errno;
    if (control[1] && !fstat(file, &facts) && S_ISREG(facts.st_mode)) usleep((useconds_t)control[1]);
    errno = before;
}

ssize_t read(int file, void *buffer, size_t size) {
    REAL(read);
    delay(file);
    return real(file, buffer, size);
}

ssize_t pread(int file, void *buffer, size_t size, off_t offset) {
    REAL(pread);
    delay(file);
    return real(file, buffer, size, offset);
}

ssize_t pread64(int file, void *buffer, size_t size, off64_t offset) {
    REAL(pread64);
    delay(file);
    return real(file, buffer, size, offset);
}
